"""The loop of fits whose model is the caller's: values, derivatives, a turn of the engine, until all have ended."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwell import _core
from stepwell.fit.evaluation import Evaluation
from stepwell.fit.problem import FitProblem
from stepwell.fit.status import FitStatus

#: Pivots of JᵀJ (columns of length one) below which variances are found from J itself.
ILL_CONDITIONED = 1e-8
#: Rows are picked where fewer than this share of them wants derivatives.
PICK = 0.9


class Halted(KeyboardInterrupt):
    """Ctrl-C during a batch. `ends` are those of all problems, at the best points so far."""

    ends: dict[str, Any]


def solve(problem: FitProblem, evaluation: Evaluation) -> dict[str, Any]:
    """Fit all problems of a batch; return what holds at their ends, as `FitProblem` says. Ctrl-C raises `Halted`."""
    if problem.problems == 0:
        return of_none(problem)
    with np.errstate(all="ignore"):
        x = problem.x0.astype(np.float32) if problem.single else problem.x0
        rows = np.arange(problem.problems)
        engine, values, beside = _begun_ahead(problem, evaluation)
        if values is None:
            values = _values_of(evaluation)(x, rows)
            problem.points = int(values.shape[1])
        if engine is None:
            engine = _engine(problem, evaluation, np.float32 if problem.single else values.dtype)
        if engine.running < problem.problems:
            x, rows = engine.points(), engine.rows()
            values = values[rows]
        try:
            if beside is None:
                _run(problem, evaluation, engine, x, rows, values)
            else:
                _run_ahead(problem, evaluation, engine, rows, values, beside)
        except KeyboardInterrupt as interrupt:
            engine.end_rows(engine.rows(), int(FitStatus.CALLBACK))
            halted = Halted(*interrupt.args)
            halted.ends = engine.ends(problem.uncertainty is not None, problem.uncertainty == "covariance")
            raise halted.with_traceback(interrupt.__traceback__) from None
        return _ends(problem, evaluation, engine)


def _engine(problem: FitProblem, evaluation: Evaluation, dtype: Any) -> Any:
    epsilon = float(np.finfo(dtype).eps)
    return _core.FitBatch(
        problem.x0,
        problem.low,
        problem.high,
        problem.points,
        problem.y,
        problem.weights,
        accuracy=max(epsilon, evaluation.accuracy),
        **problem.options(epsilon),
    )


def _begun_ahead(problem: FitProblem, evaluation: Any) -> tuple[Any, Any, Any]:
    """Return an engine, values at the start and at the points beside it, of a small problem; None: not known yet.

    Values at the points beside are None where the function does not take columns.
    """
    if not getattr(evaluation, "ahead", False):
        return None, None, None
    dtype = np.dtype(np.float32 if problem.single else np.float64)
    engine = _engine(problem, evaluation, dtype)
    if not engine.running:
        return engine, None, None
    points, which = engine.moved(True, evaluation.typical, True)
    both = evaluation.first_values(points, which)
    if both.dtype != dtype:  # of another precision than was thought
        return None, both[:1], None
    return engine, both[:1], both[1:, None] if len(both) == len(points) else None


def of_none(problem: FitProblem) -> dict[str, Any]:
    """Return what holds of no problems at all."""
    n = problem.parameters
    none = _core.FitBatch(
        np.zeros((0, n)), np.zeros((1, n)), np.ones((1, n)), 1, None, None, accuracy=0.0, **problem.options(1e-16)
    )
    ends: dict[str, Any] = none.ends(problem.uncertainty is not None, problem.uncertainty == "covariance")
    return ends


def _run(problem: FitProblem, evaluation: Evaluation, engine: Any, x: Any, rows: Any, values: Any) -> None:
    running = engine.running
    typical = getattr(evaluation, "typical", None)
    watched = problem.progress is not None or problem.callback is not None
    values_at = _values_of(evaluation)
    while running:
        wanted = engine.take_values(values)
        if wanted == 0:
            running = engine.turn(None)
        elif typical is not None:
            count = running if wanted >= PICK * running else wanted
            points, which = engine.moved(count == running, typical)
            if len(points):
                moved = evaluation.moved_values(points, which, len(points) // count)  # type: ignore[attr-defined]
            else:  # all are fixed
                moved = np.empty((0, count, problem.points))
            running = engine.turn_moved(moved)
        elif wanted < PICK * running and evaluation.picks:
            some = engine.wanted()
            running = engine.turn(evaluation.jacobian(x[some], rows[some], values[some]))
        else:
            running = engine.turn(evaluation.jacobian(x, rows, values))
        if watched and _told(problem, engine, rows):
            return
        if running:
            x = engine.points()
            rows = engine.rows() if running != len(rows) else rows
            values = values_at(x, rows)


def _values_of(evaluation: Any) -> Any:
    """Return what finds values where derivatives are wanted next."""
    return getattr(evaluation, "values_ahead", evaluation.values)


def _run_ahead(problem: FitProblem, evaluation: Any, engine: Any, rows: Any, values: Any, beside: Any) -> None:
    """Run a small problem with values at a trial point and at those beside it in one call: most trials are taken."""
    typical, watched = evaluation.typical, problem.progress is not None or problem.callback is not None
    while True:
        running = engine.turn_moved(beside) if engine.take_values(values) else engine.turn(None)
        if (watched and _told(problem, engine, rows)) or not running:
            return
        both = evaluation.moved_values(*engine.moved(True, typical, True), 1)[0]
        values, beside = both[:1], both[1:, None]


def _told(problem: FitProblem, engine: Any, rows: np.ndarray) -> bool:
    """Tell whoever watches; whether the callback asked to stop."""
    if problem.progress is not None:
        problem.progress(problem.problems - engine.running, problem.problems)
    if problem.callback is None or not engine.running:
        return False
    try:
        problem.callback(engine.points(True))
    except StopIteration:
        engine.end_rows(engine.rows(), int(FitStatus.CALLBACK))
        return True
    return False


def _ends(problem: FitProblem, evaluation: Evaluation, engine: Any) -> dict[str, Any]:
    wanted = problem.uncertainty is not None
    ends: dict[str, Any] = engine.ends(wanted, problem.uncertainty == "covariance")
    lone = problem.problems == 1 and ends["condition"][0] >= ILL_CONDITIONED and ends["rank"][0] >= ends["free"][0]
    if wanted and not lone:  # (arrays of one number would take as long as a turn)
        poor = np.flatnonzero((ends["condition"] < ILL_CONDITIONED) | (ends["rank"] < ends["free"]))
        poor = poor[ends["njev"][poor] > 0]
        if len(poor):  # squares have lost the digits: once more from J at the end
            x = ends["x"][poor]
            x = x.astype(np.float32) if problem.single else x
            values = evaluation.values(x, poor)
            engine.refine(poor, values, evaluation.jacobian(x, poor, values))
    return ends
