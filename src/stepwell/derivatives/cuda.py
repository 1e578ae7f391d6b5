"""The solve that derivatives of least squares need, on a CUDA device: one launch, and nothing waits for the host.

The kernel is ``cuda/lsq/free_solve.cu``. It has one block for a system: where a few large ones are all there is, the
array library's own factorisation, which has the whole device, is faster.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from stepwell import _core
from stepwell.arrays import Array, as_contiguous, as_float, host_copy, is_cuda
from stepwell.arrays.device_memory import DeviceMemory
from stepwell.cuda import runtime
from stepwell.cuda.layouts import structure
from stepwell.lsq.result import KeptFactor

#: Entries of a matrix up to which one block solves a system whatever their number, and, if there are so many, at all.
FEW_ENTRIES, MOST_ENTRIES, MANY_SYSTEMS = 1 << 16, 1 << 20, 16
#: Entries of a matrix up to which a block has so many threads.
THREADS = ((512, 32), (4096, 128), (MOST_ENTRIES, 512))
#: Threads of a block that solves with a factor that is there.
KEPT_THREADS = 512


class PulledBack(NamedTuple):
    """What `pull_back` found; None where it was not asked for."""

    image: Array  # (systems, m): A u, the cotangent of b
    to_a: Array | None  # (systems, m, n): the cotangent of A, where each system has its own
    u: Array | None  # (systems, n), and b − A x, (systems, m), where all have one
    residual: Array | None
    overlap: Array | None  # (systems,): uᵀx


def suits(rows: int, columns: int, systems: int) -> bool:
    """Whether systems are small enough, or so many, that each had better have a block."""
    return rows * columns <= (FEW_ENTRIES if systems < MANY_SYSTEMS else MOST_ENTRIES)


def kernel_defines(single: bool, threads: int) -> dict[str, str | int]:
    """Return the definitions that ``cuda/lsq/free_solve.cu`` is compiled with."""
    return {"SW_SCALAR": "float" if single else "double", "SW_THREADS": threads}


def common_defines() -> list[dict[str, str | int]]:
    """Return what the kernels of usual calls are compiled for."""
    return [kernel_defines(single, threads) for single in (False, True) for _, threads in THREADS]


def solve_free(entries: Array, marks: Array, lam: Array, g: Array) -> Array:
    """Solve (A_FᵀA_F + λ²I) u_F = g_F of each system.

    Parameters
    ----------
    entries : array, (systems, m, n) or (1, m, n)
    marks : array, (systems, n)
        Positive for free columns; NaN for a system that has no solution.
    lam : array, (systems,) or (1,), of the host or of the device
    g : array, (systems, right-hand sides, n)
    """
    single = all(str(array.dtype).endswith("float32") for array in (entries, marks, g))
    a, free, rhs = (_rows(array, single) for array in (entries, marks, g))
    memory = DeviceMemory(rhs)
    u = memory.empty(tuple(rhs.shape), _dtype(single))
    call = _Call(memory, a, free, lam, rhs, single)
    call.launch.u = memory.address(u)
    call.run()
    return u if rhs.dtype == g.dtype else memory.xp.astype(u, g.dtype)


def solve_with_kept(factor: KeptFactor, g: Array) -> Array:
    """Solve with the factors that a solve of large normal equations has kept; g has the shape of its x."""
    single = str(g.dtype).endswith("float32")
    rhs = _rows(g, single)
    memory = DeviceMemory(rhs)
    memory.make_current()
    systems, n = int(factor.order.shape[0]), int(g.shape[-1])
    u = memory.empty(tuple(rhs.shape), _dtype(single))
    blocks = min(systems, 4 * _limits(memory.device_id)[1])
    workspace = memory.empty(blocks * (2 * n + KEPT_THREADS), "float64")
    launch = structure("NnlsKeptLaunch")(
        systems=systems, columns=n, right_sides=1, factor=memory.address(factor.entries),
        order=memory.address(factor.order), g=memory.address(rhs), u=memory.address(u), slow=memory.address(workspace),
    )  # fmt: skip
    stream = memory.stream()
    runtime.launch(_kept_kernel(single, memory.device_id), blocks, KEPT_THREADS, stream, launch)
    memory.done(stream, [rhs, workspace])
    return u


@functools.lru_cache(maxsize=16)
def _kept_kernel(single: bool, device_id: int) -> Any:
    return runtime.load_kernel("free_solve", "nnls_kept_solve", kernel_defines(single, KEPT_THREADS), device_id)


def pull_back(
    entries: Array, b: Array, lam: Array, x: Array, g: Array, *, matrix_too: bool, lam_too: bool
) -> PulledBack:
    """Solve with the columns where x is positive, and return what flows back, of systems of one dtype.

    Parameters
    ----------
    entries : array, (systems, m, n), or (m, n) for all systems
    b : array, (systems, m)
    lam : array, ()
    x, g : array, (systems, n)
    matrix_too, lam_too : bool
        Whether the cotangents of A and λ are wanted.
    """
    own = entries.ndim == 3
    single = str(entries.dtype).endswith("float32")
    a, rhs, marks, sides = (_rows(array, single) for array in (entries, b, x, g))
    memory = DeviceMemory(sides)
    real = _dtype(single)
    systems, n = map(int, x.shape)
    m = int(b.shape[1])
    found = PulledBack(
        image=memory.empty((systems, m), real),
        to_a=memory.empty((systems, m, n), real) if matrix_too and own else None,
        u=memory.empty((systems, n), real) if matrix_too and not own else None,
        residual=memory.empty((systems, m), real) if matrix_too and not own else None,
        overlap=memory.empty(systems, "float64") if lam_too else None,
    )
    call = _Call(memory, a if own else a[None], marks, lam, sides[:, None], single)
    call.launch.b = memory.address(rhs)
    for name, array in zip(PulledBack._fields, found):
        setattr(call.launch, name, memory.address(array))
    call.run()
    return found


def _dtype(single: bool) -> str:
    return "float32" if single else "float64"


def _rows(array: Array, single: bool) -> Array:
    return as_contiguous(as_float(array, _dtype(single)))


@functools.lru_cache(maxsize=64)
def _limits(device_id: int) -> tuple[int, int]:
    """Bytes of shared memory that a block may have, and how many multiprocessors there are."""
    device = runtime.Device(device_id)
    return device.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN") - 2048, device.attribute("MULTIPROCESSOR_COUNT")


@functools.lru_cache(maxsize=256)
def _plan(rows: int, columns: int, damped: bool, single: bool, device_id: int) -> tuple[Any, int, int, int]:
    """Return a kernel, its threads, and the bytes of shared and of other memory that a block has."""
    threads = next(threads for entries, threads in THREADS if rows * columns <= entries)
    needed = int(_core.nnls_free_solve_bytes(rows, columns, damped, threads // 32))
    fast = min(needed, _limits(device_id)[0])
    kernel = runtime.load_kernel("free_solve", "nnls_free_solve", kernel_defines(single, threads), device_id)
    kernel.allow_shared_memory(fast, device_id)
    return kernel, threads, fast, 0 if fast == needed else needed


class _Call:
    """A launch, to which a caller adds what it wants to have written."""

    def __init__(self, memory: DeviceMemory, a: Array, marks: Array, lam: Array, g: Array, single: bool) -> None:
        self.memory, self.keep = memory, [a, marks, g]
        systems, sides, n = map(int, g.shape)
        m = int(a.shape[1])
        memory.make_current()
        fixed, damping = 0.0, None
        if is_cuda(lam):  # nobody looks at it
            damping, count = as_contiguous(as_float(lam, "float64").reshape(-1)), int(lam.reshape(-1).shape[0])
        else:
            values = np.asarray(host_copy(lam), dtype=np.float64).reshape(-1)
            count = values.size
            if count == 1:
                fixed = float(values[0])
            else:
                damping = memory.upload(values.tobytes())
        self.plan = _plan(m, n, damping is not None or fixed != 0, single, memory.device_id)
        self.launch = structure("NnlsFreeLaunch")(
            systems=systems, rows=m, columns=n, right_sides=sides,
            a_stride=m * n if int(a.shape[0]) > 1 else 0, marks_stride=n if int(marks.shape[0]) > 1 else 0,
            a=memory.address(a), marks=memory.address(marks), g=memory.address(g), fixed_damping=fixed,
            damping=memory.address(damping), damping_stride=int(count > 1),
        )  # fmt: skip
        self.keep.append(damping)

    def run(self) -> None:
        """Launch it on the stream of the arrays' library."""
        memory, (kernel, threads, fast, slow) = self.memory, self.plan
        systems = self.launch.systems
        blocks = min(systems, (1 if slow else 64) * 2 * _limits(memory.device_id)[1])
        workspace = memory.empty(blocks * slow, "uint8") if slow else None
        self.launch.fast_bytes, self.launch.slow_bytes = fast, slow
        self.launch.slow = memory.address(workspace)
        stream = memory.stream()
        runtime.launch(kernel, blocks, threads, stream, self.launch, shared_bytes=fast)
        memory.done(stream, [*self.keep, workspace])
