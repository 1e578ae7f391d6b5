"""The problem library by each Cauchy policy and by SciPy: a part of benchmarks/quasi_newton.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from common import save, table
from quasi_newton_solves import NAME, our_solve, scipy_solve
from scipy.optimize import Bounds

import stepwell

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
