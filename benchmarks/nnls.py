"""NNLS on the CPU against a loop over scipy.optimize.nnls.

    python benchmarks/nnls.py [--quick] [--data FOLDER] [--json FILE]

Batches of the sets of Luo & Duraiswami (2011), real lidar shots, many right-hand sides of one small matrix, and one
large system. Ratios are taken within one run; SciPy's BLAS is tried with one thread and with its default, the better
counts. The results go to a JSON file as well. Their tables beside ours: `stepwell study nnls-updates` and
`stepwell study nnls`.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import statistics
import sys
import time

import numpy as np
import scipy
from scipy.optimize import nnls as scipy_nnls
from threadpoolctl import threadpool_limits

import stepwell
from stepwell import _core
from stepwell.apps.waveform import load_shots
from stepwell.common.threads import default_threads
from stepwell.lab.studies.cases import decays
from stepwell.lab.studies.nnls import PAPER, SETS  # noqa: F401 (for nnls_gpu.py)


def best(function, repeats):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def scipy_seconds(A, b, at_most=10**9):
    """Seconds of a loop over SciPy for all systems, the better of one BLAS thread and the default."""
    some = min(len(b), at_most)
    rest = []
    for threads in (1, None):
        with threadpool_limits(threads):
            start = time.perf_counter()
            for s in range(some):
                scipy_nnls(A[s] if A.ndim == 3 else A, b[s], maxiter=100 * A.shape[-1])
            rest.append(time.perf_counter() - start)
    return min(rest) * len(b) / some


def workload(name, A, b, goal, scipy_systems=10**9, repeats=3, matrix=None):
    """Time one batch on all threads against SciPy."""
    ours, theirs = [], []
    target = A if matrix is None else matrix
    for _ in range(repeats):
        ours.append(best(lambda: stepwell.nnls(target, b), 2))
        theirs.append(scipy_seconds(A, b, scipy_systems))
    result = stepwell.nnls(target, b)
    row = {
        "name": name,
        "systems": len(b),
        "seconds": statistics.median(ours),
        "seconds_scipy": statistics.median(theirs),
        "passes": float(np.mean(result.passes)),
        "insertions": float(np.mean(result.insertions)),
        "removals": float(np.mean(result.removals)),
        "violation": float(np.max(result.violation)),
        "goal": goal,
    }
    row["ratio"] = row["seconds_scipy"] / row["seconds"]
    print(
        f"  {name:44s} {len(b):7d} {row['seconds'] * 1e3:10.2f} ms  SciPy {row['seconds_scipy'] * 1e3:11.1f} ms  ratio"
        f" {row['ratio']:6.1f} (goal {goal}); passes {row['passes']:.1f}, KKT {row['violation']:.1e}",
        flush=True,
    )
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer systems, one repetition")
    default = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("STEPWELL_DATA", default))
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path(__file__).parent / "raw" / "nnls.json")
    options = parser.parse_args()
    about = {
        "machine": platform.processor() or platform.machine(),
        "instruction_set": _core.isa(),
        "threads": default_threads(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "stepwell": stepwell.__version__,
        "when": time.strftime("%Y-%m-%d %H:%M"),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    results = {"about": about}
    print("\nBatches on all threads")
    repeats = 1 if options.quick else 3
    rows = [workload(f"{name}, 24 systems", *make(24), 10, repeats=repeats) for name, make in SETS.items()]
    path = pathlib.Path(options.data) / "gedi_l1b_150shots.npz"
    if path.exists():
        shots = load_shots(path)
        b = shots.waveforms - shots.background[:, None]
        some = slice(0, 24 if options.quick else 150)
        dense = np.ascontiguousarray(shots.matrix().dense()[some])
        rows.append(workload("real GEDI shots 512, dense", dense, b[some], 10, repeats=repeats))
        wave = stepwell.Convolution(shots.pulses[some], 512, origin=shots.origin)
        rows.append(workload("real GEDI shots 512, Convolution", dense, b[some], 10, repeats=repeats, matrix=wave))
    else:
        print(f"  real GEDI shots: skipped, {path} is not there")
    A, b = decays(20_000 if options.quick else 100_000)
    rows.append(workload("T2 decays 56 x 40, one A", A, b, 20, scipy_systems=500, repeats=repeats))
    rng = np.random.default_rng(5)
    n = 1500 if options.quick else 4000
    rows.append(workload(f"one system {n} x {n}", rng.random((1, n, n)), rng.random((1, n)), 3, repeats=1))
    results["batches"] = rows
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(results, indent=1) + "\n")
    print(f"\nwrote {options.json}")


if __name__ == "__main__":
    sys.exit(main())
