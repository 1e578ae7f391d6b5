"""Many right-hand sides on the CPU: block, projected and direct solvers against SciPy's cg, one column at a time.

    python benchmarks/many_rhs.py                 # all parts, about five minutes on two quiet cores
    python benchmarks/many_rhs.py --part phantom  # one of: phantom, scan, slices, growth, direct
    python benchmarks/many_rhs.py --show          # print the tables of the last run again

Ratios are measured side by side in one process, with every thread pool pinned to one thread and with the default; for
SciPy the better counts. CPU seconds stand beside wall-clock ones, as they bear a busy machine better. SciPy solves
about eight of the columns, and its time is scaled to all of them. The tables are printed as they stand in
docs/performance.md, the raw figures go to benchmarks/raw/many_rhs.json. The published table of slices is a study,
`stepwell study projected-cg`; the part `slices` shows where its seconds go.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import time
from pathlib import Path

import numpy as np
from common import RAW, save, table
from scipy.sparse.linalg import LinearOperator
from scipy.sparse.linalg import cg as scipy_cg
from threadpoolctl import threadpool_limits

import stepwell
from stepwell.apps import tomography
from stepwell.krylov.reductions import rows_times
from stepwell.operators import as_operator

NAME = "many_rhs"
TOL = 1e-4
THREADS = ("1 thread", "default")


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
        for threads in THREADS:
            with limited(threads):
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
    rows = []
    for run, value in best.items():
        rows.append({"run": run, "best": value, "median": statistics.median(seconds[run]), "runs": seconds[run],
                     "ratio": theirs / value, "cpu": cpu[run], "cpu runs": processor[run],
                     "cpu ratio": theirs_cpu / cpu[run], **facts[run.split(",")[0]]})  # fmt: skip
    return {"name": name, "shape": A.shape, "nnz": A.nnz, "columns": count, "tol": TOL, "rows": rows}


def show_against_scipy(figures):
    rows, columns = figures["shape"]
    size = f"{rows} x {columns}, {figures['nnz'] / 1e6:.2f} M entries"
    print(f"\n{figures['name']}, {figures['columns']} columns, {size}, tolerance {figures['tol']:g}\n")
    table(
        ["method", "threads", "s", "SciPy / it", "CPU s", "SciPy / it, CPU", "products a column", "calls"],
        [[*row["run"].split(", "), f"{row['best']:.2f}", f"{row['ratio']:.1f}", f"{row['cpu']:.2f}",
          f"{row['cpu ratio']:.1f}", f"{row['products a column']:.1f}", f"{row['calls']:.0f}"]
         for row in figures["rows"]],
    )  # fmt: skip


@contextlib.contextmanager
def limited(threads):
    """Keep the BLAS to one thread and this process, whose cores our own threads count, to one core; or neither."""
    if threads != "1 thread":
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with threadpool_limits(1):
            yield
    finally:
        os.sched_setaffinity(0, cores)


def best_of(threads, solve, repeats=3):
    with limited(threads):
        taken = [solve() for _ in range(repeats)]
    return min(result.seconds for result in taken), float(taken[0].products.mean())


def growth(sizes=(64, 96, 128, 192), size=128):
    """Best wall-clock seconds of a few runs against unknowns, columns and kept directions, on one thread and on all."""
    grown = {"n": [], "columns": [], "directions": []}
    for side in sizes:
        A, B, lam = phantom_system(side)
        operator, B = as_operator(A), B[:, np.linspace(0, B.shape[1] - 1, 32).astype(int)]
        row = {"n": side**2, "nnz": A.nnz}
        for threads in THREADS:
            solve = lambda: stepwell.tikhonov(operator, B, lam, method="block", tol=TOL)  # noqa: B023, E731
            row[threads], row["products"] = best_of(threads, solve)
        grown["n"].append(row)
    A, B, lam = phantom_system(size)
    operator, middle = as_operator(A), B.shape[1] // 2
    for count in (1, 4, 16, 51, 102):
        part = B[:, np.linspace(0, B.shape[1] - 1, count).astype(int)]
        row = {"columns": count}
        for threads in THREADS:
            solve = lambda: stepwell.tikhonov(operator, part, lam, method="block", tol=TOL)  # noqa: B023, E731
            row[threads], row["products"] = best_of(threads, solve)
        grown["columns"].append(row)
    for steps in (8, 32, 64, 128, 256):
        solver = stepwell.ProjectedCG(operator, lam, augmented=True)
        solver.solve(B[:, middle], tol=1e-14, maxiter=steps)
        row = {"directions": solver.directions, "MiB": solver.bytes_held / 2**20}
        for threads in THREADS:
            solve = lambda: solver.copy().solve(B[:, middle + 1], tol=1e-2)  # noqa: B023, E731
            row[threads], row["products"] = best_of(threads, solve, 5)
        grown["directions"].append(row)
    return grown


def cell(seconds, text="{:.2f}", scale=1.0):
    """A time for a table; a dash where it was not measured."""
    return "–" if seconds is None else text.format(scale * seconds)


def show_growth(figures):
    print("\nblock, 32 columns\n")
    table(
        ["n", "entries", "s, 1 thread", "s, default", "products a column"],
        [[row["n"], f"{row['nnz'] / 1e6:.2f} M", cell(row["1 thread"]), cell(row["default"]),
          f"{row['products']:.1f}"] for row in figures["n"]],
    )  # fmt: skip
    print("block, n = 16384\n")
    table(
        ["columns", "s, 1 thread", "s, default", "ms a column, 1 thread", "products a column"],
        [[row["columns"], cell(row["1 thread"]), cell(row["default"]),
          cell(row["1 thread"], "{:.0f}", 1e3 / row["columns"]), f"{row['products']:.1f}"]
         for row in figures["columns"]],
    )  # fmt: skip
    print("APrCG, n = 16384: a neighbouring slice at tolerance 1e-2, which the projection alone solves\n")
    table(
        ["kept directions", "MiB", "ms, 1 thread", "ms, default"],
        [[row["directions"], f"{row['MiB']:.0f}", cell(row["1 thread"], "{:.0f}", 1e3),
          cell(row["default"], "{:.0f}", 1e3)] for row in figures["directions"]],
    )  # fmt: skip


def slices(tolerances=(2.5e-3, 2e-3, 1e-3, 1e-4), repeats=25):
    """CG against APrCG on the four slices after a seed slice, in turns, and what a product and a pass take."""
    A = tomography.parallel_beam(128, angles=np.arange(0, 180, 2.0), detectors=185)
    images = tomography.shepp_logan_3d(128).reshape(128, -1).T
    B = np.ascontiguousarray(tomography.add_noise(A @ images, 0.01).T)
    operator, lam = as_operator(A), 0.01 * tomography.largest_singular_value(A)
    seeded = stepwell.ProjectedCG(operator, lam, augmented=True)
    seeded.solve(B[63], tol=1e-6)
    panel, x = seeded._space.panels()[0], images[:, 63:64].copy()
    rows = []
    for threads in THREADS:
        with limited(threads):
            for tol in tolerances:
                seen = {"product": [], "pass": [], "CG": [], "APrCG": []}
                for _ in range(repeats):
                    cold = [stepwell.tikhonov(operator, B[j], lam, method="cgls", tol=tol) for j in range(64, 68)]
                    solver = seeded.copy()
                    ours = [solver.solve(B[j], tol=tol) for j in range(64, 68)]
                    seen["CG"].append([result.seconds for result in cold])
                    seen["APrCG"].append([result.seconds for result in ours])
                    start = time.perf_counter()
                    operator.adjoint(operator.forward(x))
                    middle = time.perf_counter()
                    rows_times(panel.directions, x)
                    seen["product"].append(middle - start)
                    seen["pass"].append(time.perf_counter() - middle)
                rows.append({
                    "threads": threads, "tol": tol, "directions": seeded.directions,
                    **{name: np.median(values, axis=0).tolist() for name, values in seen.items()},
                    "products": [[float(result.products) for result in results] for results in (cold, ours)],
                })  # fmt: skip
    return rows


def show_slices(rows):
    print(f"\nCG and APrCG, slices 65 to 68, {rows[0]['directions']} directions kept; medians\n")

    def listed(values, text="{:.1f}"):
        return ", ".join(text.format(value) for value in values)

    table(
        ["threads", "tolerance", "ms a product", "ms a pass over P", "CG, ms", "APrCG, ms", "CG / APrCG, seconds",
         "CG / APrCG, products"],
        [[row["threads"], f"{row['tol']:g}", f"{1e3 * row['product']:.2f}", f"{1e3 * row['pass']:.2f}",
          listed(1e3 * np.array(row["CG"])), listed(1e3 * np.array(row["APrCG"])),
          listed(np.array(row["CG"]) / row["APrCG"], "{:.2f}"),
          listed(np.array(row["products"][0]) / row["products"][1], "{:.2f}")] for row in rows],
    )  # fmt: skip


def direct():
    """A dense Cholesky of the phantom's 16384 unknowns: the yardstick where it fits."""
    A, B, lam = phantom_system()
    result = stepwell.tikhonov(A, B, lam, method="direct", tol=TOL)
    return {"seconds": result.seconds, "GiB": result.memory / 2**30, "residual": float(result.residual.max())}


def show_direct(figures):
    seconds, size, residual = (figures[key] for key in ("seconds", "GiB", "residual"))
    print(f"\ndirect, n = 16384: {seconds:.1f} s, {size:.1f} GiB, residual {residual:.1e}")


SHOW = {
    "phantom": show_against_scipy,
    "scan": show_against_scipy,
    "slices": show_slices,
    "growth": show_growth,
    "direct": show_direct,
}


def measure(part, repeats):
    """Figures of one part; None where its data are not here."""
    if part == "phantom":
        return against_scipy("phantom", *phantom_system(), ["block", "pseudo-block"], repeats)
    if part == "scan":
        system = scan_system()
        return None if system is None else against_scipy("real scan", *system, ["block", "pseudo-block"], repeats)
    return {"slices": slices, "growth": growth, "direct": direct}[part]()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=list(SHOW), action="append")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--show", action="store_true", help="measure nothing; print the tables of the last run")
    options = parser.parse_args()
    for part in options.part or ["phantom", "scan", "slices", "growth"]:
        if not options.show:
            figures = measure(part, options.repeats)
            if figures is None:
                print("\nscan: i13_parallel_beam.npz is not here; set STEPWELL_DATA to the folder that holds it")
                continue
            save(NAME, part, json.loads(json.dumps(figures, default=float)))
        stored = json.loads((RAW / f"{NAME}.json").read_text())
        if part in stored:
            here = stored[part]["machine"]
            print("\n" + ", ".join(f"{key} {value}" for key, value in here.items()))
            SHOW[part](stored[part]["figures"])


if __name__ == "__main__":
    main()
