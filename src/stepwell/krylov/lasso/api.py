"""The API: ``lasso``, sparse solutions of least squares with a proven gap."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from stepwell.arrays import (
    Array,
    as_user_array,
    copy_to_device_of,
    host_view,
    is_array,
    namespace_of,
    same_library,
    to_host,
)
from stepwell.arrays.checks import read_host_array, require_each
from stepwell.common.checks import (
    read_choice,
    read_real,
    read_whole,
    require,
    require_function,
    require_kind,
    require_shape,
)
from stepwell.common.keywords import keywords_told
from stepwell.common.typing import ArrayLike, BoundsLike, NumberOrArray, OperatorLike
from stepwell.krylov.bounded import exactly_scaled, read_box
from stepwell.krylov.inputs import prepare
from stepwell.krylov.lasso.penalties import Groups, Penalty
from stepwell.krylov.lasso.results import LassoProgress, LassoResult
from stepwell.krylov.lasso.solving import MAX_FACTOR, OF_TOL, Books, Lasso, stop_all
from stepwell.krylov.linear_problem import LinearProblem, name_of_dtype
from stepwell.krylov.proven import ProvenStatus, ending_of_run
from stepwell.krylov.tv.inputs import read_numbers
from stepwell.krylov.tv.metric import ROUNDING
from stepwell.operators import Operator, as_operator
from stepwell.operators.error_state import own_arithmetic
from stepwell.operators.matrices import power_near, scaled

#: Entries of A times random signs below and above which A is divided by its size.
SOUND_SIZES = {"float32": (1e-10, 1e10), "float64": (1e-60, 1e60)}
#: A transform is orthonormal where it keeps a random vector, and its norm, to this relative error.
ORTHONORMAL = {"float32": 1e-4, "float64": 1e-8}


@keywords_told
def lasso(
    A: OperatorLike,
    B: ArrayLike,
    lam: NumberOrArray,
    *,
    groups: ArrayLike | None = None,
    transform: OperatorLike | None = None,
    bounds: BoundsLike | None = None,
    method: Literal["auto", "admm", "fista"] = "auto",
    x0: ArrayLike | None = None,
    tol: float = 1e-4,
    maxiter: int = 10_000,
    axis: Literal[0, 1] = 1,
    callback: Callable[[LassoProgress], object] | None = None,
) -> LassoResult:
    """Minimise ½‖AX − B‖² + λ‖X‖₁ for all columns of B, within bounds where they are given; λ is not squared.

    The result says how far from the least its objective can be at most.

    Parameters
    ----------
    A : operator, (m, n)
        As in :func:`stepwell.tikhonov`.
    B : array, (m,) or (m, k); (k, m) with ``axis=0``
        Right-hand sides.
    lam : float or array of k floats
        λ, of all columns or of each. From ``result.lam_max`` on the solution is zero.
    groups : array of int, (n,), optional
        A label for every unknown: the penalty is λ times the sum of the Euclidean norms of the groups of equal labels.
    transform : operator, (n, n), optional
        An orthonormal W, such as a wavelet or cosine transform: the penalty is λ‖WX‖₁, or that of groups of WX.
    bounds : pair (lower, upper), Bounds or array, optional
        ``(0, None)``: X >= 0. Zero must lie within them. With groups that is the only one; not with a transform.
    method : {"auto", "admm", "fista"}, default "auto"
        ``"admm"``: factors of a dense A, one for all columns, the weight ρ of each by the balance of its residuals;
        ``"fista"``: products alone. ``"auto"``: the first where A is dense and its smaller side at most 4000.
    x0 : array, (n,) or (n, k), optional
        Starting points; (k, n) with ``axis=0``.
    tol : float, default 1e-4
        Bound on the proven relative gap, ``(f(x) − f*) / f(x)``, of every column.
    maxiter : int, default 10000
        Bound on the steps of a column.
    axis : {0, 1}, default 1
        The axis of a two-dimensional `B` along which the right-hand sides lie, and of `x0` and `x` as well.
    callback : callable, optional
        Called with a :class:`~stepwell.LassoProgress` before the first step and after every check of the gap; a true
        answer, or StopIteration, stops the run.

    Returns
    -------
    LassoResult
        ``x`` in the kind of B; per column the proven ``gap``, ``objective``, ``lower`` bound and status.

    Raises
    ------
    Interrupted
        On Ctrl-C; its ``result`` is what this would have returned.

    Examples
    --------
    >>> import numpy as np
    >>> import stepwell
    >>> A = np.random.default_rng(0).normal(size=(30, 80))
    >>> b = A[:, 3] - 2 * A[:, 50]
    >>> result = stepwell.lasso(A, b, 0.5)
    >>> result.success, np.flatnonzero(np.abs(result.x) > 0.1).tolist()
    (True, [3, 50])
    """
    start = time.perf_counter()
    tol = read_real("tol", tol, above=0)
    maxiter = read_whole("maxiter", maxiter, 0, as_float=True)
    read_choice("method", method, ("auto", "admm", "fista"))
    require_function("callback", callback)
    problem = exactly_scaled(prepare(A, B, None, x0, axis=axis))
    lams = read_numbers("lam", lam, problem.columns)
    chosen = None if groups is None else _read_groups(groups, problem.size)
    require(transform is None or bounds is None, "bounds", bounds, "None with a transform")
    with own_arithmetic():
        W = None if transform is None else _read_transform(transform, problem)
        matrix = _dense(problem)
        if W is not None:
            problem, matrix = _transformed(problem, W, matrix)
        require_kind(method != "admm" or matrix is not None, "method", method, "'fista' where A is no dense array")
        problem, matrix = _in_range(problem, matrix)
        box = None if bounds is None else read_box(bounds, problem)
        if box is not None and chosen is not None:
            positive = box.upper is None and box.lower is not None and not np.any(to_host(box.lower))
            require(positive, "bounds", bounds, "(0, None) with groups")
        scale = np.asarray(to_host(problem.scale), dtype=np.float64).ravel()
        penalty = Penalty(lams / scale / problem.unit, chosen, box)
        watch = None if callback is None else _Watch(callback, problem.columns)
        work = Lasso(problem.A, problem.B, penalty, tol, maxiter, watch)
        largest = _largest(work, chosen) * scale * problem.unit
        first = _first(problem, penalty)
        books = Books.begin(first)
        small = matrix is not None and min(matrix.shape) <= MAX_FACTOR
        by_factor = matrix is not None and (method == "admm" or (method == "auto" and small))

        def result() -> LassoResult:
            return _result(work, books, problem, W, lams, largest, "admm" if by_factor else "fista", start)

        try:
            if by_factor:
                work.admm(books, matrix)
            else:
                work.fista(books)
        except KeyboardInterrupt as interrupt:
            from stepwell.quasi_newton.driver import Interrupted

            stop_all(books, np.flatnonzero([status is None for status in books.status]))
            carrier = Interrupted(*interrupt.args)
            carrier.result = result()
            raise carrier from interrupt
        return result()


def _read_groups(groups: Any, size: int) -> Groups:
    labels = read_host_array("groups", groups)
    require_shape(labels.shape == (size,), "groups", labels, (size,))
    require_each(labels == np.round(labels), "groups", labels, "whole numbers, one label for each unknown")
    return Groups.of(labels)


def _read_transform(transform: Any, problem: LinearProblem) -> Operator:
    """Read W and test that it is orthonormal, with a random vector."""
    W = as_operator(transform, name_of_dtype(problem.B), name="transform", columns=problem.columns)
    known = [side for side in W.shape if side is not None]
    require_shape(all(side == problem.size for side in known), "transform", W, (problem.size, problem.size))
    v = copy_to_device_of(np.random.default_rng(0).standard_normal((problem.size, 1)), problem.B)
    image = W.forward(v)
    back = W.adjoint(image)
    size, seen, off = (float(np.linalg.norm(to_host(part))) for part in (v, image, back - v))
    error = max(abs(seen - size), off) / max(size, 1e-300)
    sound = bool(error <= ORTHONORMAL[name_of_dtype(problem.B)])
    require(sound, "transform", transform, f"an orthonormal operator; WᵀW v differs from v by {error:.1e}")
    return W


def _dense(problem: LinearProblem) -> Array | None:
    """A as a dense array of the problem's library, where it is one."""
    matrix = problem.A.matrix
    if matrix is None or not is_array(matrix) or len(matrix.shape) != 2 or not same_library(matrix, problem.B):
        return None
    xp = namespace_of(problem.B)
    return xp.astype(matrix, problem.B.dtype, copy=False)


def _transformed(problem: LinearProblem, W: Operator, matrix: Array | None) -> tuple[LinearProblem, Array | None]:
    """Return the problem for the coefficients c = Wx: A Wᵀ in place of A."""
    A = problem.A
    if matrix is not None and min(matrix.shape) <= MAX_FACTOR:
        matrix = W.forward(matrix.T).T
        operator = as_operator(matrix, name_of_dtype(problem.B), name="A")
    else:
        matrix = None
        operator = Operator(
            lambda block: A.forward(W.adjoint(block)), lambda block: W.forward(A.adjoint(block)), A.shape, A.home,
            memory=A.memory, name="A",
        )  # fmt: skip
    x0 = None if problem.x0 is None else W.forward(problem.x0)
    return replace(problem, A=operator, x0=x0), matrix


def _in_range(problem: LinearProblem, matrix: Array | None) -> tuple[LinearProblem, Array | None]:
    """Divide an A whose squares leave the range of the dtype by a power of two."""
    signs = np.random.default_rng(1).choice([-1.0, 1.0], size=(problem.size, 1))
    image = to_host(problem.A.forward(copy_to_device_of(signs, problem.B)))
    size = float(np.max(np.abs(image), initial=0.0))
    dtype = name_of_dtype(problem.B)
    least, most = SOUND_SIZES[dtype]
    if size == 0 or np.isnan(size) or least <= size <= most:
        return problem, matrix
    unit = power_near(size, 120 if dtype == "float32" else 1000) if np.isfinite(size) else most
    return problem.in_units(scaled(problem.A, 1 / unit), unit), None if matrix is None else matrix / unit


def _first(problem: LinearProblem, penalty: Penalty) -> Array:
    if problem.x0 is not None:
        return penalty.nearest(problem.x0)
    return copy_to_device_of(np.zeros((problem.size, problem.columns)), problem.B)


def _largest(work: Lasso, groups: Groups | None) -> np.ndarray:
    """The largest entry of Aᵀb, or group norm, of every column."""
    xp = namespace_of(work.B)
    back = work.A.adjoint(work.B)
    sizes = xp.abs(back) if groups is None else groups.norms(back)
    if not sizes.shape[0]:
        return np.zeros(int(work.B.shape[1]))
    return np.asarray(to_host(xp.max(sizes, axis=0)), dtype=np.float64)


def _result(
    work: Lasso, books: Books, problem: LinearProblem, W: Operator | None, lams: np.ndarray, largest: np.ndarray,
    method: str, start: float,
) -> LassoResult:  # fmt: skip
    x = books.best
    xp = namespace_of(x)
    # Once more from A itself, where no Ax came by linearity.
    found = work.objective(x, work.A.forward(x) - work.B, work.penalty)
    books.f = np.where(np.isfinite(books.f), found, books.f)
    allowed = max(OF_TOL * work.tol, ROUNDING * work.epsilon)
    unmatched = books.mismatch > allowed
    books.lower = np.minimum(np.where(unmatched, 0.0, books.lower), books.f)
    gap = books.gaps()
    status = []
    for one, bad, proven in zip(books.status, unmatched.tolist(), gap):
        one = ending_of_run(one, bad)
        rounded = one is ProvenStatus.CONVERGED and proven > work.tol  # in the last digits of f
        status.append(ProvenStatus.STAGNATED if rounded else one)
    scale = np.asarray(to_host(problem.scale), dtype=np.float64).ravel()
    nonzeros = np.asarray(to_host(xp.sum(xp.astype(x != 0, xp.int64), axis=0)), dtype=np.int64)
    if W is not None:
        x = W.adjoint(x)
    x = x * copy_to_device_of((scale / problem.unit)[None, :], x)
    if len(problem.given.shape) == 1:
        x = x[:, 0]
    elif problem.rows:
        x = x.T
    return LassoResult(
        x=x if same_library(x, problem.given) else as_user_array(host_view(x), problem.given),
        status=problem.of_columns(status),
        gap=gap,
        objective=books.f * scale**2,
        lower=books.lower * scale**2,
        lam=problem.of_columns(lams),
        lam_max=problem.of_columns(largest),
        nonzeros=nonzeros,
        iterations=books.iterations,
        products=books.products + 1.0,
        history=[np.array(one) for one in books.history],
        method=method,
        adjoint_error=float(books.mismatch.max(initial=0.0)),
        seconds=time.perf_counter() - start,
    )


class _Watch:
    """Tells the caller of every check; a true answer, or StopIteration, stops the run."""

    def __init__(self, callback: Callable[[LassoProgress], object], columns: int) -> None:
        self.callback, self.columns = callback, columns

    def __call__(self, iteration: int, running: int, gap: float, products: float) -> bool:
        try:
            return bool(self.callback(LassoProgress(iteration, running, self.columns, gap, products)))
        except StopIteration:
            return True
