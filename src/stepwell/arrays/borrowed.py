"""Memory of another library's programs as arrays that our solvers know: NumPy's; CuPy's or PyTorch's on a GPU.

A compiled program of JAX lends its buffers, and the stream that it works on, while it calls a function.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from stepwell.arrays.kinds import Array

_CUDA = 2  # what DLPack calls the kind of device


@functools.cache
def lender() -> str | None:
    """Name the library whose arrays stand for memory of a GPU: CuPy where it is installed, PyTorch, or None."""
    return next((name for name in ("cupy", "torch") if importlib.util.find_spec(name) is not None), None)


@contextlib.contextmanager
def borrowed(buffers: Sequence[Any], context: Any) -> Iterator[list[Array]]:
    """Lend buffers as arrays; work on those of a GPU goes to the program's stream, in its order.

    Parameters
    ----------
    buffers : sequence
        Of one device; they have ``__dlpack_device__``, and ``__array__`` or ``__cuda_array_interface__``.
    context : object
        Whose ``stream`` is the address of a CUDA stream, where the buffers are those of a GPU.

    Examples
    --------
    >>> with borrowed([np.ones(3)], None) as (one,):
    ...     one += 1
    >>> one
    array([2., 2., 2.])
    """
    kind, index = buffers[0].__dlpack_device__() if buffers else (0, 0)
    if kind != _CUDA:
        yield [np.asarray(buffer) for buffer in buffers]
    elif lender() == "cupy":
        import cupy

        with cupy.cuda.Device(index), _cupy_stream(int(context.stream), index):
            yield [_as_cupy(buffer, index) for buffer in buffers]
    else:
        import torch

        with torch.no_grad(), torch.cuda.stream(torch.cuda.ExternalStream(context.stream, device=index)):
            yield [torch.as_tensor(_Writable(buffer), device=f"cuda:{index}") for buffer in buffers]


def give_back(found: Array, into: Array) -> None:
    """Copy what was found into memory that was lent, in the dtype of that."""
    if hasattr(into, "copy_"):
        into.copy_(found)
    else:
        into[...] = found


def _as_cupy(buffer: Any, index: int) -> Array:
    import cupy

    told = buffer.__cuda_array_interface__
    dtype, shape = np.dtype(told["typestr"]), tuple(told["shape"])
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    memory = cupy.cuda.UnownedMemory(told["data"][0] or 0, max(size, 1), buffer, index)
    return cupy.ndarray(shape, dtype, memptr=cupy.cuda.MemoryPointer(memory, 0))


def _cupy_stream(handle: int, index: int) -> Any:
    import cupy

    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(_Stream(handle))
    return cupy.cuda.ExternalStream(handle, index)  # before CuPy 14


class _Stream:
    """A stream that says what it is, as libraries ask each other."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._handle)


class _Writable:
    """A buffer under PyTorch's condition that nothing is read-only. (What is lent for reading is not written to.)"""

    def __init__(self, buffer: Any) -> None:
        told = dict(buffer.__cuda_array_interface__)
        self.buffer = buffer
        self.__cuda_array_interface__ = told | {"data": (told["data"][0] or 0, False), "strides": None, "version": 2}
        self.__cuda_array_interface__.pop("stream", None)
