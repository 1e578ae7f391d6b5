"""What an array is: its library, its device, its dtype, how it lies in memory."""

from __future__ import annotations

import math
from typing import Any

import array_api_compat
import numpy as np

Array = Any  # an array of any supported library


# Asked in every call of every solver, and the same for all arrays of one type.
# (Plain Python's are known, and PyTorch's are found by name, kind and namespace: where `torch.compile` traces a first
# call, it can make nothing of a union of types and warns of caches in the general look.)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, list, tuple, dict, np.ndarray)
_kinds: dict[type, str] = dict.fromkeys(_PLAIN, "numpy")
_namespaces: dict[type, Any] = {}
_dtype_names: dict[Any, str] = {}


def kind_of(array: Array) -> str:
    """Name the library of an array: ``"numpy"``, ``"torch"``, ``"cupy"`` or ``"jax"``; plain Python is NumPy's.

    Only this package asks. What others need to know of a library is a function here, such as `same_library`.
    """
    kind = _kinds.get(type(array))
    if kind is None:
        kind = _kinds[type(array)] = _find_kind(array)
    return kind


def _find_kind(array: Array) -> str:
    if (type(array).__module__, type(array).__name__) == ("torch", "Tensor"):
        return "torch"
    if isinstance(array, np.ndarray | np.generic):
        return "numpy"
    if array_api_compat.is_torch_array(array):
        return "torch"
    if array_api_compat.is_cupy_array(array):
        return "cupy"
    if array_api_compat.is_jax_array(array):
        return "jax"
    return "numpy"


def is_array(value: Any) -> bool:
    """Whether a value is an array of NumPy, PyTorch, CuPy or JAX; numbers and lists are none, nor NumPy's scalars.

    Examples
    --------
    >>> is_array(np.zeros(2)), is_array([0.0, 0.0]), is_array(np.float64(0.0))
    (True, False, False)
    """
    return isinstance(value, np.ndarray) or kind_of(value) != "numpy"


def same_library(array: Array, other: Array) -> bool:
    """Whether two arrays are of one library; plain Python is NumPy's.

    Examples
    --------
    >>> same_library(np.zeros(2), [0.0, 0.0])
    True
    """
    return kind_of(array) == kind_of(other)


def describe_home(array: Array) -> str:
    """Say of which library and where an array is, in words fit for a message.

    Examples
    --------
    >>> describe_home(np.zeros(2))
    'a numpy array on cpu'
    """
    return f"a {kind_of(array)} array on {device_name(array)}"


def is_sparse_tensor(array: Any) -> bool:
    """Whether something is a tensor of PyTorch in one of its layouts that leave out zeros."""
    return kind_of(array) == "torch" and str(array.layout) != "torch.strided"


def is_traced(array: Array) -> bool:
    """Whether an array stands for others in a transformation of JAX, such as ``jit``: it has no values to look at."""
    if kind_of(array) != "jax":
        return False
    import jax

    return isinstance(array, jax.core.Tracer)


def namespace_of(*arrays: Array) -> Any:
    """Return the array-API namespace that the arrays share (Python numbers and None are ignored)."""
    given = [a for a in arrays if hasattr(a, "shape")]
    types = {type(a) for a in given}
    if len(types) != 1:
        return array_api_compat.array_namespace(*given)
    (only,) = types
    if only not in _namespaces:
        _namespaces[only] = _find_namespace(given[0])
    return _namespaces[only]


def _find_namespace(array: Array) -> Any:
    if _NUMPY_IS_ONE and (type(array) is np.ndarray or isinstance(array, np.generic)):
        return np
    if kind_of(array) == "torch":
        from array_api_compat import torch as namespace

        return namespace
    if kind_of(array) == "jax":
        import jax.numpy

        return jax.numpy
    return array_api_compat.array_namespace(array)


# From 2.1 on NumPy has all that is used of the array API. (What stands in for it elsewhere takes a tenth of a second to
# import: it asks NumPy for everything it has, its Fortran tools among them.)
_NUMPY_IS_ONE = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


_DLPACK_CUDA = (2, 13)  # kDLCUDA, kDLCUDAManaged


def compiles_each_shape(array: Array) -> bool:
    """Whether an array's library compiles every operation, for every shape anew, on its first call."""
    return kind_of(array) == "jax"


def is_cuda(array: Any) -> bool:
    """Whether something is an array, of whatever library, that lives on a CUDA device."""
    if isinstance(array, np.ndarray | np.generic | float | int):
        return False
    kind = kind_of(array)
    if kind == "cupy":
        return True
    if kind == "torch":
        return bool(array.is_cuda)
    if kind == "jax":
        return any(d.platform in ("gpu", "cuda") for d in array.devices())
    # Of another library: it says so itself (see stepwell.arrays.foreign).
    if hasattr(array, "__cuda_array_interface__"):
        return True
    return hasattr(array, "__dlpack_device__") and int(array.__dlpack_device__()[0]) in _DLPACK_CUDA


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
    return "cuda" if is_cuda(array) else "cpu"


def default_float(array: Array) -> np.dtype:
    """Return the dtype that other numbers become: float64, but for JAX without 64-bit numbers its own, float32."""
    if kind_of(array) != "jax":
        return np.dtype(np.float64)
    import jax

    usual: np.dtype = np.dtype(jax.numpy.result_type(float))
    return usual


def default_dtype(xp: Any) -> Any:
    """Return the dtype that a namespace's arrays have unless told otherwise: float64; JAX's own by its settings.

    Examples
    --------
    >>> default_dtype(np)
    <class 'numpy.float64'>
    """
    return xp.asarray(0.0).dtype if array_api_compat.is_jax_namespace(xp) else xp.float64


def holds_double(array: Array) -> bool:
    """Whether an array's library makes arrays of 64-bit numbers at present: JAX does so only where it is told to."""
    if kind_of(array) != "jax":
        return True
    import jax

    return bool(jax.dtypes.canonicalize_dtype(np.float64) == np.float64)


def same_order(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether an array of some shape holds its elements in the order of the wanted shape: equal, flat, or but for ones.

    Examples
    --------
    >>> same_order((6,), (2, 3)), same_order((2, 1, 3), (2, 3)), same_order((3, 2), (2, 3))
    (True, True, False)
    """
    if shape == wanted or shape == (math.prod(wanted),):
        return True
    return [k for k in shape if k != 1] == [k for k in wanted if k != 1]


def device_index(array: Array) -> int:
    """Return the number of the CUDA device that an array lives on."""
    return int(device_name(array).partition(":")[2] or 0)


def is_contiguous(array: Array) -> bool:
    """Whether a device array lies in one piece, in C order."""
    kind = kind_of(array)
    if kind == "torch":
        return bool(array.is_contiguous())
    if kind == "cupy":
        return bool(array.flags.c_contiguous)
    return True


def as_contiguous(array: Array) -> Array:
    """Return an array in one piece, in C order: itself where it is, else a copy."""
    kind = kind_of(array)
    if kind == "torch":
        return array.contiguous()
    if kind == "cupy":
        import cupy

        return cupy.ascontiguousarray(array)
    return array if kind == "jax" else as_readable(array)


def as_readable(array: Any, dtype: Any = None) -> np.ndarray:
    """Return a host array as the compiled code reads it, in C order and aligned: itself where it is, else a copy.

    Examples
    --------
    >>> import numpy as np
    >>> odd = np.zeros(17, np.uint8)[1:].view(np.float64)  # what np.frombuffer may make of a file
    >>> odd.flags.aligned, as_readable(odd).flags.aligned
    (False, True)
    """
    found = np.ascontiguousarray(array, dtype)
    return found if found.flags.aligned else found.copy()


def strides_of(array: Array) -> tuple[int, ...]:
    """Return an array's strides in elements; those of JAX are not to be asked for, and those of C order.

    Examples
    --------
    >>> strides_of(np.zeros((2, 3)).T)
    (1, 3)
    """
    kind = kind_of(array)
    if kind == "torch":
        return tuple(map(int, array.stride()))
    if kind != "jax":
        return tuple(int(step) // array.itemsize for step in array.strides)
    return tuple(math.prod(array.shape[axis + 1 :]) for axis in range(len(array.shape)))


def rows_contiguous(array: Array) -> Array:
    """Return an array whose last axis lies in one piece: itself where it does, else a copy in C order."""
    return array if array.shape[-1] <= 1 or strides_of(array)[-1] == 1 else as_contiguous(array)


def is_bfloat16(array: Array) -> bool:
    """Whether an array holds bfloat16: real numbers in half precision, which NumPy itself does not know."""
    return dtype_name(getattr(array, "dtype", None)) == "bfloat16"


def dtype_name(dtype: Any) -> str:
    """Return the name of any library's dtype, the same for all of them: ``"float64"``."""
    # (Asked for in every turn of a solver, and NumPy takes microseconds to put one together.)
    name = _dtype_names.get(dtype)
    if name is None:
        name = _dtype_names[dtype] = str(dtype).rpartition(".")[2]
    return name


def numpy_dtype(array: Array) -> np.dtype:
    """Return the NumPy dtype that corresponds to an array's."""
    return np.dtype(dtype_name(array.dtype))


def flushes_small_numbers(array: Array) -> bool:
    """Whether an array's library makes zeros of numbers below the smallest normal one of their dtype."""
    return kind_of(array) == "jax"


def of_numpy(array: Any) -> bool:
    """Whether NumPy reckons with it: an array of its own, or a number."""
    return kind_of(array) in (None, "numpy")


def shapes_are_compiled(array: Array) -> bool:
    """Whether functions of such arrays are usually compiled for their shape, so that a new shape costs seconds."""
    return kind_of(array) == "jax"
