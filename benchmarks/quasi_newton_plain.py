"""Whole runs of bounded torsion without a callback, on the CPU, beside SciPy's L-BFGS-B.

    python benchmarks/quasi_newton_plain.py        # about two minutes on two cores

m = 8, float64, bounds as arrays, the BLAS on one thread, so that the objective wakes no threads. What counts is the
time that is not the objective's, over the iterations. Both solvers run in turn in one process; medians over the
rounds. The table goes to the screen, raw figures to benchmarks/raw/quasi_newton_cpu.json.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from common import interleave, medians, save, table
from scipy.optimize import Bounds
from scipy.optimize import minimize as scipy_minimize
from threadpoolctl import threadpool_limits

import stepwell

SIZES = {20: (40, 40), 100: (200, 7), 400: (100, 3), 1000: (60, 3)}  # side of the grid: iterations, rounds
GOALS = {400: 2.5, 10_000: 8, 160_000: 6, 1_000_000: 5}


def per_iteration(solve: Callable[..., Any], fun: Callable[[Any], Any]) -> float:
    """Seconds an iteration that are not the objective's."""
    inside = 0.0

    def timed(x: Any) -> Any:
        nonlocal inside
        start = time.perf_counter()
        found = fun(x)
        inside += time.perf_counter() - start
        return found

    start = time.perf_counter()
    result = solve(timed)
    return (time.perf_counter() - start - inside) / result.nit


def main() -> None:
    rows, figures = [], {}
    for side, (iterations, rounds) in SIZES.items():
        problem = stepwell.problems.get("torsion", nx=side, ny=side)
        pair = Bounds(*problem.bounds)
        options = dict(maxcor=8, ftol=0, gtol=1e-14, maxfun=10**6, maxiter=iterations)

        def ours(fun: Any, problem: Any = problem, options: Any = options) -> Any:
            return stepwell.minimize(fun, problem.x0, jac=True, bounds=problem.bounds, options=options)

        def scipys(fun: Any, x0: Any = problem.x0, bounds: Any = pair, options: Any = options) -> Any:
            return scipy_minimize(fun, x0, jac=True, method="L-BFGS-B", bounds=bounds, options=options)

        runs = {
            name: lambda solve=solve, fun=problem.fun: per_iteration(solve, fun)
            for name, solve in (("stepwell", ours), ("SciPy", scipys))
        }
        with threadpool_limits(1):
            runs["stepwell"]()
            seen = interleave(rounds, **runs)
        best = medians(seen)
        ratio = best["SciPy"] / best["stepwell"]
        rows.append([problem.n, best["SciPy"] * 1e3, best["stepwell"] * 1e3, ratio, GOALS[problem.n]])
        figures[str(problem.n)] = {"seconds per iteration": seen, "ratio": ratio, "goal": GOALS[problem.n]}
    table(["n", "SciPy, ms", "stepwell, ms", "ratio", "goal"], rows)
    save("quasi_newton_cpu", "plain", figures)


if __name__ == "__main__":
    main()
