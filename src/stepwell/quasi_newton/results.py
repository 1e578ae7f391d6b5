"""Results of the quasi-Newton solvers, made from the states of their problems."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from stepwell.quasi_newton.result_types import BatchResult, Fields, Result
from stepwell.quasi_newton.status import Status, doubt_about, message_of, status_message

if TYPE_CHECKING:
    from stepwell.quasi_newton.objective import Objective
    from stepwell.quasi_newton.running_rows import RunningRows


_SCIPY_BY_CODE = np.array([status.scipy for status in Status])


def single_result(state: Any, **fields: Any) -> Result:
    """Make the result of one problem from its final state and what is particular to its target."""
    # One look at the record: NumPy takes as long for each of its fields.
    known = dict(zip(state.dtype.names, state.tolist()))
    reason = Status.of(known["status"])
    evaluated = known["evaluations"] > 0
    made = Result(
        fun=known["f"] if evaluated else math.nan,
        nit=known["iterations"],
        nfev=known["evaluations"],
        njev=known["evaluations"],
        status=reason.scipy,
        reason=reason,
        message=status_message(known),
        success=reason.success,
        projected_gradient=known["projected_gradient"] if evaluated else math.nan,
        **{name: known[name] for name in ("info", "cauchy_walks", "truncations", "resets", "skipped")},
    )
    made.update(fields)
    return made


def batch_result(states: Any, *, calls_a_point: int, **fields: Any) -> BatchResult:
    """Make the result of a batch from its final states and what is particular to its target.

    ``calls_a_point`` is how often the function was called for one value and gradient.
    """
    # Thousands of problems end in few ways: what a way means is looked up once for each.
    codes, info = states["status"].astype(np.int64), states["info"].astype(np.int64)
    least, most = int(info.min()), int(info.max())
    which = codes * (most - least + 1) + (info - least)
    ways = np.flatnonzero(np.bincount(which)).tolist()
    known = [divmod(way, most - least + 1) for way in ways]
    reasons = {way: Status.of(code) for way, (code, _) in zip(ways, known)}
    messages = _each({way: message_of(reasons[way], least + rest, "") for way, (_, rest) in zip(ways, known)}, which)
    for problem in np.flatnonzero(codes == Status.LINE_SEARCH.value).tolist():
        doubt = doubt_about(states[problem])
        messages[problem] = message_of(Status.LINE_SEARCH, int(info[problem]), doubt)
    status = _SCIPY_BY_CODE[codes]
    return BatchResult(
        nit=states["iterations"].copy(),
        nfev=states["evaluations"] * calls_a_point,
        status=status,
        reason=_each(reasons, which),
        message=messages,
        success=status == 0,
        info=states["info"].copy(),
        projected_gradient=states["projected_gradient"].copy(),
        **fields,
    )


def _each(meaning: dict[int, Any], which: np.ndarray) -> list[Any]:
    """Return what the way of every problem means; NumPy makes the list in a tenth of the time."""
    by_way = np.empty(max(meaning) + 1, dtype=object)
    for way, words in meaning.items():
        by_way[way] = words
    chosen: list[Any] = by_way[which].tolist()
    return chosen


def intermediate_result(state: Any, x: Any) -> Fields:
    """Make what a callback gets after an iteration."""
    return Fields(
        x=x,
        fun=float(state["f"]),
        nit=int(state["iterations"]),
        nfev=int(state["evaluations"]),
        step=float(state["step"]),
        projected_gradient=float(state["projected_gradient"]),
        gradient_norm=float(state["gradient_norm"]),
    )


def intermediate_batch(states: Any, x: Any) -> Fields:
    """Make what the callback of a batch gets after a turn."""
    return Fields(
        x=x,
        fun=states["f"].copy(),
        nit=states["iterations"].copy(),
        nfev=states["evaluations"].copy(),
        running=states["status"] == Status.RUNNING.value,
    )


def seconds_of(began: float, ready: float, objective: Objective | RunningRows, clock: Any = None) -> dict[str, float]:
    """Return total seconds, those before the first evaluation, in the objective and in the solver.

    With a device's clock, the objective's time is the device's, and ``turns`` that of the turns; without, it is the
    time for which the host was inside the objective, which on a device mostly launches and goes on.
    """
    total, setup = time.perf_counter() - began, ready - began
    inside = objective.seconds if clock is None else clock.objective
    seconds = {"total": total, "setup": setup, "objective": inside, "solver": max(total - setup - inside, 0.0)}
    return seconds if clock is None else seconds | {"turns": clock.turns}
