"""What the doors take for a run on a GPU, checked: the start, bounds, the diagonal H0, values and gradients.

Arrays of PyTorch, CuPy and JAX must be of x0's library and on its device; nothing is moved silently. What has no device
(numbers, lists, NumPy arrays, `scipy.optimize.Bounds`) is copied to x0's once, before the run.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stepwell.arrays import (
    Array,
    device_name,
    host_copy,
    is_contiguous,
    is_cuda,
    is_like,
    kind_of,
    namespace_of,
    numpy_dtype,
    scalar_of,
    to_like,
    without_graph,
)
from stepwell.arrays.foreign import adopt
from stepwell.checks import (
    read_host_array,
    require_each,
    require_finite,
    require_one_home,
    require_shape,
)
from stepwell.quasi_newton.bounds import read_bounds, split_bounds, warn_projected

#: Lower and upper bounds, whether the problems of a batch share them, and whether every variable has two finite ones.
DeviceBounds = tuple[Array, Array, bool, bool]


def _beside(name: str, value: Any, x0: Array) -> Array | None:
    """Return a device array as one of x0's library, checked to live on its device; None for what has no device."""
    if kind_of(value) == "numpy":
        if not is_cuda(value):
            return None
        value = adopt(value, x0)
    require_one_home(name, value, "x0", x0)
    return value


def read_device_start(x0: Array) -> Array:
    """Check a starting point on a device."""
    dtype = str(x0.dtype).rpartition(".")[2]
    if dtype not in ("float64", "float32"):
        raise TypeError(f"x0 has dtype {dtype}; allowed on a GPU: float64, float32")
    if not is_contiguous(x0):
        raise ValueError("x0 is not contiguous; allowed on a GPU: a contiguous array (x0.contiguous(), or a copy)")
    xp = namespace_of(x0)
    require_shape(0 not in x0.shape, "x0", x0, "at least one variable")
    # (One number, by operations that most programs use anyway: a library loads each from disk at its first use.)
    if not math.isfinite(float(xp.max(xp.abs(x0)))):
        require_finite("x0", x0)
    return without_graph(x0)


def read_device_bounds(bounds: Any, x0: Array, batch: bool) -> DeviceBounds | None:
    """Return the bounds as arrays on x0's device, (n,) or (B, n); None if there is no finite bound at all."""
    shape = tuple(x0.shape)
    halves = split_bounds(bounds, shape)
    if halves is None:
        return None
    found = [_beside("bounds", half, x0) for half in halves]
    if found[0] is None and found[1] is None:
        host = read_bounds(bounds, shape, numpy_dtype(x0), batch=batch)
        if host is None:
            return None
        boxed = bool(np.isfinite(host[0]).all() and np.isfinite(host[1]).all())
        lower, upper = (to_like(half, x0) for half in host)
        return lower, upper, lower.ndim == 1, boxed
    xp = namespace_of(x0)
    own = shape[1:] if batch else shape
    size = math.prod(own)
    arrays = []
    for name, half, array in zip(("lower", "upper"), halves, found):
        if array is None:
            array = to_like(read_host_array(f"bounds: the array of {name} bounds", half), x0)
        if array.ndim == 0 or tuple(array.shape) in ((1,), (size,), own):
            array = xp.broadcast_to(xp.reshape(array, (-1,)), (size,))
        elif tuple(array.shape) == shape:
            array = xp.reshape(array, (shape[0], size) if batch else (size,))
        else:
            raise ValueError(
                f"bounds: the {name} bounds have shape {tuple(array.shape)}; allowed: a number or shape {shape}"
                + (f" or {own}" if batch else "")
            )
        arrays.append(array)
    lower, upper = xp.broadcast_arrays(*arrays)
    allowed = (lower <= upper) & (lower < math.inf) & (upper > -math.inf)
    if not bool(xp.all(allowed)):
        bad = int(np.flatnonzero(~host_copy(allowed).reshape(-1))[0])
        pair = (float(xp.reshape(half, (-1,))[bad]) for half in (lower, upper))
        raise ValueError(
            "bounds at index {} are {}, {}; allowed: lower <= upper, neither NaN, a point between".format(bad, *pair)
        )
    lower, upper = _inwards(lower, x0, 1.0), _inwards(upper, x0, -1.0)
    finite = xp.isfinite(lower), xp.isfinite(upper)
    if not bool(xp.any(finite[0] | finite[1])):
        return None
    return lower, upper, lower.ndim == 1, bool(xp.all(finite[0] & finite[1]))


def _inwards(bound: Array, x0: Array, sign: float) -> Array:
    """Copy a bound in x0's dtype, rounded towards the inside, so that points inside it are inside the caller's."""
    xp = namespace_of(x0)
    rounded = xp.asarray(xp.astype(bound, x0.dtype), copy=True)
    if bound.dtype == x0.dtype:
        return rounded
    outside = xp.astype(rounded, bound.dtype) * sign < bound * sign
    return xp.where(outside, xp.nextafter(rounded, xp.full_like(rounded, sign * math.inf)), rounded)


def project_device_start(x0: Array, bounds: DeviceBounds | None, rows: int) -> Array:
    """Return x0 as a (rows, n) array inside the bounds, and say so where it was outside."""
    xp = namespace_of(x0)
    start = xp.reshape(x0, (rows, -1))
    if bounds is None:
        return start
    inside = xp.minimum(xp.maximum(start, bounds[0]), bounds[1])
    if bool(xp.all(inside == start)):
        return inside
    # A start that rounding alone put outside, by one unit in its last place, needs no words.
    moved = int(xp.sum(xp.astype((inside != start) & (xp.nextafter(start, inside) != inside), xp.int64)))
    warn_projected(moved, math.prod(inside.shape))
    return inside


def read_device_diagonal(h0: Any, x0: Array, start: Array, batch: bool) -> Array:
    """Check a diagonal H0 and return a copy of it, (n,) or (B, n)."""
    weights = _beside("h0", h0, x0)
    if weights is None:
        weights = to_like(read_host_array("h0", h0), x0)
    each = tuple(x0.shape) if not batch or weights.ndim == 2 else tuple(x0.shape)[1:]
    require_shape(is_like(tuple(weights.shape), each), "h0", weights, each)
    return checked_diagonal(weights, x0, tuple(start.shape) if batch and weights.ndim == 2 else (-1,))


def checked_diagonal(weights: Array, x0: Array, shape: tuple[int, ...]) -> Array:
    """Return a copy of a diagonal in a given shape and x0's dtype, every element checked to be positive and finite."""
    require_one_home("h0", weights, "x0", x0)
    xp = namespace_of(weights)
    require_each((weights > 0) & xp.isfinite(weights), "h0", weights, "positive, finite numbers")
    return xp.asarray(xp.reshape(xp.astype(weights, x0.dtype), shape), copy=True)


def device_values(f: Any, count: int, x0: Array) -> Any:
    """Return values of f as they are if they lie on the device (checked), else as a float or a host array."""
    if is_cuda(f):
        f = adopt(f, x0) if kind_of(f) == "numpy" else f
        if math.prod(f.shape) != count:
            raise ValueError(f"fun returned values of shape {tuple(f.shape)}; allowed: {count} of them")
        if str(f.dtype).rpartition(".")[2] not in ("float64", "float32"):
            raise TypeError(f"fun returned values of dtype {f.dtype}; allowed: float64, float32")
        return f if is_contiguous(f) else namespace_of(f).asarray(f, copy=True)
    if count == 1 and np.ndim(f) == 0:
        return scalar_of(f)
    values = read_host_array("f", f)
    if values.size != count:
        raise ValueError(f"fun returned values of shape {values.shape}; allowed: {count} of them")
    return values if count > 1 else float(values.reshape(-1)[0])


def device_gradient(g: Any, x0: Array, shape: tuple[int, ...]) -> Array:
    """Return a gradient, checked to lie where x0 does and to be of its dtype, in one piece."""
    if not is_cuda(g):
        raise TypeError(f"the gradient is a {type(g).__name__} on the host; allowed: an array on {device_name(x0)}")
    g = adopt(g, x0) if kind_of(g) == "numpy" else g
    require_one_home("the gradient", g, "x0", x0)
    require_shape(is_like(tuple(g.shape), shape), "the gradient", g, shape)
    if g.dtype != x0.dtype:
        raise TypeError(f"the gradient has dtype {g.dtype}; allowed: {x0.dtype}, as x0")
    return g if is_contiguous(g) else namespace_of(g).asarray(g, copy=True)
