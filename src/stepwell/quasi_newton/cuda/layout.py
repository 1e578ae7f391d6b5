"""What the CUDA kernels of the quasi-Newton solver and the host that launches them must agree on.

All of it is asked of the compiled module, which includes the header that the kernels include:
src/core/quasi_newton/device_layout.hpp.
"""

from __future__ import annotations

import functools

from stepwell import _core
from stepwell.cuda.layouts import structure
from stepwell.cuda.runtime import Device, Kernel, load_kernel
from stepwell.quasi_newton.settings import HistoryDtype, Settings

_CONSTANTS = _core.DEVICE_CONSTANTS
MAX_CAPACITY: int = _CONSTANTS["max_device_capacity"]  # pairs that the kernels are written for
SPAN: int = _CONSTANTS["span"]  # variables a block takes at a time
GROUP: int = _CONSTANTS["group_size"]  # chunks whose sums are added up together
NUMBERS: int = _CONSTANTS["chunk_numbers"]  # of a chunk besides products of rows
BLOCK: int = _CONSTANTS["block_threads"]  # threads of a block
WARP: int = _CONSTANTS["warp_threads"]  # small problems are left to a warp each
SMALL: int = _CONSTANTS["small_problem"]  # variables of a problem that a warp takes
SMALL_CAPACITY: int = _CONSTANTS["small_capacity"]  # and pairs: its decisions must fit its share of shared memory
READ_TOGETHER: int = _CONSTANTS["read_together"]  # variables that one read of the history may take
WALK_BINS: int = _CONSTANTS["walk_bins"]  # in which breakpoints are counted


#: The struct DeviceEngine; pointers are whole numbers.
Engine = structure("DeviceEngine")


def walk_length(n: int, capacity: int, threads: int, grows: bool) -> int:
    """Return how many breakpoints a walk may list at a time; it `grows` to that where there are walks."""
    return int(_core.device_walk_length(n, capacity, threads, grows))


def walk_words(capacity: int, length: int, threads: int) -> int:
    """Return the words of device memory that a walk takes which lists so many breakpoints at a time.

    With 0 and 0 those besides a list and the sums over it.
    """
    return int(_core.device_walk_words(capacity, length, threads))


#: What the kernels call a dtype of the history, and its bytes.
_KEPT: dict[HistoryDtype, tuple[str, int]] = {
    "float64": ("double", 8),
    "float32": ("float", 4),
    "bfloat16": ("stepwell::Bfloat16", 2),
}


def staged_bytes(
    capacity: int, single: bool, bound_rows: int, weighted: bool, threads: int, history: HistoryDtype | None = None
) -> int:
    """Return the dynamic shared memory of a block, in bytes: for what the sweeps stage there."""
    word = 4 if single else 8
    kept = word if history is None else _KEPT[history][1]
    return int(_core.device_staged_bytes(capacity, word, kept, bound_rows, weighted, threads))


def kernel_defines(
    threads: int,
    capacity: int,
    single: bool,
    bounded: bool,
    weighted: bool,
    vary: bool,
    history: HistoryDtype | None = None,
    steps: tuple[int, int] = (1, 1),
) -> dict[str, str | int]:
    """Return what a turn kernel is compiled for, as src/cuda/quasi_newton/constants.cuh names it.

    `history`: the dtype of the pairs; None: that of the variables. `steps` of the lower and the upper bounds from one
    variable to the next: 0 for a number.
    """
    lower_step, upper_step = steps if bounded else (0, 0)
    real = "float" if single else "double"
    return {
        "SW_REAL": real,
        "SW_KEPT": real if history is None else _KEPT[history][0],
        "SW_CAPACITY": capacity,
        "SW_THREADS": threads,
        "SW_BOUNDED": int(bounded),
        "SW_LOWER_STEP": lower_step,
        "SW_UPPER_STEP": upper_step,
        "SW_WEIGHTED": int(weighted),
        "SW_WEIGHTS_VARY": int(vary),
        "SW_STAGED_BYTES": staged_bytes(capacity, single, lower_step + upper_step, weighted, threads, history),
    }


@functools.lru_cache(maxsize=64)
def resident_kernel(
    name: str, entry: str, defines: tuple[tuple[str, str | int], ...], device_id: int
) -> tuple[Kernel, int, int]:
    """Return a kernel, the dynamic shared memory of a block and how many blocks the device holds at a time."""
    named = dict(defines)
    kernel = load_kernel(name, entry, named, device_id)
    shared, threads = int(named["SW_STAGED_BYTES"]), int(named["SW_THREADS"])
    kernel.allow_shared_memory(shared, device_id)
    blocks = kernel.resident_blocks(threads, shared)
    return kernel, shared, blocks * Device(device_id).attribute("MULTIPROCESSOR_COUNT")


def common_defines() -> list[dict[str, str | int]]:
    """Return what the kernels of usual calls are compiled for: the default m, arrays of bounds, numbers or none."""
    kinds = ((False, (0, 0)), (True, (1, 1)), (True, (0, 0)))
    return [
        kernel_defines(threads, Settings().m, single, bounded, False, False, None, steps)
        for threads in (BLOCK, WARP)
        for single in (False, True)
        for bounded, steps in kinds
    ]
