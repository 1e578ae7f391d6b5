"""Many right-hand sides on a CUDA device: the phantom's 102 slices, tolerance 1e-4, float64 and float32.

    python benchmarks/many_rhs_gpu.py [--library torch] [--library cupy]

Times are wall-clock of whole calls, the device synchronised before and after; medians of ten after two for warming
up. The operator is made beforehand, except where the row says "from the CSR matrix". Products of the matrix with
blocks stand beside the library's own (cuSPARSE). A profile of one call is printed with --profile. The tables go to
docs/krylov.md, raw figures to benchmarks/raw/many_rhs_gpu.json.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import statistics
import time
from pathlib import Path

import numpy as np
import scipy
import scipy.sparse as sp

import stepwell
from stepwell import operators
from stepwell.apps import tomography
from stepwell.arrays import copy_to_device_of, to_host

RAW = Path(__file__).parent / "raw" / "many_rhs_gpu.json"
TOL = 1e-4


def phantom():
    A = tomography.parallel_beam(128, angles=np.arange(0, 180, 2.0), detectors=185)
    X = tomography.shepp_logan_3d(128).reshape(128, -1).T
    X = X[:, np.linalg.norm(X, axis=0) > 0]
    return A, tomography.add_noise(A @ X, 0.01), 0.01 * tomography.largest_singular_value(A)


def device(library, dtype):
    """An empty array of the library on the device, a function that waits for it, and the device's name."""
    module = importlib.import_module(library)
    if library == "torch":
        like = module.empty(0, dtype=getattr(module, dtype), device="cuda")
        return like, module.cuda.synchronize, module.cuda.get_device_name(), module.__version__
    like = module.empty(0, dtype=dtype)
    name = module.cuda.runtime.getDeviceProperties(0)["name"].decode()
    return like, module.cuda.Device().synchronize, name, module.__version__


def timed(function, wait, repeats=10, warm=2):
    times = []
    for turn in range(repeats + warm):
        wait()
        start = time.perf_counter()
        result = function()
        wait()
        if turn >= warm:
            times.append(time.perf_counter() - start)
    return statistics.median(times), min(times), result


def queued(function, wait, repeats=20):
    """Seconds of one call among many that follow each other on the device; the best of three rounds."""
    function()
    rounds = []
    for _ in range(3):
        wait()
        start = time.perf_counter()
        for _ in range(repeats):
            function()
        wait()
        rounds.append((time.perf_counter() - start) / repeats)
    return min(rounds)


def residual(A, B, lam, X):
    """Worst true residual, computed on the host in float64."""
    here = operators.as_operator(A)
    R = here.adjoint(B)
    gap = R - here.adjoint(here.forward(X)) - lam**2 * X
    return float((np.linalg.norm(gap, axis=0) / np.linalg.norm(R, axis=0)).max())


def measure(library, dtype, A, B, lam, profile):
    like, wait, name, version = device(library, dtype)
    matrix = operators.in_library_of(sp.csr_matrix(A, dtype=dtype), like)
    block = copy_to_device_of(B.astype(dtype), like)
    transposed = operators.in_library_of(sp.csr_matrix(A.T, dtype=dtype), like)
    making, _, operator = timed(lambda: operators.as_operator(matrix, dtype), wait, 3, 1)
    tol = TOL if dtype == "float64" else 1e-3
    print(f"\n{library} {version}, {name}, {dtype}, {B.shape[1]} columns, tol {tol:g}")
    print(f"operator made in {1e3 * making:.1f} ms, {operator.memory / 2**20:.0f} MiB")
    print("\n| method | median ms | best ms | products a column | calls | worst residual |\n|---|---|---|---|---|---|")
    rows = []
    runs = {
        "block": (operator, {"method": "block"}),
        "block, from the CSR matrix": (matrix, {"method": "block"}),
        "block, 64 MiB": (operator, {"method": "block", "memory": 2**26}),
        "pseudo-block": (operator, {"method": "pseudo-block"}),
        "direct": (operator, {"method": "direct"}),
    }
    for title, (given, options) in runs.items():
        repeats = 3 if title == "direct" else 10
        middle, best, result = timed(
            lambda given=given, options=options: stepwell.tikhonov(given, block, lam, tol=tol, **options), wait, repeats
        )
        worst = residual(A, B, lam, to_host(result.x))
        products = float(result.products.sum()) / B.shape[1]
        print(f"| {title} | {1e3 * middle:.1f} | {1e3 * best:.1f} | {products:.1f} | {result.calls} | {worst:.1e} |")
        rows.append({"method": title, "median": middle, "best": best, "products": products, "calls": result.calls,
                     "residual": worst, "success": result.success})  # fmt: skip
    parts = []
    print("\n| columns | A X, ms | the library's | Aᵀ Y, ms | the library's |\n|---|---|---|---|---|")
    for width in (1, 2, 8, 32, 102, 256):
        x, y = (
            copy_to_device_of(np.random.default_rng(0).normal(size=(n, width)).astype(dtype), like)
            for n in A.shape[::-1]
        )
        row = {
            "columns": width,
            "forward": queued(lambda x=x: operator.forward(x), wait),
            "library forward": queued(lambda x=x: matrix @ x, wait),
            "adjoint": queued(lambda y=y: operator.adjoint(y), wait),
            "library adjoint": queued(lambda y=y: transposed @ y, wait),
        }
        parts.append(row)
        print("| " + " | ".join([str(width), *(f"{1e3 * row[key]:.3f}" for key in list(row)[1:])]) + " |")
    if profile:
        import cProfile
        import pstats

        profiler = cProfile.Profile()
        profiler.runcall(lambda: stepwell.tikhonov(operator, block, lam, tol=tol, method="block"))
        pstats.Stats(profiler).sort_stats("tottime").print_stats(18)
    return {
        "library": library,
        "version": version,
        "device": name,
        "dtype": dtype,
        "tol": tol,
        "operator seconds": making,
        "operator bytes": operator.memory,
        "rows": rows,
        "products": parts,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", choices=["torch", "cupy"], action="append")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    A, B, lam = phantom()
    figures = []
    for library in options.library or ["torch", "cupy"]:
        for dtype in ("float64", "float32"):
            try:
                figures.append(measure(library, dtype, A, B, lam, options.profile and dtype == "float64"))
            except ImportError as error:
                print(f"\n{library}: not installed ({error})")
    facts = {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}
    RAW.parent.mkdir(parents=True, exist_ok=True)
    RAW.write_text(json.dumps({"machine": facts, "figures": figures}, indent=1) + "\n")
    print(f"\nwrote {RAW}")


if __name__ == "__main__":
    main()
