"""The loop: evaluate, turn, look, until every problem has ended. There is no other."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stepwell.quasi_newton.objective import Objective
from stepwell.quasi_newton.run import Run
from stepwell.quasi_newton.status import Status

if TYPE_CHECKING:
    from stepwell.quasi_newton.checkpoint import Checkpoint
    from stepwell.quasi_newton.running_rows import RunningRows


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a run. ``result`` is what `stepwell.minimize` would have returned at the last accepted point.

    At an interactive prompt, where nobody catches it, it is ``sys.last_value.result``.
    """

    result: Any


def drive(
    run: Run,
    objective: Objective | RunningRows,
    *,
    began: float,
    after: Callable[[], None] | None = None,
    graph: str | bool = "auto",
    clock: Any = None,
    checkpoint: Checkpoint | None = None,
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
    checkpoint : Checkpoint, optional
        Writes the run to a file: when it is time, and before a run is stopped that could go on.

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

    evaluate = objective.__call__  # which Python calls faster than an object that has it

    def repeated() -> tuple[Any, bool]:
        advance = target.repeated(lambda: evaluate(target.trial), turn, False if watched else graph, clock)
        return advance, hasattr(advance, "replays")

    objective.follow(target)
    advance, replays = repeated()
    limit = began + settings.time_limit
    looking: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if hasattr(target, "watch"):  # several ranks look at callbacks and clocks where they can tell each other
        looking, after, limit = target.watch(after, limit), None, math.inf

    # What no turn of this run has to look at is settled here: between evaluations of a microsecond every call counts.
    counted, timed = objective.differenced, limit < math.inf
    narrow = getattr(objective, "narrow", None)

    def stop(status: Status) -> None:
        if checkpoint is not None:
            checkpoint.write()
        target.stop(status.value)

    try:
        with looking:
            while target.running:
                advance()
                if watched:
                    target.wait()
                if checkpoint is not None:
                    checkpoint.look()
                if after is not None:
                    try:
                        after()
                    except StopIteration:
                        stop(Status.CALLBACK)
                # Problems that still run were part of every evaluation: what was counted is what each alone would take.
                if counted and objective.spent(settings.maxfun) and target.running:
                    stop(Status.MAX_EVALUATIONS)
                if timed and time.perf_counter() > limit and target.running:
                    stop(Status.TIME_LIMIT)
                if replays:
                    objective.replayed(advance.replays)
                if narrow is not None and narrow(target):
                    if clock is not None:
                        clock.gather()
                    advance, replays = repeated()
    finally:
        objective.close()
    target.wait()
    return getattr(advance, "mode", None)
