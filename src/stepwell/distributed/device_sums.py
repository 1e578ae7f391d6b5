"""Sums over the chunks of an array on a CUDA device, the same bits wherever a chunk lies."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from stepwell.arrays import Array, as_contiguous, as_float, namespace_of, shares_streams
from stepwell.arrays.device_memory import DeviceMemory
from stepwell.checks import require
from stepwell.cuda.nvrtc import cuda_core, load_kernel

if TYPE_CHECKING:
    from stepwell.distributed.layout import Pieces

_THREADS = 1024


@functools.lru_cache(maxsize=8)
def _kernel(device_id: int) -> Any:
    device = cuda_core().Device(device_id)
    return load_kernel("chunk_sums", "stepwell_chunk_sums", {"SW_THREADS": _THREADS}, device)


def device_chunk_sums(values: Array, pieces: Pieces) -> Array:
    """Return one sum a chunk of this rank, float64, on the device; see `Pieces.chunk_sums`."""
    size = pieces.end - pieces.begin
    require(math.prod(values.shape) == size, "values", math.prod(values.shape), f"{size} numbers")
    flat = as_contiguous(namespace_of(values).reshape(as_float(values, "float64"), (-1,)))
    memory = DeviceMemory(flat)
    memory.make_current()
    sums = memory.zeros((pieces.chunks,), "float64")
    if not size:
        return sums
    core, stream = cuda_core(), memory.stream()
    core.launch(
        core.Stream.from_handle(stream),
        core.LaunchConfig(grid=pieces.chunks, block=_THREADS),
        _kernel(memory.device_id),
        memory.address(flat), np.int64(size), np.int64(pieces.chunk_length), np.int64(pieces.before),
        memory.address(sums),
    )  # fmt: skip
    if not shares_streams(flat):
        memory.wait(stream)
    return sums
