"""Start, bounds and diagonal of a run, read once for every target.

Written against the array API, of which NumPy is one user: the host's arrays are NumPy's, a device's are the caller's.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np

from stepwell import _core
from stepwell.arrays import (
    Array,
    as_contiguous,
    as_float,
    copy_to_device_of,
    default_float,
    double_precision,
    dtype_name,
    host_copy,
    is_bfloat16,
    is_contiguous,
    is_cuda,
    namespace_of,
    numpy_dtype,
    same_order,
    view_foreign,
    without_graph,
)
from stepwell.arrays.bounds import split_bounds
from stepwell.arrays.checks import read_host_array, require_each, require_finite, require_real, view_on_host
from stepwell.common.checks import require_shape, warn_caller
from stepwell.quasi_newton.target import Box
from stepwell.quasi_newton.variables import Variables, refuse_traced

_REAL = (np.dtype(np.float64), np.dtype(np.float32))


def read_start(x0: Array, *, batch: bool = False, may_be_empty: bool = False) -> tuple[Variables, Array]:
    """Check a starting point; return what is known of the variables, and the points (B, n) for the target.

    `may_be_empty`: it is a piece of one, and other ranks have the variables.
    """
    refuse_traced("x0", x0)
    on_device = is_cuda(x0)
    if on_device:
        template = values = without_graph(view_foreign(x0))
        name = dtype_name(values.dtype)
        if name not in ("float64", "float32"):
            raise TypeError(f"x0 has dtype {name}; allowed on a GPU: float64, float32")
        if not is_contiguous(values):
            raise ValueError("x0 is not contiguous; allowed on a GPU: a contiguous array (x0.contiguous(), or a copy)")
    else:
        values = view_on_host("x0", x0)
        require_real("x0", values)
        if values.dtype not in _REAL or (values is not x0 and is_bfloat16(x0)):
            values = values.astype(default_float(x0))
        values = np.array(values, order="C")
        template = x0 if hasattr(x0, "shape") else values
    if values.ndim == 0:
        values = namespace_of(values).reshape(values, (1,))
    if batch:
        require_shape(values.ndim == 2, "x0", values, "(B, n), one row per problem")
    require_shape(may_be_empty or 0 not in values.shape, "x0", values, "at least one variable")
    xp = namespace_of(values)
    # (Two numbers tell all that is asked, here and by project_start(): a GPU library loads each operation from disk at
    # its first use. NaN is both the least and the largest.)
    extremes = (0.0, 0.0) if 0 in values.shape else (float(values.min()), float(values.max()))
    if not all(map(math.isfinite, extremes)):
        require_finite("x0", values)
    shape = tuple(map(int, values.shape))
    dtype = numpy_dtype(values) if on_device else values.dtype
    variables = Variables(template, shape, dtype, batch, on_device, extremes)
    return variables, xp.reshape(values, (variables.problems, variables.size))


def read_bounds(bounds: Any, variables: Variables) -> Box | None:
    """Read bounds in any form; None if there is no finite bound at all.

    Bounds may be numbers, of one problem's shape, or (B, n) for a batch. For float32 variables they are rounded
    inwards, so that points inside them are inside what the caller gave; an interval without such a number is held at
    the nearest.
    """
    halves = split_bounds(bounds, shape=variables.shape)
    if halves is None:
        return None
    for half in halves:
        refuse_traced("bounds", half)
    moved = variables.on_device and not any(map(variables.is_foreign, halves))
    # What was given on the host is read there, in double precision, and copied to the device when it is done.
    reader = _host_variables(variables) if moved else variables
    with _double_precision(reader):
        lower, upper = (_read_half(name, half, reader) for name, half in zip(("lower", "upper"), halves))
        box = check_box(lower, upper, variables.dtype)
    if box is None or not moved:
        return box
    lower, upper = (copy_to_device_of(side, variables.template) for side in box[:2])
    return box._replace(lower=lower, upper=upper)


def _host_variables(variables: Variables) -> Variables:
    empty = np.empty(0, variables.dtype)
    return Variables(empty, variables.shape, variables.dtype, variables.is_batch, on_device=False)


def _double_precision(variables: Variables) -> Any:
    """Return a context in which doubles stay doubles on the device, whatever JAX's default."""
    return double_precision(variables.template) if variables.on_device else contextlib.nullcontext()


def _read_half(name: str, half: Any, variables: Variables) -> Array:
    """Return lower or upper bounds as an array (n,) or (B, n), in their own dtype; a number as (1,)."""
    if variables.on_device and not variables.is_foreign(half):
        xp = namespace_of(variables.template)
        double = as_float(xp.reshape(variables.template, (-1,))[:0], "float64")
        array = copy_to_device_of(read_host_array(f"bounds: the array of {name} bounds", half), double)
    else:
        array = variables.placed(f"bounds: the array of {name} bounds", half)
    shape, own, size = variables.shape, variables.own_shape, variables.size
    found = tuple(array.shape)
    xp = namespace_of(array)
    if found in ((), (1,), (size,), own):
        return xp.reshape(array, (-1,))
    if variables.is_batch and found == shape:
        return array
    raise ValueError(
        f"bounds: the {name} bounds have shape {found}; allowed: a number or shape {shape}"
        + (f" or {own}" if variables.is_batch else "")
    )


def check_box(lower: Array, upper: Array, dtype: np.dtype) -> Box | None:
    """Check bounds, arrays (n,) or (B, n), or of one element, and copy them in the dtype of the variables.

    None if none is finite.
    """
    xp = namespace_of(lower, upper)
    if lower.ndim != upper.ndim and 1 not in (math.prod(lower.shape), math.prod(upper.shape)):
        lower, upper = xp.broadcast_arrays(lower, upper)
    # One look at all of them; which one is wrong, and how, only if one is. (NaN fails every comparison.)
    if not bool(((lower <= upper) & (lower < math.inf) & (upper > -math.inf)).all()):
        _refuse_bounds(lower, upper)
    if not bool(((lower > -math.inf) | (upper < math.inf)).any()):
        return None
    low, high = _rounded_inwards(lower, upper, dtype)
    two = (low > -math.inf) & (high < math.inf)
    boxed = bool(two.all())
    if boxed or two.ndim == 1:
        known = isinstance(low, np.ndarray) and low.size == high.size == 1
        return Box(low, high, boxed, numbers=(float(low.item()), float(high.item())) if known else None)
    none = ~((low > -math.inf) | (high < math.inf)).any(1)
    kinds = ((none, _core.OWN_BOUNDS_NONE), (two.all(1), _core.OWN_BOUNDS_BOXED))
    return Box(low, high, False, sum(host_copy(found).astype(np.int8) * kind for found, kind in kinds))


def _refuse_bounds(lower: Array, upper: Array) -> None:
    low, high = np.broadcast_arrays(host_copy(lower), host_copy(upper))
    for name, array in (("lower", low), ("upper", high)):
        require_each(~np.isnan(array), f"bounds: the {name} bound", array, "numbers, -inf, inf")
    crossed = np.flatnonzero(low > high)
    if crossed.size:
        a, b = low.reshape(-1)[crossed[0]], high.reshape(-1)[crossed[0]]
        raise ValueError(f"bounds: lower > upper at index {crossed[0]} ({a} > {b}); allowed: lower <= upper")
    raise ValueError("bounds: a lower bound of +inf or an upper bound of -inf leaves no point; allowed: lower < inf")


def _rounded_inwards(lower: Array, upper: Array, dtype: np.dtype) -> tuple[Array, Array]:
    """Return copies of bounds in the dtype of the variables, rounded towards the inside."""
    xp = namespace_of(lower, upper)
    own: Any = dtype if isinstance(lower, np.ndarray) else getattr(xp, str(dtype))
    with np.errstate(over="ignore"):  # beyond float32's range: infinite, then refused
        low, high = (as_contiguous(xp.asarray(half, dtype=own, copy=True)) for half in (lower, upper))
    if lower.dtype == own and upper.dtype == own:
        return low, high
    beyond = (low == math.inf) | (high == -math.inf)
    if bool(beyond.any()):
        index = int(np.flatnonzero(host_copy(beyond))[0])
        pair = (float(half.flat[index]) for half in np.broadcast_arrays(host_copy(lower), host_copy(upper)))
        raise ValueError("bounds at index {} are ({}, {}); allowed: a {} number between".format(index, *pair, dtype))
    nearest = low
    low = xp.where(low < lower, xp.nextafter(low, xp.full_like(low, math.inf)), low)
    high = xp.where(high > upper, xp.nextafter(high, xp.full_like(high, -math.inf)), high)
    empty = low > high
    if not bool(empty.any()):
        return low, high
    lost = int(xp.sum(xp.astype(empty & (lower < upper), xp.int64)))
    if lost:
        warn_caller(f"bounds: {lost} intervals hold no {dtype} number; these variables are held at the nearest one")
    return xp.where(empty, nearest, low), xp.where(empty, nearest, high)


def project_start(start: Array, box: Box | None, extremes: tuple[float, float] = (-math.inf, math.inf)) -> Array:
    """Move starting points, which lie between `extremes`, into the bounds, and say so where they were outside."""
    if box is None:
        return start
    xp = namespace_of(start)
    if box.numbers is not None and box.numbers[0] <= extremes[0] and extremes[1] <= box.numbers[1]:
        return start
    inside = xp.minimum(xp.maximum(start, box.lower), box.upper)
    outside = inside != start
    if bool(outside.any()):
        # A start that rounding alone put outside, by one unit in its last place, is not worth a warning.
        far = outside & (xp.nextafter(start, inside) != inside)
        moved = int(xp.sum(xp.astype(far, xp.int64)))
        if moved:
            size = math.prod(inside.shape)
            warn_caller(f"x0 lies outside the bounds in {moved} of {size} variables; it was projected onto them")
    return inside


def read_diagonal(h0: Any, variables: Variables, *, each_its_own: bool = False) -> Array:
    """Check a diagonal H0, every element positive and finite; return a copy, (n,) shared by a batch or (B, n).

    `each_its_own`: a batch cannot share it.
    """
    diagonal = variables.placed("h0", h0)
    shared = variables.is_batch and diagonal.ndim != 2 and not each_its_own
    each = variables.own_shape if shared else variables.shape
    require_shape(same_order(tuple(diagonal.shape), each), "h0", diagonal, each)
    xp = namespace_of(diagonal)
    own = xp.astype(diagonal, getattr(xp, str(variables.dtype)))
    require_each((own > 0) & xp.isfinite(own), "h0", own, "positive, finite numbers")
    flat = each == variables.own_shape
    shaped = xp.reshape(own, (-1,) if flat else (variables.problems, variables.size))
    return as_contiguous(xp.asarray(shaped, copy=True))
