"""Derivatives of least squares: ``lsq_linear``, ``nnls`` and ``lsq_gram``, with bounds, sums, masks, weights, λ and L.

Near a solution the same unknowns stay at the same bounds, and x is the solution of equations. With y the solution's
free unknowns F and, where others are held, their bounds,

    x = y + δ,    [ H  Cᵀ ] [ δ ]   [ Mᵀ(d − M y) − λ²y ]        M = W A,  d = W b  (with L: M = [W A; λ L], λ = 0)
                  [ C  0  ] [ ν ] = [ s − C y           ]        H = M_FᵀM_F + λ²I,  C x = s: a bound sum, equalities

One Newton step is exact, the function being quadratic: whatever constant y_F is, this is x as a function of A, b, W, λ,
L, the bounds and s, and so are its derivatives of every order. At the solution itself δ = 0, so that nothing has to be
solved until a derivative is asked for. ``step`` is that solve, with the value zero and derivatives by the rules of
`stepwell.derivatives.least_squares`; everything else is arithmetic, which the array library differentiates. Where
normal equations are given, G stands for MᵀM and c for Mᵀd.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from stepwell.arrays import Array, is_array, matrix_product, namespace_of
from stepwell.common.checks import read_real, require_shape
from stepwell.derivatives.matrices import DENSE, GRAM, Kind, matrix_of
from stepwell.lsq.arguments import without_column
from stepwell.lsq.constraints import is_number
from stepwell.lsq.convolution import Convolution

#: A sum is at an end where it is as near as so many roundings of its terms.
NEAR = 64


class ProblemArrays(NamedTuple):
    """Arguments as arrays of one library: one for all systems, or with the systems along the first axis."""

    entries: Array  # (m, n) or (systems, m, n); of a convolution (length,) or (systems, length); G
    b: Array  # (m,) or (systems, m); c
    lower: Array | None  # (n,) or (systems, n); both None: x ≥ 0
    upper: Array | None
    sum_low: Array | None  # () or (systems,)
    sum_high: Array | None
    weights: Array | None  # (m,) or (systems, m)
    mask: Array | None  # (n,) or (systems, n)
    lam: Array  # () or (systems,)
    L: Array | None  # (p, n)
    C: Array | None  # (k, n): equalities
    d: Array | None  # (k,) or (systems, k)
    warm: Array | None  # (n,) or (systems, n)


#: Axes of one system of each of the fields, `entries` apart.
AXES = ProblemArrays(-1, 1, 1, 1, 0, 0, 1, 1, 0, 2, 2, 1, 1)


class Form(NamedTuple):
    """What a caller's arrays look like."""

    kind: Kind
    lead: tuple[int, ...]  # the shape of his systems
    column: bool  # vectors have a last axis of length one


def read_problem(
    A: Any, b: Array, as_array: Callable[[Any], Array], *, bounds: Any, sum_bounds: Any = None, equality: Any = None,
    mask: Any = None, weights: Any = None, which: Any = None, lam: Any = 0.0, L: Any = None, warm: Any = None,
    gram: bool = False,
) -> tuple[ProblemArrays, Form]:  # fmt: skip
    """Bring arguments to one form; `as_array` makes arrays of the library, of one dtype, of numbers and arrays."""
    if is_number(lam) and not is_array(lam):
        read_real("lam", lam, at_least=0)
    convolution = isinstance(A, Convolution)
    entries = as_array(A.pulse if convolution else A)
    if convolution:
        kind: Kind = (A.m, A.n, A.origin)
        if L is not None or weights is not None:  # no convolution any more
            entries, kind = Convolution(entries, A.n, m=A.m, origin=A.origin).dense(), DENSE
        core, rows, columns = (2 if kind == DENSE else 1), A.m, A.n
    else:
        require_shape(entries.ndim >= 2, "G" if gram else "A", entries, "(m, n) or (systems, m, n)")
        kind, core, (rows, columns) = GRAM if gram else DENSE, 2, map(int, entries.shape[-2:])
    b = as_array(b)
    own = (*map(int, entries.shape[: entries.ndim - core]), rows, columns)
    b, column = (b, False) if gram else without_column(b, own, which is not None)
    lead = tuple(map(int, b.shape[:-1]))
    systems = math.prod(lead)
    fits = b.ndim > 0 and b.shape[-1] == rows and (len(own) == 2 or which is not None or own[:-2] == lead)
    require_shape(fits, "c" if gram else "b", b, f"{rows} entries per system, as {'G' if gram else 'A'} of shape {own}")
    if which is not None:
        entries = entries[which if which.ndim < 2 else which.reshape(-1)]  # a matrix a system
    elif entries.ndim - core > 1:
        entries = entries.reshape(systems, *entries.shape[entries.ndim - core :])
    b = b.reshape(systems, rows) if len(lead) > 1 else b

    def read(name: str, value: Any, length: int | None, make: Any = as_array) -> Any:
        if value is None:
            return None
        array, own = make(value), () if length is None else (length,)
        shapes = {(), own, (1, *own), (*lead, *own), (systems, *own)}
        require_shape(tuple(array.shape) in shapes, name, array, " or ".join(map(str, sorted(shapes))))
        if tuple(array.shape) == (1, *own) and len(lead) != 1:
            return array.reshape(own)
        if array.ndim == 0:
            return namespace_of(array).broadcast_to(array, own) if own else array
        return array.reshape(systems, *own) if array.ndim > len(own) + 1 or (lead == () and array.ndim > 1) else array

    lower, upper = (None, None) if bounds is None else (read("bounds", end, columns) for end in bounds)
    sum_low, sum_high = (None, None) if sum_bounds is None else (read("sum_bounds", end, None) for end in sum_bounds)
    C = d = None
    if equality is not None:
        C = as_array(equality[0])
        C = C[None] if C.ndim == 1 else C
        d = read("equality (d)", equality[1], int(C.shape[0]))
    given = dict(
        entries=entries, b=b, lower=lower, upper=upper, sum_low=sum_low, sum_high=sum_high,
        weights=read("weights", weights, rows), mask=read("mask", mask, columns, lambda value: value),
        lam=read("lam", lam, None), L=None if L is None else as_array(L), C=C, d=d,
        warm=read("warm_start", warm, columns, lambda value: value),
    )  # fmt: skip
    return ProblemArrays(**given), Form(kind, lead, column)


Step = Callable[[Array, Array, Array, Array, Any, Any, Kind], Array]
Product = Callable[[Array, Array], Array]


def attached(
    problem: ProblemArrays, kind: Kind, x: Array, state: Array, lam: Array, step: Step, product: Product | None = None
) -> Array:
    """Return x as a function of the problem's arrays.

    Parameters
    ----------
    problem, kind
        As `read_problem` gives them.
    x, state : array, (n,) or (systems, n)
        The solution, a constant, and where it is: −1 and 1 at bounds, 0 between, 2 masked or fixed.
    lam : array, () or (systems,)
        λ, as given or found.
    step : callable
        ``step(entries, free, lam, g, C, t, kind)`` returns δ and ν, as `solve_free_with_rows` does; without C δ alone.
    product : callable, optional
        ``product(G, y)`` in place of G y, where normal equations are given: with its derivatives, whatever its value,
        since `step` does not look at that of g.
    """
    xp = namespace_of(x, problem.b)
    zero = xp.zeros_like(x)
    fixed = state == 2
    if problem.mask is not None:
        fixed = fixed & problem.mask
    free = state == 0
    y = zero
    if problem.lower is not None:
        y = xp.where(state == 1, problem.upper, xp.where((state == -1) | fixed, problem.lower, zero))
    y = xp.where(free | xp.isnan(x), x, y)
    marks = xp.where(xp.isnan(x), x, xp.astype(free, x.dtype))
    entries, g, lam = _gradient(problem, kind, y, lam, product)
    C, t = _bound_rows(problem, x, y)
    moved = step(entries, marks, lam, g, C, t, kind)
    return y + (moved if C is None else moved[..., : x.shape[-1]])


def _gradient(
    problem: ProblemArrays, kind: Kind, y: Array, lam: Array, product: Product | None
) -> tuple[Array, Array, Array]:
    """Return what H is made of, −½ the gradient at y, and the λ that is still apart."""
    entries, b, L = problem.entries, problem.b, problem.L
    xp = namespace_of(entries, b)
    if kind == GRAM:
        square = (lam * lam)[..., None]
        whole = entries if L is None else entries + square[..., None] * matrix_product(L.T, L)
        image = matrix_of(whole, kind).normal_times(y) if product is None else product(whole, y)
        return (entries, b - image - square * y, lam) if L is None else (whole, b - image, xp.zeros_like(lam))
    if problem.weights is not None:
        b = problem.weights * xp.where(problem.weights == 0, xp.zeros_like(b), b)  # whatever b has there
        entries = problem.weights[..., None] * entries
    if L is not None:
        below = lam[..., None, None] * L
        lead = below.shape[:-2] if entries.ndim == 2 else entries.shape[:-2]
        parts = [xp.broadcast_to(part, (*lead, *part.shape[-2:])) for part in (entries, below)]
        entries = xp.concat(parts, axis=-2)
        b = xp.concat([b, xp.zeros_like(b[..., :1] + L[:, 0])], axis=-1)
        lam = xp.zeros_like(lam)
    matrix = matrix_of(entries, kind)
    return entries, matrix.transposed_times(b - matrix.times(y)) - (lam * lam)[..., None] * y, lam


def _bound_rows(problem: ProblemArrays, x: Array, y: Array) -> tuple[Array | None, Array | None]:
    """Return C, and s − C y: zero rows where a sum is between its ends."""
    xp = namespace_of(x)
    rows, rest = [], []
    if problem.sum_low is not None:
        low, high = problem.sum_low, problem.sum_high
        total = x.sum(-1)
        near = NEAR * xp.finfo(x.dtype).eps * abs(x).sum(-1)
        at_low = (low == high) | (abs(total - low) <= near)
        at_high = ~at_low & (abs(total - high) <= near)
        zero = xp.zeros_like(total)
        s = xp.where(at_low, low, xp.where(at_high, high, zero))
        bound = at_low | at_high
        rows.append(xp.astype(bound, x.dtype)[..., None, None] * xp.ones_like(x[..., None, :]))
        rest.append(xp.where(bound, s - y.sum(-1), zero)[..., None])
    if problem.C is not None:
        rows.append(xp.broadcast_to(problem.C, (*x.shape[:-1], *problem.C.shape)))
        rest.append(problem.d - matrix_product(y, problem.C.T))
    if not rows:
        return None, None
    return xp.concat(rows, axis=-2), xp.concat(rest, axis=-1)
