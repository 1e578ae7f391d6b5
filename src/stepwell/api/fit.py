"""``curve_fit`` and ``least_squares``: nonlinear least squares within bounds, one problem or millions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from stepwell.api.fit_blocks import are_containers, over_blocks
from stepwell.arrays import is_array, is_cuda
from stepwell.arrays.bounds import split_bounds
from stepwell.common.checks import read_switch, read_whole, require, warn_caller
from stepwell.common.keywords import keywords_told
from stepwell.common.progress import with_bar
from stepwell.common.typing import ArrayLike
from stepwell.derivatives import plug_for
from stepwell.derivatives.fit import Given
from stepwell.fit import arguments
from stepwell.fit.arguments import axes_of
from stepwell.fit.assembling import result_of, solved
from stepwell.fit.evaluation import evaluation_of
from stepwell.fit.functions import Curve, Residual, parameter_names
from stepwell.fit.loop import solve
from stepwell.fit.options import read_further, read_limit, read_options, read_steps
from stepwell.fit.problem import FitProblem
from stepwell.fit.result import FitResult
from stepwell.fit.starts import over_starts
from stepwell.fit.variable_projection import solve_projected
from stepwell.fit.whitening import whitened

Loss = Literal["linear", "soft_l1", "huber", "cauchy", "arctan", "poisson"]


@with_bar("fits")
@keywords_told
def curve_fit(
    f: Callable[..., Any],
    xdata: Any,
    ydata: ArrayLike,
    p0: ArrayLike | dict[str, Any] | None = None,
    sigma: ArrayLike | None = None,
    absolute_sigma: bool = False,
    check_finite: bool | None = None,
    bounds: Any = (-np.inf, np.inf),
    method: str | None = None,
    jac: Callable[..., Any] | Literal["2-point", "3-point", "cs"] | None = None,
    *,
    full_output: bool = False,
    nan_policy: Literal["raise", "omit"] | None = None,
    mask: ArrayLike | None = None,
    fixed: Any = None,
    linear: Sequence[str | int] | None = None,
    own_x: bool | None = None,
    loss: Loss = "linear",
    f_scale: float = 1.0,
    x_scale: Any = "jac",
    starts: int | ArrayLike | None = None,
    uncertainty: Literal["covariance", "stderr"] | None = "covariance",
    ftol: float | None = None,
    xtol: float | None = None,
    gtol: float | None = None,
    maxiter: int | None = None,
    maxfev: int | None = None,
    max_nfev: int | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | bool | None = None,
    callback: Callable[[Any], object] | None = None,
    dim: str | None = None,
) -> FitResult:
    """Fit a model to data within bounds: one curve, or an array of them at once.

    Arguments are SciPy's, in SciPy's order, and ``popt, pcov = stepwell.curve_fit(...)`` works as it does there.

    Parameters
    ----------
    f : callable or compiled model
        The model. ``f(x, a, b, ...)`` as in SciPy: with several problems each parameter comes as a column (k, 1), so
        that ``lambda t, a, k: a * np.exp(-k * t)`` returns (k, m) by itself. Or ``f(x, p)`` and ``f(x, p, rows)``,
        where the second argument is called ``p``: one array (k, n) of the problems `rows` that still run. Functions of
        NumPy, CuPy, PyTorch or JAX. A model of :mod:`stepwell.models` is fitted by compiled code.
    xdata : any
        Handed on to `f` as it is. Where its shape is that of `ydata`, each problem has its own x.
    ydata : array, shape (m,) or (..., m)
        The data: points along the last axis, problems along all others. An array of dask, cut into blocks of whole
        problems, gives a result whose fields are arrays of dask, not yet computed; a DataArray of xarray one of
        DataArrays. The bits are those of a direct call.
    p0 : array, shape (n,) or (..., n), or dict, optional
        The start; as a dict, numbers or arrays by the names of the parameters. By default 1, or inside the bounds.
    sigma : array, shape (m,) or (..., m), optional
        Standard deviations of the data; of one problem also a covariance matrix (m, m).
    absolute_sigma : bool, default False
        Whether `sigma` is known as it is, or only up to a factor.
    check_finite : bool, optional
        False lets a lone problem with NaN in the data end with a status. Problems of a batch always do.
    bounds : pair or dict, optional
        (lower, upper): numbers, (n,) or (..., n); or a ``scipy.optimize.Bounds``; or pairs by the names of parameters,
        where those that are left out have none.
    method : {None, "lm", "trf", "dogbox"}
        SciPy's names, all of which stand for one method. It takes bounds.
    jac : callable, {"2-point", "3-point", "cs"}, optional
        Derivatives (m, n), of many problems (k, m, n), called as `f` is. By default PyTorch and JAX differentiate by
        forward mode; NumPy and CuPy functions are differenced at points inside the bounds.
    full_output : bool
        Not taken: the result has all of it.
    nan_policy : {"raise", "omit"}, optional
        "omit" leaves points out whose datum is NaN.
    mask : bool array, shape (m,) or (..., m), optional
        Points that count.
    fixed : names, places, or bool array (n,) or (..., n), optional
        Parameters that are held at `p0`.
    linear : names or places, optional
        Parameters that `f` is linear in: they are found by bounded linear least squares inside (variable projection).
    own_x : bool, optional
        Whether x belongs to the problems, where the shape does not tell.
    loss : {"linear", "soft_l1", "huber", "cauchy", "arctan", "poisson"}, default "linear"
        SciPy's robust losses, by reweighting; or the likelihood of counts, whose mean is the model.
    f_scale : float, default 1
        Where residuals begin to count as outliers.
    x_scale : "jac"
        Parameters are scaled by the derivatives.
    starts : int or array, shape (k, n) or (..., k, n), optional
        Further starts beside `p0`: so many, drawn inside finite bounds, or those given. The least cost wins.
    uncertainty : {"covariance", "stderr"}, optional
        What is computed: all of `pcov`, the standard errors alone, or nothing.
    ftol : float, default 1e-10 (1e-6 where the model is evaluated in float32)
        A fit ends where the model within the bounds promises less than this share of the cost. Parameters are then
        within about √(ftol·dof) standard errors of the minimum.
    xtol : float, optional
        Ends after a shorter step, relative to x; by default not tested, since a short step is no sign of an end.
    gtol : float, default 1e-10 (1e-6)
        A fit ends where no free column makes a larger cosine with the residual.
    maxiter : int, default 400 (n + 1)
        Limit on steps.
    maxfev, max_nfev : int, optional
        Limit on evaluations, by SciPy's two names.
    threads : int, default all
        CPU threads, beside those of `f`.
    progress : callable or bool, optional
        Called as ``progress(done, problems)`` after each turn. True shows a bar, in a terminal or a notebook.
    callback : callable, optional
        Called with the points (k, n) that the running problems have come to; StopIteration ends the fit.
        (Ctrl-C raises :class:`stepwell.Interrupted`, whose `result` has the best points so far, but for fits by
        compiled code or on a device.)
    dim : str, optional
        The dimension of a DataArray `ydata` along which the points of one problem lie; all others are problems. The
        parameters are the dimension ``param`` of the result, with their names as its coordinate.

    Returns
    -------
    FitResult
        Also unpacks as ``popt, pcov``. Trouble in one problem of a batch is that problem's status. With tensors that
        ask for gradients, and inside JAX's transformations, `x` has derivatives in `ydata`, `sigma`, `xdata` and the
        bounds, by the implicit formula with the whole Hessian.

    Examples
    --------
    >>> import numpy as np, stepwell
    >>> t = np.linspace(0, 4, 50)
    >>> decay = lambda t, a, k: a * np.exp(-k * t)
    >>> popt, pcov = stepwell.curve_fit(decay, t, decay(t, 2.5, 1.3), [1, 1], bounds=(0, 10))
    >>> popt.round(6)
    array([2.5, 1.3])
    >>> many = stepwell.curve_fit(decay, t, decay(t, np.array([[2.5], [1.0]]), 1.3), [1, 1], bounds=(0, 10))
    >>> many.x.round(6)
    array([[2.5, 1.3],
           [1. , 1.3]])
    """
    if isinstance(p0, dict) or isinstance(bounds, dict):
        p0, bounds = arguments.by_name(p0, bounds, parameter_names(f))
    if are_containers(xdata, ydata, p0, sigma, mask, fixed, bounds) or dim is not None:
        every = dict(
            p0=p0, sigma=sigma, absolute_sigma=absolute_sigma, check_finite=check_finite, bounds=bounds, method=method,
            jac=jac, full_output=full_output, nan_policy=nan_policy, mask=mask, fixed=fixed, linear=linear, own_x=own_x,
            loss=loss, f_scale=f_scale, x_scale=x_scale, starts=starts, uncertainty=uncertainty, ftol=ftol, xtol=xtol,
            gtol=gtol, maxiter=maxiter, maxfev=maxfev, max_nfev=max_nfev, threads=threads, progress=progress,
            callback=callback,
        )  # fmt: skip
        return over_blocks(curve_fit, f, xdata, ydata, every, dim)
    plug = ends = None
    if type(ydata) is not np.ndarray:
        ends = split_bounds(bounds, "ends") if isinstance(bounds, tuple | list) else None
        plug = plug_for((), ydata, sigma, xdata, *(ends or ()), look=False)
    if plug is not None:
        every = dict(
            p0=p0, absolute_sigma=absolute_sigma, check_finite=check_finite, method=method, jac=jac,
            nan_policy=nan_policy, mask=mask, fixed=fixed, linear=linear, own_x=own_x, loss=loss, f_scale=f_scale,
            x_scale=x_scale, starts=starts, uncertainty=uncertainty, ftol=ftol, xtol=xtol, gtol=gtol, maxiter=maxiter,
            maxfev=maxfev, max_nfev=max_nfev, threads=threads, progress=progress, callback=callback,
        )  # fmt: skip
        return _differentiable(plug, f, xdata, ydata, sigma, ends or bounds, every)
    require(
        not read_switch("full_output", full_output),
        "full_output",
        True,
        "False: the result has all of it (r.nfev, r.residuals, r.message)",
    )
    given = dict(
        method=method, loss=loss, f_scale=f_scale, x_scale=x_scale, uncertainty=uncertainty, ftol=ftol, xtol=xtol,
        gtol=gtol, maxiter=maxiter, max_nfev=read_limit(maxfev, max_nfev), threads=threads,
        progress=progress, callback=callback,
    )  # fmt: skip
    options = read_options(given)
    if linear is None and starts is None and callback is None and is_array(ydata) and is_cuda(ydata):
        read = (xdata, ydata, p0, sigma, absolute_sigma, bounds, nan_policy, mask, fixed, own_x, options)
        found = _curve_on_device(f, jac, read)
        if found is not None:
            return found
    whole = None
    if sigma is not None and axes_of("ydata", ydata) == 1 and axes_of("sigma", sigma) == 2:
        whole, sigma = sigma, None
    problem, curve = arguments.read_curve(
        f, xdata, ydata, p0, sigma, absolute_sigma, check_finite, bounds, nan_policy, mask, fixed, own_x, options
    )
    compiled = getattr(f, "__stepwell_fit__", None)
    evaluation = evaluation_of(curve, jac, problem)
    if whole is not None:
        evaluation = whitened(evaluation, problem, whole)
        compiled = None
    if linear is not None:
        places = arguments.read_places("linear", linear, problem.parameters, parameter_names(f))
        require(loss == "linear", "loss", loss, "'linear' where parameters are projected out")
        require(starts is None, "starts", starts, "None with linear")
        return result_of(problem, solve_projected(problem, evaluation, places), evaluation, curve)
    run = solve if compiled is None or callable(jac) or callback is not None else _Compiled(compiled)
    if starts is not None:
        best, chosen = over_starts(problem, evaluation, starts, run)
        return result_of(problem, best, evaluation, curve, chosen)
    return solved(problem, run, evaluation, curve)


def _differentiable(
    plug: Any, f: Any, xdata: Any, ydata: Any, sigma: Any, bounds: Any, every: dict[str, Any]
) -> FitResult:
    """Fit with x a function of data, sigma, x and bounds."""
    lead, points = tuple(ydata.shape[:-1]), int(ydata.shape[-1])
    own = arguments.owns_x(xdata, lead, points, every["own_x"])
    require(
        sigma is None or axes_of("sigma", sigma) <= 1 or bool(lead), "sigma", "a matrix", "deviations, with derivatives"
    )
    given = Given(Curve(f, xdata, own), own, every["loss"], every["f_scale"], every["mask"], lead, points)

    def solver(*, lower: Any, upper: Any, **parts: Any) -> FitResult:
        return curve_fit(f, bounds=(lower, upper), **parts, **every)

    parts = dict(xdata=xdata, ydata=ydata, sigma=sigma, lower=bounds[0], upper=bounds[1])
    found: FitResult = plug.curve_fit(solver, given, parts)
    return found


def _curve_on_device(f: Any, jac: Any, read: tuple[Any, ...]) -> FitResult | None:
    """Fit data on the device where they are; None where that cannot be done, and the host decides."""
    if hasattr(f, "__stepwell_fit_on_device__"):
        return f.__stepwell_fit_on_device__(*read) if jac is None else None
    from stepwell.fit.device_loop import fit_curve_on_device, fits_on_device

    n = arguments.count_parameters(f, read[2], parameter_names(f))
    return fit_curve_on_device(f, jac, n, *read) if fits_on_device(read[1], jac, n) else None


class _Compiled:
    """Solves by a compiled model's own code."""

    def __init__(self, fit: Callable[[FitProblem], dict[str, Any]]) -> None:
        self._fit = fit

    def __call__(self, problem: FitProblem, evaluation: Any) -> dict[str, Any]:
        return self._fit(problem)


@with_bar("fits")
@keywords_told
def least_squares(
    fun: Callable[..., Any],
    x0: ArrayLike,
    jac: Callable[..., Any] | Literal["2-point", "3-point", "cs"] | None = None,
    bounds: Any = (-np.inf, np.inf),
    method: str | None = None,
    ftol: float | None = None,
    xtol: float | None = None,
    gtol: float | None = None,
    x_scale: Any = "jac",
    loss: Loss = "linear",
    f_scale: float = 1.0,
    diff_step: Any = None,
    tr_solver: Any = None,
    tr_options: Any = None,
    jac_sparsity: Any = None,
    max_nfev: int | None = None,
    verbose: int = 0,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    callback: Callable[[Any], object] | None = None,
    workers: Any = None,
    *,
    fixed: Any = None,
    starts: int | ArrayLike | None = None,
    uncertainty: Literal["covariance", "stderr"] | None = "covariance",
    maxiter: int | None = None,
    threads: int | None = None,
    progress: Callable[[int, int], object] | bool | None = None,
) -> FitResult:
    """Minimise ½Σρ(r_i(x)²) within bounds: one problem, or a batch of them.

    Arguments are SciPy's, in SciPy's order. With `x0` of shape (..., n) there is one problem per row.

    Parameters
    ----------
    fun : callable
        Residuals: ``fun(x)`` maps (n,) to (m,). For a batch ``fun(x)`` or ``fun(x, rows)`` maps points (k, n) of the
        problems `rows` that still run to (k, m).
    x0 : array, shape (n,) or (..., n)
        The start. NumPy, CuPy, PyTorch or JAX.
    jac : callable, {"2-point", "3-point", "cs"}, optional
        Derivatives (m, n), of a batch (k, m, n). By default PyTorch and JAX differentiate by forward mode; NumPy and
        CuPy functions are differenced at points inside the bounds.
    bounds, method, ftol, xtol, gtol, x_scale, loss, f_scale, max_nfev, callback, fixed, starts, uncertainty, maxiter, \
threads, progress
        As in :func:`stepwell.curve_fit`.
    diff_step : float or array of n, optional
        Step of differences, relative to abs(x).
    tr_solver, tr_options, jac_sparsity, verbose, workers
        SciPy's; not used here, a warning says so.
    args, kwargs
        Further arguments of `fun` and `jac`.

    Returns
    -------
    FitResult

    Examples
    --------
    >>> import numpy as np, stepwell
    >>> rosenbrock = lambda x: np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]])
    >>> stepwell.least_squares(rosenbrock, [-1.2, 1.0], bounds=(-np.inf, [0.75, 2])).x
    array([0.75  , 0.5625])
    """
    unused = dict(tr_solver=tr_solver, tr_options=tr_options, jac_sparsity=jac_sparsity, workers=workers)
    named = [name for name, value in unused.items() if not (value is None or (isinstance(value, dict) and not value))]
    named += ["verbose"] if read_whole("verbose", verbose, 0) else []
    if named:
        warn_caller(f"{', '.join(named)}: SciPy's, not used here")
    args, kwargs = read_further(args, kwargs)
    counted = isinstance(loss, str) and loss == "poisson"
    require(not counted, "loss", loss, "robust losses; for the likelihood of counts, curve_fit")
    given = dict(
        method=method, loss=loss, f_scale=f_scale, x_scale=x_scale, uncertainty=uncertainty, ftol=ftol, xtol=xtol,
        gtol=gtol, maxiter=maxiter, max_nfev=max_nfev, threads=threads, progress=progress, callback=callback,
    )  # fmt: skip
    options = read_options(given)
    problem = arguments.read_residual(fun, x0, bounds, fixed, options)
    function = Residual(fun, args, kwargs, problem.lone)
    evaluation = evaluation_of(function, jac, problem, read_steps(diff_step, problem.parameters))
    if starts is not None:
        ends, chosen = over_starts(problem, evaluation, starts, solve)
        return result_of(problem, ends, evaluation, None, chosen)
    if is_array(x0) and is_cuda(x0) and callback is None:
        from stepwell.fit.device_loop import fits_on_device, minimise_on_device

        if fits_on_device(x0, jac, problem.parameters):
            return minimise_on_device(problem, function, jac)
    return solved(problem, solve, evaluation, None)
