"""The quasi-Newton engine on the CPU against SciPy's L-BFGS-B.

    python benchmarks/quasi_newton.py                   # all parts, about six minutes on two cores
    python benchmarks/quasi_newton.py --part iteration  # or history, small, setup, batch, policies, memory

Both solvers run in turn in one process; medians over the rounds. SciPy runs with its BLAS on one thread and with its
default, and the better one counts. Vectors are float64. Tables go to the screen, raw figures to
benchmarks/raw/quasi_newton_cpu.json.
"""

# ruff: noqa: B023 (functions made in a loop here are called within the same turn of it)
from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from common import Recorder, bare_iteration, interleave, medians, save, table, wall
from quasi_newton_policies import policies
from quasi_newton_solves import NAME, our_solve, scipy_solve
from scipy.optimize import Bounds
from scipy.optimize import minimize as scipy_minimize
from threadpoolctl import threadpool_limits

import stepwell
from stepwell.common.threads import default_threads
from stepwell.quasi_newton.state import memory_words

# ---- solver time per iteration --------------------------------------------------------------------------------------

ITERATION_SIZES = {20: (55, 40), 100: (110, 12), 400: (40, 6), 1000: (22, 3)}  # side of the grid: iterations, rounds
WARM = 10  # iterations before counting: by then the history of 8 pairs is full


def solver_time(solve: Callable[..., Any], problem: Any, bounds: Any, iterations: int, **how: Any) -> float:
    """Seconds per iteration between evaluations, from iteration WARM on."""
    record, calls = Recorder(problem.fun), []
    solve(record, problem.x0, bounds, callback=lambda x: calls.append(len(record.began)), iterations=iterations, **how)
    return record.between(calls[WARM - 1]) / (len(calls) - WARM)


def iteration() -> None:
    """Bounded torsion, m = 8: the time between evaluations.

    The floors: what an iteration takes that has ten variables (calls, decisions, small matrices), and a bare pass over
    the bytes that n variables need, without and with their arithmetic: rows of the history where variables are free
    half-way through the iterations counted. No masked Gram matrix is in them.
    """
    limits = dict(maxcor=8, ftol=0, gtol=1e-14, maxfun=10**6)

    def scipys(fun: Any, x0: Any, bounds: Any, callback: Any, iterations: int, blas: int | None) -> None:
        with threadpool_limits(blas):
            scipy_minimize(
                fun,
                x0,
                jac=True,
                method="L-BFGS-B",
                bounds=bounds,
                callback=callback,
                options=limits | dict(maxiter=iterations),
            )

    def ours(fun: Any, x0: Any, bounds: Any, callback: Any, iterations: int, threads: int) -> None:
        options = limits | dict(maxiter=iterations, threads=threads)
        stepwell.minimize(fun, x0, jac=True, bounds=bounds, callback=callback, options=options)

    rows, figures = [], {}
    for side, (iterations, rounds) in ITERATION_SIZES.items():
        problem = stepwell.problems.get("torsion", nx=side, ny=side)
        lower, upper = problem.bounds
        pair = Bounds(lower, upper)
        runs: dict[str, Callable[[], float]] = {
            "scipy, one BLAS thread": lambda: solver_time(scipys, problem, pair, iterations, blas=1),
            "scipy, default": lambda: solver_time(scipys, problem, pair, iterations, blas=None),
            "one thread": lambda: solver_time(ours, problem, (lower, upper), iterations, threads=1),
            "all threads": lambda: solver_time(ours, problem, (lower, upper), iterations, threads=default_threads()),
        }
        few = stepwell.problems.get("rosenbrock", n=10)
        free = free_variables(problem, (WARM + iterations) // 2, limits)
        bare = {kind: bare_seconds(free, kind) for kind in ("bytes", "arithmetic")}
        runs |= {
            "bare iteration, bytes": lambda: min(bare["bytes"]() for _ in range(5)),
            "bare iteration, arithmetic": lambda: min(bare["arithmetic"]() for _ in range(5)),
            "ten variables": lambda: solver_time(ours, few, (-2.0, 2.0), 30, threads=1),
        }
        runs["all threads"]()
        seen = interleave(rounds, **runs)
        best = medians(seen)
        scipy = min(best["scipy, one BLAS thread"], best["scipy, default"])
        mine = best["all threads"]
        floors = [best[f"bare iteration, {kind}"] + best["ten variables"] for kind in ("bytes", "arithmetic")]
        row = [problem.n, scipy * 1e3, best["one thread"] * 1e3, mine * 1e3, scipy / mine]
        rows.append([*row, *(floor * 1e3 for floor in floors), scipy / floors[1]])
        figures[str(problem.n)] = {
            "seconds per iteration": seen,
            "ratio": scipy / mine,
            "floors": floors,
            "share of free variables": float(free.mean()),
        }
    head = ["n", "SciPy, ms", "one thread, ms", f"{default_threads()} threads, ms", "ratio"]
    table([*head, "floor: bytes, ms", "floor: arithmetic, ms", "SciPy / floor"], rows)
    save(NAME, "iteration", figures)


def history() -> None:
    """Narrower histories, m = 8, the same problem, and what half of their bytes could give.

    An iteration with four pairs takes half of what is the history's in one with eight: the rest, which no narrower type
    makes less, is twice the first less the second. Beside it the floors of `iteration` for both types of rows.
    """
    limits = dict(maxcor=8, ftol=0, gtol=1e-14, maxfun=10**6)
    rows, figures = [], {}
    for side in (400, 1000):
        problem = stepwell.problems.get("torsion", nx=side, ny=side)
        iterations, rounds = ITERATION_SIZES[side]

        def ours(fun: Any, x0: Any, bounds: Any, callback: Any, iterations: int, **options: Any) -> None:
            options |= dict(ftol=0, gtol=1e-14, maxfun=10**6, maxiter=iterations)
            stepwell.minimize(fun, x0, jac=True, bounds=bounds, callback=callback, options=options)

        def timed(**options: Any) -> Callable[[], float]:
            return lambda: solver_time(ours, problem, problem.bounds, iterations, **options)

        runs = {kind: timed(maxcor=8, history=kind) for kind in ("float64", "float32", "bfloat16")}
        free = free_variables(problem, (WARM + iterations) // 2, limits)
        bare = {
            f"bare iteration, {kind}, {history}": bare_seconds(free, kind, history)
            for kind in ("bytes", "arithmetic")
            for history in ("float64", "float32")
        }
        floors = {name: lambda one=one: min(one() for _ in range(5)) for name, one in bare.items()}
        seen = interleave(rounds, **runs, **{"four pairs": timed(maxcor=4)}, **floors)
        best = medians(seen)
        ratios = {
            kind: best[f"bare iteration, {kind}, float64"] / best[f"bare iteration, {kind}, float32"]
            for kind in ("bytes", "arithmetic")
        }
        rest = max(2 * best["four pairs"] - best["float64"], 0.0)
        least = rest + (best["float64"] - rest) / 2
        wide = best["float64"]
        times = [best[kind] * 1e3 for kind in runs]
        rows.append([problem.n, *times, wide / best["float32"], wide / least, *ratios.values()])
        figures[str(problem.n)] = {
            "seconds per iteration": seen,
            "not the history's": rest,
            "ratio": wide / best["float32"],
            "ratio of the floors": ratios,
            "share of free variables": float(free.mean()),
        }
    head = ["n", "float64, ms", "float32", "bfloat16", "float64 / float32", "by the times of four pairs"]
    table([*head, "by the floors: bytes", "with arithmetic"], rows)
    save(NAME, "history", figures)


def free_variables(problem: Any, iterations: int, limits: dict[str, Any]) -> np.ndarray:
    """Which variables are not held at a bound after so many iterations."""
    r = stepwell.minimize(
        problem.fun, problem.x0, jac=True, bounds=problem.bounds, options=limits | dict(maxiter=iterations)
    )
    lower, upper = problem.bounds
    return ~(((r.x <= lower) & (r.jac >= 0)) | ((r.x >= upper) & (r.jac <= 0)))


def bare_seconds(free: np.ndarray, kind: str, history: str = "float64") -> Callable[[], float]:
    """Make a function that times a bare iteration with 8 pairs (`bare_iteration` in common.py) on all threads."""
    threads = default_threads() if free.size >= 8192 else 1
    share = -(-free.size // (8 * threads)) * 8
    parts = [free[begin : begin + share] for begin in range(0, free.size, share)]
    shares = [bare_iteration(part, 8, arithmetic=kind == "arithmetic", history=history) for part in parts]
    times = max(1, 400_000 // free.size)  # many at once: handing over to threads is no part
    pool = ThreadPoolExecutor(threads)

    def repeat(share: Callable[[], float]) -> None:
        for _ in range(times):
            share()

    seconds = wall(lambda: list(pool.map(repeat, shares)))
    return lambda: seconds() / times


# ---- whole solves of small problems ---------------------------------------------------------------------------------


def small() -> None:
    """Rosenbrock's function from its standard start, with and without bounds, default options."""
    rows, figures = [], {}
    for n in (2, 4, 10, 20, 50, 100):
        problem = stepwell.problems.get("rosenbrock", n=n)
        row = [n]
        for kind in ("bounded", "unbounded"):
            theirs = [(-2.0, 2.0)] * n if kind == "bounded" else None
            mine = (np.full(n, -2.0), np.full(n, 2.0)) if kind == "bounded" else None
            seen = interleave(
                40,
                **{
                    "scipy, one BLAS thread": wall(lambda: scipy_solve(problem.fun, problem.x0, theirs, 1)),
                    "scipy, default": wall(lambda: scipy_solve(problem.fun, problem.x0, theirs)),
                    "stepwell": wall(lambda: our_solve(problem.fun, problem.x0, mine)),
                },
            )
            best = medians(seen)
            scipy = min(best["scipy, one BLAS thread"], best["scipy, default"])
            row += [scipy * 1e3, best["stepwell"] * 1e3, scipy / best["stepwell"]]
            figures[f"{kind} {n}"] = {"seconds": seen, "ratio": scipy / best["stepwell"]}
        rows.append(row)
    table(["n", "bounded: SciPy, ms", "ours, ms", "ratio", "unbounded: SciPy, ms", "ours, ms", "ratio"], rows)
    save(NAME, "small", figures)


# ---- set-up ---------------------------------------------------------------------------------------------------------


def setup() -> None:
    """A million two-sided bounds: the time from the call to the first evaluation."""
    n = 10**6
    x0, lower, upper = np.zeros(n), np.full(n, -1.0), np.full(n, 1.0)

    class FirstCall(Exception):
        pass

    def stop(x: Any) -> Any:
        raise FirstCall

    def until_first_call(solve: Callable[..., Any], bounds: Any) -> float:
        start = time.perf_counter()
        try:
            solve(stop, x0, bounds)
        except FirstCall:
            return time.perf_counter() - start
        raise AssertionError("fun was not called")

    forms: dict[str, Any] = {
        "tuple of two arrays": (lower, upper),
        "tuple of two numbers": (-1.0, 1.0),
        "Bounds": Bounds(lower, upper),
        "(n, 2) array": np.stack([lower, upper], axis=1),
        "list of pairs": [(-1.0, 1.0)] * n,
        "list of pairs with None": [(-1.0, None)] * n,
    }
    rows, figures = [], {}
    for name, bounds in forms.items():
        runs = {"stepwell": lambda: until_first_call(our_solve, bounds)}
        if name in ("Bounds", "list of pairs"):
            runs["scipy"] = lambda: until_first_call(scipy_solve, bounds)
        seen = interleave(5 if "scipy" not in runs else 3, **runs)
        best = medians(seen)
        rows.append([name, best["stepwell"] * 1e3, best["scipy"] * 1e3 if "scipy" in best else ""])
        figures[name] = seen
    table(["bounds", "ours, ms", "SciPy, ms"], rows)
    save(NAME, "setup", figures)


# ---- batches --------------------------------------------------------------------------------------------------------


def batch() -> None:
    """Ten thousand bounded problems of 20 variables; a loop over SciPy is timed on 100 of them."""
    count, n, sample = 10_000, 20, 100
    rng = np.random.default_rng(2)
    centre = 2 * rng.normal(size=(count, n))
    w = 10.0 ** rng.uniform(0, 3, size=n)

    def with_powers(x: Any, c: Any) -> Any:
        return (w * (x - c) ** 2).sum(-1) / 2 + ((x - c) ** 4).sum(-1) / 4, w * (x - c) + (x - c) ** 3

    def with_products(x: Any, c: Any) -> Any:
        d = x - c
        square = d * d
        return (square * (w / 2 + square / 4)).sum(-1), d * (w + square)

    def one_batch(fun: Any, parts: list[dict[str, float]]) -> float:
        r = stepwell.minimize_batch(lambda x: fun(x, centre), np.zeros((count, n)), jac=True, bounds=(-1.0, 1.0))
        least = fun(np.clip(centre, -1, 1), centre)[0]
        assert (np.abs(r.fun - least) <= 1e-6 * np.maximum(1, least)).all()
        parts.append(r.seconds)
        return r.seconds["total"]

    def loop(fun: Any, parts: list[float], blas: int | None) -> float:
        start, inside = time.perf_counter(), 0.0
        with threadpool_limits(blas):
            for c in centre[:sample]:
                record = Recorder(lambda x: fun(x, c))
                scipy_solve(record, np.zeros(n), [(-1.0, 1.0)] * n, blas)
                inside += record.seconds
        parts.append(inside * count / sample)
        return (time.perf_counter() - start) * count / sample

    rows, figures = [], {}
    for name, fun in {"powers": with_powers, "products": with_products}.items():
        parts: list[dict[str, float]] = []
        scipy_parts: list[float] = []
        seen = interleave(
            5,
            **{
                "stepwell": lambda: one_batch(fun, parts),
                "scipy, one BLAS thread": lambda: loop(fun, scipy_parts, 1),
                "scipy, default": lambda: loop(fun, scipy_parts, None),
            },
        )
        best = medians(seen)
        scipy = min(best["scipy, one BLAS thread"], best["scipy, default"])
        middle = {key: float(np.median([p[key] for p in parts])) for key in ("total", "objective", "solver")}
        objective = float(np.median(scipy_parts))
        rows.append(
            [
                f"`{name}`",
                scipy,
                objective,
                *(middle[key] for key in ("total", "objective", "solver")),
                scipy / middle["total"],
                (scipy - objective) / middle["solver"],
            ]
        )
        figures[name] = {
            "seconds": seen,
            "parts": parts,
            "scipy objective": scipy_parts,
            "ratio": scipy / middle["total"],
        }
    head = ["objective", "SciPy loop, s", "of it objective", "batch, s", "of it objective", "of it solver"]
    table([*head, "ratio", "ratio of solver times"], rows)
    save(NAME, "batch", figures)


# ---- memory ---------------------------------------------------------------------------------------------------------


def status_words(key: str) -> float:
    """Read one line of the kernel's account of this process (Linux), in words of eight bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 / 8 for line in lines if line.startswith(key))


def peak_growth(which: str, n: int, m: int, answer: Any) -> None:
    """Growth of the peak of resident memory over one run, in words per variable; the objective allocates once."""
    x0, lower, upper, g = np.zeros(n), np.full(n, -1.0), np.full(n, 1.0), np.empty(n)
    scale = np.linspace(1, 100, n)

    def fun(x: Any) -> Any:
        np.subtract(x, 0.5, out=g)
        f = 0.5 * float(np.einsum("i,i,i->", g, g, scale))
        return f, np.multiply(g, scale, out=g)

    fun(x0)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far (Linux)
    before = status_words("VmRSS")
    options = dict(maxcor=m, maxiter=2 * m, gtol=0, ftol=0)
    if which == "LBFGSB":
        optimizer = stepwell.LBFGSB(x0, (lower, upper), m=m, maxiter=2 * m, gtol=0, ftol=0)
        while not optimizer.done:
            optimizer.tell(*fun(optimizer.x))
    elif which == "minimize":
        our_solve(fun, x0, (lower, upper), **options)
    else:
        scipy_solve(fun, x0, Bounds(lower, upper), **options)
    answer.put((status_words("VmHWM") - before) / n)


def memory() -> None:
    """Words per variable at m = 8 with bounds: the formula, what the solver holds, what the process takes."""
    n, m = 10**6, 8
    lower = np.full(n, -1.0)
    optimizer = stepwell.LBFGSB(np.zeros(n), bounds=(lower, -lower), m=m)
    figures = {"formula": memory_words(n, m, bounded=True) / n, "held": optimizer.nbytes / 8 / n}
    del optimizer
    context = multiprocessing.get_context("spawn")
    for which in ("LBFGSB", "minimize", "scipy"):
        answer = context.Queue()
        process = context.Process(target=peak_growth, args=(which, n, m, answer))
        process.start()
        figures[f"growth of the process, {which}"] = answer.get()
        process.join()
    table(
        ["words per variable, m = 8, two-sided bounds", ""], [[key, f"{value:.2f}"] for key, value in figures.items()]
    )
    save(NAME, "memory", figures)


PARTS = {part.__name__: part for part in (iteration, history, small, setup, batch, policies, memory)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append", help="run this part only (repeatable)")
    for name in parser.parse_args().part or PARTS:
        print(f"## {name}: {PARTS[name].__doc__}\n", flush=True)
        PARTS[name]()


if __name__ == "__main__":
    main()
