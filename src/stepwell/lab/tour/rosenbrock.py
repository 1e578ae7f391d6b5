"""Chapter: the table that VA15 prints for the extended Rosenbrock function, beside the published one and SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import optimize

from stepwell.lab.html import Block, Figure, Series, Table, Text, chart
from stepwell.lab.problems import Problem, get
from stepwell.lab.solve.history import History, Iteration
from stepwell.lab.solve.va15 import VA15Report
from stepwell.lab.tour.chapter import PATIENCE, Account, Chapter, Clock, Comparison, Stage, duration
from stepwell.quasi_newton.api import minimize

#: Variables: for the tour (as published), and for a quick one.
SIZES = (1_000_000, 1_000)
PAIRS = 7
#: |g| <= EPS max(1, |x|) ends the run.
EPS = 1e-5
#: The last row that D'Amore, Arcucci, Mele, Scotti and Murli (2013) print for n = 10⁶, m = 7: iterations, evaluations,
#: f and |g|.
PUBLISHED = (37, 51, 6.752264e-10, 1.013915e-03)


def run(stage: Stage) -> Account:
    """Minimise with VA15's line search and stopping rule; then with SciPy until the same rule holds."""
    problem = get("rosenbrock", n=SIZES[stage.quick])
    stage.tell(f"n = {problem.n:,}", 0.0)
    history, result, seconds = run_stepwell(problem, stage)
    stage.tell("the same with SciPy", 0.4)
    peer_seconds, peer, finished = run_scipy(problem)
    last = history.iterations[-1]
    as_published = problem.n == SIZES[0]
    equal = (last.nit, last.nfev, f"{last.fun:.6e}", f"{last.gradient_norm:.6e}") == (
        *PUBLISHED[:2],
        *(f"{value:.6e}" for value in PUBLISHED[2:]),
    )
    answer = f"f = {last.fun:.1e}, minimum 0" + (
        f"; {'equals' if equal else 'differs from'} the published last row" if as_published else ""
    )
    if not finished:
        answer += f"; SciPy's run was not finished after {duration(peer_seconds)}"
    # Near the minimum f <= |g|²/(2κ) with the least curvature κ = 0.399, and |x|² = n; twice that: f is no quadratic.
    small = last.fun <= 2 * (EPS**2 * problem.n) / (2 * 0.399)
    comparison = Comparison(
        f"extended Rosenbrock, {problem.n:,} variables",
        seconds,
        answer,
        bool(result.success) and small,
        "SciPy L-BFGS-B",
        peer_seconds,
        cut=not finished,
    )
    return Account([comparison], _blocks(problem, history.iterations, peer, as_published, equal, seconds))


def run_stepwell(problem: Problem, stage: Stage) -> tuple[History, Any, float]:
    """Return the recorded run, its result and its seconds."""
    there = stage.place.problem(problem)

    def on_iteration(iteration: Iteration, x: Any) -> None:
        stage.tell(f"iteration {iteration.nit}, f = {iteration.fun:.2e}", min(0.4, iteration.nit / 100))

    history = History(there.fun, None, None, on_iteration)
    result = minimize(
        history.fun,
        there.x0,
        jac=True,
        callback=history.callback,
        options={
            "maxcor": PAIRS,
            "line_search": "va15",
            "relative_gtol": EPS,
            "gtol": 0.0,
            "ftol": 0.0,
            "maxiter": 2000,
        },
    )
    stage.place.wait()
    return history, result, history.seconds(result)["total"]


def run_scipy(problem: Problem) -> tuple[float, list[tuple[int, float]], bool]:
    """Return SciPy's seconds to the same rule, evaluations with |g| after each iteration, and whether it got there."""
    norms: list[tuple[int, float]] = []
    calls, gradient, done = 0, np.zeros(0), False

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal calls, gradient
        calls += 1
        f, gradient = problem.fun(x)
        return float(f), gradient

    with Clock() as clock:

        def note(intermediate_result: Any) -> None:
            nonlocal done
            with clock.pause():
                # The gradient of the last evaluation is that of the accepted point.
                norm = float(np.linalg.norm(gradient))
                norms.append((calls, norm))
                done = norm <= EPS * max(1.0, float(np.linalg.norm(intermediate_result.x)))
            if done or clock.now() > PATIENCE:
                raise StopIteration

        optimize.minimize(
            fun,
            problem.x0,
            jac=True,
            method="L-BFGS-B",
            callback=note,
            options={"maxcor": PAIRS, "ftol": 0.0, "gtol": 0.0, "maxiter": 2000, "maxfun": 40000},
        )
    return clock.seconds, norms, done


def _blocks(
    problem: Problem,
    iterations: list[Iteration],
    peer: list[tuple[int, float]],
    as_published: bool,
    equal: bool,
    seconds: float,
) -> list[Block]:
    first, last = iterations[0], iterations[-1]
    rows = [tuple(VA15Report("", 0, 0, 0.0).row(one).split()) for one in _thinned(iterations[1:])]
    published = (
        f"The table that D'Amore, Arcucci, Mele, Scotti and Murli (2013) print for this problem ends after "
        f"{PUBLISHED[0]} iterations and {PUBLISHED[1]} evaluations with f = {PUBLISHED[2]:.6e} and "
        f"|g| = {PUBLISHED[3]:.6e}; this run {'ends with the same digits' if equal else 'ends otherwise'}."
        if as_published
        else "The published table is for a million variables; this quick run is smaller."
    )
    return [
        Text(
            f"Curved valleys, {problem.n:,} variables, no bounds, {PAIRS} pairs of history, and the line search and "
            f"stopping rule of VA15, the L-BFGS program of the Harwell Subroutine Library. From f = {first.fun:.6e} "
            f"and |g| = {first.gradient_norm:.6e} to a relative gradient of {EPS:g} in {duration(seconds)}. {published}"
        ),
        Figure(
            chart(
                [
                    Series(
                        "Stepwell, VA15 preset",
                        [one.nfev for one in iterations],
                        [one.gradient_norm for one in iterations],
                    ),
                    Series(
                        "SciPy", [1, *(at for at, _ in peer)], [first.gradient_norm, *(g for _, g in peer)], 1, "dashed"
                    ),
                ],
                f"The norm of the gradient against evaluations: it falls from {first.gradient_norm:.1e} to "
                f"{last.gradient_norm:.1e} in {last.nfev} evaluations.",
                x_label="evaluations",
                y_label="|g|",
                y_log=True,
            ),
            f"The gradient's Euclidean norm. SciPy has {peer[-1][1]:.1e} after {peer[-1][0]} evaluations.",
        ),
        Table(
            ("I", "NFN", "FUNC", "GNORM", "STEPLENGTH"),
            rows,
            f"Some of the {last.nit} rows as VA15 prints them: iteration, evaluations, f, |g|, step. All of them: "
            f"stepwell solve rosenbrock -n {problem.n} -m {PAIRS} --line-search va15",
            numbers=True,
            dense=True,
        ),
    ]


def _thinned(iterations: list[Iteration]) -> list[Iteration]:
    """Return the first three, the last three, and every fifth between."""
    last = len(iterations) - 1
    return [one for k, one in enumerate(iterations) if k < 3 or k > last - 3 or (k + 1) % 5 == 0]


CODE = """from stepwell import minimize; from stepwell.lab import problems

problem = problems.get("rosenbrock", n=1_000_000)
options = {"line_search": "va15", "maxcor": 7, "relative_gtol": 1e-5, "gtol": 0, "ftol": 0}
result = minimize(problem.fun, problem.x0, jac=True, options=options)"""
CHAPTER = Chapter("rosenbrock", "A million variables, and a published table", run, CODE, "quasi-newton")
