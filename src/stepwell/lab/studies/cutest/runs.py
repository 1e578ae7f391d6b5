"""Runs of solvers on problems: every evaluation counted and watched, every end verified by the harness itself."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.common.files import append_line, read_text
from stepwell.lab.studies.cutest.problems import CutestProblem
from stepwell.lab.studies.cutest.profiles import projected_gradient
from stepwell.lab.studies.cutest.solvers import Ended, Solver

#: Bytes that a file of runs may have.
LARGEST = 2**30
#: How far starts are moved, relative to max(1, |x|): far below any tolerance.
PERTURBATION = 1e-10
#: The reason of a run that the harness ended, by whatever error of the solver's own that came out.
SPENT = "more evaluations than allowed"
#: A solver may end the iteration that it is in when its evaluations are spent.
_GRACE = 50


@dataclasses.dataclass
class Run:
    """What one solver made of one problem.

    Attributes
    ----------
    problem, solver, reason : str
        The reason is the solver's own words.
    seed : int
        0 for the start as given, else that of its perturbation.
    n : int
    start, f, gradient : float
        f at the start; f and the norm of the projected gradient at the end, evaluated again by the harness.
    claimed : bool
        Whether the solver says that it converged.
    evaluations : int
    seconds : float
    improvements : list of (evaluation, f, seconds)
        Each new least value within the bounds, when it was met.
    """

    problem: str
    solver: str
    seed: int
    n: int
    start: float
    f: float
    gradient: float
    claimed: bool
    reason: str
    evaluations: int
    seconds: float
    improvements: list[tuple[int, float, float]]

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells it from other runs."""
        return self.problem, self.solver, self.seed

    @property
    def least(self) -> float:
        """The least value that it met or ended at."""
        values = [self.f, *(f for _, f, _ in self.improvements)]
        return min((value for value in values if math.isfinite(value)), default=math.inf)


class _Spent(Exception):
    """The limit on evaluations was passed by a solver that does not look at it."""


class Watched:
    """A problem that counts its evaluations and notes each new least value within the bounds."""

    def __init__(self, problem: CutestProblem, limit: int) -> None:
        self.problem, self.limit = problem, limit
        self.count = 0
        self.best_x, self.best_f = problem.x0, math.inf
        self.improvements: list[tuple[int, float, float]] = []
        self.began = time.perf_counter()

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Evaluate."""
        if self.count >= self.limit:
            raise _Spent
        self.count += 1
        x = np.asarray(x, dtype=float)
        f, g = self.problem(x)
        inside = bool((x >= self.problem.lower).all() and (x <= self.problem.upper).all())
        if inside and f < self.best_f:
            self.best_x, self.best_f = x.copy(), f
            self.improvements.append((self.count, f, time.perf_counter() - self.began))
        return f, g


def perturbed(problem: CutestProblem, seed: int) -> np.ndarray:
    """Return the start, each variable moved by up to `PERTURBATION` inside its bounds; seed 0: the start itself."""
    if seed == 0:
        return problem.x0.copy()
    noise = np.random.default_rng(seed).uniform(-1.0, 1.0, problem.n)
    moved = problem.x0 + PERTURBATION * np.maximum(1.0, np.abs(problem.x0)) * noise
    return np.asarray(np.clip(moved, problem.lower, problem.upper))


def run_solver(problem: CutestProblem, solver: Solver, maxfun: int, seed: int = 0) -> Run:
    """Let a solver run, whatever it does, and verify where it ended."""
    x0 = perturbed(problem, seed)
    start = problem(x0)[0]
    watched = Watched(problem, maxfun + _GRACE)
    try:
        ended = solver.solve(watched, x0.copy(), problem.lower, problem.upper, maxfun)
    except Exception as error:  # one that fails, or that does not stop, ends at the best point that it met
        words = f"{type(error).__name__}: {error}".splitlines()[0]
        ended = Ended(watched.best_x, False, SPENT if watched.count >= watched.limit else words)
    seconds = time.perf_counter() - watched.began
    x = np.clip(np.asarray(ended.x, dtype=float).reshape(-1), problem.lower, problem.upper)
    f, g = problem(x)
    return Run(
        problem.name, solver.name, seed, problem.n, start, f,
        projected_gradient(x, g, problem.lower, problem.upper), bool(ended.claimed), ended.reason[:120],
        watched.count, seconds, watched.improvements,
    )  # fmt: skip


class Kept:
    """Finished runs, one JSON line each in a file if there is one, so that a study that was stopped goes on."""

    def __init__(self, path: str | Path | None) -> None:
        self.path = Path(path) if path else None
        self._runs: dict[tuple[str, str, int], Run] = {}
        if self.path is not None and self.path.exists():
            for line in read_text(self.path, LARGEST, errors="replace").splitlines():
                try:
                    found = json.loads(line)
                    run = Run(**found | {"improvements": [tuple(entry) for entry in found["improvements"]]})
                except (ValueError, TypeError, KeyError, RecursionError):
                    continue  # cut short, as by a full disk: that run is made again
                self._runs[run.key] = run

    def find(self, problem: str, solver: str, seed: int) -> Run | None:
        """Return a run if it was made before."""
        return self._runs.get((problem, solver, seed))

    def add(self, run: Run) -> Run:
        """Keep a run."""
        self._runs[run.key] = run
        if self.path is not None:
            append_line(self.path, json.dumps(dataclasses.asdict(run)))
        return run


def best_known(runs: Iterable[Run], kept: dict[str, float]) -> dict[str, float]:
    """Return the least value of each problem, from runs and from those kept of earlier ones.

    Examples
    --------
    >>> run = Run("P", "s", 0, 2, 9.0, 1.0, 0.0, True, "", 3, 0.1, [(1, 9.0, 0.0), (2, 0.5, 0.0)])
    >>> best_known([run], {"P": 0.7, "Q": 3.0})
    {'P': 0.5, 'Q': 3.0}
    """
    best = dict(kept)
    for run in runs:
        best[run.problem] = min(best.get(run.problem, math.inf), run.least)
    return best


def read_minima() -> dict[str, float]:
    """Return the values kept with the package: the least ones that any run, long ones among them, has met so far."""
    path = Path(__file__).with_name("minima.json")
    minima: dict[str, Any] = json.loads(read_text(path, LARGEST))
    return {name: float(value) for name, value in minima.items()}
