"""Fits by compiled models on a CUDA device: whole fits in one launch, on the caller's stream."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from stepwell.arrays.device_memory import DeviceMemory
from stepwell.cuda import runtime
from stepwell.cuda.layouts import structure
from stepwell.fit.models.host import ends_of
from stepwell.fit.models.job import Arrays, Described, Settings, across_of, answers, make_job

#: The core's templates of models.
TEMPLATES = {
    "exponentials": "Exponentials",
    "ivim": "Ivim",
    "gaussians": "Gaussians",
    "lorentzians": "Lorentzians",
    "pseudo_voigts": "PseudoVoigts",
    "polynomial_peak": "PolynomialPeak",
    "spot": "Spot",
    "grid_spot": "GridSpot",
    "tofts": "Tofts",
    "program": "Expression",
}
#: Threads of a block, and blocks of a multiprocessor that registers are there for.
THREADS, BLOCKS = 128, 2
#: Threads of a warp that have ended before these take further problems, and threads of 32 that run that are ready
#: before these evaluate the model. Small grids are evaluated in less time than they are read.
REFILL, READY = 8, 20
GRID_REFILL, GRID_READY = 24, 28
#: Data of a warp's problems lie in shared memory up to this size: two blocks then share what a multiprocessor has.
STAGED_BYTES = 26 * 1024
#: Grids of at most so many points have code for each point of a row: the exponentials stay in registers.
UNROLLED_POINTS = 64


def kernel_defines(
    model: Described,
    single: bool,
    points: int,
    *,
    across: int = 0,
    weighted: bool = False,
    own_x: bool = False,
    loss: int = 0,
) -> dict[str, str | int]:
    """Return the definitions that ``cuda/fit/fit_model.cu`` is compiled with."""
    kind = "grid_spot" if across else model.kind
    unrolled = bool(across) and points <= UNROLLED_POINTS
    defines: dict[str, str | int] = {
        "SW_SCALAR": "float" if single else "double",
        "SW_MODEL": TEMPLATES[kind],
        "SW_COUNT": model.count,
        "SW_FLAG": int(model.flag),
        "SW_ACROSS": across,
        "SW_PARAMETERS": model.n,
        "SW_VARIABLES": len(model.variables),
        "SW_POINTS": points if unrolled else 0,
        "SW_UNROLL_POINTS": across if unrolled else 1,
        "SW_STAGED": int(staged_bytes(single, points, weighted) > 0),
        "SW_WEIGHTED": int(weighted),
        "SW_OWN_X": int(own_x),
        "SW_LOSS": loss,
        "SW_REFILL": GRID_REFILL if unrolled else REFILL,
        "SW_READY": GRID_READY if unrolled else READY,
        "SW_THREADS": THREADS,
        "SW_BLOCKS": BLOCKS,
    }
    if model.device_row is not None:
        defines["SW_ROW"] = model.device_row
    return defines


def staged_bytes(single: bool, points: int, weighted: bool) -> int:
    """Return the bytes of shared memory that the data of a warp's problems take; 0 where they stay where they are."""
    size = 32 * points * (4 if single else 8) * (1 + weighted)
    return size if size <= STAGED_BYTES else 0


def end_columns(n: int) -> tuple[int, int]:
    """Return how many reals and whole numbers are kept of a fit of n parameters that has ended (cuda/fit/ends.cuh)."""
    return 3 * n + n * (n + 1) // 2 + 2, 5


@functools.lru_cache(maxsize=64)
def _kernels(variant: tuple[tuple[str, str | int], ...], shared_bytes: int, device_id: int) -> tuple[Any, Any, int]:
    """Return the kernel, that which writes the answers, and the blocks of the first that a device holds at a time."""
    kernel, ends = (
        runtime.load_kernel("fit_model", name, dict(variant), device_id) for name in ("fit_model", "fit_ends")
    )
    kernel.allow_shared_memory(shared_bytes, device_id)
    multiprocessors = runtime.Device(device_id).attribute("MULTIPROCESSOR_COUNT")
    return kernel, ends, multiprocessors * max(1, kernel.resident_blocks(THREADS, shared_bytes))


def fit_on_device(
    model: Described,
    x: np.ndarray,
    y: Any,
    start: Any,
    low: np.ndarray,
    high: np.ndarray,
    settings: Settings,
    *,
    weights: Any = None,
    x_on_device: Any = None,
    uncertainty: str | None = "covariance",
    problems: int,
) -> dict[str, Any]:
    """Fit problems whose data are on a device; what is returned is there, too.

    Parameters
    ----------
    x : ndarray
        Points that all problems share, (variables, m), on the host.
    y, start, weights : array
        (1 or problems, m or n), contiguous, in the type of the fit, of the caller's library.
    low, high : ndarray
        (1 or problems, n), float64, on the host.
    x_on_device : array, optional
        Points of each problem, (problems, variables, m).
    """
    memory = DeviceMemory(y)
    memory.make_current()
    stream = memory.stream()
    n, points, real = model.n, int(y.shape[-1]), "float32" if settings.single else "float64"
    across = across_of(model, x) if x_on_device is None else 0
    shared_x = None if x_on_device is not None else memory.upload(np.ascontiguousarray(x).tobytes())
    bounds = [memory.upload(np.ascontiguousarray(bound, dtype=np.float64).tobytes()) for bound in (low, high)]
    queue = memory.zeros(1, "int64")
    end_reals, end_counts = end_columns(n)
    ends_kept = {"kept_reals": ((end_reals, problems), "float64"), "kept_counts": ((end_counts, problems), "int32")}
    made = memory.several(answers(problems, n, real, uncertainty) | ends_kept)
    reals, counts = made.pop("kept_reals"), made.pop("kept_counts")
    arrays = Arrays(
        x=x if x_on_device is None else x_on_device, y=y, weights=weights, start=start, low=low, high=high, **made
    )
    uploaded = {id(low): bounds[0], id(high): bounds[1], id(x): shared_x}
    job = make_job(
        model, arrays, settings, across, lambda array: memory.address(uploaded.get(id(array), array)), problems
    )
    launch = structure("FitLaunch")(job=job, queue=memory.address(queue))
    defines = kernel_defines(
        model,
        settings.single,
        points,
        across=across,
        weighted=weights is not None,
        own_x=x_on_device is not None,
        loss=settings.loss,
    )
    shared_bytes = staged_bytes(settings.single, points, weights is not None) * THREADS // 32
    kernel, ends, most = _kernels(tuple(sorted(defines.items())), shared_bytes, memory.device_id)
    blocks = -(-problems // THREADS)
    if blocks:
        kept = (memory.address(reals), memory.address(counts))
        runtime.launch(kernel, min(blocks, most), THREADS, stream, launch, *kept, shared_bytes=shared_bytes)
        runtime.launch(ends, blocks, THREADS, stream, job, *kept)
    memory.done(stream, [queue, bounds, shared_x, reals, counts])
    return ends_of(arrays)
