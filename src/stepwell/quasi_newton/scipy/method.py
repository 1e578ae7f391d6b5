"""The solver as ``method=`` of `scipy.optimize.minimize`, strictly as SciPy's own L-BFGS-B is called and answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from stepwell.common.checks import require_function, require_shape
from stepwell.quasi_newton.driver import drive
from stepwell.quasi_newton.inputs import check_box
from stepwell.quasi_newton.objective import Objective
from stepwell.quasi_newton.results import seconds_of, single_result
from stepwell.quasi_newton.run import Run
from stepwell.quasi_newton.scipy.conventions import read_callback, warn_unused
from stepwell.quasi_newton.scipy.inputs import (
    NOT_GIVEN,
    VERSION,
    read_objective,
    read_pairs,
    read_settings,
    warn_ignored,
)
from stepwell.quasi_newton.status import Status
from stepwell.quasi_newton.variables import Variables

if TYPE_CHECKING:
    from stepwell.quasi_newton.result_types import Result

#: SciPy's words for how a run ended, which programs look for in messages: those of the C code, and before that of the
#: Fortran code. Where SciPy has nothing more to say than this, neither has the message; ``reason`` has ours.
_WORDS: dict[Status, str] = (
    {
        Status.GRADIENT: "CONVERGENCE: NORM OF PROJECTED GRADIENT <= PGTOL",
        Status.DECREASE: "CONVERGENCE: RELATIVE REDUCTION OF F <= FACTR*EPSMCH",
        Status.MAX_ITERATIONS: "STOP: TOTAL NO. OF ITERATIONS REACHED LIMIT",
        Status.MAX_EVALUATIONS: "STOP: TOTAL NO. OF F,G EVALUATIONS EXCEEDS LIMIT",
    }
    if VERSION >= (1, 15)
    else {
        Status.GRADIENT: "CONVERGENCE: NORM_OF_PROJECTED_GRADIENT_<=_PGTOL",
        Status.DECREASE: "CONVERGENCE: REL_REDUCTION_OF_F_<=_FACTR*EPSMCH",
        Status.MAX_ITERATIONS: "STOP: TOTAL NO. of ITERATIONS REACHED LIMIT",
        Status.MAX_EVALUATIONS: "STOP: TOTAL NO. of f AND g EVALUATIONS EXCEEDS LIMIT",
    }
) | {
    Status.TIME_LIMIT: "STOP: CPU EXCEEDING THE TIME LIMIT",
    Status.CALLBACK: "`callback` raised `StopIteration`.",
}
_ABNORMAL = "ABNORMAL" if VERSION >= (1, 15) else "ABNORMAL_TERMINATION_IN_LNSRCH"


def scipy_method(
    fun: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    jac: Any = None,
    hess: Any = None,
    hessp: Any = None,
    bounds: Any = None,
    constraints: Any = (),
    callback: Callable[..., Any] | None = None,
    *,
    tol: float | None = None,
    maxcor: int = 10,
    ftol: float | None = None,
    gtol: float | None = None,
    eps: Any = 1e-8,
    maxfun: float = 15000,
    maxiter: float = 15000,
    maxls: int = 20,
    finite_diff_rel_step: Any = None,
    workers: Any = None,
    disp: Any = NOT_GIVEN,
    iprint: Any = NOT_GIVEN,
    return_all: bool = False,
    **options: Any,
) -> Result:
    """Work as ``scipy.optimize.minimize(..., method=stepwell.scipy_method)``.

    Arguments, options and results are those of SciPy's method L-BFGS-B: bounds are pairs or a `Bounds`, `eps` is the
    step of differences, limits are looked at after each iteration (so that ``maxiter=0`` takes one), `hess` and
    `constraints` warn, variables with equal bounds are not differenced, messages are SciPy's, and `fun`, `jac` and
    `callback` get copies of the points, which they may keep.

    Parameters
    ----------
    fun, x0, args, jac, hess, hessp, bounds, constraints, callback, tol
        As `scipy.optimize.minimize` hands them on. (It hands on ``jac="3-point"`` as None to every method that is a
        callable; where it matters, call this function itself.)
    maxcor, ftol, gtol, eps, maxfun, maxiter, maxls, finite_diff_rel_step, workers, disp, iprint, return_all
        The options of SciPy's L-BFGS-B.
    **options
        ``relative_gtol``, ``target``, ``time_limit``, ``cauchy``, ``line_search``, ``h0``, ``threads``, as for
        `stepwell.minimize`.

    Returns
    -------
    Result
        The fields that SciPy's method has, and ours: ``reason`` is a `Status`.

    Examples
    --------
    >>> import numpy as np, scipy.optimize, stepwell
    >>> fun = lambda x: (x @ x, 2 * x)
    >>> r = scipy.optimize.minimize(fun, np.ones(3), jac=True, method=stepwell.scipy_method, bounds=[(0.5, None)] * 3)
    >>> r.x
    array([0.5, 0.5, 0.5])
    >>> r.message.startswith("CONVERGENCE: ")
    True
    """
    began = time.perf_counter()
    warn_unused("stepwell.scipy_method", hess, hessp, constraints)
    warn_ignored(disp, iprint, return_all)
    require_function("fun", fun, optional=False)
    tell = read_callback(callback)
    plan = read_settings(tol, ftol, gtol, maxcor, maxls, options)
    maxiter, maxfun = (15000 if limit is None else limit for limit in (maxiter, maxfun))
    args = args if isinstance(args, tuple) else (args,)
    start = np.asarray(x0).ravel()
    if start.dtype != np.float32:
        start = start.astype(float)
    require_shape(start.size > 0, "x0", start, "at least one variable")
    pairs, box, fixed = read_pairs(bounds, start.size), None, None
    if pairs is not None:
        fixed = pairs[0] == pairs[1]
        if not fixed.any():
            fixed = None
        elif fixed.all():
            return _all_fixed(fun, jac, pairs[0], args)
        box = check_box(*pairs, start.dtype)
    if box is not None:
        start = np.minimum(np.maximum(start, box.lower), box.upper)
    variables = Variables(start, start.shape, start.dtype, is_batch=False, on_device=False)
    fun, jac = read_objective(fun, jac, fixed)
    absolute = eps if jac is None else None  # a scheme by its name takes SciPy's relative step
    objective = Objective(
        fun, jac, args, variables, box, relative_step=finite_diff_rel_step, absolute_step=absolute, workers=workers
    )
    if not np.isfinite(start).all():
        return _as_scipys(_not_started(objective, start), objective, fixed, began, began)
    run = Run.of(variables, start[None], box, plan.h0, plan.settings)
    states = run.target.states()
    accepted, iterations = states["accepted"], states["iterations"]  # as they will be after each turn
    ended: Status | None = None

    def after() -> None:
        nonlocal ended
        if not accepted[0]:
            return  # the line search goes on, or has failed
        # As in SciPy, limits count before convergence in the same iteration.
        if iterations[0] >= maxiter:
            ended = Status.MAX_ITERATIONS
        elif objective.nfev > maxfun:
            ended = Status.MAX_EVALUATIONS
        if tell is not None:
            try:
                tell(states[0], run.accepted("x").astype(float, copy=False))
            except StopIteration:
                ended = Status.CALLBACK
        if ended is not None:
            run.target.stop(ended.value)

    ready = time.perf_counter()
    drive(run, objective, began=began, after=after)
    inverse = run.inverse_hessian()
    result = single_result(states[0], x=run.accepted("x"), jac=run.accepted("g"), hess_inv=inverse)
    if ended is not None:
        result.update(reason=ended, status=ended.scipy, success=ended.success)
    return _as_scipys(result, objective, fixed, began, ready)


def _as_scipys(result: Result, objective: Objective, fixed: np.ndarray | None, began: float, ready: float) -> Result:
    """Put doubles, SciPy's words and counts into a result; differences know nothing of fixed variables."""
    reason, gradient = result["reason"], result["jac"].astype(float, copy=False)
    if objective.differenced and fixed is not None:
        gradient[fixed] = np.nan
        result.hess_inv = None
    ours = f"{'CONVERGENCE' if reason.success else _ABNORMAL}: {result['message']}"
    result.update(
        x=result["x"].astype(float, copy=False), jac=gradient, nfev=objective.nfev, njev=objective.njev,
        message=_WORDS.get(reason, ours), seconds=seconds_of(began, ready, objective),
    )  # fmt: skip
    return result


def _not_started(objective: Objective, x: np.ndarray) -> Result:
    """Return what SciPy makes of a start that is not finite: that point, without success."""
    from stepwell.quasi_newton.result_types import Result

    try:
        f, g = objective(x)
    finally:
        objective.close()
    status = Status.NONFINITE_START
    return Result(
        x=x, fun=f, jac=g, nit=0, status=status.scipy, reason=status, message="x0 is not finite", success=False,
        hess_inv=None,
    )  # fmt: skip


def _all_fixed(fun: Callable[..., Any], jac: Any, x: np.ndarray, args: tuple[Any, ...]) -> Result:
    """Return the only point that bounds allow, as SciPy does: without a gradient."""
    from stepwell.quasi_newton.result_types import Result

    value = fun(x.copy(), *args)
    status = Status.GRADIENT
    return Result(
        x=x.copy(), fun=value[0] if jac is True else value, nfev=1, njev=0, nhev=0, nit=0, success=True,
        status=status.scipy, reason=status, message="All independent variables were fixed by bounds.",
    )  # fmt: skip
