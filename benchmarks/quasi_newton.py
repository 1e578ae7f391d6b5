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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from common import Recorder, bare_iteration, interleave, medians, save, table, wall
from scipy.optimize import Bounds
from scipy.optimize import minimize as scipy_minimize
from threadpoolctl import threadpool_limits

import stepwell
from stepwell.quasi_newton.state import memory_words
from stepwell.threads import default_threads

NAME = "quasi_newton_cpu"


def scipy_solve(fun: Any, x0: Any, bounds: Any, blas: int | None = None, **options: Any) -> Any:
    with threadpool_limits(blas):
        return scipy_minimize(fun, x0, jac=True, method="L-BFGS-B", bounds=bounds, options=options)


def our_solve(fun: Any, x0: Any, bounds: Any, **options: Any) -> Any:
    return stepwell.minimize(fun, x0, jac=True, bounds=bounds, options=options)


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


# ---- Cauchy policies ------------------------------------------------------------------------------------------------

LIBRARY: list[tuple[str, list[dict[str, int]]]] = [
    ("rosenbrock", [dict(n=100), dict(n=10_000)]),
    ("beale", [dict(n=100), dict(n=10_000)]),
    ("powell", [dict(n=100), dict(n=10_000)]),
    ("wood", [dict(n=100), dict(n=10_000)]),
    ("trigonometric", [dict(n=20), dict(n=100)]),
    ("torsion", [dict(nx=20), dict(nx=50), dict(nx=100), dict(nx=200)]),
    ("journal-bearing", [dict(nx=20), dict(nx=50), dict(nx=100), dict(nx=200)]),
    ("minimal-surface", [dict(nx=20), dict(nx=50), dict(nx=100)]),
    ("composites", [dict(nx=20), dict(nx=50), dict(nx=100)]),
    ("ginzburg-landau-1d", [dict(n=100), dict(n=200)]),
    ("lennard-jones", [dict(natoms=10), dict(natoms=30)]),
    ("combustion", [dict(nx=20), dict(nx=50), dict(nx=100)]),
    ("ginzburg-landau-2d", [dict(nx=8), dict(nx=16)]),
]
STARTS = 7
POLICIES = ("exact", "first-interval", "none")
LIBRARY_OPTIONS = dict(maxcor=8, gtol=1e-5, ftol=1e-12, maxiter=20_000, maxfun=40_000)


def boxed(problem: Any) -> tuple[np.ndarray, np.ndarray]:
    """Bounds for a problem that has none: every third variable may not reach its value at the free minimiser."""
    x = our_solve(problem.fun, problem.x0, None, **LIBRARY_OPTIONS).x
    room = 0.1 * (np.abs(x) + 0.1)
    third = np.arange(problem.n) % 3
    lower, upper = x - 20 * room, x + 20 * room
    return np.where(third == 1, x + room, lower), np.where(third == 0, x - room, upper)


def policies() -> None:
    """The problem library: iterations, evaluations and time of each policy and of SciPy."""
    rows: list[list[Any]] = []
    figures: dict[str, Any] = {}
    keys = ("scipy", *POLICIES)
    totals = {title: {key: np.zeros(3) for key in keys} for title in ("all solvers agree", "of these with bounds")}
    pair = np.zeros(2)  # iterations of SciPy and of "exact" where these two agree
    short = dict.fromkeys(keys, 0)
    for label, fun, x0, bounds in library():
        record = library_solve(fun, x0, bounds)
        figures[label] = record
        least = min(r["least"] for r in record.values())
        limit = least + 1e-5 * max(abs(least), 1.0)
        agree = {key: r["most"] <= limit for key, r in record.items()}
        for key, r in record.items():
            short[key] += sum(run["f"] > limit for run in r["runs"])
            counts = np.array([r["nit"], r["nfev"], r["seconds"]])
            if all(agree.values()):
                totals["all solvers agree"][key] += counts
                if bounds is not None:
                    totals["of these with bounds"][key] += counts
        if agree["scipy"] and agree["exact"]:
            pair += record["scipy"]["nit"], record["exact"]["nit"]
        cells = [f"{r['nit']:.0f} ({r['nfev']:.0f})" + ("" if agree[key] else " *") for key, r in record.items()]
        rows.append([label, *cells])
    names = ["SciPy", *POLICIES]
    table(["mean iterations (evaluations)", *names], rows)
    print("* some of these runs ended above the best minimum\n")
    for title, total in totals.items():
        lines = {"iterations": 0, "evaluations": 1, "seconds": 2}
        cells = [[line, *[f"{total[key][at]:.{2 * (at == 2)}f}" for key in keys]] for line, at in lines.items()]
        table([title, *names], cells)
        figures[f"totals, {title}"] = {key: list(map(float, value)) for key, value in total.items()}
    runs = STARTS * len(rows)
    table([f"runs of {runs} that ended above the best minimum", *names], [["", *[short[key] for key in keys]]])
    print(f"iterations of 'exact' / SciPy's, where these two agree: {pair[1] / pair[0]:.3f}\n")
    figures |= {"runs": runs, "above the best minimum": short, "exact / scipy iterations": float(pair[1] / pair[0])}
    save(NAME, "policies", figures)


def library() -> Iterator[tuple[str, Any, Any, Any]]:
    """Every problem of the library in its sizes, those without bounds also with some: label, fun, start, bounds."""
    for name, sizes in LIBRARY:
        for size in sizes:
            problem = stepwell.problems.get(name, **size)
            label = f"{name} n={problem.n}"
            yield label, problem.fun, problem.x0, problem.bounds
            if problem.bounds is None:
                bounds = boxed(problem)
                yield f"{label}, bounds", problem.fun, np.clip(problem.x0, *bounds), bounds


def library_solve(fun: Any, x0: Any, bounds: Any) -> dict[str, dict[str, Any]]:
    """One problem by all solvers in turn, from STARTS starts that differ by rounding; means of counts and times.

    Where a path is long, a last bit in the start changes its length by tens of per cent, for every solver: a single run
    says little.
    """
    solves: dict[str, Callable[[Any], Any]] = {
        "scipy": lambda x: scipy_solve(fun, x, None if bounds is None else Bounds(*bounds), 1, **LIBRARY_OPTIONS)
    }
    for policy in POLICIES:
        solves[policy] = lambda x, policy=policy: our_solve(fun, x, bounds, cauchy=policy, **LIBRARY_OPTIONS)
    rng = np.random.default_rng(0)
    runs: dict[str, list[dict[str, Any]]] = {key: [] for key in solves}
    for _ in range(STARTS):
        start = x0 + 1e-12 * np.maximum(np.abs(x0), 1e-3) * rng.normal(size=x0.size)
        start = start if bounds is None else np.clip(start, *bounds)
        for key, solve in solves.items():
            began = time.perf_counter()
            r = solve(start)
            seconds = time.perf_counter() - began
            walks = 0 if key == "scipy" else int(r.cauchy_walks)
            runs[key].append({"nit": r.nit, "nfev": r.nfev, "f": float(r.fun), "seconds": seconds, "walks": walks})
    return {
        key: {name: float(np.mean([one[name] for one in many])) for name in ("nit", "nfev", "f", "seconds", "walks")}
        | {"least": min(one["f"] for one in many), "most": max(one["f"] for one in many), "runs": many}
        for key, many in runs.items()
    }


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
