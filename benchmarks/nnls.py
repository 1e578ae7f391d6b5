"""NNLS on the CPU against a loop over scipy.optimize.nnls, beside the tables of Luo & Duraiswami (2011).

    python benchmarks/nnls.py [--quick] [--data FOLDER] [--json FILE]

Prints Table 3.1 (counted costs beside the formulas), Tables 7.1 to 7.3 (their sets of 1 to 192 systems), real lidar
shots, many right-hand sides of one small matrix, and one large system. Ratios are taken within one run; SciPy's BLAS
is tried with one thread and with its default, the better counts. The results go to a JSON file as well.
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
from scipy.linalg import toeplitz
from scipy.optimize import nnls as scipy_nnls
from threadpoolctl import threadpool_limits

import stepwell
from stepwell import _core
from stepwell.apps.waveform import load_shots
from stepwell.settings import default_threads

#: Seconds in the paper: dual quad-core Xeon X5560 and Tesla C2050, 2010; updates, downdates, GPU, CPU, lsqnonneg.
PAPER = {
    "7.1 lidar deconvolution 432": {
        1: (108, 14, 0.2172, 0.0186, 0.0770),
        24: (1477, 220, 0.2238, 0.1636, 0.7163),
        48: (2806, 406, 0.2356, 0.2990, 1.2908),
        96: (5695, 834, 0.4508, 0.5989, 2.6225),
        192: (12067, 1839, 0.7203, 1.2489, 5.5460),
    },
    "7.2 mean-shifted Gaussians 512": {
        1: (165, 92, 0.4257, 0.0654, 0.4791),
        24: (3907, 2109, 0.5094, 1.2238, 8.7611),
        48: (7792, 4196, 0.9546, 2.4141, 17.2483),
        96: (15541, 8362, 1.7862, 4.8067, 34.5396),
        192: (30966, 16599, 3.2672, 9.6250, 69.4889),
    },
    "7.3 random 512": {
        1: (52, 0, 0.1194, 0.0068, 0.0223),
        24: (1169, 13, 0.1397, 0.1157, 0.4665),
        48: (2361, 28, 0.2526, 0.2245, 0.8959),
        96: (4766, 58, 0.4875, 0.4352, 1.7269),
        192: (9525, 124, 0.8667, 0.8794, 3.5243),
    },
}


def lidar(count, m=432):
    rng = np.random.default_rng(0)
    t = np.arange(m)
    A, b = np.zeros((count, m, m)), np.zeros((count, m))
    for s in range(count):
        A[s] = toeplitz(np.exp(-0.5 * ((t - 12) / rng.uniform(3, 4.5)) ** 2) * (t <= 25), np.zeros(m))
        x = np.zeros(m)
        x[rng.choice(m - 40, 12, replace=False)] = rng.uniform(10, 200, 12)
        b[s] = A[s] @ x + np.abs(rng.normal(0, 3, m)) + 14
    return A, b


def gaussians(count, m=512):
    t = np.arange(m)
    return np.exp(-0.5 * ((t[:, None] - t[None]) / 4.32) ** 2), np.random.default_rng(1).random((count, m))


def uniform(count, m=512):
    rng = np.random.default_rng(2)
    return rng.random((count, m, m)), rng.random((count, m))


def decays(count):
    rng = np.random.default_rng(3)
    A = np.exp(-np.arange(1, 57)[:, None] * 7e-3 / np.logspace(-2, 0.3, 40)[None])
    x = np.maximum(rng.normal(size=(count, 40)), 0) * (rng.random((count, 40)) < 0.1)
    return A, x @ A.T + 1e-3 * rng.normal(size=(count, 56))


SETS = dict(zip(PAPER, (lidar, gaussians, uniform)))


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


def worst_violation(A, b, x):
    """The scaled optimality violation, recomputed here."""
    worst = 0.0
    for s in range(len(b)):
        matrix = A[s] if A.ndim == 3 else A
        w = matrix.T @ (b[s] - matrix @ x[s]) / (np.linalg.norm(matrix, axis=0) * np.linalg.norm(b[s]))
        worst = max(worst, w.max(), np.abs(w[x[s] > 0]).max(initial=0))
    return worst


def table_3_1():
    """Costs of one insertion and one removal, counted while they run, beside the paper's formulas."""
    m, l, i = 512, 100, 40
    A = np.random.default_rng(0).random((m, l + 1))
    codes = {"cgs2": 0, "mgs": 1, "rotations": 2, "csne": 3}
    formulas = {
        "mgs": (l + 2, 6 * m * l + 3 * m + 1),
        "cgs2": (None, None),
        "rotations": (2 * (m - l - 1), 6 * m * (m - l - 1) + 2 * m * m + 8 * (m - l - 1)),
        "csne": (3 * m + 2 * l + 1, 6 * m * m + 4 * m + 1 + 3 * l * l + 3 * l),
    }
    rows = []
    for name, code in codes.items():
        counted = []
        for count in (l, l + 1):
            moves = np.arange(count, dtype=np.int32)
            seconds = best(lambda moves=moves, code=code: _core.nnls_try_factor(A, code, moves), 3)
            counted.append((np.array(_core.nnls_try_factor(A, code, moves)[4]), seconds))
        cost = counted[1][0] - counted[0][0]
        rows.append((f"{name}/up", int(cost[0]), formulas[name][0], int(cost[1]), formulas[name][1]))
    moves = np.append(np.arange(l, dtype=np.int32), np.int32(-1 - i))
    cost = np.array(_core.nnls_try_factor(A, 0, moves)[4])
    k = l - i
    rows.append(
        ("rotations/down", int(cost[2]), 4 * (k + 1), int(cost[3]), 6 * m * k + 6 * k + 6 * (k + 1) * (k // 2 - 1))
    )
    print(f"\nTable 3.1, column accesses and flops at m = {m}, l = {l} (removal of position {i})")
    print(f"  {'':16s} {'accesses':>10s} {'formula':>10s} {'flops':>12s} {'formula':>12s}")
    for name, accesses, accesses_formula, flops, flops_formula in rows:
        print(f"  {name:16s} {accesses:10d} {accesses_formula or '-':>10} {flops:12d} {flops_formula or '-':>12}")
    return [dict(zip(("update", "accesses", "accesses_formula", "flops", "flops_formula"), row)) for row in rows]


def paper_tables(counts, quick):
    out = {}
    for title, make in SETS.items():
        print(f"\nTable {title}: seconds (paper: 2010 hardware)")
        print(
            f"  {'systems':>7s} {'updates':>8s} {'paper':>7s} {'downd.':>7s} {'paper':>7s} {'ours':>8s}"
            f" {'qr single':>9s} {'SciPy':>8s} {'ratio':>6s} {'KKT':>8s} |"
            f" {'paper GPU':>9s} {'paper CPU':>9s} {'lsqnonneg':>9s}"
        )
        out[title] = []
        for count in counts:
            A, b = make(count)
            stepwell.nnls(A[:1] if A.ndim == 3 else A, b[:1])
            result = stepwell.nnls(A, b)
            single = stepwell.nnls(A, b, method="qr", insertion="single")
            # Ours and SciPy take turns, so that a busy moment of the machine hits both.
            ours, theirs = [], []
            for _ in range(1 if quick or count > 48 else 3):
                ours.append(best(lambda A=A, b=b: stepwell.nnls(A, b), 2))
                theirs.append(scipy_seconds(A, b))
            seed = best(lambda A=A, b=b: stepwell.nnls(A, b, method="qr", insertion="single"), 1)
            row = {
                "systems": count,
                "updates": int(single.insertions.sum()),
                "downdates": int(single.removals.sum()),
                "seconds": statistics.median(ours),
                "seconds_qr_single": seed,
                "seconds_scipy": statistics.median(theirs),
                "violation": worst_violation(A, b, result.x),
            }
            row["ratio"] = row["seconds_scipy"] / row["seconds"]
            paper = PAPER[title][count]
            print(
                f"  {count:7d} {row['updates']:8d} {paper[0]:7d} {row['downdates']:7d} {paper[1]:7d}"
                f" {row['seconds']:8.4f} {seed:9.4f} {row['seconds_scipy']:8.3f} {row['ratio']:6.1f}"
                f" {row['violation']:8.1e} | {paper[2]:9.4f} {paper[3]:9.4f} {paper[4]:9.4f}",
                flush=True,
            )
            out[title].append(row)
    return out


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
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path(__file__).parent / "results" / "nnls.json")
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
    results = {"about": about, "table_3_1": table_3_1()}
    results["tables_7"] = paper_tables((1, 24) if options.quick else (1, 24, 48, 96, 192), options.quick)
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
