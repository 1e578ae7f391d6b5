"""Small systems on a CUDA device: a thread or a warp each solves what normal equations can.

What asks for more care than that they leave: it is listed on the device, and ``nnls_solve`` solves it from its
start. Which systems are for whom depends on their shape alone, so that no answer depends on the batch it is in.
"""

from __future__ import annotations

import functools
from typing import Any

from stepwell import _core
from stepwell.arrays.device_memory import DeviceMemory
from stepwell.cuda import runtime
from stepwell.cuda.driver import cuda_driver
from stepwell.lsq.batch import Batch

#: What the core calls where products come from.
SOURCES: dict[int, str] = {number: name for name, number in _core.NNLS_SMALL_SOURCES.items()}
#: Columns that a system has room for, the first of these that is enough; and those in its factor. Memory of a thread
#: is local, which the driver keeps for as many threads as a device can have at once; that of a warp is shared.
CAPACITIES, POSITIONS = (16, 32, 40, 64), int(_core.NNLS_SMALL_POSITIONS)
#: One matrix: up to so many unknowns a thread has a system of its own. Beyond, the lanes of a warp share it, unless the
#: matrix has more entries than leave room for many warps.
THREAD_COLUMNS, WARP_ENTRIES = 16, 8192
#: Threads of a block, and how many blocks have registers on a multiprocessor, by the lanes of a system.
THREADS, BLOCKS = {1: 64, 32: 768}, {1: 10, 32: 1}


def source_of(job: Any, form_gram: bool) -> str | None:
    """Where a job's products of columns come from, as the kernel names it; None where its systems are not for it."""
    return SOURCES.get(_core.nnls_small_source(bytes(job), form_gram))


def columns_of(batch: Batch) -> int:
    """Unknowns of a system, with the slack of a sum's range."""
    return batch.columns + int(batch.constraints is not None and batch.constraints.slack)


def width_of(batch: Batch, source: str) -> int:
    """Lanes that share a system: one thread has its own, or a warp."""
    columns = columns_of(batch)
    if source == "normal_equations":
        return 32
    if source == "own_matrix":
        return 1
    return 32 if columns > THREAD_COLUMNS and batch.rows * columns <= WARP_ENTRIES else 1


def shared_bytes(batch: Batch, source: str) -> int:
    """Shared memory of a block for what all its systems have."""
    if source != "one_matrix":
        return 0
    return 8 * int(_core.nnls_small_shared_length(columns_of(batch), batch.rows, width_of(batch, source)))


def store_bytes(variant: dict[str, Any]) -> int:
    """Shared memory of a warp for its system."""
    shares = variant["SW_SOURCE"] in ("one_matrix", "some_matrices")
    sizes = variant["SW_COLUMNS"], variant["SW_POSITIONS"]
    return 8 * int(_core.nnls_small_store_length(*sizes, shares, variant["SW_WIDTH"]))


def launch(
    batch: Batch, source: str, memory: DeviceMemory, full: Any, limits: dict[str, int], stream: int
) -> tuple[Any, list[Any]]:
    """Launch the kernel; what it leaves is listed in `full`, which is then for those systems alone.

    `limits` are the device's: multiprocessors, and bytes of shared memory that a block can have. Tables of the systems'
    own matrices are in the job. Returns counters of what it has drawn and left, and what has to live until it is done;
    None and that where it cannot run.
    """
    counters, listed = memory.zeros(2, "int64"), memory.empty(batch.systems, "int64")
    small = type(full).from_buffer_copy(full)
    small.queue, small.handed = memory.address(counters), memory.address(counters) + 8
    small.list = memory.address(listed)
    chosen, multiprocessors = defines(batch, source), limits["multiprocessors"]
    width, variant = width_of(batch, source), tuple(chosen.items())
    threads = THREADS[width]
    fast = shared_bytes(batch, source)
    if width > 1:
        # As many warps as have room, though no more than share a batch that is not large.
        own = store_bytes(chosen)
        room = (limits["shared_limit"] - fast) // own
        if room < 1:
            return None, []
        warps = min(threads // 32, room, max(4, -(-batch.systems // multiprocessors)))
        threads, fast = 32 * warps, fast + warps * own
    kernel = _kernel("nnls_small", memory.device_id, fast, variant)
    blocks = min(-(-batch.systems * width // threads), BLOCKS[width] * multiprocessors)
    try:
        runtime.launch(kernel, blocks, threads, stream, small, shared_bytes=fast)
    except RuntimeError:
        return None, []  # no local memory for that many threads: all is for the other kernel
    full.handed, full.list = small.handed, small.list
    return counters, [counters, listed]


def form_tables(batch: Batch, memory: DeviceMemory, full: Any, limits: dict[str, int], stream: int) -> Any:
    """Launch what reads matrices of one system each, once, and leaves tables of their products in the job of `full`.

    It needs A and b alone: nearly all of the traffic is on its way while the rest of a call is prepared.
    """
    tables = memory.empty((batch.systems, _core.nnls_table_length(batch.columns)), "float64")
    full.job.tables = memory.address(tables)
    threads = THREADS[width_of(batch, "own_matrix")]
    blocks = min(-(-batch.systems // (threads // 32)), 64 * limits["multiprocessors"])
    kernel = _kernel("nnls_form_tables", memory.device_id, 0, tuple(defines(batch, "own_matrix").items()))
    runtime.launch(kernel, blocks, threads, stream, full)
    return tables


def have_left_some(memory: DeviceMemory, counters: Any, stream: int) -> bool:
    """Whether there is something for the solver for all sizes, which takes waiting; True where it cannot be known."""
    error, capturing = cuda_driver().cuStreamIsCapturing(stream)
    if int(error) != 0 or int(capturing) != 0:
        return True
    return int(memory.read(counters, stream)[1]) > 0


@functools.lru_cache(maxsize=64)
def _kernel(entry: str, device_id: int, fast: int, variant: tuple[tuple[str, str | int], ...]) -> Any:
    kernel = runtime.load_kernel("nnls_small", entry, dict(variant), device_id)
    kernel.allow_shared_memory(fast, device_id)
    return kernel


def defines(batch: Batch, source: str) -> dict[str, str | int]:
    """Return the definitions that ``cuda/lsq/nnls_small.cu`` is compiled with."""
    constraints = batch.constraints
    columns = columns_of(batch)
    return kernel_defines(
        batch.single,
        source,
        bounded=constraints is not None and not constraints.nonnegative,
        summed=constraints is not None and constraints.sum_low is not None,
        penalized=constraints is not None and constraints.penalized and constraints.gram is None,
        capacity=next(capacity for capacity in CAPACITIES if columns <= capacity),
        width=width_of(batch, source),
    )


def kernel_defines(
    single: bool, source: str, *, bounded: bool, summed: bool, penalized: bool, capacity: int, width: int
) -> dict[str, str | int]:
    """Return the definitions of a kind of systems."""
    return {
        "SW_SCALAR": "float" if single else "double",
        "SW_SOURCE": source,
        "SW_BOUNDED": int(bounded),
        "SW_SUMMED": int(summed),
        "SW_PENALIZED": int(penalized),
        "SW_COLUMNS": capacity,
        "SW_POSITIONS": min(capacity, POSITIONS),
        "SW_FORMS_TABLES": int(source == "own_matrix"),
        "SW_WIDTH": width,
        "SW_THREADS": THREADS[width],
        "SW_BLOCKS": BLOCKS[width],
    }


def common_defines() -> list[dict[str, str | int]]:
    """Return what the kernels of usual calls are compiled for: small systems in double precision."""
    plain: dict[str, Any] = dict(bounded=False, summed=False, penalized=False, capacity=16, width=1)
    many: dict[str, Any] = plain | dict(capacity=40, width=32)
    return [
        kernel_defines(False, "one_matrix", **plain),
        kernel_defines(False, "one_matrix", **many),
        kernel_defines(False, "one_matrix", **many | dict(penalized=True)),
        kernel_defines(False, "one_matrix", **plain | dict(bounded=True, summed=True)),
        kernel_defines(False, "own_matrix", **plain),
        kernel_defines(False, "own_matrix", **plain | dict(bounded=True)),
        kernel_defines(False, "normal_equations", **plain | dict(bounded=True, width=32)),
    ]
