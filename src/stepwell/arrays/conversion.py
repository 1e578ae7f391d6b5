"""Arrays from one library or device to another: views where possible, copies where asked for."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays.kinds import Array, dtype_name, is_array, is_bfloat16, is_cuda, kind_of, namespace_of


def host_view(array: Array) -> np.ndarray:
    """View a host array of any library as NumPy, without a copy where the library allows it.

    Numbers of bfloat16 and of eight bits, which NumPy does not have, are copied to float32.
    """
    if kind_of(array) == "torch":
        return np.asarray(_numpy_knows(array.detach().resolve_neg()).numpy())
    values = array if isinstance(array, np.ndarray) else np.asarray(array)
    return values.astype(np.float32) if values.dtype.kind == "V" and is_bfloat16(array) else values


def _numpy_knows(tensor: Array) -> Array:
    """Return a tensor, in single precision where NumPy has no such short numbers."""
    return tensor.float() if is_bfloat16(tensor) or dtype_name(tensor.dtype).startswith("float8") else tensor


def scalar_of(value: Any) -> float:
    """Return a function value as a float: a number, or an array of any library with one element."""
    if isinstance(value, float):
        return float(value)
    value = without_graph(value)  # PyTorch warns where a value that is to be differentiated becomes a number
    if isinstance(value, np.ndarray):
        value = value.reshape(-1)[0] if value.size == 1 else value
    elif hasattr(value, "shape") and value.shape != () and math.prod(value.shape) == 1:
        value = value.reshape(())  # no index: that takes JAX a hundred times as long as the rest
    dtype = getattr(value, "dtype", None)
    if isinstance(value, complex) or (dtype.kind == "c" if isinstance(dtype, np.dtype) else "complex" in str(dtype)):
        raise TypeError(f"f is of type {'complex' if dtype is None else dtype}; allowed: a number that is real")
    try:
        if isinstance(value, str | bytes):  # of digits, too
            raise TypeError
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        array = hasattr(value, "shape") and not isinstance(value, str | bytes)
        what = f"an array of shape {tuple(value.shape)}" if array else type(value).__name__
        raise TypeError(f"f is {what}; allowed: a number") from None
    except OverflowError:  # integers and fractions have no limit
        raise ValueError(f"f is of type {type(value).__name__} and beyond 1.8e308; allowed: a number within") from None


def as_user_array(values: np.ndarray, template: Array) -> Array:
    """Return host values as an array of the template's library, sharing memory where the library allows it."""
    kind = kind_of(template)
    if kind == "torch":
        import torch

        return torch.from_numpy(values)
    if kind == "jax":
        import jax

        # A read-only or unaligned buffer cannot be shared with JAX: it copies those by itself.
        return _in_jax(jax.device_put, values, template)
    return values


def as_user_rows(values: np.ndarray, template: Array) -> list[Array]:
    """Return the rows of host values, each as `as_user_array` does."""
    if kind_of(template) == "torch":
        import torch

        return list(torch.from_numpy(values).unbind(0))
    return [as_user_array(row, template) for row in values]


def as_jax_mixes(array: Array, other: Array) -> tuple[Array, Array]:
    """Return two arrays with NumPy's as one of JAX where the other is JAX's, on the host: JAX itself takes both."""
    if kind_of(array) == "jax" and isinstance(other, np.ndarray) and not is_cuda(array):
        return array, as_user_array(other, array)
    if kind_of(other) == "jax" and isinstance(array, np.ndarray) and not is_cuda(other):
        return as_user_array(array, other), other
    return array, other


def readonly_view(values: np.ndarray, template: Array) -> Array:
    """Return host values of the solver's as an array of the template's library, for reading only.

    NumPy refuses to write to it; PyTorch, which knows no such arrays, shares the memory; JAX gets a copy, as its arrays
    never change and the solver's do.
    """
    kind = kind_of(template)
    if kind == "numpy":
        view = values.view()
        view.flags.writeable = False
        return view
    if kind == "jax":
        # Finished before the solver goes on: JAX reads its arguments when it comes to them.
        return _in_jax(_compiled_copy(), values, template).block_until_ready()
    return as_user_array(values, template)


def view_is_copy(template: Array) -> bool:
    """Whether `readonly_view` copies, so that the caller may keep what it returns: for JAX."""
    return kind_of(template) == "jax"


def _in_jax(make: Callable[[np.ndarray], Array], values: np.ndarray, template: Array) -> Array:
    """Make an array of JAX on the template's device with the dtype of the values.

    The contexts that see to both take longer than the rest, and mostly JAX would do the same by itself. Either way the
    array is free to follow others to their device, which one that was put on a named device is not.
    """
    import jax

    if jax_does_alike(template, values.dtype):
        return make(values)
    device = next(iter(template.devices()))
    with jax.default_device(device), jax_double():
        return make(values)


def jax_does_alike(template: Array, dtype: np.dtype) -> bool:
    """Whether JAX by itself puts host values where the template is, and leaves their dtype as it is."""
    if kind_of(template) != "jax":
        return False
    import jax

    usual = jax.config.jax_default_device
    by_name = usual is None or isinstance(usual, str)  # such as "cpu", which the environment may say
    home = jax.local_devices(backend=usual)[0] if by_name else usual
    return next(iter(template.devices())) == home and bool(jax.dtypes.canonicalize_dtype(dtype) == dtype)


@functools.cache
def _compiled_copy() -> Callable[[np.ndarray], Array]:
    """JAX's copy of an array, compiled once for each shape: a quarter of the time of ``jax.numpy.asarray``."""
    import jax

    copy: Callable[[np.ndarray], Array] = jax.jit(jax.numpy.copy)
    return copy


def jax_double() -> Any:
    """Return a context in which JAX makes arrays of 64-bit numbers, where it would shrink them by default."""
    import jax

    return jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64()


def double_precision(template: Array) -> contextlib.AbstractContextManager[Any]:
    """Return a context in which the template's library makes doubles of doubles, as all but JAX do anyway."""
    context: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    return jax_double() if kind_of(template) == "jax" else context


def as_float(array: Array, dtype: str) -> Array:
    """Return an array with a floating dtype, named as NumPy names it: itself where it has it, else a copy."""
    xp = namespace_of(array)
    with double_precision(array):
        return xp.astype(array, getattr(xp, dtype), copy=False)


def host_copy(array: Array) -> np.ndarray:
    """Copy an array of any library, on any device, to the host."""
    kind = kind_of(array)
    if kind == "torch":
        return np.array(_numpy_knows(array.detach().resolve_neg()).cpu().numpy())
    if kind == "cupy":
        return np.asarray(array.get())
    return np.array(array)


def to_host(array: Array) -> np.ndarray:
    """Copy an array of any library and device to the host, as float64."""
    return np.asarray(host_copy(array), dtype=np.float64)


def to_host_together(*arrays: Array) -> list[np.ndarray]:
    """Copy arrays of one library to the host, as float64; JAX's are waited for once, not one after the other."""
    if kind_of(arrays[0]) == "jax":
        import jax

        return [np.asarray(one, dtype=np.float64) for one in jax.device_get(arrays)]
    return [to_host(one) for one in arrays]


def rows_on_host(rows: list[Array]) -> np.ndarray:
    """Copy arrays of one length and library to the host, one below the other, as float64."""
    if kind_of(rows[0]) == "jax":
        return np.stack(to_host_together(*rows))
    xp = namespace_of(rows[0])
    return to_host(xp.stack([xp.astype(row, rows[-1].dtype) for row in rows]))


def own_copy(array: Array) -> Array:
    """Return a copy that may be written to, with the graph that PyTorch has recorded of the array."""
    return array.clone() if kind_of(array) == "torch" else namespace_of(array).asarray(array, copy=True)


def without_graph(array: Array) -> Array:
    """Return a PyTorch tensor without what autograd has recorded of it, and anything else as it is."""
    return array.detach() if kind_of(array) == "torch" else array


def on_device_of(template: Array) -> dict[str, Any]:
    """Return the keyword with which functions that make arrays make them where another one is.

    None for arrays of NumPy before version 2, which have no device, and for traced ones, which are nowhere yet.

    Examples
    --------
    >>> np.zeros(2).shape == np.zeros(2, **on_device_of(np.ones(3))).shape
    True
    """
    return {"device": template.device} if is_array(template) and hasattr(template, "device") else {}


def copy_to_device_of(values: np.ndarray, template: Array) -> Array:
    """Copy host values to the template's library and device; floats take the template's dtype."""
    kind = kind_of(template)
    floating = np.issubdtype(values.dtype, np.floating)
    if kind == "torch":
        import torch

        host = np.ascontiguousarray(values)
        tensor = torch.from_numpy(host if host.flags.writeable else host.copy())
        return tensor.to(device=template.device, dtype=template.dtype if floating else None)
    if kind == "cupy":
        import cupy

        with template.device:
            return cupy.asarray(values, dtype=template.dtype if floating else None)
    if kind == "jax":
        import jax

        return jax.device_put(values.astype(template.dtype) if floating else values, next(iter(template.devices())))
    return values.astype(template.dtype, copy=False) if floating else values
