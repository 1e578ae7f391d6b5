"""NNLS on a CUDA device: plans who solves what with how much memory, and launches it on the caller's stream."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from stepwell import _core
from stepwell.arrays import rows_contiguous
from stepwell.arrays.device_memory import DeviceMemory
from stepwell.cuda import runtime
from stepwell.cuda.devices import memory_free
from stepwell.cuda.layouts import structure
from stepwell.lsq import small_systems
from stepwell.lsq.batch import CHAIN, Batch
from stepwell.lsq.job import Answers, fill_job, job_of_matrices, job_sizes, new_answers
from stepwell.lsq.ranges import needs_more_than_one, solve_sums
from stepwell.lsq.result import LSQResult
from stepwell.lsq.wrap import wrap

#: Systems up to this many unknowns and rows are solved by a warp each, larger ones by a block.
WARP_COLUMNS, WARP_ROWS = 32, 2048
WARPS_IN_BLOCK = 4
#: Normal equations of so many unknowns are solved by a cluster of so many blocks each, where the device has clusters
#: and multiprocessors for all of them.
CLUSTER_COLUMNS, CLUSTER_BLOCKS, CLUSTER_THREADS = 256, 8, 512
#: Shared memory a block asks for: two blocks then leave a multiprocessor of 256 KiB some 90 KiB of cache.
BLOCK_SHARED, WARP_SHARED = 78 * 1024, 12 * 1024
#: Share of the free memory that workspaces may take.
MEMORY_SHARE = 0.8

#: A workspace below this share of the device's memory is asked for without looking how much is free.
MODEST_SHARE = 1 / 16


@dataclasses.dataclass(frozen=True)
class TeamPlan:
    """Who solves: teams of so many threads, so many of them, each with so much memory."""

    by_warp: bool
    threads: int  # of a block
    blocks_in_team: int  # 1, or the blocks of a cluster
    members: int  # of a team
    blocks: int
    teams: int
    fast_bytes: int  # of a team
    slow_bytes: int


@functools.lru_cache(maxsize=64)
def _limits(device_id: int) -> tuple[dict[str, int], int]:
    """Return what `plan` needs to know of a device, and its memory in bytes."""
    attribute = runtime.Device(device_id).attribute
    limits = {
        "multiprocessors": attribute("MULTIPROCESSOR_COUNT"),
        "shared_limit": attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN") - 4096,
        "shared_per_multiprocessor": attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        "cluster_blocks": CLUSTER_BLOCKS if attribute("COMPUTE_CAPABILITY_MAJOR") >= 9 else 1,
    }
    return limits, memory_free(device_id)[1]


def plan(
    batch: Batch,
    multiprocessors: int,
    shared_limit: int,
    shared_per_multiprocessor: int,
    cluster_blocks: int,
    free_bytes: int,
) -> TeamPlan:
    """Choose teams from the shape of the systems and from what the device has free.

    Raises
    ------
    MemoryError
        Where the workspace of even one team does not fit.
    """
    by_warp = batch.columns <= WARP_COLUMNS and batch.rows <= WARP_ROWS
    pieces = pieces_of(batch)
    wide = cluster_blocks > 1 and batch.in_blocks and batch.columns >= CLUSTER_COLUMNS
    if wide and pieces * cluster_blocks <= multiprocessors:
        members = CLUSTER_THREADS * cluster_blocks
        slow = int(_core.nnls_device_workspace_bytes(bytes(job_sizes(batch)), members))
        if pieces * slow <= MEMORY_SHARE * free_bytes:
            return TeamPlan(False, CLUSTER_THREADS, cluster_blocks, members, pieces * cluster_blocks, pieces, 0, slow)
    if by_warp:
        threads, members, in_block = 32 * WARPS_IN_BLOCK, 32, WARPS_IN_BLOCK
        fast = min(WARP_SHARED, shared_limit // WARPS_IN_BLOCK)
    else:
        threads = 128 if max(batch.rows, batch.columns) <= 256 else 256
        if batch.constraints is not None and batch.constraints.gram is not None and batch.columns > 512:
            threads = 512
        members, in_block, fast = threads, 1, min(BLOCK_SHARED, shared_limit)
    slow = int(_core.nnls_device_workspace_bytes(bytes(job_sizes(batch)), members))
    fast = min(fast, -(-slow // 64) * 64)
    in_flight = max(1, shared_per_multiprocessor // (fast * in_block + 4096)) * multiprocessors
    blocks = min(-(-pieces // in_block), in_flight, int(MEMORY_SHARE * free_bytes) // (slow * in_block))
    if blocks < 1:
        raise MemoryError(
            f"systems of {batch.rows} x {batch.columns} need {slow * in_block / 2**20:.0f} MiB of workspace, "
            f"of which the device has {free_bytes / 2**20:.0f} MiB free"
        )
    return TeamPlan(by_warp, threads, 1, members, blocks, blocks * in_block, fast, slow)


def pieces_of(batch: Batch) -> int:
    """How many teams can be at work at once: a chain of systems needs one."""
    return -(-batch.systems // CHAIN) if batch.chain else batch.systems


def shares(batch: Batch) -> bool:
    """Whether the batch's one matrix is prepared once, with its columns stored."""
    return bool(_core.nnls_shares_columns(bytes(job_sizes(batch))))


#: Solvers for all sizes that this process has loaded. One that is not, which takes seconds to compile, is asked for
#: only when the solver of small systems has left something to it; from then on it is launched without looking.
_loaded: set[tuple[Any, ...]] = set()


@functools.lru_cache(maxsize=64)
def _kernel(
    entry: str,
    single: bool,
    convolution: bool,
    by_warp: bool,
    threads: int,
    general: bool,
    blocks_in_team: int,
    device_id: int,
    shared_bytes: int,
) -> Any:
    defines = kernel_defines(single, convolution, by_warp, threads, general, blocks_in_team)
    kernel = runtime.load_kernel("nnls", entry, defines, device_id)
    kernel.allow_shared_memory(shared_bytes, device_id)
    return kernel


@functools.lru_cache(maxsize=64)
def _sharing_kernel(entry: str, single: bool, convolution: bool, general: bool, device_id: int) -> Any:
    defines = sharing_defines(single, convolution, general)
    return runtime.load_kernel("nnls_share", entry, defines, device_id)


def sharing_defines(single: bool, convolution: bool, general: bool) -> dict[str, str | int]:
    """Return the definitions that ``cuda/lsq/nnls_share.cu`` is compiled with."""
    return {
        "SW_SCALAR": "float" if single else "double",
        "SW_KIND": "Convolution" if convolution else "Dense",
        "SW_GENERAL": int(general),
    }


def kernel_defines(
    single: bool, convolution: bool, by_warp: bool, threads: int, general: bool = False, blocks_in_team: int = 1
) -> dict[str, str | int]:
    """Return the definitions that ``cuda/lsq/nnls.cu`` is compiled with."""
    team: dict[str, str | int] = {"SW_BY_WARP": int(by_warp), "SW_THREADS": threads, "SW_BLOCKS": blocks_in_team}
    return sharing_defines(single, convolution, general) | team


def common_defines() -> list[dict[str, str | int]]:
    """Return what the kernels of usual calls are compiled for: dense systems of all sizes, without and with bounds."""
    teams = ((True, 32 * WARPS_IN_BLOCK), (False, 128), (False, 256))
    return [
        kernel_defines(single, False, by_warp, threads, general)
        for general in (False, True)
        for single in (False, True)
        for by_warp, threads in teams
    ]


def solve(batch: Batch) -> LSQResult:
    """Solve a checked batch of device arrays."""
    if needs_more_than_one(batch):
        return wrap(batch, solve_sums(batch, lambda part: _solve(part, early=False)[0]))
    answers, result = _solve(batch, early=True)
    return wrap(batch, answers) if result is None else result


def _solve(batch: Batch, early: bool) -> tuple[Answers, LSQResult | None]:
    """Return the answers; and the result, where it could be put together `early`, while the device works."""
    memory = DeviceMemory(batch.b)
    memory.make_current()
    matrix, b = rows_contiguous(batch.matrix), rows_contiguous(batch.b)
    batch.refuse_non_finite(batch.matrix, batch.b)
    systems, n = batch.systems, batch.columns
    single, general = batch.single, batch.constraints is not None
    if systems == 0 or n == 0 or (batch.rows == 0 and not general):
        return _without_work(batch, memory, b), None
    stream = memory.stream()
    launch = structure("NnlsLaunch")(job=job_of_matrices(batch, memory.address, matrix, b))
    source = small_systems.source_of(launch.job, batch.form_gram)
    keep: list[Any] = [matrix, b, batch.constraints]
    if source == "own_matrix":  # as early as can be
        keep.append(small_systems.form_tables(batch, memory, launch, _limits(memory.device_id)[0], stream))
    answers = new_answers(batch, memory.empty, on_device=True)
    chosen, slow = _workspace(batch, memory)
    queue = memory.zeros(1, "int64") if pieces_of(batch) > chosen.teams else None
    warm = _warm(batch, memory)
    keep += [queue, slow, warm]
    fill_job(launch.job, batch, memory.address, warm, answers, batch.constraints)
    launch.queue, launch.slow = memory.address(queue), memory.address(slow)
    launch.slow_bytes, launch.fast_bytes = chosen.slow_bytes, chosen.fast_bytes
    team = (chosen.by_warp, chosen.threads, general, chosen.blocks_in_team)
    options = (single, batch.convolution, *team, memory.device_id)
    if shares(batch):
        keep.append(_share(batch, memory, launch, stream))
    counters = None
    if source is not None:
        counters, used = small_systems.launch(batch, source, memory, launch, _limits(memory.device_id)[0], stream)
        keep.append(used)
    shared_bytes = chosen.fast_bytes * chosen.teams // chosen.blocks
    variant = (*options, shared_bytes)
    looks = counters is not None and variant not in _loaded
    # The result is put together before anything is waited for, and stands unless something is left.
    result = wrap(batch, answers) if early and looks and memory.follows else None
    if not looks or small_systems.have_left_some(memory, counters, stream):
        _loaded.add(variant)
        kernel = _kernel("nnls_solve", *variant)
        runtime.launch(kernel, chosen.blocks, chosen.threads, stream, launch, shared_bytes=shared_bytes)
        result = None
    memory.done(stream, keep)
    if batch.progress:
        memory.wait(stream)
        batch.progress(systems, systems)
    return answers, result


def _without_work(batch: Batch, memory: DeviceMemory, b: Any) -> Answers:
    """The answer where there are no systems, no equations or no unknowns: zero, with b as the residual."""
    xp, squares = memory.xp, memory.xp.sum(b * b, axis=-1)
    zero = new_answers(batch, memory.zeros, on_device=True)
    return dataclasses.replace(zero, reals=xp.stack([xp.sqrt(squares), xp.zeros_like(squares)]))


def _workspace(batch: Batch, memory: DeviceMemory) -> tuple[TeamPlan, Any]:
    """Plan the teams and allocate their memory; how much is free is asked only where it may matter (it takes long)."""
    limits, total = _limits(memory.device_id)
    chosen = plan(batch, **limits, free_bytes=total)
    if chosen.teams * chosen.slow_bytes <= MODEST_SHARE * total:
        try:
            return chosen, memory.empty(chosen.teams * chosen.slow_bytes, "uint8")
        except (MemoryError, RuntimeError):
            pass  # more is in use than usual: take what there is
    chosen = plan(batch, **limits, free_bytes=memory.available_bytes())
    return chosen, memory.empty(chosen.teams * chosen.slow_bytes, "uint8")


def _warm(batch: Batch, memory: DeviceMemory) -> Any:
    """The starting points, values or marks, with contiguous rows; None without."""
    if batch.warm_x is not None:
        return rows_contiguous(batch.warm_x)
    if batch.warm_set is not None:
        states = batch.constraints is not None and batch.constraints.states
        return rows_contiguous(memory.xp.astype(batch.warm_set, memory.xp.int8 if states else memory.xp.uint8))
    return None


def _share(batch: Batch, memory: DeviceMemory, launch: Any, stream: int) -> list[Any]:
    """Prepare the matrices that systems share: scales, norms, scaled columns and, on request, their products."""
    count = max(1, batch.matrices)
    options = (batch.single, batch.convolution, batch.constraints is not None, memory.device_id)
    kept: list[Any] = []
    described: list[Any] = []
    for index in range(count):
        launch.matrix = index
        used, launch.shared = _shared_arrays(batch, memory)
        kept.append(used)
        n, stride = int(used[0].shape[1]), int(used[2].shape[1])
        runtime.launch(_sharing_kernel("nnls_share_columns", *options), -(-n // 8), 256, stream, launch)
        tiles = -(-int(launch.shared.gram_stride) // 32)
        for products, first, last in _products(batch, launch.shared, stride):
            launch.products, launch.first_row, launch.last_row = products, first, last
            runtime.launch(_sharing_kernel("nnls_share_gram", *options), (tiles, tiles), (32, 8), stream, launch)
        described.append(bytes(launch.shared))
    if batch.has_which:
        dictionary = memory.upload(b"".join(described))
        launch.dictionary = memory.address(dictionary)
        kept.append(dictionary)
    return kept


def _shared_arrays(batch: Batch, memory: DeviceMemory) -> tuple[list[Any], Any]:
    """Memory for what systems with one matrix share, and the structure that names it."""
    constraints = batch.constraints
    general = constraints is not None
    n, rows = batch.columns, batch.rows
    metric = gram_of_penalty = False
    if constraints is not None:
        summed = constraints.sum_low is not None
        n, rows = n + int(constraints.slack), int(_core.nnls_stacked_rows(bytes(job_sizes(batch))))
        metric = summed or constraints.penalized or constraints.weights is not None
        gram_of_penalty = constraints.penalty is not None
    stride, gram_stride = -(-rows // 8) * 8, -(-n // 8) * 8
    vectors = memory.empty((5, n), "float64")
    bounds = memory.empty((4, n + 1), "int32")
    columns = memory.empty((n, stride), "float64")
    gram = memory.empty((n, gram_stride), "float64") if batch.form_gram else None
    penalty = memory.empty((n, gram_stride), "float64") if batch.form_gram and gram_of_penalty else None
    base, low = memory.address(vectors), memory.address(bounds)
    high = low + 4 * (n + 1)
    # A pulse has an envelope of its own, after those of the columns; so has the A of a general problem.
    skip = 8 * (n + 1) if general else 4 * n if batch.convolution else 0
    shared = structure("NnlsShared")(
        scale=base,
        norm=None if metric else base + 8 * n,
        inverse_norm=None if metric else base + 16 * n,
        top_norm=base + 24 * n,
        penalty_diagonal=base + 32 * n,
        columns=memory.address(columns),
        low=low,
        high=high,
        gram=memory.address(gram),
        penalty_gram=memory.address(penalty),
        envelope=structure("NnlsEnvelope")(low + skip, high + skip),
        column_stride=stride,
        gram_stride=gram_stride,
    )
    return [vectors, bounds, columns, gram, penalty], shared


def _products(batch: Batch, shared: Any, stride: int) -> list[tuple[int, int, int]]:
    """Which tables of products there are, with the rows that they are of."""
    if not batch.form_gram:
        return []
    if batch.constraints is None:
        return [(shared.gram, 0, stride)]
    tables = [(shared.gram, 0, batch.rows)]
    if shared.penalty_gram:
        last = int(_core.nnls_stacked_rows(bytes(job_sizes(batch))))
        tables.append((shared.penalty_gram, last - batch.constraints.penalty_rows, last))
    return tables
