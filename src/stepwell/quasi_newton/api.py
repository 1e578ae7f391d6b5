"""The front doors: `minimize` for one problem, `minimize_batch` for many."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from stepwell import _core
from stepwell.arrays import Array, in_kind, is_cuda
from stepwell.checks import read_real, require, require_function, require_kind, require_shape, warn_caller
from stepwell.quasi_newton.bounds import read_bounds
from stepwell.quasi_newton.host_target import BEGIN, FINISH, WHOLE, HostTarget
from stepwell.quasi_newton.objective import Objective
from stepwell.quasi_newton.optimizer import LBFGSB, project_start, read_diagonal, read_start
from stepwell.quasi_newton.results import Status, batch_result, intermediate_batch, intermediate_result
from stepwell.quasi_newton.settings import LineSearch, Settings

if TYPE_CHECKING:
    from stepwell.quasi_newton.result_types import BatchResult, Result

_OPTION_NAMES = {
    "maxcor", "ftol", "gtol", "eps", "maxfun", "maxiter", "maxls", "target", "time_limit", "cauchy",
    "line_search", "h0", "threads", "finite_diff_rel_step", "graph", "time_objective",
}  # fmt: skip
#: Options of SciPy's that no solver here reads, with values that ask for what happens anyway: nothing is printed.
_QUIET: dict[str, tuple[Any, ...]] = {"disp": (None, False), "iprint": (None, -1), "workers": (None, 1)}


def _is_quiet(name: str, value: Any) -> bool:
    return (value is None or isinstance(value, int)) and value in _QUIET.get(name, ())


def _read_options(
    options: dict[str, Any] | None, tol: float | None
) -> tuple[dict[str, Any], Any, float | None, dict[str, Any]]:
    """Split options into settings, h0, the finite-difference step and what only a GPU knows; unknown ones warn."""
    require_kind(options is None or isinstance(options, Mapping), "options", options, "None or a dict")
    if tol is not None:
        read_real("tol", tol, least=0)
    given = dict(options or {})
    unknown = sorted(name for name in set(given) - _OPTION_NAMES if not _is_quiet(name, given[name]))
    if unknown:
        warn_caller(f"unknown options {unknown} are ignored; known: {', '.join(sorted(_OPTION_NAMES))}")
    if tol is not None:
        given.setdefault("ftol", tol)
        given.setdefault("gtol", tol)
    settings = {
        name: given[name]
        for name in ("ftol", "gtol", "eps", "maxfun", "maxiter", "target", "time_limit", "cauchy", "threads")
        if given.get(name) is not None
    }
    if given.get("maxcor") is not None:
        settings["m"] = given["maxcor"]
    search = LineSearch.of(given.get("line_search") or "lbfgsb")
    if given.get("maxls") is not None:
        search = LineSearch(**{**search.__dict__, "maxls": given["maxls"]})
    settings["line_search"] = search
    relative = given.get("finite_diff_rel_step")
    if relative is not None:
        read_real("finite_diff_rel_step", relative, above=0)
    graph = given.get("graph", "auto")
    require(graph in ("auto", True, False), "options['graph']", graph, "'auto', True, False")
    how = {"graph": graph, "time_objective": bool(given.get("time_objective"))}
    return settings, given.get("h0"), relative, how


def _callback_form(callback: Callable[..., Any] | None) -> str | None:
    """Tell how a callback wants to be called: by keyword ``intermediate_result`` or with the point."""
    require_function("callback", callback)
    if callback is None:
        return None
    try:
        names = set(inspect.signature(callback).parameters)
    except (TypeError, ValueError):
        return "point"
    return "result" if names == {"intermediate_result"} else "point"


def minimize(
    fun: Callable[..., Any],
    x0: Array,
    args: tuple[Any, ...] = (),
    jac: Any = None,
    bounds: Any = None,
    tol: float | None = None,
    callback: Callable[..., Any] | None = None,
    options: dict[str, Any] | None = None,
) -> Result:
    """Minimise a smooth function of many variables, with or without bounds (L-BFGS, L-BFGS-B).

    Parameters
    ----------
    fun : callable
        ``fun(x, *args) -> f``, or ``-> (f, g)`` with ``jac=True``. It gets an array of x0's kind and shape, a view
        that the solver overwrites after the call; keep a copy if you keep it. Every point lies inside the bounds.
    x0 : array
        Starting point: NumPy, PyTorch, CuPy or JAX, any shape, float64 or float32 (integers become float64, in JAX
        its default float). The run takes place where it lives. Where it lies outside the bounds it is projected onto
        them, with a warning.
    args : tuple
        More arguments of `fun` and `jac`.
    jac : callable, bool or str, optional
        ``jac(x, *args) -> g``; True if `fun` returns both. If missing, PyTorch and JAX functions are differentiated
        automatically and NumPy and CuPy functions by finite differences inside the bounds (``"2-point"``;
        ``"3-point"`` is more accurate).
    bounds : optional
        A `scipy.optimize.Bounds`; a *tuple* of two arrays or numbers (lower, upper); or pairs (low, high), one per
        variable, as a list or tuple of pairs or an (n, 2) array, None standing for no bound.
    tol : float, optional
        Sets `ftol` and `gtol` where the options do not.
    callback : callable, optional
        Called after each iteration as ``callback(x)`` or, if its only parameter has that name, as
        ``callback(intermediate_result=...)`` with fields ``x fun nit nfev step projected_gradient gradient_norm``.
        Raising StopIteration ends the run with status 99.
    options : dict, optional
        ``maxcor`` (10): pairs of history. ``gtol`` (1e-5): stop when the projected gradient's largest element is this
        small. ``ftol`` (2.2e-9): stop when f decreases by less, relative to max(abs(f), 1). ``eps`` (off): stop when
        ‖g‖ <= eps max(1, ‖x‖). ``maxiter``, ``maxfun`` (15000), ``maxls`` (20 evaluations a line search).
        ``target``: stop at this value of f. ``time_limit``: seconds. ``cauchy`` (``"exact"``, ``"first-interval"``,
        ``"none"``). ``line_search`` (``"lbfgsb"``, ``"va15"``, or a `LineSearch`). ``h0``: diagonal of the initial
        inverse Hessian, an array or ``h0(x)``. ``threads``. ``finite_diff_rel_step``. ``graph`` (``"auto"``, True,
        False; GPU only): capture turns with their evaluations in a CUDA graph. ``time_objective`` (False; GPU only):
        let the device time evaluations and turns, for ``result.seconds``. Unknown options warn.

    Returns
    -------
    Result
        SciPy's `OptimizeResult` fields and ours; see `Result`.

    Examples
    --------
    >>> import numpy as np, stepwell
    >>> def fun(x):
    ...     return np.sum((x - 3) ** 2), 2 * (x - 3)
    >>> r = stepwell.minimize(fun, np.zeros(4), jac=True, bounds=(0.0, 2.0))
    >>> r.x, r.success
    (array([2., 2., 2., 2.]), True)
    """
    settings, h0, rel_step, how = _read_options(options, tol)
    args = args if isinstance(args, tuple) else (args,)
    form = _callback_form(callback)
    if is_cuda(x0):
        from stepwell.quasi_newton.device_api import minimize_on_device

        tell = None if form is None else (lambda state, x: _call_back(callback, form, state, x))
        return minimize_on_device(fun, x0, args, jac, bounds, settings, tell, h0=h0, rel_step=rel_step, **how)
    began = time.perf_counter()
    opt = LBFGSB(x0, bounds, h0=h0, **settings)
    objective = Objective(fun, jac, args, opt._template, opt._shape, opt._dtype, opt._target.bounds, rel_step=rel_step)
    point, advance, most = opt._point, opt.advance, opt.settings.maxfun
    while not opt.done:
        f, g = objective(point)
        advance(f, g)
        if objective.spent(most) and not opt.done:
            opt.stop(Status.MAX_EVALUATIONS)
        if form is not None and opt.accepted:
            try:
                _call_back(callback, form, opt._state[0], opt.accepted_point)
            except StopIteration:
                opt.stop(Status.CALLBACK)
    result = opt.result()
    total = time.perf_counter() - began
    result.nfev, result.njev = objective.nfev, objective.njev
    result.seconds = {"total": total, "objective": objective.seconds, "solver": total - objective.seconds}
    return result


def _call_back(callback: Any, form: str, state: Any, x: Callable[[], Array]) -> None:
    if form == "point":
        callback(x())
    else:
        callback(intermediate_result=intermediate_result(state, x()))


def minimize_batch(
    fun: Callable[..., Any],
    x0: Array,
    args: tuple[Any, ...] = (),
    jac: Any = None,
    bounds: Any = None,
    tol: float | None = None,
    callback: Callable[..., Any] | None = None,
    options: dict[str, Any] | None = None,
) -> BatchResult:
    """Minimise many independent functions at once, each with its own history, line search and status.

    The result for each problem is, bit for bit, that of the same problem alone. A problem that has ended stays where
    it is; `fun` still sees its row, but its counts no longer change.

    Parameters
    ----------
    fun : callable
        Maps points (B, n) to values (B,); with ``jac=True`` to values and gradients (B, n). Row k is problem k.
    x0 : (B, n) array
        Starting points.
    jac : callable, bool or str, optional
        As in `minimize`, on (B, n) arrays. If missing, PyTorch and JAX differentiate, NumPy and CuPy are
        differenced.
    bounds : optional
        As in `minimize`, shared by all problems; or a tuple (lower, upper) of arrays (B, n).
    callback : callable, optional
        Called after each evaluation of the batch as ``callback(intermediate_result=...)`` with fields
        ``x fun nit nfev running`` (arrays over problems); StopIteration ends all runs.
    args, tol, options
        As in `minimize`; limits count per problem, evaluations of finite differences included. ``h0`` may be (n,),
        (B, n) or a callable on (B, n) points.

    Returns
    -------
    BatchResult
        ``x`` (B, n), ``fun`` (B,), ``jac``, ``nit``, ``nfev``, ``status`` (SciPy's codes), ``reason`` (list of
        `Status`), ``message``, ``success``, ``projected_gradient``; ``hess_inv(k)`` gives problem k's operator.

    Examples
    --------
    >>> import numpy as np, stepwell
    >>> centre = np.array([[0.5, 2.0], [-3.0, 0.0]])
    >>> fun = lambda x: (((x - centre) ** 2).sum(1), 2 * (x - centre))
    >>> stepwell.minimize_batch(fun, np.zeros((2, 2)), jac=True, bounds=(-1.0, 1.0)).x
    array([[ 0.5,  1. ],
           [-1. ,  0. ]])
    """
    given, h0, rel_step, how = _read_options(options, tol)
    args = args if isinstance(args, tuple) else (args,)
    require_function("callback", callback)
    if is_cuda(x0):
        from stepwell.quasi_newton.device_api import minimize_batch_on_device

        return minimize_batch_on_device(fun, x0, args, jac, bounds, given, callback, h0=h0, rel_step=rel_step, **how)
    settings = Settings(**given)
    began = time.perf_counter()
    start = read_start(x0)
    require_shape(start.ndim == 2, "x0", start, "(B, n), one row per problem")
    template: Array = x0 if hasattr(x0, "shape") else start
    box = read_bounds(bounds, start.shape, start.dtype, batch=True)
    start = project_start(start, box)
    diagonal = h0 if callable(h0) else None
    weights = None
    if diagonal is not None:
        weights = np.ones(start.shape, start.dtype)
    elif h0 is not None:
        shape = start.shape if np.ndim(h0) == 2 else start.shape[1:]
        weights = read_diagonal(h0, shape, start.dtype)
    target = HostTarget(start, box, weights, settings, weights_vary=diagonal is not None)
    objective = Objective(fun, jac, args, template, start.shape, start.dtype, box, batch=True, rel_step=rel_step)
    running = len(start)
    states = target.states
    while running:
        f, g = objective(target.trial)
        if diagonal is None:
            running = target.turn_all(f, g, WHOLE)
        else:
            target.turn_all(f, g, BEGIN)
            waiting = states["action"] == _core.ACTION_ABSORB
            if waiting.any():
                assert weights is not None
                fresh = read_diagonal(diagonal(objective.kindly(target.trial)), start.shape, start.dtype)
                weights[waiting] = fresh[waiting]
            running = target.turn_all(f, g, FINISH)
        if callback is not None:
            try:
                callback(intermediate_result=intermediate_batch(states, in_kind(target.x.copy(), template)))
            except StopIteration:
                running = _stop_all(target, Status.CALLBACK)
        # Problems that still run were part of every evaluation: what was counted is what each alone would have taken.
        if objective.spent(settings.maxfun):
            running = _stop_all(target, Status.MAX_EVALUATIONS)
        if time.perf_counter() - began > settings.time_limit:
            running = _stop_all(target, Status.TIME_LIMIT)
    total = time.perf_counter() - began
    return _batch_result(target, template, objective, total)


def _stop_all(target: HostTarget, status: Status) -> int:
    for problem in np.flatnonzero(target.states["action"] != _core.ACTION_DONE):
        target.stop(int(problem), status.value)
    return 0


def _batch_result(target: HostTarget, template: Array, objective: Objective, total: float) -> BatchResult:
    states = target.states

    from stepwell.quasi_newton.inverse_hessian import InverseHessian, InverseHessians

    def inverse_hessian(problem: int) -> InverseHessian:
        s, y = target.history(problem)
        if target.weights is None:
            return InverseHessian(s, y, float(states["gamma"][problem]), int(target.x.shape[1]))
        weights = target.weights if target.weights.ndim == 1 else target.weights[problem]
        return InverseHessian(s, y, weights.astype(float), int(target.x.shape[1]))

    return batch_result(
        states,
        calls_a_point=objective.calls_a_point,
        x=in_kind(target.x.copy(), template),
        fun=in_kind(states["f"].copy(), template),
        jac=in_kind(target.gradient.copy(), template),
        evaluations=objective.nfev,
        hess_inv=InverseHessians(inverse_hessian, len(states)),
        seconds={"total": total, "objective": objective.seconds, "solver": total - objective.seconds},
    )
