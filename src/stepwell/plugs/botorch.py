"""BoTorch's two optimizations by L-BFGS-B: hyperparameters of a model, and candidates of an acquisition function.

>>> from botorch.fit import fit_gpytorch_mll  # doctest: +SKIP
>>> from stepwell.plugs.botorch import fit_mll, gen_candidates  # doctest: +SKIP
>>> fit_gpytorch_mll(mll, optimizer=fit_mll)  # doctest: +SKIP
>>> optimize_acqf(acqf, bounds, q=1, num_restarts=64, raw_samples=256, gen_candidates=gen_candidates)  # doctest: +SKIP
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from warnings import warn

import torch
from botorch.exceptions.warnings import OptimizationWarning
from botorch.optim.closures import NdarrayOptimizationClosure, get_loss_closure_with_grads
from botorch.optim.core import OptimizationResult, OptimizationStatus
from botorch.optim.utils import get_parameters_and_bounds
from botorch.optim.utils.numpy_utils import get_bounds_as_ndarray
from torch import Tensor

from stepwell.common.checks import require
from stepwell.quasi_newton.api import minimize, minimize_batch
from stepwell.quasi_newton.status import Status

#: Options of BoTorch's own optimizers that say nothing to ours.
_OF_BOTORCH = ("method", "callback", "with_grad", "max_optimization_problem_aggregation_size", "disp", "iprint")


def optimization_status(reason: Status) -> OptimizationStatus:
    """Return what BoTorch calls the end of a run: a limit is ``STOPPED``, which is no failure.

    Examples
    --------
    >>> optimization_status(Status.MAX_ITERATIONS)
    <OptimizationStatus.STOPPED: 4>
    """
    if reason.success or reason is Status.ROUNDING:  # no step lowers f any more: as good as it gets
        return OptimizationStatus.SUCCESS
    stopped = reason.scipy == 1 or reason is Status.CALLBACK
    return OptimizationStatus.STOPPED if stopped else OptimizationStatus.FAILURE


def fit_mll(
    mll: Any,
    parameters: dict[str, Tensor] | None = None,
    bounds: dict[str, tuple[Any, Any]] | None = None,
    closure: Callable[..., Any] | None = None,
    closure_kwargs: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    callback: Callable[[dict[str, Tensor], OptimizationResult], None] | None = None,
    timeout_sec: float | None = None,
) -> OptimizationResult:
    """Fit hyperparameters: the ``optimizer`` of ``botorch.fit.fit_gpytorch_mll``.

    Parameters
    ----------
    mll, parameters, bounds, closure, closure_kwargs, callback, timeout_sec
        As in ``botorch.optim.fit.fit_gpytorch_mll_scipy``. Outputs of a batched model are one problem.
    options : dict, optional
        Those of `stepwell.minimize`.

    Returns
    -------
    OptimizationResult
        Parameters are left at the best point.

    Examples
    --------
    >>> from botorch.fit import fit_gpytorch_mll  # doctest: +SKIP
    >>> fit_gpytorch_mll(mll, optimizer=fit_mll)  # doctest: +SKIP
    """
    began = time.monotonic()
    own, limits = get_parameters_and_bounds(mll)
    limits = limits if bounds is None else {**limits, **bounds}
    if parameters is None:
        parameters = {name: tensor for name, tensor in own.items() if tensor.requires_grad}
    closure = get_loss_closure_with_grads(mll, parameters=parameters) if closure is None else closure
    loss = NdarrayOptimizationClosure(partial(closure, **(closure_kwargs or {})), parameters)
    pairs = get_bounds_as_ndarray(parameters, limits)
    steps = 0

    def told(intermediate_result: Any) -> None:
        nonlocal steps
        steps += 1
        assert callback is not None
        value, runtime = float(intermediate_result.fun), time.monotonic() - began
        callback(parameters, OptimizationResult(steps, value, OptimizationStatus.RUNNING, runtime))

    result = minimize(
        lambda x: tuple(map(_own, loss(x))),
        loss.state,
        jac=True,
        bounds=None if pairs is None else (pairs[:, 0], pairs[:, 1]),
        callback=None if callback is None else told,
        options=_options(options, timeout_sec),
    )
    loss.state = result.x
    status = optimization_status(result.reason)
    if status is OptimizationStatus.FAILURE:
        warn(f"the fit ended with {result.reason.name}: {result.message}", OptimizationWarning, stacklevel=2)
    return OptimizationResult(
        step=result.nit, fval=result.fun, status=status, runtime=time.monotonic() - began, message=result.message
    )


def _options(options: dict[str, Any] | None, timeout_sec: float | None) -> Any:
    """Return options for our solvers: the caller's, less those that are BoTorch's own, and its time limit."""
    given = {name: value for name, value in (options or {}).items() if name not in _OF_BOTORCH}
    return given if timeout_sec is None else given | {"time_limit": max(timeout_sec, 1e-9)}


def _own(value: Any) -> Any:
    """BoTorch writes every gradient into the same array."""
    return value.copy() if getattr(value, "ndim", 0) else float(value)


def gen_candidates(
    initial_conditions: Tensor,
    acquisition_function: Callable[[Tensor], Tensor],
    lower_bounds: float | Tensor | None = None,
    upper_bounds: float | Tensor | None = None,
    inequality_constraints: None = None,
    equality_constraints: None = None,
    nonlinear_inequality_constraints: None = None,
    options: dict[str, Any] | None = None,
    fixed_features: Mapping[int, float | Tensor | None] | None = None,
    timeout_sec: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Maximise an acquisition function from many starts: the ``gen_candidates`` of ``botorch.optim.optimize_acqf``.

    Every start is a problem of its own in one batch; only those that still run are evaluated.

    Parameters
    ----------
    initial_conditions : tensor, (b, q, d) or (q, d)
    acquisition_function : callable
        Maps (k, q, d) to (k,).
    lower_bounds, upper_bounds : float or tensor (d,), optional
    inequality_constraints, equality_constraints, nonlinear_inequality_constraints : None
        Bounds alone are taken.
    options : dict, optional
        Those of `stepwell.minimize_batch`; ``maxiter`` is 2000 if missing.
    fixed_features : dict of int to float or tensor (b,) or (b, q), optional
        Features that stay.
    timeout_sec : float, optional

    Returns
    -------
    candidates, values : tensor
        Of the shape of `initial_conditions`, and (b,).

    Examples
    --------
    >>> optimize_acqf(acqf, bounds, q=1, num_restarts=64, gen_candidates=gen_candidates)  # doctest: +SKIP
    """
    for name, value in (
        ("inequality_constraints", inequality_constraints),
        ("equality_constraints", equality_constraints),
        ("nonlinear_inequality_constraints", nonlinear_inequality_constraints),
    ):
        require(not value, name, value, "None: bounds alone; or BoTorch's own gen_candidates_scipy")
    starts = initial_conditions.detach() if initial_conditions.ndim == 3 else initial_conditions.detach()[None]
    batch, q, d = starts.shape
    fixed = {key % d: value for key, value in (fixed_features or {}).items() if value is not None}
    free = [k for k in range(d) if k not in fixed]
    whole = starts.clone()
    for key, value in fixed.items():
        kept = torch.as_tensor(value, dtype=starts.dtype, device=starts.device)
        whole[..., key] = kept if kept.ndim != 1 else kept[:, None]

    def side(bound: Any, missing: float) -> Tensor:
        ends = torch.as_tensor(missing if bound is None else bound, dtype=starts.dtype, device=starts.device)
        return ends.expand(d)[free].repeat(q)

    def loss(x: Tensor, rows: Any) -> Tensor:
        points = whole[torch.as_tensor(rows, device=whole.device)].clone()
        points[..., free] = x.reshape(-1, q, len(free))
        return -acquisition_function(points)

    result = minimize_batch(
        loss,
        whole[..., free].reshape(batch, -1),
        bounds=(side(lower_bounds, -torch.inf), side(upper_bounds, torch.inf)),
        options={"maxiter": 2000} | _options(options, timeout_sec),
    )
    found = whole.clone()
    found[..., free] = result.x.reshape(batch, q, len(free)).to(whole.dtype)
    failed = [reason.name for reason in result.reason if optimization_status(reason) is OptimizationStatus.FAILURE]
    if failed:
        warn(
            f"{len(failed)} of {batch} starts ended with {', '.join(sorted(set(failed)))}",
            OptimizationWarning,
            stacklevel=2,
        )
    with torch.no_grad():
        values = acquisition_function(found)
    return found.reshape(initial_conditions.shape), values
