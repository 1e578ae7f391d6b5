"""``curve_fit`` of compiled models whose data are on a CUDA device: nothing but options leaves or enters it."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwell.arrays import Array, copy_to_device_of, host_copy, is_array, is_cuda, namespace_of
from stepwell.arrays.kinds import as_contiguous
from stepwell.common.checks import require
from stepwell.fit.device_arguments import read_on_device, result_on_device
from stepwell.fit.models.cuda import fit_on_device
from stepwell.fit.models.job import Described, Settings, read_x
from stepwell.fit.result import FitResult


def curve_fit(
    model: Described, xdata: Any, ydata: Array, p0: Any, sigma: Any, absolute_sigma: bool, bounds: Any,
    nan_policy: str | None, mask: Any, fixed: Any, own_x: bool | None, options: dict[str, Any],
) -> FitResult:  # fmt: skip
    """Fit data on a device; the arguments are those of `stepwell.curve_fit`."""
    fit, own = read_on_device(
        model.parameters, model.n, xdata, ydata, p0, sigma, absolute_sigma, bounds, nan_policy, mask, fixed, own_x,
        options,
    )  # fmt: skip
    own_points, points = None, fit.points
    if own:
        xp, variables = namespace_of(xdata), len(model.variables)
        columns = xp.reshape(xdata, (variables, -1, points))
        own_points = as_contiguous(xp.astype(xp.moveaxis(columns, 0, 1), fit.template.dtype))
        shared_x = np.zeros((variables, points))
    else:
        host_x = host_copy(xdata) if is_array(xdata) else xdata
        shared_x = read_x(model, host_x, False, points, np.float32 if fit.single else np.float64)
    ends = fit_on_device(
        model, shared_x, fit.y, fit.start, fit.low, fit.high, Settings(**fit.options), weights=fit.weights,
        x_on_device=own_points, uncertainty=fit.uncertainty, problems=fit.problems,
    )  # fmt: skip
    if fit.progress is not None:  # of one launch there is nothing to tell before
        fit.progress(fit.problems, fit.problems)
    again = _Again(model, xdata if not own else own_points, own, ydata, fit.weights, ends["x"])
    return result_on_device(ends, fit.lead, model.parameters, again)


class _Again:
    """Weighed residuals at the end, by the model in the caller's library."""

    def __init__(self, model: Described, x: Any, own: bool, y: Array, weights: Array | None, found: Array) -> None:
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
            x = copy_to_device_of(np.asarray(x, dtype=np.float64), y)
        model: Any = self._model
        found = model(x, *columns) - xp.reshape(y, (-1, int(y.shape[-1])))
        if self._weights is not None:
            found = xp.where(self._weights == 0, xp.zeros_like(found), found * self._weights)
        return xp.reshape(found, tuple(y.shape))
