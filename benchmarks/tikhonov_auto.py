"""What ``tikhonov(method="auto")`` chooses, beside what each method takes; and the fit of the model it chooses by.

    python benchmarks/tikhonov_auto.py          # measure and judge, some minutes on one core
    python benchmarks/tikhonov_auto.py --fit    # fit the constants of stepwell/krylov/costs.py to the last run
    python benchmarks/tikhonov_auto.py --show   # judge the last run again, by the constants as they are

Every method solves the same problems on one thread, with one BLAS thread, in turns; processor seconds of that thread
count, which bear a busy machine better. The loss of a choice is its time over that of the best method. Raw figures:
benchmarks/raw/tikhonov_auto.json.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import scipy.sparse as sp
from common import RAW, save, table
from scipy.optimize import least_squares, nnls
from threadpoolctl import threadpool_limits

import stepwell
from stepwell.apps import tomography
from stepwell.common.threads import threads_at_most
from stepwell.krylov import costs
from stepwell.operators import as_operator

NAME = "tikhonov_auto"
MEMORY, WIDTH, MAXITER = 2**26, 256, 4000


def scan(size):
    count = round(90 * size / 128)
    A = sp.csr_matrix(tomography.parallel_beam(size, angles=np.arange(count) * (180 / count)))
    return A, tomography.shepp_logan_3d(size).reshape(size, -1).T[:, size // 6 : -size // 6]


def blur(size):
    distance = np.arange(-6, 7)
    weights = np.exp(-0.5 * (distance / 2.0) ** 2)
    line = sp.diags([np.full(size - abs(k), w) for k, w in zip(distance, weights)], distance.tolist())
    return sp.kron(line, line, format="csr") / weights.sum() ** 2, None


def scattered(n):
    return sp.random(n * 6 // 5, n, density=5e-3, random_state=np.random.default_rng(1), format="csr"), None


def right_hand_sides(A, images, columns):
    rng = np.random.default_rng(0)
    if images is None:
        X = np.cumsum(rng.normal(size=(A.shape[1], columns)), axis=0) / np.sqrt(A.shape[1])
    else:  # slices, and where there are more columns than those, mixtures
        X = images[:, np.linspace(0, images.shape[1] - 1, columns).astype(int)] * rng.uniform(0.5, 1.5, columns)
        X += 0.02 * rng.normal(size=X.shape) * (columns > images.shape[1])
    return tomography.add_noise(A @ X, 0.01)


#: The constants in use were fitted to the first five, at more tolerances than these; the last three had no part in it.
PROBLEMS = {
    "CT 32²": lambda: scan(32),
    "CT 48²": lambda: scan(48),
    "CT 96²": lambda: scan(96),
    "blur 48²": lambda: blur(48),
    "random 3000": lambda: scattered(3000),
    "CT 64²": lambda: scan(64),
    "blur 40²": lambda: blur(40),
    "random 2000": lambda: scattered(2000),
}


def measure(names):
    rows = []
    for name in names:
        A, images = PROBLEMS[name]()
        operator, norm = as_operator(A), tomography.largest_singular_value(A)
        for damping in (0.1, 0.01):
            for tol in (1e-4, 1e-8):
                for columns in (2, 6, 16, 64) + ((256,) if name == "CT 48²" and tol == 1e-4 else ()):
                    B = right_hand_sides(A, images, columns)
                    lam, middle = damping * norm, B[:, columns // 2]
                    ratio = float(np.linalg.norm(A.T @ middle) / np.linalg.norm(middle) / lam)
                    row = {"problem": name, "shape": A.shape, "entries": A.nnz, "damping": damping, "tol": tol,
                           "columns": columns, "ratio": ratio, "methods": {}}  # fmt: skip
                    for method in ("pseudo-block", "block") + (
                        ("direct",) if (damping, tol) == (0.1, 1e-4) and A.shape[1] < 5000 else ()
                    ):
                        if not rows:
                            stepwell.tikhonov(operator, B, lam, method=method, tol=tol)  # imports
                        start = time.thread_time()
                        result = stepwell.tikhonov(operator, B, lam, method=method, tol=tol, maxiter=MAXITER)
                        row["methods"][method] = {
                            "seconds": time.thread_time() - start, "products": float(result.products.sum()),
                            "calls": result.calls, "success": bool(result.success),
                        }  # fmt: skip
                    direct = next((r for r in rows if r["problem"] == name and r["columns"] == columns
                                   and "direct" in r["methods"]), None)  # fmt: skip
                    if "direct" not in row["methods"] and direct:  # the same whatever λ and the tolerance
                        row["methods"]["direct"] = direct["methods"]["direct"]
                    rows.append(row)
    return rows


def work_of(row):
    m, n = row["shape"]
    return costs.Work(
        n, m, row["entries"], 0, row["columns"], row["ratio"], row["tol"], MAXITER, MEMORY, WIDTH, dual=m < n
    )


def judge(rows):
    losses = {"auto": [], "block": [], "pseudo-block": []}
    shown = []
    for row in rows:
        work, seconds = work_of(row), {name: method["seconds"] for name, method in row["methods"].items()}
        expected = {"pseudo-block": work.pseudo_block, "block": work.block, "direct": work.direct}
        chosen = min(seconds, key=expected.get)
        best = min(seconds.values())
        for name, values in losses.items():
            values.append(seconds[chosen if name == "auto" else name] / best)
        told = [f"{1e3 * seconds[name]:.0f}" if name in seconds else "–" for name in expected]
        shown.append([row["problem"], row["damping"], row["tol"], row["columns"], *told, chosen,
                      f"{losses['auto'][-1]:.2f}"])  # fmt: skip
    table(
        ["problem", "λ/‖A‖", "tol", "columns", "pseudo-block, ms", "block, ms", "direct, ms", "chosen", "loss"], shown
    )
    table(
        ["choice", "mean loss (geometric)", "nine in ten below", "worst"],
        [[name, f"{np.exp(np.mean(np.log(v))):.2f}", f"{np.quantile(v, 0.9):.2f}", f"{max(v):.1f}"]
         for name, v in losses.items()],
    )  # fmt: skip
    return {name: float(np.exp(np.mean(np.log(values)))) for name, values in losses.items()}


def fit(rows):
    """Weights by non-negative least squares on relative errors; then the laws of the steps."""
    features, seconds = [], []
    for row in rows:
        (m, n), k, entries = row["shape"], row["columns"], row["entries"]
        for name, method in row["methods"].items():
            calls, products = method["calls"], method["products"]
            wide = products / calls
            room = max(1, MEMORY // (16 * n * max(1, round(wide))))
            kept = calls / 2 if calls <= room else room * (1 - room / (2 * calls))
            shared = [calls, 2 * calls * entries, 2 * products * entries]
            if name == "pseudo-block":
                features.append([*shared, products * (n + m), 0, 0, 0, 0, 0])
            elif name == "block":
                numbers = products * n * (costs.PASSES + costs.OF_KEPT * kept)
                pairs = products * wide * n * (costs.REDUCTIONS + costs.OF_KEPT * kept)
                features.append([*shared, 0, numbers, pairs, calls * kept, 0, 0])
            else:
                features.append([0, 0, entries * n, 0, 0, 0, 0, n**3 / 3 + 2 * n * n * k, 1])
            seconds.append(method["seconds"])
    relative = np.array(features, dtype=float) / np.array(seconds)[:, None]
    size = relative.max(axis=0)
    weights = nnls(relative / size, np.ones(len(seconds)))[0] / size
    names = ["STEP", "SPARSE_ENTRY", "SPARSE_ENTRY_A_COLUMN", "PSEUDO_NUMBER", "BLOCK_NUMBER", "BLOCK_PRODUCT",
             "KEPT_BLOCK", "FACTOR_PRODUCT", "DIRECT"]  # fmt: skip
    table(["constant", "fitted", "in use"], [[a, 1e9 * w, getattr(costs, a)] for a, w in zip(names, weights)])
    laws = ["FIRST_STEPS", "FIRST_POWER", "STEPS_BY_BOUND", "SHARPNESS", "BLOCK_POWER", "ALL_BLOCK_STEPS",
            "BLOCK_SHARPNESS"]  # fmt: skip
    in_use = [getattr(costs, name) for name in laws]

    def errors(values):
        for name, value in zip(laws, np.abs(values)):
            setattr(costs, name, float(value))
        found = []
        for row in rows:
            work = work_of(row)
            taken = {name: method["products"] / row["columns"] for name, method in row["methods"].items()}
            found += [np.log(work.steps / taken["pseudo-block"]), np.log(work.block_steps / taken["block"])]
        return np.array(found)

    found = np.abs(least_squares(errors, in_use, loss="soft_l1").x)
    table(["law", "fitted", "in use"], [[a, float(b), c] for a, b, c in zip(laws, found, in_use)])
    errors(in_use)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--problem", choices=list(PROBLEMS), action="append", help="measure this one, keep the others")
    options = parser.parse_args()
    path = RAW / f"{NAME}.json"
    rows = json.loads(path.read_text())["runs"]["figures"] if path.exists() else []
    if not options.fit and not options.show:
        names = options.problem or list(PROBLEMS)
        with threadpool_limits(1), threads_at_most(1):
            rows = [row for row in rows if row["problem"] not in names] + measure(names)
        save(NAME, "runs", rows)
        save(NAME, "losses", judge(rows))
        return
    fit(rows) if options.fit else judge(rows)


if __name__ == "__main__":
    main()
