"""Runs of the quasi-Newton solver watched step by step, on the host or on a GPU: times, states, histories."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stepwell.arrays import host_copy
from stepwell.arrays.places import Place
from stepwell.quasi_newton.optimizer import LBFGSB


@dataclass(frozen=True)
class Case:
    """A problem with bounds, its arrays at one place."""

    name: str
    n: int
    fun: Callable[[Any], tuple[Any, Any]]
    x0: Any
    bounds: tuple[Any, Any]


@dataclass
class Watched:
    """A run that was watched: how it ended, and seconds of evaluations and of the solver's turns."""

    fun: float
    nit: int
    nfev: int
    status: str
    success: bool
    x: Any
    evaluation: list[float] = field(default_factory=list)
    accepted_turns: list[float] = field(default_factory=list)
    rejected_turns: list[float] = field(default_factory=list)
    cauchy_time: float = 0.0
    cauchy_walks: int = 0

    @property
    def evaluation_ms(self) -> float:
        """Median milliseconds of an evaluation."""
        return 1e3 * float(np.median(self.evaluation))

    @property
    def solver_ms(self) -> float:
        """Milliseconds of the solver an iteration: the median accepted turn, and its share of the others."""
        if not self.accepted_turns:
            return float("nan")
        others = float(np.median(self.rejected_turns)) if self.rejected_turns else 0.0
        share = len(self.rejected_turns) / len(self.accepted_turns)
        return 1e3 * (float(np.median(self.accepted_turns)) + share * others)


def watch(
    fun: Callable[[Any], tuple[Any, Any]],
    x0: Any,
    bounds: Any,
    place: Place,
    *,
    after: Callable[[LBFGSB], None] | None = None,
    limit: float = float("inf"),
    **settings: Any,
) -> Watched:
    """Run to the end, or for `limit` seconds and at least a turn, each waited for; `after` sees accepted iterations.

    Examples
    --------
    >>> run = watch(lambda x: (x @ x, 2 * x), np.array([3.0, -4.0]), None, Place())
    >>> run.status, run.nit == len(run.accepted_turns) - 1  # the first turn accepts the start
    ('GRADIENT', True)
    """
    optimizer = LBFGSB(x0, bounds, **settings)
    seen = Watched(0.0, 0, 0, "", False, None)
    times: list[float] = []
    began = time.perf_counter()
    while not optimizer.done:
        held: list[Any] = []
        seen.evaluation.append(place.seconds(lambda held=held: held.append(fun(optimizer.x))))  # type: ignore[misc]
        value, gradient = held[0]
        turn = place.seconds(lambda f=value, g=gradient: optimizer.tell(f, g))  # type: ignore[misc]
        state = solver_state(optimizer)
        began_run = int(state["evaluations"]) == 1
        (seen.accepted_turns if state["accepted"] or began_run else seen.rejected_turns).append(turn)
        if state["accepted"]:
            times.append(float(state["cauchy_time"]))
            if after is not None:
                after(optimizer)
        if time.perf_counter() - began >= limit:
            break
    state = solver_state(optimizer)
    seen.fun, seen.nit, seen.nfev = float(state["f"]), int(state["iterations"]), int(state["evaluations"])
    seen.status = optimizer.status.name if optimizer.done else "TIME_LIMIT"
    seen.success = optimizer.status.success
    seen.x = optimizer.accepted_point()
    seen.cauchy_time = float(np.mean(times)) if times else 0.0
    seen.cauchy_walks = int(state["cauchy_walks"])
    return seen


def solver_state(optimizer: LBFGSB) -> Any:
    """Return the engine's state of a run, by field names; on a GPU it waits for the last turn."""
    return optimizer.state


def history(optimizer: LBFGSB) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return x, g, S and Y (rows in order of age) at the accepted point, on the host."""
    s, y = (np.array([host_copy(row) for row in rows]) for rows in optimizer.pairs())
    n = int(np.prod(optimizer.x.shape))
    x, g = (host_copy(vector).reshape(-1) for vector in (optimizer.accepted_point(), optimizer.accepted_gradient()))
    return x, g, s.reshape(-1, n), y.reshape(-1, n)
