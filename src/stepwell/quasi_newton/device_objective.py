"""The caller's objective on a GPU: values and gradients stay there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stepwell.arrays import Array, is_cuda, namespace_of, to_like
from stepwell.quasi_newton.device_inputs import device_gradient, device_values
from stepwell.quasi_newton.objective import Objective


class DeviceObjective(Objective):
    """Evaluates f and its gradient at device points; nothing crosses to the host that `fun` does not take there."""

    def kindly(self, x: Any) -> Array:
        """Return a device point in the caller's shape."""
        return x if tuple(x.shape) == self._shape else namespace_of(x).reshape(x, self._shape)

    def _values(self, f: Any) -> Any:
        return device_values(f, self._shape[0] if self._batch else 1, self._template)

    def _gradient(self, g: Any) -> Array:
        gradient = device_gradient(g, self._template, self._shape)
        if self._kind == "jax":
            gradient.block_until_ready()  # the turn would wait for it anyway; so its time counts as the objective's
        return gradient

    def _rows(self, x: Array) -> Array:
        return namespace_of(x).reshape(x, self._shape if self._batch else (1, math.prod(self._shape)))

    def _comparable(self, values: Any) -> Any:
        if is_cuda(values):
            return namespace_of(values).reshape(values, (-1,))
        return to_like(values, self._template) if isinstance(values, np.ndarray) else values
