"""The API: ``tv`` for total variation with a proven gap, ``tv_gap`` to judge any image."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from stepwell.arrays import double_precision, namespace_of, to_host
from stepwell.common.checks import read_real, read_switch, read_whole, require, require_function, warn_caller
from stepwell.common.keywords import keywords_told
from stepwell.common.typing import ArrayLike, BoundsLike, NumberOrArray, OperatorLike
from stepwell.krylov.reductions import Sums
from stepwell.krylov.tv.denoising import Denoiser
from stepwell.krylov.tv.given import Given
from stepwell.krylov.tv.inputs import RULES, is_image, read_numbers, read_problem, read_shape
from stepwell.krylov.tv.lam import from_noise, joint_mean, search
from stepwell.krylov.tv.metric import fit_in_range
from stepwell.krylov.tv.reporting import Teller, products_of, proved, result_of
from stepwell.krylov.tv.results import TVGap, TVProgress, TVResult
from stepwell.krylov.tv.solving import Solver, Watch
from stepwell.operators.error_state import own_arithmetic

Kind = Literal["isotropic", "anisotropic", "huber"]
Rule = Literal["noise", "discrepancy"]


@keywords_told
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
    weights: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    x0: ArrayLike | None = None,
    dual: ArrayLike | None = None,
    tol: float = 1e-3,
    maxiter: int = 200,
    axis: Literal[0, 1] = 1,
    callback: Callable[[TVProgress], object] | None = None,
    comm: Any = None,
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
    weights : array, the shape, optional
        A weight for the length of each pixel's differences; with ``kind="anisotropic"`` also (axes, ...) and the shape,
        one for each difference. At least 0.
    mask : array of bool, the shape, optional
        Pixels that belong to the image; the others are zero, and differences with them do not count.
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
    comm : optional
        A communicator, as `stepwell.distributed.read_comm` takes it: every rank calls with columns of its own, perhaps
        none, and the whole of A. ``joint`` finds one λ for the columns of all ranks; a wish to stop, and an error, of
        one rank is that of all.

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
    team = Sums(comm)
    read: Any = None
    with team.holding():
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
            A, B, x0, dual, shape=shape, kind=kind, eps=eps, bounds=bounds, spacing=spacing, across=across, axis=axis,
            weights=weights, mask=mask,
        )  # fmt: skip
        require(across is None or not team.spread, "across", across, "None with comm: ranks share no column")
        count = given.task.grid.count
        lams = None if isinstance(lam, str) else _per_problem(read_numbers("lam", lam, count), given, "lam")
        level = None if noise is None else _rms(read_numbers("noise", noise, count), given)
        read = given, lams, level
    team.check()
    given, lams, level = read
    by_name = {"tol": tol, "maxiter": maxiter, "joint": joint, "shape": given.task.grid.shape, "kind": kind}
    team.agree_all(by_name | {"eps": eps, "lam": lam if isinstance(lam, str) else "a number"})
    columns, watched = team.of_all(given.task.grid.count, callback is not None).sum(axis=0)
    with own_arithmetic(), double_precision(given.task.B):
        given.task.A = team.held_operator(given.task.A)
        given, base = fit_in_range(given.in_double())
        lams = None if lams is None else lams / given.unit
        solver = (Denoiser if given.task.identity else Solver)(given.task, given.x0, given.dual, base, team)
        team.check()
        watch = Teller(callback, given, int(columns), team) if watched else None
        ends: np.ndarray | None = None
        try:
            ends = _solve(solver, given, lam, lams, level, joint, tol, maxiter, watch)
        except KeyboardInterrupt as interrupt:
            from stepwell.quasi_newton.driver import Interrupted

            solver.stop()
            carrier = Interrupted(*interrupt.args)
            carrier.result = result_of(solver, given, tol, None, start)
            raise carrier from interrupt
        result = result_of(solver, given, tol, ends, start)
        team.check()
    if ends is not None and ends.any():
        low, high = int((ends < 0).sum()), int((ends > 0).sum())
        warn_caller(
            f"lam of {low + high} of {ends.size} columns lies at an end of the range searched ({low} lower, {high} "
            "upper): noise is no level that the residual has there; see lam_at_end, and give lam itself"
        )
    return result


@keywords_told
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
    weights: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    dual: ArrayLike | None = None,
    tol: float = 1e-3,
    maxiter: int = 50,
    axis: Literal[0, 1] = 1,
) -> TVGap:
    """Prove how far given images are from the least objective at most, whichever program made them.

    Parameters
    ----------
    A, b, lam, shape, kind, eps, bounds, spacing, across, weights, mask, axis
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
        weights=weights, mask=mask, name="b", start="x",
    )  # fmt: skip
    lams = _per_problem(read_numbers("lam", lam, given.task.grid.count), given, "lam")
    with own_arithmetic(), double_precision(given.task.B):
        given, base = fit_in_range(given.in_double())
        task = given.task
        task.lam = lams / given.unit
        solver = (Denoiser if task.identity else Solver)(task, given.x0, given.dual, base)
        data = task.forward(given.x0)
        f = task.objective(given.x0, data - task.B)
        inside = to_host(namespace_of(task.B).all(
            namespace_of(task.B).reshape(task.nearest(given.x0) == given.x0, (task.grid.batch, -1)), axis=1
        ))  # fmt: skip
        f = np.where(inside > 0, f, np.inf)
        solver.run(np.arange(task.grid.batch), np.full(task.grid.batch, tol), maxiter)
    lower, error = proved(solver, tol)
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
        products_of(solver) + 0.5,
    )


def _solve(
    solver: Solver, given: Given, rule: Any, lams: np.ndarray | None, level: np.ndarray | None, joint: bool,
    tol: float, maxiter: int, watch: Watch | None,
) -> np.ndarray | None:  # fmt: skip
    """Solve with λ as given, or as a rule finds it; return where a search ended at an end of its range."""
    every = np.arange(given.task.grid.batch)
    if lams is None and rule == "discrepancy":
        assert level is not None
        return search(solver, level, given.problem_scale, joint, tol, maxiter, watch)
    if lams is None:
        assert level is not None
        lams = from_noise(solver, level)
        if joint:
            lams = joint_mean(lams * given.problem_scale, solver) / given.problem_scale
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
