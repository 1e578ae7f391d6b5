"""Kernels compiled before they are needed, several at a time: a first call then finds them on disk."""

from __future__ import annotations

import concurrent.futures
import importlib
import multiprocessing
import re
from collections.abc import Callable, Sequence

from stepwell.common.checks import require
from stepwell.cuda.devices import list_devices
from stepwell.cuda.nvrtc import compile_kernel

#: A source and its definitions.
Kernel = tuple[str, dict[str, str | int]]

#: Modules of applications that have kernels of their own, and say in `COMMON_KERNELS` which.
_APPLICATIONS = ("stepwell.apps.voronoi.device",)


def common_kernels() -> list[Kernel]:
    """Return what calls with usual arguments use: default options, both precisions, bounds or none."""
    from stepwell.derivatives import cuda as derivatives
    from stepwell.krylov.tv import device as tv
    from stepwell.lsq import cuda as nnls
    from stepwell.lsq import small_systems
    from stepwell.operators import cuda_sparse as sparse
    from stepwell.quasi_newton.cuda import layout as quasi_newton

    both = (False, True)
    return [
        *(("quasi_newton", defines) for defines in quasi_newton.common_defines()),
        *(("nnls", defines) for defines in nnls.common_defines()),
        *(("nnls_share", nnls.sharing_defines(single, False, general)) for single in both for general in both),
        *(("nnls_small", defines) for defines in small_systems.common_defines()),
        *(("free_solve", defines) for defines in derivatives.common_defines()),
        *(("sparse_product", sparse.kernel_defines(word)) for word in (8, 4)),
        *(kernel for dtype in ("float64", "float32") for kernel in tv.common_kernels(dtype)),
        *(kernel for name in _APPLICATIONS for kernel in importlib.import_module(name).COMMON_KERNELS),
    ]


def architectures_here() -> list[str]:
    """Return the architectures of the devices that the driver shows, such as ``sm_90``."""
    return sorted({f"sm_{device.capability[0]}{device.capability[1]}" for device in list_devices()})


def compile_common(
    architectures: Sequence[str],
    workers: int,
    done: Callable[[int, int], object] | None = None,
    *,
    ship: bool = False,
) -> int:
    """Compile the common kernels that are not on disk yet, in processes of their own; returns how many were asked for.

    Parameters
    ----------
    architectures : sequence of str
        Such as ``["sm_90"]``. No device is needed.
    workers : int
        Processes.
    done : callable, optional
        Called with how many are ready, and of how many.
    ship : bool
        They become part of the installation, not of the user's cache.
    """
    for architecture in architectures:
        good = re.fullmatch(r"sm_\d+[af]?", architecture) is not None
        require(good, "architecture", architecture, "sm_ and a number, such as sm_90")
    jobs = [(name, defines, architecture) for architecture in architectures for name, defines in common_kernels()]
    # Not forked: a process that has begun to use CUDA cannot be.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(min(workers, len(jobs)) or 1, mp_context=context) as pool:
        waiting = [pool.submit(compile_kernel, *job, ship=ship) for job in jobs]
        try:
            for count, finished in enumerate(concurrent.futures.as_completed(waiting), 1):
                finished.result()
                if done is not None:
                    done(count, len(jobs))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return len(jobs)
