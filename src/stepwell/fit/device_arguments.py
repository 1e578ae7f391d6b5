"""Fits whose data are on a CUDA device: arguments read there, and results handed out there; the data stay."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import Array, copy_to_device_of, holds_double, is_array, is_cuda, namespace_of
from stepwell.arrays.checks import require_finite, require_real
from stepwell.arrays.kinds import as_contiguous
from stepwell.common.checks import read_choice, read_switch, require, require_shape
from stepwell.fit.arguments import (
    feasible_start,
    hold_fixed,
    in_precision,
    in_single,
    on_host,
    owns_x,
    read_along,
    read_bounds,
    read_rows,
    read_weights,
    require_counts,
)
from stepwell.fit.problem import FitProblem
from stepwell.fit.result import FitResult


@dataclasses.dataclass
class DeviceFit:
    """A checked batch of fits: arrays of the caller's library on its device, contiguous, in the type of the fits."""

    lead: tuple[int, ...]  # the shape of the problems
    single: bool
    template: Array  # a number of that library, device and type
    y: Array | None  # (1 or problems, m)
    weights: Array | None  # (1 or problems, m): 1/sigma, 0 where a point does not count
    start: Array  # (1 or problems, n); the kernels move what is outside the bounds
    low: np.ndarray  # (1 or problems, n), float64, on the host
    high: np.ndarray
    options: dict[str, Any]  # the core's
    uncertainty: str | None
    points: int = 0
    names: tuple[str, ...] | None = None
    progress: Callable[[int, int], object] | None = None

    @property
    def problems(self) -> int:
        """Number of fits."""
        return math.prod(self.lead)

    @property
    def parameters(self) -> int:
        """Parameters of a fit."""
        return int(self.low.shape[1])

    @property
    def real(self) -> str:
        """The type of data and parameters."""
        return "float32" if self.single else "float64"


def read_on_device(
    names: tuple[str, ...] | None, n: int, xdata: Any, ydata: Array, p0: Any, sigma: Any, absolute_sigma: bool,
    bounds: Any, nan_policy: str | None, mask: Any, fixed: Any, own_x: bool | None, options: dict[str, Any],
) -> tuple[DeviceFit, bool]:  # fmt: skip
    """Turn the arguments of ``curve_fit`` into a batch, and say whether x belongs to the problems."""
    require_real("ydata", ydata)
    xp, shape = namespace_of(ydata), tuple(int(side) for side in ydata.shape)
    require_shape(len(shape) >= 1 and shape[-1] >= 1, "ydata", ydata, "(m,) or (..., m), at least one point")
    lead, points = shape[:-1], shape[-1]
    own = owns_x(xdata, lead, points, own_x)
    double_x = "float64" in str(getattr(xdata, "dtype", "")) and is_cuda(xdata)
    single = ("float32" in str(ydata.dtype) and not double_x) or not holds_double(ydata)
    template = in_precision(ydata, single)
    y = as_contiguous(xp.astype(xp.reshape(ydata, (-1, points)), template.dtype))
    if nan_policy is not None:
        read_choice("nan_policy", nan_policy, ("raise", "omit"))
        if nan_policy == "raise":
            require_finite("ydata", y)
    low, high = read_bounds(bounds, lead, n)
    start = _start(p0, low, high, lead, n, template)
    if fixed is not None:
        low, high = hold_fixed(fixed, on_host("p0", start).astype(np.float64), low, high, lead, names)
    if single:
        _, low, high = in_single(np.zeros((1, n)), low, high)
    weights = read_weights(sigma, mask, y, nan_policy == "omit", lambda name, one: _along(name, one, y, lead, points))
    if options["loss"] == "poisson":
        require_counts(y, weights, sigma)
    absolute = read_switch("absolute_sigma", absolute_sigma)
    plain = FitProblem(np.empty((0, n)), low, high, lead, not lead, single, template, absolute=absolute, **options)
    return DeviceFit(
        lead, single, template, y, weights, start, low, high, core_options(plain), options["uncertainty"], points,
        names if names is not None and len(names) == n else None, options["progress"],
    ), own  # fmt: skip


def core_options(problem: FitProblem) -> dict[str, Any]:
    """Return what the core wants to know of a batch whose data have the type of its parameters."""
    options = problem.options(float(np.finfo(np.float32 if problem.single else np.float64).eps))
    options.pop("threads")
    return options


def _start(p0: Any, low: np.ndarray, high: np.ndarray, lead: tuple[int, ...], n: int, template: Array) -> Array:
    if is_array(p0) and is_cuda(p0):
        xp = namespace_of(p0)
        require_shape(p0.ndim >= 1 and int(p0.shape[-1]) == n, "p0", p0, f"({n},) or {(*lead, n)}")
        wide = xp.broadcast_to(p0, (*lead, n)) if p0.ndim > 1 else p0
        return as_contiguous(xp.astype(xp.reshape(wide, (-1, n)), template.dtype))
    host = feasible_start(low, high) if p0 is None else read_rows("p0", p0, lead, n)
    require(not np.isnan(host).any(), "p0", p0, "numbers other than NaN")
    return copy_to_device_of(np.ascontiguousarray(host), template)


def _along(argument: str, value: Any, y: Array, lead: tuple[int, ...], points: int) -> Array:
    """Return what lies beside the data as (1 or problems, m), where they are and in their type."""
    xp = namespace_of(y)
    if not (is_array(value) and is_cuda(value)):
        return copy_to_device_of(read_along(argument, value, lead, points), y)
    shape = (points,) if value.ndim <= 1 else (*lead, points)
    return xp.astype(xp.reshape(xp.broadcast_to(value, shape), (-1, points)), y.dtype)


def result_on_device(
    ends: dict[str, Any], lead: tuple[int, ...], names: tuple[str, ...] | None, again: Callable[[bool], Any]
) -> FitResult:
    """Return the result of a batch whose ends are on a device."""
    xp = namespace_of(ends["x"])

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
        names=names,
        _again=again,
        **{name: shaped(ends[name]) for name in named},
    )
