"""The only module that knows that NumPy, PyTorch, CuPy and JAX differ.

Everything else works on array-API namespaces (``namespace_of``), on NumPy views of host arrays (``host_view``), or
hands a result back in the caller's kind (``in_kind``). No function here moves data between devices.
"""

from __future__ import annotations

import math
from typing import Any

import array_api_compat
import numpy as np

Array = Any  # an array of any supported library


def kind_of(array: Array) -> str:
    """Name the library of an array: ``"numpy"``, ``"torch"``, ``"cupy"`` or ``"jax"``; plain Python is NumPy's."""
    if isinstance(array, np.ndarray | np.generic):
        return "numpy"
    if array_api_compat.is_torch_array(array):
        return "torch"
    if array_api_compat.is_cupy_array(array):
        return "cupy"
    if array_api_compat.is_jax_array(array):
        return "jax"
    return "numpy"


def namespace_of(*arrays: Array) -> Any:
    """Return the array-API namespace that the arrays share (Python numbers and None are ignored)."""
    return array_api_compat.array_namespace(*(a for a in arrays if hasattr(a, "shape")))


def is_cuda(array: Array) -> bool:
    """Whether an array lives on a CUDA device."""
    kind = kind_of(array)
    if kind == "cupy":
        return True
    if kind == "torch":
        return bool(array.is_cuda)
    if kind == "jax":
        return any(d.platform in ("gpu", "cuda") for d in array.devices())
    return False


def device_name(array: Array) -> str:
    """Name the device of an array in words fit for a message: ``"cpu"``, ``"cuda:0"``."""
    kind = kind_of(array)
    if kind == "torch":
        return str(array.device)
    if kind == "cupy":
        return f"cuda:{array.device.id}"
    if kind == "jax":
        device = next(iter(array.devices()))
        return f"cuda:{device.id}" if device.platform in ("gpu", "cuda") else str(device.platform)
    return "cpu"


def host_view(array: Array) -> np.ndarray:
    """View a host array of any library as NumPy, without a copy where the library allows it."""
    if isinstance(array, np.ndarray):
        return array
    if kind_of(array) == "torch":
        return np.asarray(array.detach().numpy())
    return np.asarray(array)


def scalar_of(value: Any) -> float:
    """Return a function value as a float: a number, or an array of any library with one element."""
    if hasattr(value, "shape") and math.prod(value.shape) == 1:
        value = value.reshape(-1)[0]
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        what = f"an array of shape {tuple(value.shape)}" if hasattr(value, "shape") else type(value).__name__
        raise TypeError(f"f is {what}; allowed: a number") from None


def is_like(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether an array of some shape holds its elements in the order of the wanted shape: equal, flat, or but for ones.

    Examples
    --------
    >>> is_like((6,), (2, 3)), is_like((2, 1, 3), (2, 3)), is_like((3, 2), (2, 3))
    (True, True, False)
    """
    if shape == wanted or shape == (math.prod(wanted),):
        return True
    return [k for k in shape if k != 1] == [k for k in wanted if k != 1]


def in_kind(values: np.ndarray, template: Array) -> Array:
    """Return host values as an array of the template's library, sharing memory where the library allows it."""
    kind = kind_of(template)
    if kind == "torch":
        import torch

        return torch.from_numpy(values)
    if kind == "jax":
        import jax

        # A read-only or unaligned buffer cannot be shared with JAX: it copies those by itself.
        with jax.default_device(next(iter(template.devices()))):
            return jax.numpy.asarray(values, dtype=values.dtype)
    return values
