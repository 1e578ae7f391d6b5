"""The loop: evaluate, turn, look, until every problem has ended. There is no other."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import Any

from stepwell.quasi_newton.objective import Objective
from stepwell.quasi_newton.run import Run
from stepwell.quasi_newton.status import Status


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run. ``result`` is what `stepwell.minimize` would have returned at the last accepted point.

    At an interactive prompt, where nobody catches it, it is ``sys.last_value.result``.
    """

    result: Any


def drive(
    run: Run,
    objective: Objective,
    *,
    began: float,
    after: Callable[[], None] | None = None,
    graph: str | bool = "auto",
    clock: Any = None,
) -> str | None:
    """Run to the end.

    Parameters
    ----------
    began : float
        When the run began, by `time.perf_counter`: what its time limit counts from.
    after : callable, optional
        Called after every turn, with the states up to date; StopIteration ends all problems.
    graph : {"auto", True, False}
        Whether a CUDA target may put evaluations and turns into a graph.
    clock : optional
        The device's clock, for a CUDA target.

    Returns
    -------
    str or None
        How turns were made, where there is more than one way.
    """
    target, settings = run.target, run.settings
    diagonal = run.diagonal
    turn = target.turn if diagonal is None else run.turn

    # Where every turn is looked at there is nothing to run ahead for.
    watched = after is not None or diagonal is not None or objective.differenced
    advance = target.repeated(lambda: objective(target.trial), turn, False if watched else graph, clock)
    limit = began + settings.time_limit
    looking: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if hasattr(target, "watch"):  # several ranks look at callbacks and clocks where they can tell each other
        looking, after, limit = target.watch(after, limit), None, math.inf
    try:
        with looking:
            while target.running:
                advance()
                if watched:
                    target.wait()
                if after is not None:
                    try:
                        after()
                    except StopIteration:
                        target.stop(Status.CALLBACK.value)
                # Problems that still run were part of every evaluation: what was counted is what each alone would take.
                if objective.spent(settings.maxfun) and target.running:
                    target.stop(Status.MAX_EVALUATIONS.value)
                if time.perf_counter() > limit and target.running:
                    target.stop(Status.TIME_LIMIT.value)
    finally:
        objective.close()
    target.wait()
    return getattr(advance, "mode", None)
