"""Sums over the chunks of an array on a CUDA device, the same bits wherever a chunk lies."""

from __future__ import annotations

import functools
import math
from typing import Any

from stepwell.arrays import Array, as_contiguous, as_float, namespace_of, shares_streams
from stepwell.arrays.device_memory import DeviceMemory
from stepwell.common.checks import require
from stepwell.cuda.runtime import launch, load_kernel

_THREADS = 1024


@functools.lru_cache(maxsize=8)
def _kernel(device_id: int) -> Any:
    return load_kernel("chunk_sums", "stepwell_chunk_sums", {"SW_THREADS": _THREADS}, device_id)


def device_chunk_sums(values: Array, size: int, chunks: int, chunk_length: int, before: int) -> Array:
    """Return one sum a chunk of this rank, float64, on the device; see `Pieces.chunk_sums`, whose fields these are."""
    require(math.prod(values.shape) == size, "values", math.prod(values.shape), f"{size} numbers")
    flat = as_contiguous(namespace_of(values).reshape(as_float(values, "float64"), (-1,)))
    memory = DeviceMemory(flat)
    memory.make_current()
    sums = memory.zeros((chunks,), "float64")
    if not size:
        return sums
    stream = memory.stream()
    launch(
        _kernel(memory.device_id), chunks, _THREADS, stream,
        memory.address(flat), size, chunk_length, before, memory.address(sums),
    )  # fmt: skip
    if not shares_streams(flat):
        memory.wait(stream)
    return sums
