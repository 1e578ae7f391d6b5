"""The BLAS comparison of Lin and Renaut (2010): vector, matrix–vector and matrix–matrix kernels at equal operations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.linalg.blas

from stepwell.arrays.places import Place
from stepwell.lab.studies.frame import Column, Context, Curve, Study
from stepwell.lab.studies.measure import blas_threads, interleave, medians

#: BLAS is called through NumPy on the CPU and through PyTorch on a GPU.
ON_CPU, ON_GPU = ("numpy",), ("torch",)

COLUMNS = (
    Column("device", "device"),
    Column("dtype", "precision"),
    Column("n", "n", ","),
    Column("operations", "operations 2n³, 10⁶", ",.0f"),
    Column("kernel", "kernel"),
    Column("level", "BLAS"),
    Column("calls", "calls", ","),
    Column("gflops", "Gflop/s", ".3g"),
    Column("below", "matrix–matrix over it", ".1f"),
)
KERNELS = {"dot": 1, "axpy": 1, "matrix–vector": 2, "matrix–matrix": 3}

Work = Callable[[], Any]


def host_kernels(n: int, dtype: str) -> dict[str, tuple[Work, int]]:
    """Return each kernel, from NumPy's and SciPy's BLAS, with the calls that make 2n³ operations of it."""
    rng = np.random.default_rng(0)
    left, right = (rng.random((n, n)).astype(dtype) for _ in range(2))
    u, v, x = left.ravel().copy(), right.ravel().copy(), right[0].copy()
    axpy = scipy.linalg.blas.daxpy if dtype == "float64" else scipy.linalg.blas.saxpy
    return {
        "dot": (lambda: np.dot(u, v), n),
        "axpy": (lambda: axpy(u, v, a=1e-3), n),
        "matrix–vector": (lambda: left @ x, n),
        "matrix–matrix": (lambda: left @ right, 1),
    }


def device_kernels(n: int, dtype: str, place: Place) -> dict[str, tuple[Work, int]]:
    """Return the same from the device's BLAS, through PyTorch."""
    rng = np.random.default_rng(0)
    left, right = (place.put(rng.random((n, n)).astype(dtype)) for _ in range(2))
    u, v, x = left.reshape(-1).clone(), right.reshape(-1).clone(), right[0].clone()
    return {
        "dot": (lambda: u.dot(v), n),
        "axpy": (lambda: v.add_(u, alpha=1e-3), n),
        "matrix–vector": (lambda: left.mv(x), n),
        "matrix–matrix": (lambda: left.mm(right), 1),
    }


def _best(rounds: int, runs: Mapping[str, Callable[[], float]], threads: Sequence[int | None]) -> dict[str, float]:
    """Return the median seconds of each run with the better number of BLAS threads; None is the library's own."""
    best: dict[str, float] = {}
    for count in threads:
        with blas_threads(count):
            interleave(1, **runs)  # warm up
            for name, seconds in medians(interleave(rounds, **runs)).items():
                best[name] = min(seconds, best.get(name, seconds))
    return best


def run(context: Context, study: Study) -> None:
    """Time every kernel at every size, in both precisions."""
    sizes = context.pick(toy=[64], default=[464, 585, 737], full=[464, 585, 669, 737, 1024, 2048, 4096])
    rounds = context.pick(toy=2, default=5, full=5)
    study.settings |= {
        "rounds (medians)": rounds,
        "BLAS threads on the CPU": "one, or the default where that is faster",
        "vectors": "n² elements, n calls",
        "matrix–vector": "n x n, n calls",
    }
    table = study.table("kernels", "BLAS 1, 2 and 3 with 2n³ operations each", COLUMNS)
    for place in context.places:
        for dtype in ("float32", "float64"):
            for n in sizes:
                context.tell(f"{place.label}, {dtype}, n = {n}")
                kernels = device_kernels(n, dtype, place) if place.gpu else host_kernels(n, dtype)
                # A few of the calls are enough to time one.
                sample = {name: min(calls, 200 if place.gpu else 20) for name, (_, calls) in kernels.items()}
                runs = {
                    name: functools.partial(place.seconds, work, sample[name]) for name, (work, _) in kernels.items()
                }
                each = _best(rounds, runs, (None,) if place.gpu else (1, None))
                rates = {name: 2e-9 * n**3 / (each[name] * calls) for name, (_, calls) in kernels.items()}
                for name, (_, calls) in kernels.items():
                    table.add(device=place.short, dtype=dtype, n=n, operations=2e-6 * n**3, kernel=name,
                              level=KERNELS[name], calls=calls, gflops=rates[name],
                              below=rates["matrix–matrix"] / rates[name])  # fmt: skip
        for dtype in ("float32", "float64"):
            title = f"BLAS 1, 2 and 3 at equal operations: {place.label}, {dtype}"
            plot = study.plot(f"{place.short.lower()}-{dtype}", title, "operations, 10⁶", "Gflop/s",
                              log_x=True, log_y=True)  # fmt: skip
            for name in KERNELS:
                rows = table.find(device=place.short, dtype=dtype, kernel=name)
                plot.curves.append(Curve(name, [row["operations"] for row in rows], [row["gflops"] for row in rows]))
    slowest = min(row["below"] for row in table.rows if row["kernel"] != "matrix–matrix")
    study.remarks.append(
        f"Matrix–matrix products are at least {slowest:.1f} times as fast as every other kernel here: the poster's "
        "conclusion, that BLAS 3 outperforms BLAS 1 and 2, holds."
        if slowest > 1
        else f"Matrix–matrix products are not always the fastest here (ratio {slowest:.2f}): the poster's conclusion "
        "does not hold at every size."
    )
    study.differs += [
        "The poster gives a figure without numbers: kernels of 2n³ operations each, about 0.2 to 0.8·10⁹, on a Tesla "
        "C1060 in single precision, matrix–matrix far above the others. Only its shape can be compared.",
        "It does not say how the vector kernels get 2n³ operations. Here vectors have n² elements and are used n "
        "times; vectors of n elements, n² times, would measure the cost of a call.",
    ]
