"""A problem as the caller gave it: in what library, units and precision it is solved, and given back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stepwell.arrays import (
    Array,
    as_float,
    as_user_array,
    copy_to_device_of,
    dtype_name,
    host_view,
    namespace_of,
    same_library,
)
from stepwell.krylov.tv.task import Task
from stepwell.operators import Operator
from stepwell.operators.matrices import scaled


@dataclass
class Given:
    """The task, and what brings its solutions back to the caller.

    Data were divided by ``scale`` and A by ``unit``, all powers of two.
    """

    task: Task
    given: Array
    rows: bool
    scale: np.ndarray
    x0: Array | None
    dual: Array | None
    image: bool
    unit: float = 1.0

    def by_numpy(self) -> Given:
        """Return the same problem with NumPy's arrays around an operator of another library's, which lie on the host.

        For JAX, which compiles every operation for every shape on its first call.
        """
        task, like = self.task, self.task.B
        A = task.A

        def seen(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
            return lambda block: host_view(function(copy_to_device_of(np.ascontiguousarray(block), like)))

        def viewed(part: Array | None) -> Array | None:
            return None if part is None else host_view(part)

        operator = Operator(seen(A.forward), seen(A.adjoint), A.shape, memory=A.memory, name=A.name)
        task = replace(task, A=operator, B=host_view(like), lower=viewed(task.lower), upper=viewed(task.upper))
        return replace(self, task=task, x0=viewed(self.x0), dual=viewed(self.dual))

    def in_double(self) -> Given:
        """Return the same problem with everything but the products with A in double precision.

        Where the identity stands for A, single precision will do: no product has to agree with another.
        """
        task = self.task
        if task.identity or dtype_name(task.B.dtype) != "float32":
            return self

        def wide(part: Array | None) -> Array | None:
            return None if part is None else as_float(part, "float64")

        B, lower, upper = as_float(task.B, "float64"), wide(task.lower), wide(task.upper)
        task = replace(task, B=B, lower=lower, upper=upper, narrow=True)
        return replace(self, task=task, x0=wide(self.x0), dual=wide(self.dual))

    def in_units(self, unit: float) -> Given:
        """Return the same problem with A divided by a power of two, and the unknowns multiplied by it."""
        task = self.task
        lower, upper = (None if side is None else side * unit for side in (task.lower, task.upper))
        A, eps = scaled(task.A, 1 / unit), task.eps * unit
        other = replace(task, A=A, lower=lower, upper=upper, eps=eps)
        x0 = None if self.x0 is None else self.x0 * unit
        dual = None if self.dual is None else self.dual / unit
        return replace(self, task=other, x0=x0, dual=dual, unit=self.unit * unit)

    @property
    def vector(self) -> bool:
        """Whether B was one vector, or one image."""
        return self.image or len(self.given.shape) == 1

    @property
    def problem_scale(self) -> np.ndarray:
        """The scale of every problem."""
        return self.scale[:1] if self.task.grid.across else self.scale

    def of_columns(self, values: Any) -> Any:
        """Return what every column has one of as the caller expects it: of a vector the one value."""
        if not self.vector:
            return values
        return values[0].item() if isinstance(values, np.ndarray) else values[0]

    def user_columns(self, images: Array) -> Array:
        """Return images in the caller's units, library and shape."""
        grid = self.task.grid
        xp = namespace_of(images)
        x = xp.reshape(images, (-1, grid.pixels)) * copy_to_device_of(self.scale[:, None] / self.unit, images)
        x = as_float(x, self.task.precision)
        if self.image:
            x = xp.reshape(x, grid.shape)
        elif self.vector:
            x = x[0, :]
        elif not self.rows:
            x = x.T
        return x if same_library(x, self.given) else as_user_array(host_view(x), self.given)

    def user_field(self, field: Array) -> Array:
        """Return a dual field as ``(axes, columns, *shape)`` in the caller's units and library."""
        grid = self.task.grid
        xp = namespace_of(field)
        p = xp.reshape(field, (len(grid.dims), grid.count, *grid.shape))
        shape = (1, -1) + (1,) * len(grid.shape)
        p = as_float(p * copy_to_device_of(self.scale.reshape(shape) * self.unit, field), self.task.precision)
        return p if same_library(p, self.given) else as_user_array(host_view(p), self.given)
