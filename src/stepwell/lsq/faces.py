"""One bounded least-squares problem with equalities, exactly: an active-set method on faces of the box.

    min ‖Mx − f‖²   subject to   Ex = e,  l ≤ x ≤ u,   from an x that satisfies both

Variables at bounds stay there while the others move to the minimum on their face, where the next variable meets a bound
or, at last, none does. There the gradient is projected onto the directions that equalities and bounds leave. If nothing
is left, x is a solution and the multipliers prove it. Else x moves along that projection, which frees the variables
that it moves. The projection makes a step possible where more constraints meet than there are variables, and the
objective falls each time, so that no face comes twice.

Equalities hold at every point on the way. This is for the few systems that the method of multipliers does not finish
(`stepwell.lsq.equalities`): dense linear algebra on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

EPS = float(np.finfo(float).eps)
#: Rounding errors of a sum of products, in ulp of the sum of their sizes: what counts as none left.
ROUNDINGS = 16
#: What the length of a step weighs beside the equalities that it is to restore.
SHORT = 1e-6

Projector = Callable[[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]], np.ndarray]


class Found(NamedTuple):
    """Where the method ended."""

    x: np.ndarray
    multipliers: np.ndarray  # of the equalities: Mᵀ(f − Mx) + Eᵀμ is 0 between bounds
    state: np.ndarray  # −1 and 1 at the lower and the upper bound, 0 between, 2 where they are equal
    turns: int


class _Scaled(NamedTuple):
    """The problem with columns of length one, y = cx, and equalities whose largest coefficient is one.

    Coefficients keep all their digits, however small beside others. (Orthonormal rows would not: their rounding errors
    are as large as those of the largest.)
    """

    M: np.ndarray
    rows: np.ndarray  # of the equalities, zero where a variable is fixed
    right: np.ndarray  # what rows y are to be
    independent: np.ndarray  # which rows do not depend on others
    sizes: np.ndarray  # what rows were divided by
    lower: np.ndarray
    upper: np.ndarray
    columns: np.ndarray  # c


def solve_on_faces(
    M: np.ndarray,
    f: np.ndarray,
    E: np.ndarray,
    e: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    x: np.ndarray,
    project: Projector,
    max_turns: int,
) -> Found:
    """Solve from a feasible x; `project` is a bounded least-squares solver ``(A, b, (lower, upper)) -> x``.

    Examples
    --------
    >>> from scipy.optimize import lsq_linear
    >>> f, E, e = np.array([3.0, 1.0, -1.0]), np.array([[1.0, -1.0, 0.0]]), np.zeros(1)
    >>> box, start = (np.zeros(3), np.full(3, 3.0)), np.ones(3)
    >>> found = solve_on_faces(np.eye(3), f, E, e, *box, start, lambda A, b, ends: lsq_linear(A, b, ends).x, 100)
    >>> found.x, found.multipliers, found.state
    (array([2., 2., 0.]), array([-1.]), array([ 0,  0, -1], dtype=int8))
    """
    s = _scaled(M, E, e, lower, upper)
    y = np.clip(s.columns * x, s.lower, s.upper)
    fixed = s.lower == s.upper
    free = (y > s.lower) & (y < s.upper)
    turns = 0
    before: tuple[np.ndarray, np.ndarray] | None = None
    nu = np.zeros(len(E))
    while turns < max_turns:
        turns += 1
        step, blocked = _to_face_minimum(s, f, y, free)
        y, free = step, free & ~blocked
        if blocked.any():
            continue
        y, free = _restored(s, y, free, project)
        gradient = s.M.T @ (f - s.M @ y)
        left, nu = _projected(s, gradient, y, free, fixed, project)
        noise = ROUNDINGS * EPS * (np.linalg.norm(f) + np.abs(y).sum() + np.abs(s.rows.T) @ np.abs(nu))
        if np.all(np.abs(left) <= noise) or not _is_lower(s, y, before):
            break
        step = _tangent(s, left, y, free)
        off = np.abs(s.rows @ step).max(initial=0.0) > ROUNDINGS * EPS**0.5 * np.abs(step).max()
        if off or step @ gradient < 0.5 * (left @ left):
            break  # rounding errors of the multipliers are all that is left
        before = y, gradient
        y, free = _along(s, step, gradient, y)
        free &= ~fixed
    y, free = _restored(s, y, free, project)
    return _unscaled(s, y, nu / s.sizes, lower, upper, turns)


def column_lengths(M: np.ndarray) -> np.ndarray:
    """Return the lengths of columns, of numbers whose squares may over- or underflow."""
    largest = np.abs(M).max(axis=0, initial=0.0)
    safe = np.where(largest > 0, largest, 1.0)
    lengths: np.ndarray = safe * np.sqrt(((M / safe) ** 2).sum(axis=0))
    return np.where(largest > 0, lengths, 0.0)


def _scaled(M: np.ndarray, E: np.ndarray, e: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> _Scaled:
    from scipy.linalg import qr

    columns = column_lengths(M)
    some = columns[columns > 0]
    columns = np.where(columns > 0, columns, some.min() if some.size else 1.0)
    movable = lower < upper
    rows, sizes = _equilibrated(np.where(movable, E / columns, 0.0))
    right = (e - E @ np.where(movable, 0.0, lower)) / sizes
    R, order = qr(rows.T, mode="r", pivoting=True)
    lengths = np.abs(np.diag(R))
    rank = int(np.sum(lengths > ROUNDINGS * max(E.shape) * EPS * lengths.max(initial=0.0)))
    independent = np.sort(order[:rank])
    return _Scaled(M / columns, rows, right, independent, sizes, lower * columns, upper * columns, columns)


def _equilibrated(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows whose largest entry is one, and what they were divided by."""
    sizes = np.abs(rows).max(axis=1, initial=0.0)
    sizes = np.where(sizes > 0, sizes, 1.0)
    return rows / sizes[:, None], sizes


def _least(rows: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the shortest vector that rows, of whatever sizes, map to the right side, or next to it."""
    rows, sizes = _equilibrated(rows)
    found: np.ndarray = np.linalg.lstsq(rows, right / sizes, rcond=ROUNDINGS * max(rows.shape) * EPS)[0]
    return found


def _to_face_minimum(s: _Scaled, f: np.ndarray, y: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the minimum on a face, or the point before it where variables meet bounds, and which do."""
    nobody = np.zeros_like(free)
    if not free.any():
        return y, nobody
    basis = _null_space(s.rows[:, free])
    if not basis.shape[1]:
        return y, nobody
    part = np.linalg.lstsq(s.M[:, free] @ basis, f - s.M @ y, rcond=EPS * max(s.M.shape))[0]
    step = np.zeros_like(y)
    step[free] = basis @ part
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        room = np.where(step < 0, (s.lower - y) / step, np.where(step > 0, (s.upper - y) / step, np.inf))
    length = float(room.min(initial=np.inf))
    if length >= 1:
        return np.clip(y + step, s.lower, s.upper), nobody
    met = free & (room <= length)
    moved = np.clip(y + length * step, s.lower, s.upper)
    moved = np.where(met, np.where(step < 0, s.lower, s.upper), moved)
    return moved, met


def _is_lower(s: _Scaled, y: np.ndarray, before: tuple[np.ndarray, np.ndarray] | None) -> bool:
    """Whether the objective has fallen since a point with its gradient: from the step, which says more than values."""
    if before is None:
        return True
    step = y - before[0]
    image = s.M @ step
    return float(image @ image - 2 * (step @ before[1])) < 0


def _null_space(rows: np.ndarray) -> np.ndarray:
    """Return orthonormal columns that span the vectors which rows map to zero."""
    _, sizes, V = np.linalg.svd(_equilibrated(rows)[0])
    rank = int(np.sum(sizes > ROUNDINGS * max(rows.shape) * EPS * sizes.max(initial=0.0)))
    return np.ascontiguousarray(V[rank:].T)


def _projected(
    s: _Scaled, gradient: np.ndarray, y: np.ndarray, free: np.ndarray, fixed: np.ndarray, project: Projector
) -> tuple[np.ndarray, np.ndarray]:
    """Return what of the direction of descent equalities and bounds leave, and the multipliers of the equalities.

    min ‖g + Eᵀν + z‖ over ν and over z that is ≥ 0 at lower bounds, ≤ 0 at upper bounds, and 0 between.
    """
    movable = ~fixed
    sign = np.where(free, 0.0, np.where(y <= s.lower, 1.0, -1.0))[movable]
    held = np.flatnonzero(sign)
    g, rows = gradient[movable], s.rows[s.independent][:, movable]
    count, size = len(rows), float(np.abs(g).max(initial=0.0)) or 1.0
    between, sizes = _equilibrated(rows[:, sign == 0])
    pull, left = np.zeros(count), g
    for _ in range(2):  # the second time takes off the rounding errors of the first
        pull = pull + np.linalg.lstsq(between.T, -left[sign == 0], rcond=EPS * max(s.M.shape))[0] / sizes
        left = g + rows.T @ pull
    if np.any(sign * left > ROUNDINGS * EPS * (size + np.abs(rows.T) @ np.abs(pull))):
        pushes = np.zeros((g.size, held.size))
        pushes[held, np.arange(held.size)] = sign[held]
        none, zero = np.full(count + held.size, np.inf), np.zeros(held.size)
        ends = np.concatenate([-none[:count], zero]), none
        pull = size * project(np.column_stack([rows.T, pushes]), -g / size, ends)[:count]
        left = g + rows.T @ pull
    left = np.where(sign * left < 0, 0.0, left)
    whole = np.zeros_like(y)
    whole[movable] = left
    nu = np.zeros(len(s.rows))
    nu[s.independent] = pull
    return whole, nu


def _along(s: _Scaled, step: np.ndarray, gradient: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest point within the bounds along a direction of descent, and what is between bounds there."""
    image = s.M @ step
    square = float(image @ image)
    length = float(step @ gradient) / square if square > 0 else np.inf
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        room = np.where(step < 0, (s.lower - y) / step, np.where(step > 0, (s.upper - y) / step, np.inf))
    most = float(room.min(initial=np.inf))
    length = min(length, most)
    if not np.isfinite(length):
        return y, (y > s.lower) & (y < s.upper)
    moved = np.clip(y + length * step, s.lower, s.upper)
    met = (room <= length) & (step != 0)
    moved = np.where(met, np.where(step < 0, s.lower, s.upper), moved)
    # What the step has freed is free, however near to its bound.
    return moved, ((moved > s.lower) & (moved < s.upper)) | ((step != 0) & ~met)


def _tangent(s: _Scaled, step: np.ndarray, y: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return a direction without the rounding errors that lead off the equalities, nor out of the bounds."""
    for _ in range(3):
        moving = free | (step != 0)
        step = step.copy()
        step[moving] -= _least(s.rows[:, moving], s.rows @ step)
        out = ((y <= s.lower) & (step < 0)) | ((y >= s.upper) & (step > 0))
        if not out.any():
            break
        step = np.where(out, 0.0, step)
    return step


def _restored(s: _Scaled, y: np.ndarray, free: np.ndarray, project: Projector) -> tuple[np.ndarray, np.ndarray]:
    """Return y without the rounding errors that have led off the equalities, and what is between bounds there."""
    missing, noise = s.right - s.rows @ y, EPS * (np.abs(s.right) + np.abs(s.rows) @ np.abs(y))
    if np.all(np.abs(missing) <= noise):
        return y, free
    step = np.zeros_like(y)
    if free.any():
        step[free] = _least(s.rows[:, free], missing)
    moved, size = y + step, float(np.abs(missing).max())
    good = np.abs(s.right - s.rows @ moved).max() <= 0.5 * size
    if not good or not np.all((moved >= s.lower) & (moved <= s.upper)):
        if np.all(np.abs(missing) <= ROUNDINGS * noise):
            return y, free
        # A step that is short as well, within the bounds.
        rows = np.vstack([s.rows, SHORT * np.eye(y.size)])
        ends = (s.lower - y) / size, (s.upper - y) / size
        step = size * project(rows, np.append(missing / size, np.zeros(y.size)), ends)
        moved = np.clip(y + step, s.lower, s.upper)
    if np.abs(s.right - s.rows @ moved).max() >= size:
        return y, free
    return moved, (moved > s.lower) & (moved < s.upper)


def _unscaled(s: _Scaled, y: np.ndarray, mu: np.ndarray, lower: np.ndarray, upper: np.ndarray, turns: int) -> Found:
    """Return what was found in the caller's units, at a bound the bound itself."""
    low, high = y <= s.lower, y >= s.upper
    x: Any = np.where(low, lower, np.where(high, upper, np.clip(y / s.columns, lower, upper)))
    state = np.where(lower == upper, 2, np.where(low, -1, np.where(high, 1, 0))).astype(np.int8)
    return Found(x, mu, state, turns)
