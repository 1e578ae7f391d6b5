"""The object that a test problem is: start, bounds and a function that follows the kind of its argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import array_api_compat
import array_api_compat.numpy as numpy_namespace
import numpy as np

from stepwell.arrays import Array, default_dtype, host_copy, is_traced, namespace_of
from stepwell.common.checks import require_kind, require_shape

#: What a problem module supplies: ``evaluate(xp, x, tables) -> (f, g)`` for x of shape (..., n).
Evaluate = Callable[[Any, Array, Mapping[str, Array]], tuple[Array, Array]]

#: NumPy works through large arguments in pieces of this many elements, so that temporaries stay in the cache.
PIECE = 1 << 14


@dataclass(frozen=True, eq=False, repr=False)
class Problem:
    """A function to minimise, with its start and bounds.

    Parameters
    ----------
    name : str
        The name that `stepwell.problems.get` knows it by.
    n : int
        Number of variables.
    x0 : array of shape (n,)
        The standard starting point.
    bounds : None or (lower, upper)
        Two arrays of shape (n,), or None when the problem has no bounds.
    parameters : mapping
        Every size and parameter by name, also those left at their defaults.
    reference : str
        Where the problem was published.
    description : str
        One line on what it is.
    minimum : float or None
        The smallest value of the function, where it is known exactly.

    Examples
    --------
    >>> from stepwell.lab import problems
    >>> problem = problems.get("rosenbrock", n=4)
    >>> problem
    <rosenbrock: n=4, c=100.0>
    >>> f, g = problem.fun(problem.x0)
    >>> round(float(f), 12), g.shape
    (48.4, (4,))
    """

    name: str
    n: int
    x0: Array
    bounds: tuple[Array, Array] | None
    parameters: Mapping[str, int | float]
    reference: str
    description: str
    minimum: float | None
    _evaluate: Evaluate
    _tables: Mapping[str, np.ndarray] = field(default_factory=dict)
    _cache: dict[Any, Mapping[str, Array]] = field(default_factory=dict)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{key}={value}" for key, value in self.parameters.items())
        return f"<{self.name}: {sizes}>" if "n" in self.parameters else f"<{self.name}: n={self.n}, {sizes}>"

    def fun(self, x: Array) -> tuple[Array, Array]:
        """Return the value and the gradient at one point or at a batch of points.

        Parameters
        ----------
        x : array of shape (..., n)
            NumPy, PyTorch, CuPy or JAX, float64 or float32, on any device.

        Returns
        -------
        f : array of shape (...)
            The value, in the kind, dtype and on the device of `x`.
        g : array of shape (..., n)
            The gradient, likewise.

        Examples
        --------
        >>> import numpy as np
        >>> from stepwell.lab import problems
        >>> f, g = problems.get("powell", n=4).fun(np.zeros((3, 4)))
        >>> f
        array([0., 0., 0.])
        """
        if isinstance(x, np.ndarray):
            xp: Any = numpy_namespace
            key: Any = x.dtype
            floating = x.dtype.kind == "f"
        elif array_api_compat.is_array_api_obj(x):
            xp = namespace_of(x)
            key = None
            floating = xp.isdtype(x.dtype, "real floating")
        else:
            return self.fun(np.asarray(x, dtype=np.float64))
        if not floating:
            raise TypeError(f"x has dtype {x.dtype}; allowed: real floating-point numbers")
        good = x.ndim > 0 and x.shape[-1] == self.n
        require_shape(good, "x", x, f"(..., {self.n}) for {self.name} with n = {self.n}")
        tables = self._cache.get(key) if key is not None else None
        if tables is None:
            tables = self._tables_like(xp, x)
        if xp is numpy_namespace and x.ndim > 1 and x.size > PIECE and self.n < PIECE:
            return self._by_groups(x, tables)
        f, g = self._evaluate(xp, x, tables)
        if xp is numpy_namespace and f.dtype != x.dtype:
            f = f.astype(x.dtype)  # NumPy 1 widens single numbers
        return f, g

    def to(self, xp: Any, dtype: Any = None, device: Any = None) -> Problem:
        """Return the same problem with `x0` and `bounds` as arrays of another library, type or device.

        Parameters
        ----------
        xp : module
            ``numpy``, ``torch``, ``cupy`` or ``jax.numpy`` (or their `array_api_compat` counterparts).
        dtype : dtype or str, optional
            Default float64 (for JAX without 64-bit mode, float32).
        device : optional
            As `xp` names devices; default: its default device.

        Examples
        --------
        >>> import numpy as np
        >>> from stepwell.lab import problems
        >>> problems.get("wood", n=4).to(np, "float32").x0
        array([-3., -1., -3., -1.], dtype=float32)
        """
        require_kind(callable(getattr(xp, "asarray", None)), "xp", xp, "numpy, torch, cupy or jax.numpy")
        xp = namespace_of(xp.asarray(0.0))
        if dtype is None:
            dtype = default_dtype(xp)
        else:  # a name, or a dtype or scalar type of any library, whose text or name ends in one
            require_kind(
                not isinstance(dtype, list | tuple | dict), "dtype", dtype, "'float64', 'float32' or such a dtype"
            )
            name = dtype if isinstance(dtype, str) else str(getattr(dtype, "__name__", dtype)).rpartition(".")[2]
            require_kind(name in ("float64", "float32"), "dtype", dtype, "'float64', 'float32' or such a dtype")
            dtype = getattr(xp, name)
        if device is not None:
            try:
                xp.asarray(0.0, device=device)
            except Exception:  # whatever the library raises
                require_kind(False, "device", device, "None, or a device of the library xp that is there")

        def convert(values: np.ndarray) -> Array:
            # Through NumPy's own cast, so that JAX never sees a float64 array it would warn about.
            host = values.astype(np.float32) if dtype == xp.float32 else values
            return xp.asarray(host, dtype=dtype, device=device, copy=True)

        x0 = convert(host_copy(self.x0))
        bounds = None
        if self.bounds is not None:
            bounds = convert(host_copy(self.bounds[0])), convert(host_copy(self.bounds[1]))
        moved = replace(self, x0=x0, bounds=bounds)
        # Now, because a CUDA graph that captures `fun` may not copy anything from the host.
        moved._tables_like(xp, x0)
        return moved

    def _tables_like(self, xp: Any, x: Array) -> Mapping[str, Array]:
        """Return the problem's constants in the library, dtype and device of x, made once for each."""
        if xp is numpy_namespace:
            key: Any = x.dtype
        elif is_traced(x):
            # Inside a JAX transformation an array made now would be a tracer: NumPy's are embedded instead.
            key = ("traced", x.dtype)
        else:
            device = array_api_compat.device(x)
            key = (xp.__name__, x.dtype, str(device))  # CuPy devices cannot be hashed
        tables = self._cache.get(key)
        if tables is None:
            if xp is numpy_namespace or is_traced(x):
                tables = {name: values.astype(x.dtype) for name, values in self._tables.items()}
            else:
                single = x.dtype == xp.float32
                tables = {
                    name: xp.asarray(values.astype(np.float32) if single else values, dtype=x.dtype, device=device)
                    for name, values in self._tables.items()
                }
            self._cache[key] = tables
        return tables

    def _by_groups(self, x: np.ndarray, tables: Mapping[str, Array]) -> tuple[Array, Array]:
        """Evaluate a large NumPy batch a few points at a time."""
        points = x.reshape(-1, self.n)
        f = np.empty(points.shape[0], x.dtype)
        g = np.empty(points.shape, x.dtype)
        step = max(1, PIECE // self.n)
        for first in range(0, points.shape[0], step):
            group = slice(first, first + step)
            f[group], g[group] = self._evaluate(numpy_namespace, points[group], tables)
        return f.reshape(x.shape[:-1]), g.reshape(x.shape)
