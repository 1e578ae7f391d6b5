"""Ten thousand bounded problems of 20 variables on the CPU: time that is not the objective's, against SciPy's.

    python benchmarks/batch_cpu.py [--repeats 3] [--sample 100]

On one thread processor seconds of that thread, which bear a busy machine better; on all threads the time that passes,
at ftol 1e-12, and that of the first call of the process. SciPy solves a sample of the problems, and its time is scaled
to all of them. The objective takes the running rows, so that rows evaluated are the sum of evaluations, and is timed
apart on both sides. Raw figures: benchmarks/raw/batch_cpu.json.
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
    inside, clock = 0.0, time.thread_time

    def fun(x, c, rows=None):
        nonlocal inside
        start = clock()
        d = x - (c if rows is None else c[rows])
        square = d * d
        found = (square * (weights / 2 + square / 4)).sum(-1), d * (weights + square)
        inside += clock() - start
        return found

    def ours(choices, threads):
        nonlocal inside
        inside, start = 0.0, clock()
        r = stepwell.minimize_batch(
            lambda x, rows: fun(x, centre, rows), np.zeros((COUNT, N)), jac=True, bounds=(-1.0, 1.0),
            options={**choices, "threads": threads},
        )  # fmt: skip
        assert r.rows_evaluated == r.nfev.sum()
        return clock() - start - inside, inside, int(r.nfev.sum())

    def scipys(choices):
        nonlocal inside
        inside, start, evaluations = 0.0, clock(), 0
        for c in centre[: options.sample]:
            r = minimize(fun, np.zeros(N), args=(c,), jac=True, bounds=[(-1.0, 1.0)] * N, method="L-BFGS-B",
                         options=choices)  # fmt: skip
            evaluations += r.nfev
        scale = COUNT / options.sample
        return (clock() - start - inside) * scale, inside * scale, int(evaluations * scale)

    rows, figures = [], {}

    def report(name_of, name, run, scipy):
        rest, objective, evaluations = run
        rows.append([name_of, name, f"{rest:.2f}", f"{objective:.2f}", int(evaluations),
                     f"{1e6 * rest / evaluations:.1f}", f"{scipy / rest:.1f}"])  # fmt: skip
        return scipy / rest

    with threadpool_limits(1):
        for threads, choices in ((None, {"maxcor": 10, "ftol": 1e-12}), (1, {"maxcor": 10}), (1, {"maxcor": 5})):
            clock = time.thread_time if threads == 1 else time.perf_counter
            name_of = f"maxcor {choices['maxcor']}" + ("" if threads == 1 else ", all threads")
            seen = {"stepwell": [], "SciPy": []}
            for _ in range(options.repeats):
                seen["stepwell"].append(ours(choices, threads))
                seen["SciPy"].append(scipys(choices))
            middle = {name: [statistics.median(each) for each in zip(*values)] for name, values in seen.items()}
            scipy = middle["SciPy"][0]
            figures[name_of] = {"runs": seen, "ratio": scipy / middle["stepwell"][0], "goal": GOAL}
            if not rows:  # it takes its memory from the system
                figures[name_of]["ratio of the first call"] = report(
                    name_of + ", first call", "stepwell", seen["stepwell"][0], scipy
                )
            for name, run in middle.items():
                report(name_of, name, run, scipy)
    table(["options", "who", "s, not the objective's", "s, objective", "rows evaluated", "µs a row", "ratio"], rows)
    save("batch_cpu", "all", figures)


if __name__ == "__main__":
    main()
