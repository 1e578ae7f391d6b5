"""Small systems on a CUDA device: a thread each solves what normal equations can.

What asks for more care than that the threads leave: it is listed on the device, and ``nnls_solve`` solves it from its
start. Which systems are for whom depends on their shape alone, so that no answer depends on the batch it is in.
"""

from __future__ import annotations

import functools
from typing import Any

from stepwell import _core
from stepwell.arrays.device_memory import DeviceMemory
from stepwell.cuda.nvrtc import allow_shared_memory, cuda_core, launch_with, load_kernel
from stepwell.nnls.batch import Batch
from stepwell.nnls.family import RULES

#: One matrix for all, or one of some: fewer unknowns than this, a slack included.
SHARED_COLUMNS = 64
#: Normal equations, whose matrix each thread keeps: at most so many.
GRAM_COLUMNS = 32
#: Matrices of one system each, whose products are formed first: at most so many.
OWN_COLUMNS = int(_core.NNLS_TABLED_COLUMNS)
#: Columns that a thread has room for, the first of these that is enough; and those in its factor. Its memory is local,
#: which the driver keeps for as many threads as a device can have at once.
CAPACITIES, POSITIONS = (16, 32, 40, 64), 40
#: Threads of a block, and how many blocks have registers on a multiprocessor.
THREADS, BLOCKS = 64, 10


def are_for(batch: Batch) -> bool:
    """Whether threads try the systems of a batch first."""
    family = batch.family
    if batch.update != "gram" or batch.convolution or batch.chain or not batch.guarded:
        return False
    if source_of(batch) == "own_matrix":
        plain = family is None or (family.sum_low is None and not family.penalized and family.weights is None)
        return plain and batch.columns <= min(OWN_COLUMNS, batch.rows)
    if family is None:
        return batch.form_gram and batch.columns < SHARED_COLUMNS
    columns = columns_of(batch)
    if family.gram is not None:
        return columns <= GRAM_COLUMNS
    by_grid = family.rule in (RULES["gcv"], RULES["lcurve"])
    return batch.form_gram and columns < SHARED_COLUMNS and not by_grid


def columns_of(batch: Batch) -> int:
    """Unknowns of a system, with the slack of a sum's range."""
    return batch.columns + int(batch.family is not None and batch.family.slack)


def source_of(batch: Batch) -> str:
    """Where the products of columns come from, as the kernel names it."""
    if batch.family is not None and batch.family.gram is not None:
        return "normal_equations"
    if not batch.shared:
        return "own_matrix"
    return "some_matrices" if batch.has_which else "one_matrix"


def shared_bytes(batch: Batch) -> int:
    """Shared memory of a block: products of all systems, and two numbers a column."""
    if source_of(batch) != "one_matrix":
        return 0
    return 8 * int(_core.nnls_small_shared_length(columns_of(batch)))


def launch(batch: Batch, memory: DeviceMemory, full: Any, multiprocessors: int, stream: int) -> list[Any]:
    """Launch the threads; what they leave is listed in `full`, which is then for those systems alone.

    Returns what has to live until they are done.
    """
    counters, listed = memory.zeros(2, "int64"), memory.empty(batch.systems, "int64")
    small = type(full).from_buffer_copy(full)
    small.queue, small.handed = memory.address(counters), memory.address(counters) + 8
    small.list = memory.address(listed)
    variant = tuple(defines(batch).items())
    tables = None
    if source_of(batch) == "own_matrix":
        tables = memory.empty((batch.systems, _core.nnls_table_length(batch.columns)), "float64")
        small.job.tables = memory.address(tables)
        blocks = min(-(-batch.systems // (THREADS // 32)), 64 * multiprocessors)
        former = _kernel("nnls_form_tables", memory.device_id, 0, variant)
        launch_with(former, small, (blocks, 1), (THREADS, 1), 0, stream)
    fast = shared_bytes(batch)
    kernel = _kernel("nnls_small", memory.device_id, fast, variant)
    blocks = min(-(-batch.systems // THREADS), BLOCKS * multiprocessors)
    try:
        launch_with(kernel, small, (blocks, 1), (THREADS, 1), fast, stream)
    except RuntimeError:
        return [tables]  # no local memory for that many threads: all is for the other kernel
    full.handed, full.list = small.handed, small.list
    return [counters, listed, tables]


@functools.lru_cache(maxsize=64)
def _kernel(entry: str, device_id: int, fast: int, variant: tuple[tuple[str, str | int], ...]) -> Any:
    kernel = load_kernel("nnls_small", entry, dict(variant), cuda_core().Device(device_id))
    allow_shared_memory(kernel, fast, device_id)
    return kernel


def defines(batch: Batch) -> dict[str, str | int]:
    """Return the definitions that ``cuda/nnls/nnls_small.cu`` is compiled with."""
    family = batch.family
    columns = columns_of(batch)
    return kernel_defines(
        batch.single,
        source_of(batch),
        bounded=family is not None and not family.nonnegative,
        summed=family is not None and family.sum_low is not None,
        penalized=family is not None and family.penalized and family.gram is None,
        capacity=next(capacity for capacity in CAPACITIES if columns <= capacity),
    )


def kernel_defines(
    single: bool, source: str, *, bounded: bool, summed: bool, penalized: bool, capacity: int
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
        "SW_THREADS": THREADS,
        "SW_BLOCKS": BLOCKS,
    }


def common_defines() -> list[dict[str, str | int]]:
    """Return what the kernels of usual calls are compiled for: small systems in double precision."""
    plain: dict[str, Any] = dict(bounded=False, summed=False, penalized=False)
    return [
        kernel_defines(False, "one_matrix", **plain, capacity=16),
        kernel_defines(False, "one_matrix", **plain, capacity=40),
        kernel_defines(False, "one_matrix", **plain | dict(penalized=True), capacity=40),
        kernel_defines(False, "one_matrix", **plain | dict(bounded=True, summed=True), capacity=16),
        kernel_defines(False, "own_matrix", **plain, capacity=16),
        kernel_defines(False, "own_matrix", **plain | dict(bounded=True), capacity=16),
        kernel_defines(False, "normal_equations", **plain | dict(bounded=True), capacity=16),
    ]
