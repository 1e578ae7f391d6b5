"""Conditions of optimality in wide precision: by how much an x breaks them, in units in which x counts.

With w minus half of the gradient, a step of column j alone lowers the objective by (w_j / |k_j|)^2, k_j its column in A
and lam L. The breach is w_j / |k_j| over |b| + sum |k_j| |x_j|, the size of what is rounded on the way to w. Bounds
that are far away have no part in it.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.optimize

from fuzzing.common import exact
from fuzzing.lsq.problem import Problem, times

#: Roundings of x alone, and of all else in double precision.
DOUBLE, FLOAT = 2.0**-53, 2.0**-24


def tolerance(problem: Problem, m: int) -> float:
    """What rounding leaves: of double arithmetic, errors that grow as the root of the length; of float32 results x."""
    n = problem.shape[1]
    room = 2000 * DOUBLE * np.sqrt(max(m, n, 16))
    if len(problem.C):
        room *= 8  # the row of a sum is as long as the largest column
    if len(problem.C) and not problem.exact_row:
        room = 1e-8  # equalities by multipliers, with rows that weigh 100 times the largest of A, squared
    if problem.single:
        room += 8 * FLOAT if problem.exact_row or not len(problem.C) else 1e-4
    return float(room)


@dataclasses.dataclass
class Breach:
    """Of each system."""

    worst: np.ndarray  # over the unit
    size: np.ndarray  # |b| + sum |k_j| |x_j|
    w: np.ndarray  # (S, n)
    norms: np.ndarray  # (S, n)
    free: np.ndarray  # (S, n), between bounds


def breach(problem: Problem, x: np.ndarray, lam: np.ndarray, multipliers: np.ndarray | None = None) -> Breach:
    """By how much the conditions are broken at the best multipliers there are."""
    x = exact(x)
    norms = np.broadcast_to(problem.norms(lam), problem.shape)
    w = problem.dual(x, lam)
    size = problem.b_norm() + (norms * np.abs(x)).sum(axis=1)
    # x near the smallest numbers has few digits, and is as good as zero.
    size = size + norms.sum(axis=1) * np.longdouble(1e-28 if problem.single else 1e-278)
    unit = norms * np.where(size > 0, size, 1)[:, None]
    if ((lam > 0) & (lam < 1e-140)).any():  # squares near the smallest numbers have few digits
        image = problem.penalized(x)
        unit = unit + 1e-310 * np.abs(image if problem.L is None else image @ problem.L)
    # At a bound is what a step to it would change Kx by no more than rounding does.
    with np.errstate(invalid="ignore"):
        near = norms * np.minimum(x - problem.lower, problem.upper - x) <= 1e-15 * size[:, None]
        nearer = x - problem.lower <= problem.upper - x
    low, high = (x <= problem.lower) | near & nearer, (x >= problem.upper) | near & ~nearer
    if len(problem.C) == 0:
        worst = plain(w, unit, low, high)
    elif len(problem.C) == 1:
        worst = with_one_row(problem, x, w, unit, low, high)
    else:
        worst = with_rows(problem, x, w, unit, low, high, multipliers)
    return Breach(worst.astype(float), size, w, norms, ~low & ~high)


def plain(w: np.ndarray, unit: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    part = np.where(low & high, 0, np.where(low, np.maximum(w, 0), np.where(high, np.maximum(-w, 0), np.abs(w))))
    part = part / np.where(unit > 0, unit, 1)
    return np.max(np.where(np.isnan(part), np.inf, part), axis=1, initial=0)


def remaining(
    problem: Problem, x: np.ndarray, lam: np.ndarray, found: Breach
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The root of what a step of all columns between bounds lowers the objective by; |b| + |Kx|, of the columns
    between bounds and of the others; and what of the first no double precision sees.

    With K scaled to columns of length one, K = U S V', the first is the norm of S^-1 V'w over the singular values that
    are more than rounding. Sums of doubles leave roundings of |r| in each w_j = k_j'r, even of an exact residual r, and
    S^-1 makes roundings of |r| / s of them: the square of the condition in the bounds of least squares (Björck 1996,
    1.4).
    """
    assert problem.A is not None
    systems, n = problem.shape
    L = np.eye(n, dtype=np.longdouble) if problem.L is None else problem.L
    A = np.broadcast_to(problem.A, (systems, *problem.A.shape[1:]))
    K = np.concatenate([A, lam[:, None, None] * L], axis=1) if (lam > 0).any() else A
    over = np.where(found.free & (found.norms > 0), found.norms, np.inf)
    _, values, V = np.linalg.svd((K / over[:, None, :]).astype(float), full_matrices=False)
    w = found.w / over
    top = np.abs(w).max(axis=1)
    top = np.where(top > 0, top, 1)
    parts = np.einsum("skn,sn->sk", V, (w / top[:, None]).astype(float))
    kept = values > 1e-13 * max(K.shape[1:])
    gap = np.sqrt((np.where(kept, parts / np.where(kept, values, 1), 0) ** 2).sum(axis=1)) * top
    unit = problem.b_norm()
    for part in (np.where(found.free, x, 0), np.where(found.free, 0, x)):
        unit = unit + np.sqrt((times(A, part) ** 2).sum(axis=1) + lam**2 * (problem.penalized(part) ** 2).sum(axis=1))
    hidden = np.sqrt(problem.objective(x, lam)) / np.where(kept, values, np.inf).min(axis=1)
    return gap, unit + found.norms.sum(axis=1) * np.longdouble(1e-278), DOUBLE * np.sqrt(K.shape[1] * n) * hidden


def slack_room(problem: Problem, x: np.ndarray) -> np.ndarray:
    """How near Cx has to be to an end to be at it, (S, k)."""
    eps = 1e-6 if problem.single else 1e-12
    return eps * (np.abs(x) @ np.abs(problem.C).T + 0.01 * problem.size_of_rows()[:, None]) + 1e-300


def with_one_row(problem, x, w, unit, low, high):
    """With one row c: any two columns that can be exchanged ask for one multiplier, to their rounding.

    Column j allows mu from -w_j / c_j - t unit_j / |c_j| up, or down from there, or both; these intervals have a point
    in common where any two have.
    """
    c = problem.C[0]
    value, room = x @ c, slack_room(problem, x)[:, 0]
    with_c = c != 0
    worst = plain(w[:, ~with_c], unit[:, ~with_c], low[:, ~with_c], high[:, ~with_c])
    c, w, unit, low, high = c[with_c], w[:, with_c], unit[:, with_c], low[:, with_c], high[:, with_c]
    alpha, beta = -w / c, unit / np.abs(c)
    fixed = low & high
    from_below = ~fixed & ((c > 0) & ~low | (c < 0) & ~high)  # mu >= alpha - t beta
    from_above = ~fixed & ((c > 0) & ~high | (c < 0) & ~low)
    # The slack of a range: a column of zeros. At the lower end it keeps mu from being negative.
    fixed_end = problem.low[:, 0] == problem.high[:, 0]
    at_low = fixed_end | (value <= problem.low[:, 0] + room)
    at_high = fixed_end | (value >= problem.high[:, 0] - room)
    nothing = np.zeros((len(x), 1), np.longdouble)
    alpha, beta = np.concatenate([alpha, nothing], axis=1), np.concatenate([beta, nothing], axis=1)
    from_below = np.concatenate([from_below, ~at_high[:, None]], axis=1)
    from_above = np.concatenate([from_above, ~at_low[:, None]], axis=1)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        apart = alpha[:, :, None] - alpha[:, None, :]
        over = beta[:, :, None] + beta[:, None, :]
        pairs = np.where(apart > 0, apart / over, 0)
    pairs = np.where(from_below[:, :, None] & from_above[:, None, :], pairs, 0)
    return np.maximum(worst, pairs.max(axis=(1, 2), initial=0))


def with_rows(problem, x, w, unit, low, high, multipliers):
    """With several rows: the multipliers of the result, of least squares, or of a linear program, whichever is best."""
    worst = np.empty(len(x), np.longdouble)
    room = slack_room(problem, x)
    values = x @ problem.C.T
    size = np.abs(problem.C)
    share = (size / np.maximum(size.max(axis=1, keepdims=True), 1e-300)).max(axis=0)
    for i in range(len(x)):
        fixed = problem.low[i] == problem.high[i]
        at_low = fixed | (values[i] <= problem.low[i] + room[i])
        at_high = fixed | (values[i] >= problem.high[i] - room[i])

        def at(mu, i=i, at_low=at_low, at_high=at_high):
            mu = np.where(
                at_low & at_high, mu, np.where(at_low, np.maximum(mu, 0), np.where(at_high, np.minimum(mu, 0), 0))
            )
            # (With the room that there is, a few roundings of the terms that a multiplier adds; and of what others
            # ask of it, which a column of zeros has to do with: 1e-8 of 1e-7 are nine roundings.)
            over = unit[i] + (1 if problem.single else 1e-4) * np.abs(mu) @ size + 1e-7 * unit[i].max(initial=0) * share
            return plain((w[i] + mu @ problem.C)[None], over[None], low[i : i + 1], high[i : i + 1])[0]

        found = [at(np.zeros(len(problem.C), np.longdouble))]
        if multipliers is not None and np.isfinite(multipliers[i]).all():
            found.append(at(exact(multipliers[i])))
        if min(found) > 1e-12:
            mu = least_squares_multipliers(problem.C, w[i], unit[i], ~low[i] & ~high[i])
            found.append(at(mu))
        if min(found) > 1e-10:
            mu = multipliers_by_program(problem.C, w[i], unit[i], low[i], high[i], at_low, at_high)
            if mu is not None:
                found.append(at(mu))
        worst[i] = min(found)
    return worst


def least_squares_multipliers(C, w, unit, free):
    """Of the columns between bounds alone, by normal equations in wide precision."""
    chosen = free & (unit > 0)
    k = len(C)
    if chosen.sum() == 0:
        return np.zeros(k, np.longdouble)
    rows, right = (C[:, chosen] / unit[chosen]).T, -w[chosen] / unit[chosen]
    scale = np.abs(rows).max(axis=0)
    scale = np.where(scale > 0, scale, 1)
    start = np.linalg.lstsq(
        (rows / scale).astype(float), (right / (np.abs(right).max() or 1)).astype(float), rcond=1e-13
    )
    mu = exact(start[0]) * (np.abs(right).max() or 1) / scale
    for _ in range(3):  # refined with residuals in wide precision
        rest = right - rows @ mu
        top = np.abs(rest).max()
        if not top > 0:
            break
        mu = (
            mu
            + exact(np.linalg.lstsq((rows / scale).astype(float), (rest / top).astype(float), rcond=1e-13)[0])
            * top
            / scale
        )
    return mu


def multipliers_by_program(C, w, unit, low, high, at_low, at_high):
    """min t with |w + C'mu| <= t unit where columns are between, and one side of it at bounds."""
    k = len(C)
    own = (unit > 0) & ~(low & high)
    if not own.any():
        return np.zeros(k, np.longdouble)
    top = np.abs(w[own] / unit[own]).max()
    if not top > 0:
        return np.zeros(k, np.longdouble)
    rows, right = (C[:, own] / unit[own]).T, w[own] / unit[own] / top
    scale = np.abs(rows).max(axis=0)
    scale = np.where(scale > 0, scale, 1)
    rows = (rows / scale).astype(float)
    right = right.astype(float)
    up, down = ~high[own], ~low[own]  # may rise: w + C'mu <= t; may fall: -(w + C'mu) <= t
    above = np.column_stack([rows[up], -np.ones(up.sum())])
    below = np.column_stack([-rows[down], -np.ones(down.sum())])
    ranges = [
        (None, None) if a and z else (0, None) if a else (None, 0) if z else (0, 0) for a, z in zip(at_low, at_high)
    ]
    found = scipy.optimize.linprog(
        np.r_[np.zeros(k), 1.0],
        A_ub=np.vstack([above, below]),
        b_ub=np.concatenate([-right[up], right[down]]),
        bounds=[*ranges, (0, None)],
        method="highs",
    )
    return None if found.x is None else exact(found.x[:k]) * top / scale
