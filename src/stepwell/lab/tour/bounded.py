"""Chapter: minimising within bounds, L-BFGS-B beside SciPy's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

from stepwell.lab.html import Block, Figure, Gallery, Series, Table, Text, chart
from stepwell.lab.problems import Problem, get
from stepwell.lab.tour.chapter import PATIENCE, Account, Chapter, Clock, Comparison, Stage, duration
from stepwell.quasi_newton.api import minimize
from stepwell.quasi_newton.options import Options

#: Problems of the MINPACK-2 collection on square grids, and points along each side: for the tour, and for a quick one.
GRIDS = {"torsion": (200, 16), "journal-bearing": (120, 12), "minimal-surface": (120, 16)}
#: Two runs that stop by the same rule end at least this close to each other, relative to max(|f|, 1): the rule bounds
#: the last decrease by 2.2e-9, and some thousand more such steps may have been left.
AGREEMENT = 1e-5
#: Iterations, at most, of the run that goes on from our answer to learn how low f can be.
REFERENCE_ITERATIONS = 500


@dataclass
class Run:
    """One run: f after each iteration, evaluations and seconds at that time, how and where it ended, and its set-up."""

    fun: list[float]
    evaluations: list[int]
    seconds: list[float]
    iterations: int
    success: bool
    total: float
    x: np.ndarray
    #: Seconds before the first evaluation: arguments are read, bounds checked, memory is taken.
    setup: float = 0.0

    @property
    def best(self) -> float:
        """The value at the end."""
        return self.fun[-1]

    def until(self, level: float) -> float:
        """Return the seconds of iterations after which f was no higher than a level; all where it never was."""
        return next((after for f, after in zip(self.fun, self.seconds) if f <= level), self.total) - self.setup


def run(stage: Stage) -> Account:
    """Minimise each problem with Stepwell and with SciPy."""
    comparisons, figures, rows = [], [], []
    for place, (name, sides) in enumerate(GRIDS.items()):
        side = sides[stage.quick]
        problem = get(name, nx=side, ny=side)
        share = place / len(GRIDS)
        stage.tell(f"{name}, n = {problem.n:,}", share)
        ours = run_stepwell(problem, stage)
        stage.tell(f"{name} with SciPy", share + 0.3 / len(GRIDS))
        theirs = run_scipy(problem)
        stage.tell(f"{name} to the end", share + 0.8 / len(GRIDS))
        lowest = min(_lowest(problem, ours), ours.best, theirs.best)
        gap = abs(ours.best - theirs.best) / max(1.0, abs(theirs.best))
        # A peer that was cut short says nothing about the minimum, but it should not be below ours.
        agrees = gap <= AGREEMENT or (not theirs.success and ours.best < theirs.best)
        level = max(ours.best, theirs.best)  # what both have reached
        comparisons.append(
            Comparison(
                f"{name}, {problem.n:,} variables, iterations to the same f",
                ours.until(level),
                _words(gap, ours, theirs),
                ours.success and agrees,
                "SciPy L-BFGS-B",
                theirs.until(level),
                cut=not theirs.success,
            )
        )
        for who, one in (("Stepwell", ours), ("SciPy", theirs)):
            rows.append(
                (
                    f"{name}, {who}",
                    str(one.iterations),
                    str(one.evaluations[-1]),
                    duration(one.setup),
                    f"{one.best:.9f}",
                )
            )
        # The paths by evaluations are much alike; one pair of them is enough to see that.
        figures += _figures(name, problem, ours, theirs, lowest)[0 if place == 0 else 1 :]
    blocks: list[Block] = [
        Text(
            "Many variables, bounds on them in the first two problems, and a function that gives its value and its "
            "gradient. Both solvers have the same function, the same start, ten pairs of history and the same stopping "
            "rule. SciPy's is the reference for this method, and its C code is good; Stepwell gains by threads and by "
            "fewer passes over memory, so small problems gain little. The summary compares iterations to the same f, "
            "the higher one of the two ends; set-up stands in the table. The curves show how far f still is above its "
            "minimum, which a third, longer run has found."
        ),
        Gallery(figures),
        Table(
            ("run", "iterations", "evaluations", "set-up", "f"),
            rows,
            "The same method by two programs: the paths agree until rounding errors part them."
            + (" A run of SciPy's was not finished." if any(one.cut for one in comparisons) else ""),
            numbers=True,
            dense=True,
        ),
    ]
    return Account(comparisons, blocks)


def run_stepwell(problem: Problem, stage: Stage) -> Run:
    """Minimise with Stepwell, where the stage's arrays live."""
    there = stage.place.problem(problem)
    done = Run([], [], [], 0, False, 0.0, problem.x0)
    with Clock() as clock:

        def note(intermediate_result: Any) -> None:
            done.fun.append(float(intermediate_result.fun))
            done.evaluations.append(int(intermediate_result.nfev))
            done.seconds.append(clock.now())

        def fun(x: Any) -> Any:
            done.setup = done.setup or clock.now()
            return there.fun(x)

        result = minimize(fun, there.x0, jac=True, bounds=there.bounds, callback=note)
        stage.place.wait()
    done.x = stage.place.fetch(result.x)
    done.iterations, done.success, done.total = int(result.nit), bool(result.success), clock.seconds
    return _closed(done, float(result.fun), int(result.nfev))


def run_scipy(problem: Problem) -> Run:
    """Minimise with SciPy, on the host."""
    done = Run([], [], [], 0, False, 0.0, problem.x0)
    calls = 0

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal calls
        calls += 1
        done.setup = done.setup or clock.now()
        f, g = problem.fun(x)
        return float(f), g

    with Clock() as clock:

        def note(intermediate_result: Any) -> None:
            done.fun.append(float(intermediate_result.fun))
            done.evaluations.append(calls)
            done.seconds.append(clock.now())
            if clock.now() > PATIENCE:
                raise StopIteration

        bounds = None if problem.bounds is None else optimize.Bounds(*problem.bounds)
        result = optimize.minimize(fun, problem.x0, jac=True, bounds=bounds, method="L-BFGS-B", callback=note)
    done.iterations, done.success, done.total = int(result.nit), bool(result.success), clock.seconds
    return _closed(done, float(result.fun), int(result.nfev))


def _words(gap: float, ours: Run, theirs: Run) -> str:
    if not theirs.success:
        return f"SciPy's run was not finished after {duration(theirs.total)}, {gap:.0e} away"
    if not gap:
        return "equal minima"
    higher, lower = ("Stepwell", "SciPy") if ours.best > theirs.best else ("SciPy", "Stepwell")
    return f"{higher} stopped {gap:.0e} higher than {lower}"


def _closed(done: Run, fun: float, evaluations: int) -> Run:
    """Make sure that the last entry is the result."""
    if not done.fun or done.fun[-1] != fun:
        done.fun.append(fun)
        done.evaluations.append(evaluations)
        done.seconds.append(done.total)
    return done


def _lowest(problem: Problem, ours: Run) -> float:
    """Go on from our answer with tolerances near rounding."""
    options: Options = {"ftol": 0.0, "gtol": 1e-10, "maxiter": REFERENCE_ITERATIONS, "time_limit": PATIENCE}
    return float(minimize(problem.fun, ours.x, jac=True, bounds=problem.bounds, options=options).fun)


def _figures(name: str, problem: Problem, ours: Run, theirs: Run, lowest: float) -> list[Figure]:
    pair = (("Stepwell", ours, 0, "line"), ("SciPy", theirs, 1, "dashed"))
    bounds = "bounded" if problem.bounds is not None else "without bounds"

    def draw(places: Callable[[Run], Any], x_label: str) -> str:
        return chart(
            [Series(who, places(one), np.array(one.fun) - lowest, tone, mark) for who, one, tone, mark in pair],
            f"{name}: f above its minimum against {x_label}. Stepwell ends after {ours.evaluations[-1]} "
            f"evaluations and {duration(ours.total)}, SciPy after {theirs.evaluations[-1]} and "
            f"{duration(theirs.total)}.",
            x_label=x_label,
            y_label="f − minimum",
            y_log=True,
        )

    size = f"{name}, n = {problem.n:,}, {bounds}"
    return [
        Figure(draw(lambda one: one.evaluations, "evaluations"), f"{size}: by evaluations."),
        Figure(
            draw(lambda one: np.array(one.seconds) - one.setup, "seconds of iterations"),
            f"{size}: by time. {duration(ours.total)} against {duration(theirs.total)}.",
        ),
    ]


CODE = """from stepwell import minimize; from stepwell.lab import problems

problem = problems.get("torsion", nx=200, ny=200)
result = minimize(problem.fun, problem.x0, jac=True, bounds=problem.bounds)"""
CHAPTER = Chapter("bounds", "Minimising within bounds", run, CODE, "quasi-newton")
