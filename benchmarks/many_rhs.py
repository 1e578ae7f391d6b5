"""Many right-hand sides on the CPU: block, projected and direct solvers against SciPy's cg, one column at a time.

    python benchmarks/many_rhs.py                 # all parts, about three minutes on two cores
    python benchmarks/many_rhs.py --part phantom  # one of: phantom, scan, study, growth, direct

Ratios are measured side by side in one process, with one thread and with the default number; for SciPy the better
counts. CPU seconds stand beside wall-clock ones, as they bear a busy machine better. SciPy solves about eight of the
columns, and its time is scaled to all of them. The table goes to the screen, the raw figures to
benchmarks/results/many_rhs.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from pathlib import Path

import numpy as np
import scipy
from scipy.sparse.linalg import LinearOperator
from scipy.sparse.linalg import cg as scipy_cg
from threadpoolctl import threadpool_limits

import stepwell
from stepwell import _core, studies
from stepwell.apps import tomography
from stepwell.operators import as_operator
from stepwell.report.study import study_record
from stepwell.studies.projected_cg import reaches_poster

RESULTS = Path(__file__).parent / "results" / "many_rhs.json"
TOL = 1e-4


def phantom_system(size: int = 128):
    angles = (
        np.arange(0, 180, 2.0) if size == 128 else np.arange(round(90 * size / 128)) * (180 / round(90 * size / 128))
    )
    A = tomography.parallel_beam(size, angles=angles)
    X = tomography.shepp_logan_3d(size).reshape(size, -1).T
    X = X[:, np.linalg.norm(X, axis=0) > 0]
    return A, tomography.add_noise(A @ X, 0.01), 0.01 * tomography.largest_singular_value(A)


def scan_system():
    folder = os.environ.get("STEPWELL_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(folder) / "i13_parallel_beam.npz"
    if not path.exists():
        return None
    scan = tomography.load_scan(path)
    detectors = scan.integrals.shape[2]
    A = tomography.parallel_beam(detectors, angles=scan.angles, detectors=detectors, center=scan.center)
    return A, tomography.sinograms(scan.integrals), 0.01 * tomography.largest_singular_value(A)


def scipy_seconds(A, B, lam, tol=TOL):
    """Seconds and CPU seconds for all columns, from about eight of them; and the mean number of products."""
    count = B.shape[1]
    sample = range(0, count, max(1, count // 8))
    products = 0

    def normal(v):
        nonlocal products
        products += 1
        return A.T @ (A @ v) + lam**2 * v

    H = LinearOperator((A.shape[1],) * 2, matvec=normal, dtype=np.float64)
    R = A.T @ B
    start, processor = time.perf_counter(), time.process_time()
    for j in sample:
        scipy_cg(H, R[:, j], rtol=tol)
    scale = count / len(sample)
    return (time.perf_counter() - start) * scale, (time.process_time() - processor) * scale, products / len(sample)


def true_residual(A, B, lam, X):
    R = A.T @ B
    return float((np.linalg.norm(R - A.T @ (A @ X) - lam**2 * X, axis=0) / np.linalg.norm(R, axis=0)).max())


def against_scipy(name, A, B, lam, methods, repeats):
    """Interleaved runs of ours and SciPy's, on one thread and on all. The best of each counts; medians are kept too."""
    count = B.shape[1]
    seconds: dict[str, list[float]] = {}
    processor: dict[str, list[float]] = {}
    facts = {}
    for _ in range(repeats):
        for threads in ("1 thread", "default"):
            with threadpool_limits(1 if threads == "1 thread" else None):
                for method in methods:
                    before = time.process_time()
                    result = stepwell.tikhonov(A, B, lam, method=method, tol=TOL)
                    processor.setdefault(f"{method}, {threads}", []).append(time.process_time() - before)
                    seconds.setdefault(f"{method}, {threads}", []).append(result.seconds)
                    facts[method] = {
                        "products a column": float(result.products.sum()) / count,
                        "calls": result.calls,
                        "worst residual": true_residual(A, B, lam, result.x),
                        "MiB": result.memory / 2**20,
                    }
                taken, spent, products = scipy_seconds(A, B, lam)
                processor.setdefault(f"SciPy cg, {threads}", []).append(spent)
                seconds.setdefault(f"SciPy cg, {threads}", []).append(taken)
                facts["SciPy cg"] = {"products a column": products, "calls": products * count}
    best = {run: min(values) for run, values in seconds.items()}
    cpu = {run: min(values) for run, values in processor.items()}
    theirs_cpu = min(value for run, value in cpu.items() if run.startswith("SciPy"))
    theirs = min(value for run, value in best.items() if run.startswith("SciPy"))
    print(f"\n{name}: A {A.shape[0]} x {A.shape[1]}, {A.nnz:,} entries, {count} columns, tol {TOL:g}, float64")
    print(
        f"{'run':>22} {'best s':>8} {'SciPy/it':>9} {'CPU s':>8} {'SciPy/it':>9} {'products':>9} {'calls':>7} residual"
    )
    rows = []
    for run, value in best.items():
        fact = facts[run.split(",")[0]]
        middle = statistics.median(seconds[run])
        per_column, calls = fact["products a column"], fact["calls"]
        residual = f"{fact['worst residual']:9.1e}" if "worst residual" in fact else ""
        wall, work = theirs / value, theirs_cpu / cpu[run]
        print(
            f"{run:>22} {value:8.2f} {wall:9.1f} {cpu[run]:8.2f} {work:9.1f} {per_column:9.1f} {calls:7.0f} {residual}"
        )
        rows.append({"run": run, "best": value, "median": middle, "runs": seconds[run], "ratio": wall, "cpu": cpu[run],
                     "cpu runs": processor[run], "cpu ratio": work, **fact})  # fmt: skip
    return {"name": name, "shape": A.shape, "nnz": A.nnz, "columns": count, "tol": TOL, "rows": rows}


def study():
    """The published table at several tolerances, on one thread."""
    result = studies.run("projected-cg", settings={"tol": (1e-2, 5e-3, 3e-3, 2e-3, 1.5e-3, 1e-3)})
    table = result.find_table("slices")
    print("\nslices 65 to 68 from seed slice 64: products CG/APrCG (poster, seconds: 8.45 6.33 5.11 3.77)")
    for tol in result.settings["tol"]:
        cold, ours = (table.find(tol=tol, method=method) for method in ("CG", "APrCG"))
        ratios = " ".join(f"{row['ratio']:6.2f}" for row in ours)
        time_ratio = " ".join(f"{row['seconds_ratio']:5.1f}" for row in ours)
        quality = " ".join(f"{a['quality']:.2f}/{b['quality']:.2f}" for a, b in zip(cold, ours))
        mark = "reaches the poster" if reaches_poster(table, "CPU", tol) else ""
        print(f"  tol {tol:<7g} products {ratios}   seconds {time_ratio}   SNR CG/APrCG {quality}  {mark}")
    return study_record(result)


def growth():
    """Seconds on one thread (best of a few runs) against unknowns, columns and kept directions."""
    rows = []
    print("\ngrowth with n, block, 32 columns")
    for size in (64, 96, 128, 192):
        A, B, lam = phantom_system(size)
        B = B[:, np.linspace(0, B.shape[1] - 1, 32).astype(int)]
        taken = [stepwell.tikhonov(A, B, lam, method="block", tol=TOL) for _ in range(3)]
        row = {"n": size**2, "nnz": A.nnz, "seconds": min(r.seconds for r in taken)}
        row["products"] = float(taken[0].products.sum()) / 32
        rows.append(row)
        print(
            f"  n {row['n']:6d}  nnz {row['nnz']:9d}  {row['seconds']:7.3f} s  {row['products']:5.1f} products a column"
        )
    A, B, lam = phantom_system()
    operator = as_operator(A)
    columns = []
    print("growth with columns, block, n = 16384")
    for count in (1, 4, 16, 51, 102):
        part = B[:, np.linspace(0, B.shape[1] - 1, count).astype(int)]
        taken = [stepwell.tikhonov(operator, part, lam, method="block", tol=TOL) for _ in range(3)]
        row = {"columns": count, "seconds": min(r.seconds for r in taken)}
        row["products"] = float(taken[0].products.sum()) / count
        columns.append(row)
        each = 1e3 * row["seconds"] / count
        print(
            f"  {count:4d} columns  {row['seconds']:7.3f} s  {each:6.1f} ms each  {row['products']:5.1f} products each"
        )
    kept = []
    print("growth with kept directions, APrCG, n = 16384: a neighbouring slice at tol 1e-2 (projection only)")
    for steps in (8, 32, 64, 128, 256):
        solver = stepwell.ProjectedCG(operator, lam, augmented=True)
        solver.solve(B[:, 50], tol=1e-14, max_iter=steps)
        times = []
        for _ in range(5):
            again = solver.copy()
            start = time.perf_counter()
            result = again.solve(B[:, 51], tol=1e-2)
            times.append(time.perf_counter() - start)
        row = {"directions": solver.directions, "MiB": solver.bytes_held / 2**20, "seconds": min(times)}
        row["products"] = float(result.products[0])
        kept.append(row)
        milliseconds = 1e3 * row["seconds"]
        held = f"{row['directions']:4d} kept  {row['MiB']:6.1f} MiB"
        print(f"  {held}  {milliseconds:7.1f} ms  {row['products']:.0f} products")
    return {"n": rows, "columns": columns, "directions": kept}


def direct():
    """A dense Cholesky of the phantom's 16384 unknowns: the yardstick where it fits."""
    A, B, lam = phantom_system()
    result = stepwell.tikhonov(A, B, lam, method="direct", tol=TOL)
    print(f"\ndirect, n = 16384: {result.seconds:.1f} s, {result.memory / 2**30:.1f} GiB, {result.message}")
    return {"seconds": result.seconds, "GiB": result.memory / 2**30, "residual": float(result.residual.max())}


def machine():
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "isa": _core.isa(),
        "threads": _core.max_threads(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "stepwell": stepwell.__version__,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=["phantom", "scan", "study", "growth", "direct"], action="append")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    wanted = options.part or ["phantom", "scan", "study", "growth"]
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    here = machine()
    print("  ".join(f"{key} {value}" for key, value in here.items()))
    for part in wanted:
        if part == "phantom":
            figures = against_scipy("phantom", *phantom_system(), ["block", "pseudo-block"], options.repeats)
        elif part == "scan":
            system = scan_system()
            if system is None:
                print("\nscan: i13_parallel_beam.npz is not here; set STEPWELL_DATA to the folder that holds it")
                continue
            figures = against_scipy("real scan", *system, ["block", "pseudo-block"], options.repeats)
        else:
            with threadpool_limits(None if part == "direct" else 1):
                figures = {"study": study, "growth": growth, "direct": direct}[part]()
        results[part] = {"machine": here, "figures": figures}
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1, default=float) + "\n")
    print(f"\nwrote {RESULTS}")


if __name__ == "__main__":
    main()
