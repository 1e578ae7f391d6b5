"""The API: ``tv`` for total variation with a proven gap, ``tv_gap`` to judge any image."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from stepwell.arrays import namespace_of, to_host
from stepwell.common.checks import read_real, read_switch, read_whole, require, require_function, warn_caller
from stepwell.common.typing import ArrayLike, BoundsLike, NumberOrArray, OperatorLike
from stepwell.krylov.tv.inputs import RULES, Given, is_image, read_numbers, read_problem, read_shape
from stepwell.krylov.tv.lam import from_noise, search
from stepwell.krylov.tv.metric import PAIRS, ROUNDING, Base, fit_base
from stepwell.krylov.tv.results import TVGap, TVProgress, TVResult, TVStatus
from stepwell.krylov.tv.solving import OF_TOL, Solver, Watch
from stepwell.krylov.tv.task import column_sums
from stepwell.operators.error_state import own_arithmetic
from stepwell.operators.matrices import power_near

#: Entries of A times a vector of ones, or of random signs, below and above which A is divided by its size.
SOUND_SIZES = {"float32": (1e-10, 1e10), "float64": (1e-60, 1e60)}

Kind = Literal["isotropic", "anisotropic", "huber"]
Rule = Literal["noise", "discrepancy"]


def tv(
    A: OperatorLike | None,
    B: ArrayLike,
    lam: NumberOrArray | Rule,
    *,
    shape: Any,
    kind: Kind = "isotropic",
    eps: float | None = None,
    bounds: BoundsLike | None = None,
    noise: NumberOrArray | None = None,
    joint: bool = False,
    spacing: Any = None,
    across: float | None = None,
    x0: ArrayLike | None = None,
    dual: ArrayLike | None = None,
    tol: float = 1e-3,
    maxiter: int = 200,
    axis: Literal[0, 1] = 1,
    callback: Callable[[TVProgress], object] | None = None,
) -> TVResult:
    """Minimise ½‖AX − B‖² + λ TV(X) for all columns of B, within bounds where they are given; λ is not squared.

    TV is the sum over pixels of the length of the forward differences. There is no step size to set, and the result
    says how far from the least its objective can be at most.

    Parameters
    ----------
    A : operator, (m, n), or None
        As in :func:`stepwell.tikhonov`. None: the identity, for denoising; B may then be one image.
    B : array, (m,) or (m, k); (k, m) with ``axis=0``
        Right-hand sides, such as the sinograms of k slices.
    lam : float, array of k floats, or str
        λ itself, or the rule that finds it from ``noise``. ``"noise"``: σ‖A‖_F/√n, without a search.
        ``"discrepancy"``: the λ at which ‖Ax − b‖ is σ√m.
    shape : sequence of int
        Sides of the image of a column, (N,), (N, M) or (D, N, M); pixels in C order.
    kind : {"isotropic", "anisotropic", "huber"}, default "isotropic"
        Length of the differences of a pixel: Euclidean, sum of absolute values, or Euclidean with a parabola below
        ``eps``, ‖d‖²/(2 eps), and ‖d‖ − eps/2 above.
    eps : float, optional
        Where Huber's parabola ends, in units of a difference.
    bounds : pair (lower, upper), Bounds or array, optional
        ``(0, None)``: X >= 0. Each a number, an image or one like X; None or an infinity is no bound.
    noise : float or array of k floats, optional
        Standard deviation σ of the noise of one datum, for the rules.
    joint : bool, default False
        Let the rule find one λ for all columns together.
    spacing : sequence of float, optional
        Sides of a voxel, one for each of ``shape``; differences are divided by them. Default: 1.
    across : float, optional
        The columns are neighbouring slices of one volume: their differences join TV with this weight, and all columns
        are one problem with one λ.
    x0 : array, (n,) or (n, k), optional
        Starting images; (k, n) with ``axis=0``.
    dual : array, (axes, k) and the shape, optional
        Starting dual field, such as the ``dual`` of an earlier result.
    tol : float, default 1e-3
        Bound on the proven relative gap, ``(f(x) − f*) / f(x)``, of every column.
    maxiter : int, default 200
        Bound on the steps of a column, one product with A and one with its adjoint each; of each solve where a rule
        searches for λ.
    axis : {0, 1}, default 1
        The axis of a two-dimensional `B` along which the right-hand sides lie, and of `x0` and `x` as well.
    callback : callable, optional
        Called with a :class:`~stepwell.TVProgress` before the first step and after every one; a true answer, or
        StopIteration, stops the run.

    Returns
    -------
    TVResult
        ``x`` in the kind of B; per column the proven ``gap``, ``objective``, ``lower`` bound and status.

    Raises
    ------
    Interrupted
        On Ctrl-C; its ``result`` is what this would have returned.

    Warns
    -----
    scipy.optimize.OptimizeWarning
        Where a search for λ ended at an end of its range; see ``result.lam_at_end``.

    Examples
    --------
    >>> import numpy as np
    >>> import stepwell
    >>> image = np.zeros((32, 32))
    >>> image[8:24, 8:24] = 1.0
    >>> noisy = image + 0.1 * np.random.default_rng(0).normal(size=image.shape)
    >>> result = stepwell.tv(None, noisy, 0.15, shape=image.shape)
    >>> result.success, bool(result.gap[0] <= 1e-3), result.x.shape
    (True, True, (32, 32))
    """
    start = time.perf_counter()
    tol = read_real("tol", tol, above=0)
    maxiter = read_whole("maxiter", maxiter, 0, as_float=True)
    joint = read_switch("joint", joint)
    require_function("callback", callback)
    if isinstance(lam, str):
        require(lam in RULES, "lam", lam, f"numbers, and the rules {', '.join(map(repr, RULES))}")
        if noise is None:
            raise ValueError(
                f"noise is None; allowed: the standard deviation of the noise of a datum, with lam={lam!r}"
            )
    given = read_problem(
        A, B, x0, dual, shape=shape, kind=kind, eps=eps, bounds=bounds, spacing=spacing, across=across, axis=axis
    )
    lams = None if isinstance(lam, str) else _per_problem(read_numbers("lam", lam, given.task.grid.count), given, "lam")
    level = None if noise is None else read_numbers("noise", noise, given.task.grid.count)
    if level is not None:
        level = _rms(level, given)
    with own_arithmetic():
        given, base = _in_range(given)
        lams = None if lams is None else lams / given.unit
        solver = Solver(given.task, given.x0, given.dual, base)
        watch = None if callback is None else _Watch(callback, given, solver)
        ends: np.ndarray | None = None
        try:
            ends = _solve(solver, given, lam, lams, level, joint, tol, maxiter, watch)
        except KeyboardInterrupt as interrupt:
            from stepwell.quasi_newton.driver import Interrupted

            solver.stop()
            carrier = Interrupted(*interrupt.args)
            carrier.result = _result(solver, given, tol, None, start)
            raise carrier from interrupt
        result = _result(solver, given, tol, ends, start)
    if ends is not None and ends.any():
        low, high = int((ends < 0).sum()), int((ends > 0).sum())
        warn_caller(
            f"lam of {low + high} of {ends.size} columns lies at an end of the range searched ({low} lower, {high} "
            "upper): noise is no level that the residual has there; see lam_at_end, and give lam itself"
        )
    return result


def tv_gap(
    A: OperatorLike | None,
    b: ArrayLike,
    x: ArrayLike,
    lam: NumberOrArray,
    *,
    shape: Any,
    kind: Kind = "isotropic",
    eps: float | None = None,
    bounds: BoundsLike | None = None,
    spacing: Any = None,
    across: float | None = None,
    dual: ArrayLike | None = None,
    tol: float = 1e-3,
    maxiter: int = 50,
    axis: Literal[0, 1] = 1,
) -> TVGap:
    """Prove how far given images are from the least objective at most, whichever program made them.

    Parameters
    ----------
    A, b, lam, shape, kind, eps, bounds, spacing, across, axis
        The problem, as in :func:`stepwell.tv`.
    x : array, (n,) or (n, k)
        The images to be judged.
    dual : array, (axes, k) and the shape, optional
        A dual field, where the other program has one; any field will do.
    tol : float, default 1e-3
        The lower bound is improved until a gap of this size is proved between it and the best image found on the way.
    maxiter : int, default 50
        Bound on the steps that improve the lower bound; 0: judge `x` and `dual` as they are.

    Returns
    -------
    TVGap
        ``gap``, ``objective`` of x, ``lower`` bound of the least objective.

    Examples
    --------
    >>> import numpy as np
    >>> import stepwell
    >>> noisy = np.random.default_rng(0).normal(size=(16, 16))
    >>> judged = stepwell.tv_gap(None, noisy, noisy, 0.5, shape=(16, 16))
    >>> float(judged.gap[0]) > 0.3  # no solution: at least 30 % above the least
    True
    >>> best = stepwell.tv(None, noisy, 0.5, shape=(16, 16)).x
    >>> float(stepwell.tv_gap(None, noisy, best, 0.5, shape=(16, 16)).gap[0]) < 2e-3
    True
    """
    tol = read_real("tol", tol, above=0)
    maxiter = read_whole("maxiter", maxiter, 0, as_float=True)
    require(x is not None, "x", x, "an array of real numbers")
    if A is None and is_image(b, read_shape(shape)) and is_image(x, read_shape(shape)):
        x = namespace_of(x).reshape(x, (-1,))
    given = read_problem(
        A, b, x, dual, shape=shape, kind=kind, eps=eps, bounds=bounds, spacing=spacing, across=across, axis=axis,
        name="b", start="x",
    )  # fmt: skip
    lams = _per_problem(read_numbers("lam", lam, given.task.grid.count), given, "lam")
    with own_arithmetic():
        given, base = _in_range(given)
        task = given.task
        task.lam = lams / given.unit
        solver = Solver(task, given.x0, given.dual, base)
        data = task.forward(given.x0)
        f = task.objective(given.x0, data - task.B)
        inside = to_host(namespace_of(task.B).all(
            namespace_of(task.B).reshape(task.nearest(given.x0) == given.x0, (task.grid.batch, -1)), axis=1
        ))  # fmt: skip
        f = np.where(inside > 0, f, np.inf)
        solver.run(np.arange(task.grid.batch), np.full(task.grid.batch, tol), maxiter)
    lower, error = _proved(solver, tol)
    scale = given.problem_scale**2
    known = np.isfinite(f) & (f > 0)
    gap = np.where(known, 1 - lower / np.where(known, f, 1.0), np.where(f == 0, 0.0, np.inf))
    grid = task.grid
    return TVGap(
        np.array(grid.of_columns(gap)),
        np.array(grid.of_columns(f * scale)),
        np.array(grid.of_columns(lower * scale)),
        given.user_field(solver.rho * solver.state.splitting.u),
        error,
        _products(solver) + 0.5,
    )


def _in_range(given: Given) -> tuple[Given, Base]:
    """Fit the metric; divide an A whose squares leave the range of the dtype by a power of two, and fit again."""
    base = fit_base(given.task)
    least, most = SOUND_SIZES["float32" if "float32" in str(given.task.B.dtype) else "float64"]
    for _ in range(3):
        if least <= base.size <= most or base.size == 0 or np.isnan(base.size):
            break
        given = given.in_units(power_near(base.size, 120 if most == 1e10 else 1000) if np.isfinite(base.size) else most)
        before = base.products
        base = fit_base(given.task)
        base.products += before
    return given, base


def _solve(
    solver: Solver, given: Given, rule: Any, lams: np.ndarray | None, level: np.ndarray | None, joint: bool,
    tol: float, maxiter: int, watch: Watch | None,
) -> np.ndarray | None:  # fmt: skip
    """Solve with λ as given, or as a rule finds it; return where a search ended at an end of its range."""
    every = np.arange(given.task.grid.batch)
    if lams is None and rule == "discrepancy":
        assert level is not None
        return search(solver, level, joint, tol, maxiter, watch)
    if lams is None:
        assert level is not None
        lams = from_noise(solver, level)
        if joint:
            lams = np.full_like(lams, np.sqrt(np.mean((lams * given.problem_scale) ** 2))) / given.problem_scale
    given.task.lam = lams
    solver.run(every, np.full(every.size, tol), maxiter, watch)
    return None


def _per_problem(values: np.ndarray, given: Given, name: str) -> np.ndarray:
    """Return numbers of columns, in units of the data, as those of problems in the solver's units."""
    if given.task.grid.across:
        require(bool((values == values[:1]).all()), name, values, "one number with across: all columns are one problem")
    found: np.ndarray = values / given.scale
    return found[:1] if given.task.grid.across else found


def _rms(level: np.ndarray, given: Given) -> np.ndarray:
    level = level / given.scale
    found: np.ndarray = np.sqrt(np.mean(level**2, keepdims=True)) if given.task.grid.across else level
    return found


def _proved(solver: Solver, tol: float) -> tuple[np.ndarray, float]:
    """Return lower bounds, zero where the adjoint is none, and how far it is from one."""
    worst = float(max(solver.base.adjoint_error, solver.books.mismatch.max(initial=0.0)))
    allowed = max(OF_TOL * tol, ROUNDING * solver.epsilon)
    matched = (solver.base.adjoint_error <= allowed) & (solver.books.mismatch <= allowed)
    return np.where(matched, solver.books.lower, 0.0), worst


def _products(solver: Solver) -> np.ndarray:
    grid = solver.task.grid
    return np.array(grid.of_columns(solver.books.products)) + solver.shared / max(1, grid.count)


def _result(solver: Solver, given: Given, tol: float, ends: np.ndarray | None, start: float) -> TVResult:
    task, grid, books = solver.task, solver.task.grid, solver.books
    solver.finish()
    lower, error = _proved(solver, tol)
    books.lower = np.minimum(lower, books.f)
    unmatched = (lower == 0) & (error > max(OF_TOL * tol, ROUNDING * solver.epsilon))
    ended = (TVStatus.CONVERGED, TVStatus.STAGNATED, TVStatus.ITERATION_LIMIT)
    status = [
        TVStatus.UNMATCHED if bad and one in ended else one or TVStatus.STOPPED
        for one, bad in zip(solver.status, unmatched)
    ]
    scale = given.problem_scale
    f = books.f
    gap = books.gaps(np.arange(grid.batch))
    residual = solver.state.data - task.B
    norm = np.sqrt(grid.of_problems(column_sums(residual, residual)))
    slack = np.sqrt(2 * np.maximum(f - books.lower, 0.0))
    bracket = np.stack([np.maximum(norm - slack, 0.0), norm + slack], axis=1) * scale[:, None]

    def columns(values: np.ndarray) -> np.ndarray:
        return np.array(grid.of_columns(values))

    lams = columns(task.lam) * given.scale * given.unit
    return TVResult(
        x=given.user_columns(solver.state.x),
        status=given.of_columns(status * grid.count if grid.across else status),
        gap=columns(gap),
        objective=columns(f * scale**2),
        lower=columns(books.lower * scale**2),
        residual_range=np.repeat(bracket, grid.count, axis=0) if grid.across else bracket,
        lam=given.of_columns(lams),
        lam_at_end=None if ends is None else given.of_columns(columns(ends)),
        iterations=columns(books.iterations),
        products=_products(solver),
        sweeps=columns(books.swept),
        history=[np.array(one) for one in solver.history] * (grid.count if grid.across else 1),
        dual=given.user_field(solver.rho * solver.state.splitting.u),
        adjoint_error=error,
        calls=int(np.ceil(solver.calls)),
        seconds=time.perf_counter() - start,
        memory=_memory(given),
    )


def _memory(given: Given) -> int:
    """Bytes of the blocks that a run holds at once: images, fields, recent steps, data."""
    task, grid = given.task, given.task.grid
    number = 4 if "float32" in str(task.B.dtype) else 8
    fields = 5 * len(grid.dims)
    pairs = 0 if task.identity else 6 * PAIRS
    images = 18 + (11 if task.bounded else 0)
    data = 5 * int(task.B.shape[0]) * grid.count
    return task.A.memory + number * (grid.pixels * grid.count * (fields + pairs + images) + data)


class _Watch:
    """Tells the caller of every step; a true answer, or StopIteration, stops the run."""

    def __init__(self, callback: Callable[[TVProgress], object], given: Given, solver: Solver) -> None:
        self.callback, self.given, self.memory, self.stopped = callback, given, _memory(given), False

    def __call__(self, iteration: int, active: int, gap: float, products: float) -> bool:
        grid = self.given.task.grid
        columns = grid.count if grid.across else 1
        told = TVProgress(iteration, active * columns, grid.count, 1.0 if not iteration else gap, products, self.memory)
        try:
            self.stopped |= bool(self.callback(told))
        except StopIteration:
            self.stopped = True
        return self.stopped
