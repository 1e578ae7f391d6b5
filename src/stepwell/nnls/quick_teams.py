"""Small systems on a CUDA device: quick teams, a few lanes or one thread each, solve what the Gram factor can.

What asks for more care than that they hand over: it is listed on the device, and ``nnls_solve`` solves it from its
start. Which systems are for whom depends on their shape alone, so that no answer depends on the batch it is in.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from stepwell import _core
from stepwell.arrays.device_memory import DeviceMemory
from stepwell.cuda.nvrtc import allow_shared_memory, cuda_core, launch_with, load_kernel
from stepwell.nnls.batch import Batch
from stepwell.nnls.family import RULES
from stepwell.nnls.job import job_sizes

#: One matrix for all: fewer unknowns than this.
SHARED_COLUMNS = 64
#: Normal equations, whose matrix each team keeps: at most so many.
GRAM_COLUMNS = 32
#: Matrices of one system each, whose products are formed first: at most so many.
OWN_COLUMNS = int(_core.NNLS_TABLED_COLUMNS)
#: A thread solves a system whose workspace is at most so many bytes, and whose own matrix has at most so many rows.
#: It is local memory, which the driver keeps for as many threads as a device can have at once.
THREAD_BYTES, LEAST_BYTES, THREAD_ROWS = 8 * 1024, 4 * 1024, 256
#: The same where systems share a matrix.
SHARED_THREAD_BYTES = 8 * 1024
#: Lanes of a team for one matrix for all, and for matrices of their own with more rows.
SHARED_LANES, TALL_LANES = 8, 16
#: Threads of a block, and how many blocks have registers on a multiprocessor: of teams of lanes, and of threads.
THREADS, BLOCKS, THREAD_BLOCKS = 64, 6, 6
#: Shared memory of a multiprocessor that is left to its cache.
CACHE = 40 * 1024


@dataclasses.dataclass(frozen=True)
class QuickPlan:
    """So many teams of so many lanes, with so much memory each."""

    lanes: int
    blocks: int
    teams: int
    fast_bytes: int
    slow_bytes: int
    local_bytes: int  # of a team of one thread; its fast memory
    at_once: int  # blocks of a multiprocessor that registers are there for


def are_for(batch: Batch) -> bool:
    """Whether quick teams try the systems of a batch first."""
    family = batch.family
    if batch.update != "gram" or batch.convolution or batch.chain or not batch.guarded:
        return False
    if _has_own(batch):
        plain = family is None or (family.sum_low is None and not family.penalized and family.weights is None)
        return plain and batch.columns <= min(OWN_COLUMNS, batch.rows)
    if family is None:
        return batch.form_gram and batch.columns < SHARED_COLUMNS
    columns = batch.columns + int(family.slack)
    if family.gram is not None:
        # Without a matrix, quick teams have no columns either, of which a sum would be a row.
        return columns <= GRAM_COLUMNS and family.sum_low is None
    by_grid = family.rule in (RULES["gcv"], RULES["lcurve"])
    return batch.form_gram and columns < SHARED_COLUMNS and not by_grid


def _has_own(batch: Batch) -> bool:
    """Whether each system has a matrix, not normal equations."""
    return not batch.shared and (batch.family is None or batch.family.gram is None)


def plan(batch: Batch, multiprocessors: int, shared_limit: int, shared_per_multiprocessor: int) -> QuickPlan:
    """Choose how many teams are at work at once, each with what a step works with in fast memory."""
    sizes, own = bytes(job_sizes(batch)), _has_own(batch)
    given = batch.family is not None and batch.family.gram is not None
    steps, rest, more = _core.nnls_quick_bytes(sizes, 1, own)
    local = max(LEAST_BYTES, 1 << (steps + rest - 1).bit_length())  # few sizes: each is a kernel of its own
    if own:
        by_thread = batch.rows <= THREAD_ROWS and local <= THREAD_BYTES
    elif batch.shared and not given:
        by_thread = batch.damping == 0 and local <= SHARED_THREAD_BYTES  # damped, many are positive at once
    else:
        by_thread = local <= THREAD_BYTES
    if by_thread:
        blocks = min(-(-batch.systems // THREADS), THREAD_BLOCKS * multiprocessors)
        return QuickPlan(1, blocks, blocks * THREADS, local, more, local, THREAD_BLOCKS)
    lanes = TALL_LANES if own else SHARED_LANES
    in_block = THREADS // lanes
    fast, rest, more = _core.nnls_quick_bytes(sizes, lanes, own)
    tasks = 1024 * in_block  # what else the kernel has there
    fast = min(fast, (shared_limit - tasks) // in_block // 64 * 64)
    room = shared_per_multiprocessor - CACHE
    at_once = max(1, min(BLOCKS, room // (fast * in_block + tasks)))
    blocks = min(-(-batch.systems // in_block), at_once * multiprocessors)
    return QuickPlan(lanes, blocks, blocks * in_block, fast, fast + rest + more, 0, BLOCKS)


def launch(batch: Batch, memory: DeviceMemory, full: Any, limits: dict[str, int], stream: int) -> list[Any]:
    """Launch the quick teams; what they hand over is listed in `full`, which is then for those systems alone.

    Returns what has to live until they are done.
    """
    chosen, own = plan(batch, **limits), _has_own(batch)
    slow = memory.empty(max(1, chosen.teams * chosen.slow_bytes), "uint8")
    counters, listed = memory.zeros(2, "int64"), memory.empty(batch.systems, "int64")
    quick = type(full).from_buffer_copy(full)
    quick.queue, quick.handed = memory.address(counters), memory.address(counters) + 8
    quick.list = memory.address(listed)
    quick.slow, quick.slow_bytes, quick.fast_bytes = memory.address(slow), chosen.slow_bytes, chosen.fast_bytes
    variant = (batch.single, batch.family is not None, own, chosen.lanes, chosen.at_once, chosen.local_bytes)
    tables = None
    if own:
        tables = memory.empty((batch.systems, batch.columns * (batch.columns + 1) + 1), "float64")
        quick.job.tables = memory.address(tables)
        blocks = min(-(-batch.systems // (THREADS // 32)), 64 * limits["multiprocessors"])
        former = _kernel("nnls_form_tables", memory.device_id, 0, *variant)
        launch_with(former, quick, (blocks, 1), (THREADS, 1), 0, stream)
    shared_bytes = 0 if chosen.local_bytes else chosen.fast_bytes * (THREADS // chosen.lanes)
    kernel = _kernel("nnls_quick", memory.device_id, shared_bytes, *variant)
    try:
        launch_with(kernel, quick, (chosen.blocks, 1), (THREADS, 1), shared_bytes, stream)
    except RuntimeError:
        if chosen.lanes > 1:
            raise
        return [tables]  # no memory for that many threads: all is for the other kernel
    full.handed, full.list = quick.handed, quick.list
    return [slow, counters, listed, tables]


@functools.lru_cache(maxsize=64)
def _kernel(entry: str, device_id: int, shared_bytes: int, *variant: Any) -> Any:
    kernel = load_kernel("nnls_quick", entry, defines(*variant), cuda_core().Device(device_id))
    allow_shared_memory(kernel, shared_bytes, device_id)
    return kernel


def common_defines() -> list[dict[str, str | int]]:
    """Return what the kernels of usual calls are compiled for: small systems in double precision."""
    return [
        defines(False, general, own, lanes, blocks, local)
        for general in (False, True)
        for own, lanes, blocks, local in (
            (False, SHARED_LANES, BLOCKS, 0),
            (True, TALL_LANES, BLOCKS, 0),
            (True, 1, THREAD_BLOCKS, LEAST_BYTES),
        )
    ]


def defines(
    single: bool, general: bool, own: bool, lanes: int, at_once: int, local_bytes: int = 0
) -> dict[str, str | int]:
    """Return the definitions that ``cuda/nnls_quick.cu`` is compiled with."""
    return {
        "SW_SCALAR": "float" if single else "double",
        "SW_GENERAL": int(general),
        "SW_OWN": int(own),
        "SW_LANES": lanes,
        "SW_THREADS": THREADS,
        "SW_BLOCKS": at_once,
        "SW_LOCAL": local_bytes,
    }
