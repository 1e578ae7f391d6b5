"""``curve_fit`` of compiled models whose data are on a CUDA device: nothing but options leaves or enters it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stepwell.arrays import Array, host_copy, is_array, is_cuda, namespace_of
from stepwell.arrays.kinds import as_contiguous
from stepwell.common.checks import require, require_shape
from stepwell.fit.arguments import feasible_start, hold_fixed, in_single, owns_x, read_bounds, read_rows
from stepwell.fit.models.cuda import fit_on_device
from stepwell.fit.models.job import Settings, read_x
from stepwell.fit.models.model import CompiledModel
from stepwell.fit.problem import FitProblem
from stepwell.fit.result import FitResult


def curve_fit(
    model: CompiledModel, xdata: Any, ydata: Array, p0: Any, sigma: Any, absolute_sigma: bool, bounds: Any,
    nan_policy: str | None, mask: Any, fixed: Any, own_x: bool | None, options: dict[str, Any],
) -> FitResult:  # fmt: skip
    """Fit data on a device; the arguments are those of `stepwell.curve_fit`."""
    xp, shape = namespace_of(ydata), tuple(int(side) for side in ydata.shape)
    require_shape(len(shape) >= 1 and shape[-1] >= 1, "ydata", ydata, "(m,) or (..., m), at least one point")
    lead, points, n = shape[:-1], shape[-1], model.n
    problems = math.prod(lead)
    own = owns_x(xdata, lead, points, own_x)
    double_x = "float64" in str(getattr(xdata, "dtype", "")) and is_cuda(xdata)
    single = "float32" in str(ydata.dtype) and not double_x
    real = xp.float32 if single else xp.float64
    y = as_contiguous(xp.astype(xp.reshape(ydata, (-1, points)), real))
    low, high = read_bounds(bounds, lead, n)
    start = _start(p0, low, high, lead, n, y, xp, real, fixed)
    if fixed is not None:
        low, high = hold_fixed(fixed, np.asarray(host_copy(start), float), low, high, lead, model.parameters)
    if single:
        _, low, high = in_single(np.zeros((1, n)), low, high)
    weights = _weights(sigma, mask, nan_policy == "omit", y, lead, points, xp, real)
    shared_x = own_points = None
    if own:
        variables = len(model.variables)
        columns = xp.reshape(xdata, (variables, -1, points))
        own_points = as_contiguous(xp.astype(xp.moveaxis(columns, 0, 1), real))
        shared_x = np.zeros((variables, points))
    else:
        host_x = host_copy(xdata) if is_array(xdata) else xdata
        shared_x = read_x(model, host_x, False, points, np.float32 if single else np.float64)
    empty = np.empty((0, n))
    read = FitProblem(empty, low, high, lead, not lead, single, ydata, absolute=bool(absolute_sigma), **options)
    settings = read.options(float(np.finfo(np.float32 if single else np.float64).eps))
    settings.pop("threads")
    ends = fit_on_device(
        model, shared_x, y, start, low, high, Settings(**settings), weights=weights, x_on_device=own_points,
        uncertainty=options["uncertainty"], problems=problems,
    )  # fmt: skip
    return _result(
        model, ends, lead, xp, _Again(model, xdata if not own else own_points, own, ydata, weights, ends["x"])
    )


def _start(
    p0: Any, low: np.ndarray, high: np.ndarray, lead: tuple[int, ...], n: int, y: Array, xp: Any, real: Any, fixed: Any
) -> Array:
    """Return starts (1 or problems, n) on the device; the kernel moves those that are outside the bounds."""
    if is_array(p0) and is_cuda(p0):
        require_shape(int(p0.shape[-1]) == n, "p0", p0, f"({n},) or {(*lead, n)}")
        wide = xp.broadcast_to(p0, (*lead, n)) if p0.ndim > 1 else p0
        found = xp.astype(xp.reshape(wide, (-1, n)), real)
    else:
        host = feasible_start(low, high) if p0 is None else read_rows("p0", p0, lead, n)
        require(not np.isnan(host).any(), "p0", p0, "numbers other than NaN")
        found = xp.astype(_on_device(host, y), real)
    return as_contiguous(found)


def _on_device(values: np.ndarray, template: Array) -> Array:
    from stepwell.arrays import copy_to_device_of

    return copy_to_device_of(values, template)


def _weights(
    sigma: Any, mask: Any, omit: bool, y: Array, lead: tuple[int, ...], points: int, xp: Any, real: Any
) -> Array | None:
    """Return weights 1/sigma (1 or problems, m), 0 where a point does not count; None where all are 1."""
    weights = None
    if sigma is not None:
        weights = 1 / xp.astype(_rows(sigma, y, lead, points, xp), real)
    if mask is not None:
        counts = xp.astype(_rows(mask, y, lead, points, xp), real)
        weights = counts if weights is None else weights * counts
    if omit:
        there = xp.astype(~xp.isnan(y), real)
        weights = there if weights is None else weights * there
    return None if weights is None else as_contiguous(weights)


def _rows(value: Any, y: Array, lead: tuple[int, ...], points: int, xp: Any) -> Array:
    there = value if is_array(value) and is_cuda(value) else _on_device(np.asarray(value), y)
    shape = (points,) if there.ndim <= 1 else (*lead, points)
    return xp.reshape(xp.broadcast_to(there, shape), (-1, points))


def _result(model: CompiledModel, ends: dict[str, Any], lead: tuple[int, ...], xp: Any, again: Any) -> FitResult:
    def shaped(values: Array | None) -> Any:
        return None if values is None else xp.reshape(values, lead + tuple(values.shape[1:]))

    variances = ends.get("variances")
    named = ("cost", "promise", "distance", "violation", "optimality", "active_mask", "rank", "nit", "nfev", "njev",
             "status")  # fmt: skip
    return FitResult(
        x=shaped(ends["x"]),
        pcov=shaped(ends.get("pcov")),
        stderr=None if variances is None else shaped(xp.sqrt(variances)),
        dof=shaped(ends["points"] - ends["free"]),
        names=model.parameters,
        _again=again,
        **{name: shaped(ends[name]) for name in named},
    )


class _Again:
    """Weighed residuals at the end, by the model in the caller's library."""

    def __init__(self, model: CompiledModel, x: Any, own: bool, y: Array, weights: Array | None, found: Array) -> None:
        self._model, self._x, self._own = model, x, own
        self._y, self._weights, self._found = y, weights, found

    def __call__(self, derivatives: bool) -> Any:
        require(not derivatives, "jac", "of data on a device", "model.jac(x, *params) of NumPy arrays")
        xp, y = namespace_of(self._y), self._y
        columns = [self._found[:, k : k + 1] for k in range(self._model.n)]
        x = xp.moveaxis(self._x, 1, 0) if self._own else self._x
        if self._own and len(self._model.variables) == 1:
            x = x[0]
        if not is_array(x) or not is_cuda(x):
            x = _on_device(np.asarray(x, dtype=np.float64), y)
        found = self._model(x, *columns) - xp.reshape(y, (-1, int(y.shape[-1])))
        if self._weights is not None:
            found = xp.where(self._weights == 0, xp.zeros_like(found), found * self._weights)
        return xp.reshape(found, tuple(y.shape))
