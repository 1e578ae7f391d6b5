"""What the CUDA kernels of the quasi-Newton solver and the host that launches them must agree on."""

from __future__ import annotations

import ctypes

MAX_CAPACITY = 64  # pairs that the kernels are written for
# As in src/cuda/quasi_newton/constants.cuh, gang.cuh and sums.cuh.
SPAN = 256  # variables a block takes at a time
GROUP = 20  # chunks whose sums are added up together
NUMBERS = 9  # of a chunk besides products of rows: most_numbers of sums.cuh, and a careful sum's two
BLOCK, WARP = 256, 32  # threads of a block; small problems are left to a warp each
LONGEST_WALK = {BLOCK: 512, WARP: 128}
SMALL = 512  # variables of a problem that a warp takes
SMALL_CAPACITY = 10  # and pairs: its decisions must fit its share of shared memory
WALK_STATE_WORDS = 2 * 256 + 64  # WalkState without its q and r, rounded up


class Engine(ctypes.Structure):
    """The struct Engine of src/cuda/quasi_newton/problem.cuh."""

    _fields_ = (
        [(name, ctypes.c_int64) for name in ("batch", "n", "stride")]
        + [
            (name, ctypes.c_uint64)
            for name in ("states", "small", "x", "g", "d", "trial", "s", "y", "lower", "upper", "weights")
        ]
        + [(name, ctypes.c_int64) for name in ("bound_stride", "weight_stride")]
        + [
            (name, ctypes.c_uint64)
            for name in (
                "partials", "coefficients", "scratch", "walk", "barrier", "report", "running", "counter",
            )
        ]
        + [(name, ctypes.c_int64) for name in ("partial_stride", "walk_stride")]
        + [(name, ctypes.c_int32) for name in ("chunks", "walk_length", "sums")]
    )  # fmt: skip


def kernel_defines(
    threads: int, capacity: int, single: bool, bounded: bool, weighted: bool, vary: bool
) -> dict[str, str | int]:
    """What a turn kernel is compiled for, as src/cuda/quasi_newton/constants.cuh names it."""
    return {
        "SW_REAL": "float" if single else "double",
        "SW_CAPACITY": capacity,
        "SW_THREADS": threads,
        "SW_BOUNDED": int(bounded),
        "SW_WEIGHTED": int(weighted),
        "SW_WEIGHTS_VARY": int(vary),
        "SW_STAGED_BYTES": staged_bytes(capacity, single, bounded, weighted, threads),
    }


def staged_bytes(capacity: int, single: bool, bounded: bool, weighted: bool, threads: int) -> int:
    """Dynamic shared memory for what the sweeps stage there, as src/cuda/quasi_newton/staging.cuh lays it out."""
    if capacity > 16 or threads == WARP:
        return 0
    few = capacity <= 8
    bounds_and_weight = 2 * bounded + weighted
    absorb_rows = 8 * -(-2 * capacity // 8) + 4 + bounds_and_weight  # history, and the vectors of a tile
    absorb = 2 * absorb_rows * ((256 if few else 128) + 8) * (4 if single else 8)
    aim = 2 * capacity * threads * 16 if few else 0  # a lot of each row for each thread
    return max(absorb, aim)
