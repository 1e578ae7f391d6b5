"""Ten thousand bounded problems of 20 variables on the CPU: time that is not the objective's, against SciPy's.

    python benchmarks/batch_cpu.py [--repeats 3] [--sample 100]

One thread, and processor seconds of that thread, which bear a busy machine better; SciPy solves a sample of the
problems, and its time is scaled to all of them. The objective takes the running rows, so that rows evaluated are the
sum of evaluations, and is timed apart on both sides. Raw figures: benchmarks/results/batch_cpu.json.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from common import save, table
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

import stepwell

COUNT, N, GOAL = 10_000, 20, 30


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sample", type=int, default=100)
    options = parser.parse_args()
    rng = np.random.default_rng(2)
    centre, weights = 2 * rng.normal(size=(COUNT, N)), 10.0 ** rng.uniform(0, 3, size=N)
    inside = 0.0

    def fun(x, c):
        nonlocal inside
        start = time.thread_time()
        d = x - c
        square = d * d
        found = (square * (weights / 2 + square / 4)).sum(-1), d * (weights + square)
        inside += time.thread_time() - start
        return found

    def ours(maxcor):
        nonlocal inside
        inside, start = 0.0, time.thread_time()
        r = stepwell.minimize_batch(
            lambda x, rows: fun(x, centre[rows]), np.zeros((COUNT, N)), jac=True, bounds=(-1.0, 1.0),
            options={"threads": 1, "maxcor": maxcor},
        )  # fmt: skip
        assert r.rows_evaluated == r.nfev.sum()
        return time.thread_time() - start - inside, inside, int(r.nfev.sum())

    def scipys(maxcor):
        nonlocal inside
        inside, start, evaluations = 0.0, time.thread_time(), 0
        for c in centre[: options.sample]:
            r = minimize(fun, np.zeros(N), args=(c,), jac=True, bounds=[(-1.0, 1.0)] * N, method="L-BFGS-B",
                         options={"maxcor": maxcor})  # fmt: skip
            evaluations += r.nfev
        scale = COUNT / options.sample
        return (time.thread_time() - start - inside) * scale, inside * scale, int(evaluations * scale)

    rows, figures = [], {}
    with threadpool_limits(1):
        for maxcor in (10, 5):
            seen = {"stepwell": [], "SciPy": []}
            for _ in range(options.repeats):
                seen["stepwell"].append(ours(maxcor))
                seen["SciPy"].append(scipys(maxcor))
            middle = {name: [statistics.median(each) for each in zip(*values)] for name, values in seen.items()}
            ratio = middle["SciPy"][0] / middle["stepwell"][0]
            figures[f"maxcor {maxcor}"] = {"runs": seen, "ratio": ratio, "goal": GOAL}
            for name, (rest, objective, evaluations) in middle.items():
                rows.append([maxcor, name, f"{rest:.2f}", f"{objective:.2f}", int(evaluations),
                             f"{1e6 * rest / evaluations:.1f}", f"{middle['SciPy'][0] / rest:.1f}"])  # fmt: skip
    table(["maxcor", "who", "s, not the objective's", "s, objective", "rows evaluated", "µs a row", "ratio"], rows)
    save("batch_cpu", "all", figures)


if __name__ == "__main__":
    main()
