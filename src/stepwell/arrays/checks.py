"""Checks of arrays, of whatever library, in the words of `stepwell.common.checks`."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from stepwell.arrays import (
    Array,
    as_readable,
    describe_home,
    device_name,
    host_copy,
    host_view,
    is_array,
    is_bfloat16,
    is_cuda,
    is_sparse_tensor,
    namespace_of,
    same_library,
)
from stepwell.common.checks import WrongKind, real_or_none, require_kind


def read_array(argument: str, value: Any, allowed: str = "an array of real numbers", instead: str = "") -> Array:
    """Return a dense array of real numbers as it is, of whatever library; make one of a number, a list or the like.

    `instead` says who takes sparse matrices and operators, where somebody does.

    Examples
    --------
    >>> read_array("b", [[1, 2], [3]])
    Traceback (most recent call last):
    ...
    stepwell.common.checks.WrongKind: b is [[1, 2], [3]]; allowed: an array of real numbers
    """
    _require_unmasked(argument, value)
    _require_dense(argument, value, instead)
    if is_array(value):
        require_real(argument, value)
        return np.asarray(value) if isinstance(value, np.ndarray) else value  # np.matrix multiplies in its own way
    try:
        found = np.asarray(value)
    except (TypeError, ValueError):  # rows of different lengths, and the like
        found = np.array("no array")
    if found.dtype.kind == "O":
        found = _numbers_of(argument, value, found, allowed + instead)
    require_kind(found.dtype.kind in "biuf", argument, value, allowed)
    return found


def read_numpy(argument: str, value: Any, allowed: str = "an array of real numbers") -> np.ndarray:
    """Return what `read_array` does as an array of NumPy; of one on a GPU nothing is moved silently."""
    found = read_array(argument, value, allowed)
    if is_cuda(found):
        raise WrongKind(f"{argument} is {describe_home(found)}; allowed: an array on the host")
    return host_view(found)


def _require_unmasked(argument: str, value: Any) -> None:
    """Raise for an array whose mask would be lost."""
    # (Asked of those modules that are there: importing this one takes 50 ms of a first call.)
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(value, masked.MaskedArray):
        raise WrongKind(f"{argument} is a masked array; allowed: one without a mask, such as {argument}.filled(0)")


def _require_dense(argument: str, value: Any, instead: str = "") -> None:
    if hasattr(value, "toarray") or hasattr(value, "todense") or is_sparse_tensor(value):
        raise WrongKind(
            f"{argument} is a sparse {type(value).__name__}; allowed: a dense array (by toarray or the like){instead}"
        )


def read_host_array(argument: str, value: Any, dtype: Any = np.float64) -> np.ndarray:
    """Return values as a contiguous host array of a dtype."""
    array = value if type(value) is np.ndarray else view_on_host(argument, value)
    # A cast would drop the imaginary part, or read text, dates and records as numbers.
    if array.dtype.kind in "cSUmM" or array.dtype.type is np.void:
        raise WrongKind(f"{argument} has dtype {array.dtype}; allowed: real numbers")
    if array.dtype.kind == "O":
        array = _numbers_of(argument, value, array, "an array of real numbers that doubles can hold")
    return as_readable(array, dtype)


def _numbers_of(argument: str, value: Any, objects: np.ndarray, allowed: str) -> np.ndarray:
    """Return objects of Python's as doubles where all are numbers, such as fractions; refuse None and the like."""
    _require_dense(argument, value)
    numbers = [real_or_none(one) for one in objects.flat]
    require_kind(None not in numbers, argument, value, allowed)
    return np.array(numbers, dtype=np.float64).reshape(objects.shape)


def view_on_host(argument: str, value: Any) -> np.ndarray:
    """View an array as `stepwell.arrays.host_view` does; what cannot be viewed, or lives on a GPU, is refused."""
    _require_unmasked(argument, value)
    if is_cuda(value):
        raise ValueError(
            f"{argument} is an array on {device_name(value)}, x0 on the host; allowed: one device (nothing is moved "
            "silently)"
        )
    try:
        return host_view(value)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, sparse tensors and the like
        reason = str(error).rstrip(".")
        raise type(error)(
            f"{argument} cannot be read as an array: {reason}; allowed: a dense array of real numbers"
        ) from None


def require_template(argument: str, value: Any, *, optional: bool = True) -> None:
    """Raise for what is not an array by which others are made; `optional`: None stands for NumPy."""
    good = (optional and value is None) or (is_array(value) and not is_sparse_tensor(value))
    require_kind(good, argument, value, f"{'None or ' if optional else ''}an array of NumPy, CuPy, PyTorch or JAX")
    if value is not None:
        require_real(argument, value)


def require_real(argument: str, array: Array) -> None:
    """Raise for an array or matrix, dense or sparse, of what are no real numbers."""
    dtype = array.dtype
    real = dtype.kind in "biuf" if isinstance(dtype, np.dtype) else "complex" not in str(dtype)
    if not real and not is_bfloat16(array):
        raise WrongKind(f"{argument} has dtype {dtype}; allowed: real numbers")


def require_each(good: Array, argument: str, array: Array, allowed: str) -> None:
    """Raise, naming the first number of an array that is not good, unless all are."""
    if not bool(namespace_of(good).all(good)):
        first = int(np.argmin(host_copy(good)))
        index = tuple(map(int, np.unravel_index(first, tuple(array.shape))))
        place = f" at index {index if len(index) > 1 else first}" if index else ""
        raise ValueError(f"{argument} is {float(array.reshape(-1)[first])}{place}; allowed: {allowed}")


def require_finite(argument: str, array: Array) -> None:
    """Raise unless all numbers of an array are finite."""
    require_each(namespace_of(array).isfinite(array), argument, array, "finite numbers")


def require_one_home(argument: str, array: Array, other: str, template: Array, *, library: bool = True) -> None:
    """Raise for arrays on different devices or, on a GPU in any case and if `library` elsewhere, of two libraries."""
    mixed = not same_library(array, template) and (library or is_cuda(array))
    if mixed or device_name(array) != device_name(template):
        raise WrongKind(
            f"{argument} is {describe_home(array)}, {other} {describe_home(template)}; allowed: one library and one "
            "device (nothing is moved silently)"
        )
