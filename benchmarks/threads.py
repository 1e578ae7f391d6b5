"""Solvers on 1 to 16 threads side by side, with what memory allows: under a minute, `python benchmarks/threads.py`.

    python benchmarks/threads.py [--threads 1 2 4 8 12 16] [--seconds 5] [--only minimize nnls fit tv]

All counts of threads are run in turn, round after round, for about so many seconds a case, at least once; medians are
taken. BLAS and OpenMP keep to one thread. For `minimize` the time is that between
evaluations, an iteration's share of the solver; beside it a floor, two readings of its 2m rows of history by the same
threads, which no limited-memory method with directions inside bounds can do without. "speed-up" is the ratio to one
thread, and the last column the count above which no other is faster by 3 %: the one to choose.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import Recorder, interleave, machine, medians, save, wall
from threadpoolctl import threadpool_limits

import stepwell
from stepwell import _core, models
from stepwell.common.threads import available_cores, threads_at_most

#: Pairs of history, and accepted points of which the first ones are not counted.
PAIRS, ITERATIONS, FIRST = 10, 40, 15


def minimizing(n: int) -> tuple[Callable[[int], Callable[[], float]], Callable[[int], Callable[[], float]]]:
    """Return makers of timed runs, in seconds an iteration, and of their floor; each takes the number of threads."""
    rng = np.random.default_rng(0)
    weights = np.exp(rng.uniform(0, 6, n))
    centre = rng.uniform(-0.5, 1.5, n)
    gradient, value = np.empty(n), np.empty(n)

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        np.subtract(x, centre, out=value)
        np.multiply(weights, value, out=gradient)
        return 0.5 * float(gradient @ value), gradient

    def timed(threads: int) -> Callable[[], float]:
        def run() -> float:
            seen = Recorder(fun)
            options = {"maxiter": ITERATIONS, "maxcor": PAIRS, "ftol": 0, "gtol": 0, "threads": threads}
            stepwell.minimize(seen, np.zeros(n), jac=True, bounds=(0, 1), options=options)
            return seen.between(FIRST) / (len(seen.began) - 1 - FIRST)

        return run

    history, one, sums = np.ones((2 * PAIRS, n)), np.ones(n), np.empty(2 * PAIRS)

    def floor(threads: int) -> Callable[[], float]:
        def run() -> float:
            repeats = max(2, int(4e6) // n)
            began = time.perf_counter()
            for _ in range(2 * repeats):
                _core.rows_dots(history, one, sums, threads)
            return (time.perf_counter() - began) / repeats

        return run

    return timed, floor


def nnls_runs() -> Callable[[int], Callable[[], float]]:
    """40,000 systems of 60 x 30."""
    rng = np.random.default_rng(0)
    A, B = rng.random((60, 30)), rng.random((40_000, 60))
    return lambda threads: wall(lambda: stepwell.nnls(A, B, threads=threads))


def fit_runs() -> Callable[[int], Callable[[], float]]:
    """20,000 sums of two exponentials, 32 points."""
    rng = np.random.default_rng(0)
    t, model, problems = np.linspace(0, 3.1, 32), models.exponentials(2), 20_000
    slow = np.exp(rng.uniform(np.log(0.3), np.log(1.5), problems))
    truth = np.column_stack([rng.uniform(0.3, 1, (problems, 2)), slow, slow * rng.uniform(3, 10, problems)])
    y = model(t, *(truth[:, k : k + 1] for k in range(4))) + 0.01 * rng.standard_normal((problems, 32))
    box = ([0, 0, 0.01, 0.01], [5, 5, 50, 50])

    def run(threads: int) -> Callable[[], float]:
        return wall(lambda: stepwell.curve_fit(model, t, y, [0.5, 0.5, 0.5, 5.0], bounds=box, threads=threads))

    return run


def tv_runs() -> Callable[[int], Callable[[], float]]:
    """Denoising of four images of 256 x 256."""
    rng = np.random.default_rng(0)
    side = np.arange(256)
    disc = (side[:, None] - 128) ** 2 + (side - 128) ** 2 < 80**2
    noisy = disc.ravel()[:, None] + 0.1 * rng.standard_normal((disc.size, 4))

    def run(threads: int) -> Callable[[], float]:
        def solve() -> Any:
            with threads_at_most(threads):
                return stepwell.tv(None, noisy, 0.1, shape=disc.shape, maxiter=10, tol=1e-9)

        return wall(solve)

    return run


def rounds_of(seconds: float, runs: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Run all in turn, again and again while another round ends in time; the first one warms up, if there are more."""
    seen: dict[str, list[float]] = {name: [] for name in runs}
    began, rounds = time.perf_counter(), 0
    while rounds == 0 or (time.perf_counter() - began) * (rounds + 1) / rounds < seconds:
        for name, times in interleave(1, **runs).items():
            seen[name] += times
        rounds += 1
    return {name: times[rounds > 2 :] for name, times in seen.items()}


def report(name: str, counts: list[int], seen: dict[str, list[float]]) -> dict[str, Any]:
    """Print one line for a case, and one for its floor where it has one; return the medians in seconds."""
    found = medians(seen)
    times = [found[str(count)] for count in counts]
    best = next(count for count, one in zip(counts, times, strict=True) if one <= 1.03 * min(times))

    def line(label: str, numbers: list[float], last: str) -> None:
        cells = " | ".join(f"{1e3 * one:.4g} ({numbers[0] / one:.1f}x)" for one in numbers)
        print(f"| {label} | {cells} | {last} |", flush=True)

    line(name, times, str(best))
    if f"floor {counts[0]}" in found:
        line("its floor", [found[f"floor {count}"] for count in counts], "")
    return {"medians": found, "fewest threads within 3 % of the best": best}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8, 12, 16])
    parser.add_argument("--seconds", type=float, default=5.0, help="of a case, all counts of threads together")
    parser.add_argument("--only", nargs="+", default=["minimize", "nnls", "fit", "tv"])
    given = parser.parse_args()
    counts = [count for count in given.threads if count <= available_cores()] or [1]
    about = machine()
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    print("\nmilliseconds (speed-up) on so many threads\n")
    print(f"| case | {' | '.join(map(str, counts))} | choose |\n|---|{'---|' * len(counts)}---|")
    # Threads of a BLAS in the objective would keep spinning, on the solver's cores.
    with threadpool_limits(1):
        figures = measure(given.only, counts, given.seconds)
    save("threads", "side by side", figures)
    return 0


def measure(only: list[str], counts: list[int], seconds: float) -> dict[str, Any]:
    """Print a line or two a case; returns all figures."""
    figures: dict[str, Any] = {}
    if "minimize" in only:
        for n in (1_000, 10_000, 40_000, 160_000, 1_000_000):
            timed, floor = minimizing(n)
            runs = {str(count): timed(count) for count in counts} | {f"floor {count}": floor(count) for count in counts}
            name = f"minimize, n = {n:,}, per iteration"
            figures[name] = report(name, counts, rounds_of(seconds, runs))
    others = {"nnls": nnls_runs, "fit": fit_runs, "tv": tv_runs}
    for kind, make in others.items():
        if kind in only:
            run = make()
            name = f"{kind}: {str(make.__doc__).rstrip('.')}"
            figures[name] = report(name, counts, rounds_of(seconds, {str(count): run(count) for count in counts}))
    return figures


if __name__ == "__main__":
    sys.exit(main())
