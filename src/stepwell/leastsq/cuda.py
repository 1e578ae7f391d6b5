"""NNLS on a CUDA device: plans who solves what with how much memory, and launches it on the caller's stream."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from typing import Any

import numpy as np

from stepwell import _core, arrays
from stepwell.leastsq.device_memory import DeviceMemory
from stepwell.leastsq.door import Batch
from stepwell.leastsq.host import COSTS, UPDATE_CODES
from stepwell.leastsq.result import NNLSResult, NNLSStatus
from stepwell.targets.nvrtc import allow_shared_memory, cuda_core, load_kernel

#: Systems up to this many unknowns and rows are solved by a warp each, larger ones by a block.
WARP_COLUMNS, WARP_ROWS = 32, 2048
WARPS_IN_BLOCK = 4
#: Shared memory a block asks for: two blocks fit on a multiprocessor of 228 KiB.
BLOCK_SHARED, WARP_SHARED = 100 * 1024, 12 * 1024
#: Share of the free memory that workspaces may take.
MEMORY_SHARE = 0.8

_FIELDS = (
    "systems", "a", "a_stride", "row_stride", "b", "b_stride", "warm_values", "warm_marks", "warm_stride",
    "x", "dual", "active", "residual", "violation", "counts", "costs", "queue", "slow", "slow_bytes", "fast_bytes",
    "scale", "norm", "inverse_norm", "columns", "low", "high", "gram", "column_stride", "gram_stride",
    "tolerance", "damping", "rows", "unknowns", "pulse_length", "pulse_origin",
    "most_solves", "update", "guarded", "chain",
)  # fmt: skip
_REAL_FIELDS = ("tolerance", "damping")


class Launch(ctypes.Structure):
    """The struct Launch of src/cuda/nnls.cu."""

    _fields_ = tuple((name, ctypes.c_double if name in _REAL_FIELDS else ctypes.c_int64) for name in _FIELDS)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Who solves: teams of so many threads, so many of them, each with so much memory."""

    by_warp: bool
    threads: int  # of a block
    members: int  # of a team
    blocks: int
    teams: int
    fast_bytes: int  # of a team
    slow_bytes: int


def plan(
    batch: Batch, multiprocessors: int, shared_limit: int, shared_per_multiprocessor: int, free_bytes: int
) -> Plan:
    """Choose teams from the shape of the systems and from what the device has free.

    Raises
    ------
    MemoryError
        Where the workspace of even one team does not fit.
    """
    by_warp = batch.columns <= WARP_COLUMNS and batch.rows <= WARP_ROWS
    if by_warp:
        threads, members, in_block = 32 * WARPS_IN_BLOCK, 32, WARPS_IN_BLOCK
        fast = min(WARP_SHARED, shared_limit // WARPS_IN_BLOCK)
    else:
        threads = 128 if max(batch.rows, batch.columns) <= 256 else 256
        members, in_block, fast = threads, 1, min(BLOCK_SHARED, shared_limit)
    pulse_length = int(batch.matrix.shape[-1]) if batch.convolution else 0
    slow = int(
        _core.nnls_device_workspace_bytes(
            rows=batch.rows,
            columns=batch.columns,
            pulse_length=pulse_length,
            pulse_origin=batch.origin,
            update=UPDATE_CODES[batch.update],
            members=members,
            damped=batch.damping > 0,
            shared=shares(batch),
        )
    )
    fast = min(fast, -(-slow // 64) * 64)
    pieces = -(-batch.systems // 64) if batch.chain else batch.systems
    in_flight = max(1, shared_per_multiprocessor // (fast * in_block + 1024)) * multiprocessors
    blocks = min(-(-pieces // in_block), in_flight, int(MEMORY_SHARE * free_bytes) // (slow * in_block))
    if blocks < 1:
        raise MemoryError(
            f"systems of {batch.rows} x {batch.columns} need {slow * in_block / 2**20:.0f} MiB of workspace, "
            f"of which the device has {free_bytes / 2**20:.0f} MiB free"
        )
    return Plan(by_warp, threads, members, blocks, blocks * in_block, fast, slow)


def shares(batch: Batch) -> bool:
    """Whether the batch's one matrix is prepared once, with its columns stored."""
    return batch.shared and batch.systems > 1 and (not batch.convolution or batch.rows * batch.columns <= 1 << 22)


@functools.lru_cache(maxsize=64)
def _kernel(entry: str, single: bool, convolution: bool, by_warp: bool, threads: int, device_id: int) -> Any:
    device = cuda_core().Device(device_id)
    return load_kernel("nnls", entry, kernel_defines(single, convolution, by_warp, threads), device)


def kernel_defines(single: bool, convolution: bool, by_warp: bool, threads: int) -> dict[str, str | int]:
    """Return the definitions that ``cuda/nnls.cu`` is compiled with."""
    return {
        "SW_SCALAR": "float" if single else "double",
        "SW_KIND": "Convolution" if convolution else "Dense",
        "SW_BY_WARP": int(by_warp),
        "SW_THREADS": threads,
    }


def solve(batch: Batch) -> NNLSResult:
    """Solve a checked batch of device arrays."""
    memory = DeviceMemory(batch.b)
    core = cuda_core()
    device = core.Device(memory.device_id)
    device.set_current()
    matrix, b = memory.rows_contiguous(batch.matrix), memory.rows_contiguous(batch.b)
    _refuse_non_finite(batch)
    systems, n = batch.systems, batch.columns
    single = b.dtype == memory.xp.float32
    real = "float32" if single else "float64"
    x, dual = memory.empty((systems, n), real), memory.empty((systems, n), real)
    active = memory.empty((systems, n), "uint8")
    reals, counts = memory.empty((2, systems), "float64"), memory.empty((6, systems), "int32")
    costs = memory.empty((systems, 4), "int64")
    if systems == 0 or batch.rows == 0 or n == 0:
        for array in (x, dual, active, reals, counts, costs):
            array[...] = 0
        return _wrap(batch, memory, x, dual, active, reals, counts, costs)
    properties = device.properties
    chosen = plan(
        batch,
        int(properties.multiprocessor_count),
        int(properties.max_shared_memory_per_block_optin) - 2048,
        int(properties.max_shared_memory_per_multiprocessor),
        memory.free_bytes(),
    )
    pulse_length = int(matrix.shape[-1]) if batch.convolution else 0
    strides = memory.strides(matrix)
    queue = memory.zeros(1, "int64")
    slow = memory.empty(chosen.teams * chosen.slow_bytes, "uint8")
    warm_x = None if batch.warm_x is None else memory.rows_contiguous(batch.warm_x)
    warm_set = (
        None if batch.warm_set is None else memory.rows_contiguous(memory.xp.astype(batch.warm_set, memory.xp.uint8))
    )
    warm = warm_x if warm_x is not None else warm_set
    values: dict[str, float] = {
        "systems": systems,
        "a": memory.address(matrix),
        "a_stride": 0 if batch.shared else strides[0],
        "row_stride": 0 if batch.convolution else strides[-2],
        "b": memory.address(b),
        "b_stride": memory.strides(b)[0],
        "warm_values": memory.address(warm_x),
        "warm_marks": memory.address(warm_set),
        "warm_stride": 0 if warm is None or warm.shape[0] == 1 else n,
        "x": memory.address(x),
        "dual": memory.address(dual),
        "active": memory.address(active),
        "residual": memory.address(reals),
        "violation": memory.address(reals) + 8 * systems,
        "counts": memory.address(counts),
        "costs": memory.address(costs),
        "queue": memory.address(queue),
        "slow": memory.address(slow),
        "slow_bytes": chosen.slow_bytes,
        "fast_bytes": chosen.fast_bytes,
        "tolerance": batch.tolerance,
        "damping": batch.damping,
        "rows": batch.rows,
        "unknowns": n,
        "pulse_length": pulse_length,
        "pulse_origin": batch.origin,
        "most_solves": batch.max_iter,
        "update": UPDATE_CODES[batch.update],
        "guarded": int(batch.guarded),
        "chain": int(batch.chain),
    }
    keep: list[Any] = [matrix, b, queue, slow, warm_x, warm_set]
    options = (single, batch.convolution, chosen.by_warp, chosen.threads, memory.device_id)
    stream = core.Stream.from_handle(memory.stream())
    if shares(batch):
        keep.append(_share(batch, memory, values, options, stream))
    arguments = memory.upload(bytes(_launch(values)))
    kernel = _kernel("nnls_solve", *options)
    in_block = chosen.teams // chosen.blocks
    shared_bytes = chosen.fast_bytes * in_block
    allow_shared_memory(kernel, shared_bytes, memory.device_id)
    config = core.LaunchConfig(grid=chosen.blocks, block=chosen.threads, shmem_size=shared_bytes)
    core.launch(stream, config, kernel, memory.address(arguments))
    memory.done(stream, [*keep, arguments])
    if batch.progress:
        stream.sync()
        batch.progress(systems, systems)
    return _wrap(batch, memory, x, dual, active, reals, counts, costs)


def _launch(values: dict[str, float]) -> Launch:
    launch = Launch()
    for name, value in values.items():
        setattr(launch, name, value)
    return launch


def _share(batch: Batch, memory: DeviceMemory, values: dict[str, float], options: Any, stream: Any) -> list[Any]:
    """Prepare the one matrix of all systems: scales, norms, scaled columns and, on request, their products."""
    core = cuda_core()
    n = batch.columns
    stride, gram_stride = -(-batch.rows // 8) * 8, -(-n // 8) * 8
    vectors = memory.empty((3, n), "float64")
    bounds = memory.empty((2, n), "int32")
    columns = memory.empty((n, stride), "float64")
    gram = memory.empty((n, gram_stride), "float64") if batch.form_gram else None
    base = memory.address(vectors)
    values.update(
        scale=base,
        norm=base + 8 * n,
        inverse_norm=base + 16 * n,
        columns=memory.address(columns),
        low=memory.address(bounds),
        high=memory.address(bounds) + 4 * n,
        gram=memory.address(gram),
        column_stride=stride,
        gram_stride=gram_stride,
    )
    arguments = memory.upload(bytes(_launch(values)))
    at = memory.address(arguments)
    config = core.LaunchConfig(grid=-(-n // 8), block=256)
    core.launch(stream, config, _kernel("nnls_share_columns", *options), at)
    if gram is not None:
        tiles = -(-gram_stride // 32)
        config = core.LaunchConfig(grid=(tiles, tiles), block=(32, 8))
        core.launch(stream, config, _kernel("nnls_share_gram", *options), at)
    return [vectors, bounds, columns, gram, arguments]


def _refuse_non_finite(batch: Batch) -> None:
    """Raise for a lone system or a shared matrix that is not finite; systems of a batch get a status instead."""
    xp = arrays.namespace_of(batch.b)
    if batch.shared and not bool(xp.all(xp.isfinite(batch.matrix))):
        raise ValueError("A must be finite, got NaN or infinity")
    if batch.lone and not bool(xp.all(xp.isfinite(batch.b))):
        raise ValueError("b must be finite, got NaN or infinity")


def _wrap(
    batch: Batch, memory: DeviceMemory, x: Any, dual: Any, active: Any, reals: Any, counts: Any, costs: Any
) -> NNLSResult:
    xp = memory.xp
    marks = xp.astype(active, xp.bool)
    escalated = xp.astype(counts[5], xp.bool)
    if not batch.lone:
        reported = xp.astype(reals, x.dtype, copy=False)
        return NNLSResult(
            x=x,
            residual=reported[0],
            dual=dual,
            violation=reported[1],
            active=marks,
            insertions=counts[1],
            removals=counts[2],
            solves=counts[3],
            passes=counts[4],
            status=counts[0],
            escalated=escalated,
            costs={name: costs[:, k] for k, name in enumerate(COSTS)},
            method=batch.method,
            choice=batch.choice,
        )
    numbers = memory.to_host(counts)[:, 0]
    measures = memory.to_host(reals)[:, 0]
    cost = memory.to_host(costs)[0]
    return NNLSResult(
        x=x[0],
        residual=float(measures[0]),
        dual=dual[0],
        violation=float(measures[1]),
        active=marks[0],
        insertions=int(numbers[1]),
        removals=int(numbers[2]),
        solves=int(numbers[3]),
        passes=int(numbers[4]),
        status=NNLSStatus(int(numbers[0])),
        escalated=bool(numbers[5]),
        costs={name: int(np.asarray(cost)[k]) for k, name in enumerate(COSTS)},
        method=batch.method,
        choice=batch.choice,
    )
