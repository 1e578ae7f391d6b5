"""The solver as ``method=`` of `scipy.optimize.minimize`, strictly as SciPy's own L-BFGS-B is called and answers."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import LbfgsInvHessProduct, OptimizeResult
from scipy.sparse.linalg import LinearOperator

from stepwell import _core
from stepwell.checks import require_function, warn_caller
from stepwell.quasi_newton.optimizer import LBFGSB
from stepwell.quasi_newton.scipy_inputs import NOT_GIVEN, VERSION, as_told, read_pairs, warn_of_unused
from stepwell.quasi_newton.scipy_objective import Evaluation
from stepwell.quasi_newton.settings import LineSearch
from stepwell.quasi_newton.status import Status

if TYPE_CHECKING:
    from stepwell.quasi_newton.inverse_hessian import InverseHessian
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
_ABNORMAL = "ABNORMAL: " if VERSION >= (1, 15) else "ABNORMAL_TERMINATION_IN_LNSRCH: "


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
    warn_of_unused(hess, hessp, constraints, disp, iprint, return_all, options)
    require_function("fun", fun, optional=False)
    if not maxls > 0:
        raise ValueError("maxls must be positive.")
    start = np.asarray(x0).ravel()
    if start.dtype != np.float32:
        start = start.astype(float)
    box = read_pairs(bounds, start.size)
    if box is not None:
        start = np.clip(start, *box).astype(start.dtype, copy=False)
        if (box[0] == box[1]).all():
            return _all_fixed(fun, jac, box[0], args)
    evaluate = Evaluation(fun, jac, args, box, eps, finite_diff_rel_step, workers)
    try:
        if not np.isfinite(start).all():
            return _not_started(evaluate, start, began)
        opt = LBFGSB(
            start, box, **_settings(options, tol, ftol, gtol, maxcor, maxls), maxiter=math.inf, maxfun=math.inf
        )
        ended = _run(opt, evaluate, as_told(callback), *_limits(maxiter, maxfun))
    finally:
        evaluate.close()
    return _result(opt, ended, evaluate, began)


def _run(
    opt: LBFGSB, evaluate: Evaluation, tell: Callable[[OptimizeResult], Any] | None, maxiter: float, maxfun: float
) -> Status | None:
    """Run to the end; return why it was ended here, None where the optimizer ended it.

    As in SciPy, the limits count before convergence in the same iteration.
    """
    done = 0
    while not opt.done:
        opt.tell(*evaluate(opt.x))
        if opt.nit == done:
            continue  # the line search goes on, or has failed
        done = opt.nit
        status = None
        if done >= maxiter:
            status = Status.MAX_ITERATIONS
        elif evaluate.nfev > maxfun:
            status = Status.MAX_EVALUATIONS
        if tell is not None:
            try:
                tell(OptimizeResult(x=opt.accepted_point().astype(float), fun=opt.fun))
            except StopIteration:
                status = Status.CALLBACK
        if status is not None:
            if not opt.done:
                opt.stop(status)
            return status
    return None


class _InverseHessian(LbfgsInvHessProduct):  # type: ignore[misc]
    """The inverse Hessian with SciPy's type and attributes.

    Unlike SciPy's it starts from the scaled diagonal of the run instead of the identity.
    """

    def __init__(self, inner: InverseHessian) -> None:
        LinearOperator.__init__(self, np.float64, inner.shape)
        self._inner = inner
        self.n_corrs, self.h0 = inner.n_corrs, inner.h0

    @property
    def sk(self) -> np.ndarray:
        """Steps, (k, n), oldest first."""
        return self._inner.sk

    @property
    def yk(self) -> np.ndarray:
        """Gradient differences, (k, n), oldest first."""
        return self._inner.yk

    @property
    def rho(self) -> np.ndarray:
        """1 / (s . y) of each pair."""
        return np.array([1 / (s @ y) for s, y in zip(self._inner.sk, self._inner.yk)])

    def _matvec(self, v: np.ndarray) -> np.ndarray:
        return self._inner._matvec(v)

    def _matmat(self, columns: np.ndarray) -> np.ndarray:
        return np.stack([self._inner._matvec(column) for column in np.asarray(columns).T], axis=1)

    def _adjoint(self) -> _InverseHessian:
        return self

    def todense(self) -> np.ndarray:
        """Return the operator as a dense array; for small n."""
        return self._inner.todense()


def _settings(
    options: dict[str, Any], tol: float | None, ftol: float | None, gtol: float | None, maxcor: int, maxls: int
) -> dict[str, Any]:
    """Return the settings of an `LBFGSB`."""
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in (("ftol", ftol), ("gtol", gtol)):
        value = tol if value is None else value
        if value is not None:
            # SciPy's test is never true for NaN nor always false for infinity.
            given[name] = 0.0 if math.isnan(value) else min(value, sys.float_info.max)
    given["gtol"] = max(given.get("gtol", 1e-5), 0.0)  # below 0 is SciPy's way to switch this test off
    if maxcor is not None:
        if maxcor > _core.MAX_CAPACITY:
            warn_caller(f"maxcor is {maxcor}; {_core.MAX_CAPACITY} pairs, the largest number, are kept")
        given["m"] = min(maxcor, _core.MAX_CAPACITY)
    if maxls != 20:
        given["line_search"] = dataclasses.replace(LineSearch.of(given.get("line_search", "lbfgsb")), maxls=maxls)
    return given


def _limits(*limits: float | None) -> tuple[float, ...]:
    return tuple(15000 if limit is None else limit for limit in limits)


def _message(status: Status, ours: str) -> str:
    """Return SciPy's words for a status, with ours where SciPy has none of its own."""
    if status in _WORDS:
        return _WORDS[status]
    return f"{'CONVERGENCE' if status.success else _ABNORMAL.rstrip(': ')}: {ours}"


def _result(opt: LBFGSB, ended: Status | None, evaluate: Evaluation, began: float) -> Result:
    result = opt.result()
    if ended is not None:
        result.reason, result.status, result.success = ended, ended.scipy, ended.success
    result.message = _message(result.reason, result.message)
    result.x = result.x.astype(float, copy=False)
    result.jac = evaluate.unknown(result.jac.astype(float, copy=False))
    result.hess_inv = None if evaluate.left_out else _InverseHessian(result.hess_inv)
    result.nfev, result.njev = evaluate.nfev, evaluate.njev
    total = time.perf_counter() - began
    result.seconds = {"total": total, "objective": evaluate.seconds, "solver": total - evaluate.seconds}
    return result


def _not_started(evaluate: Evaluation, x: np.ndarray, began: float) -> Result:
    """Return what SciPy makes of a start that is not finite: that point, without success."""
    from stepwell.quasi_newton.result_types import Result

    f, g = evaluate(x)
    status = Status.NONFINITE_START
    total = time.perf_counter() - began
    return Result(
        x=x.astype(float), fun=float(f), jac=evaluate.unknown(np.array(g, dtype=float)), nit=0, nfev=evaluate.nfev,
        njev=evaluate.njev, status=status.scipy, reason=status, success=False,
        message=_message(status, "x0 is not finite"), hess_inv=None,
        seconds={"total": total, "objective": evaluate.seconds, "solver": total - evaluate.seconds},
    )  # fmt: skip


def _all_fixed(fun: Callable[..., Any], jac: Any, x: np.ndarray, args: tuple[Any, ...]) -> Result:
    """Return the only point that bounds allow, as SciPy does: without a gradient."""
    from stepwell.quasi_newton.result_types import Result

    value = fun(x.copy(), *(args if isinstance(args, tuple) else (args,)))
    status = Status.GRADIENT
    return Result(
        x=x.copy(), fun=value[0] if jac is True else value, nfev=1, njev=0, nhev=0, nit=0, success=True,
        status=status.scipy, reason=status, message="All independent variables were fixed by bounds.",
    )  # fmt: skip
