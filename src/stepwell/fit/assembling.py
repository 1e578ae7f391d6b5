"""From what holds at the ends of fits to the result that is returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import copy_to_device_of, is_cuda, of_numpy, shapes_are_compiled
from stepwell.fit.evaluation import Evaluation
from stepwell.fit.functions import Curve
from stepwell.fit.loop import Halted
from stepwell.fit.problem import FitProblem, own_rows
from stepwell.fit.result import FitResult
from stepwell.fit.status import FitStatus

#: Data, over sigma, of which squares of their rounding are numbers.
SMALLEST_DATA = 1e-140


def result_of(
    problem: FitProblem,
    ends: dict[str, Any],
    evaluation: Evaluation,
    curve: Curve | None = None,
    chosen: tuple[np.ndarray, np.ndarray] | None = None,
) -> FitResult:
    """Return the result of a batch, or of its one problem."""
    _doubt_lost_squares(problem, ends, evaluation)
    variances = ends.get("variances")
    with np.errstate(invalid="ignore"):
        stderr = None if variances is None else np.sqrt(variances, out=variances)
    dof = ends["points"] - ends["free"]
    x = ends["x"].astype(np.float32, copy=False) if problem.single else ends["x"]
    again = Again(problem, evaluation, ends["x"])
    picture = None if curve is None else _Picture(problem, evaluation, ends["x"])
    if problem.lone:
        status = FitStatus.of(ends["status"][0])
        if status is FitStatus.NON_FINITE_START and problem.raises:
            raise ValueError(
                "the model, its derivatives or their squares are not finite at the start; allowed: another start, or "
                "data and parameters in other units"
            )
        if status is FitStatus.NO_POINTS and problem.raises:
            raise ValueError("all points are masked or missing; allowed: at least one that counts")
        pcov = ends.get("pcov")
        result = FitResult(
            x=x[0],
            pcov=None if pcov is None else pcov[0],
            stderr=None if stderr is None else stderr[0],
            cost=float(ends["cost"][0]),
            dof=int(dof[0]),
            promise=float(ends["promise"][0]),
            distance=float(ends["distance"][0]),
            violation=float(ends["violation"][0]),
            optimality=float(ends["optimality"][0]),
            active_mask=ends["active_mask"][0],
            rank=int(ends["rank"][0]),
            nit=int(ends["nit"][0]),
            nfev=int(ends["nfev"][0]),
            njev=int(ends["njev"][0]),
            status=status,
            start=None if chosen is None else int(chosen[0][0]),
            spread=None if chosen is None else int(chosen[1][0]),
            names=problem.names,
            _again=again,
            _picture=picture,
        )
        return result if of_numpy(problem.template) else in_library(result, problem)

    def shaped(values: np.ndarray | None) -> Any:
        return None if values is None else values.reshape(problem.lead + values.shape[1:])

    result = FitResult(
        x=shaped(x),
        pcov=shaped(ends.get("pcov")),
        stderr=shaped(stderr),
        dof=shaped(dof),
        start=None if chosen is None else shaped(chosen[0]),
        spread=None if chosen is None else shaped(chosen[1]),
        names=problem.names,
        _again=again,
        _picture=picture,
        **{
            name: shaped(ends[name])
            for name in (
                "cost", "promise", "distance", "violation", "optimality", "active_mask", "rank", "nit", "nfev", "njev",
                "status",
            )
        },
    )  # fmt: skip
    return result if of_numpy(problem.template) else in_library(result, problem)


def _doubt_lost_squares(problem: FitProblem, ends: dict[str, Any], evaluation: Evaluation) -> None:
    """Call no fit converged of which all squares underflow, unless its residuals themselves are rounding.

    Those are compared with the data, or where there are none with the residuals at the start.
    """
    doubtful = np.flatnonzero((ends["status"] > 0) & (ends["cost"] < SMALLEST_DATA**2))

    def largest(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
        if problem.weights is not None:
            weights = own_rows(problem.weights, rows)
            values = np.where(weights == 0, 0.0, values * weights)
        found: np.ndarray = np.max(np.abs(values), axis=1, initial=0.0)
        return found

    def residuals(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        values = evaluation.values(x[rows], rows)
        return values if problem.y is None else values - own_rows(problem.y, rows)

    for first in range(0, doubtful.size, 4096):
        rows = doubtful[first : first + 4096]
        with np.errstate(all="ignore"):
            if problem.y is None:
                size = largest(residuals(problem.x0, rows), rows)
            else:
                size = np.broadcast_to(largest(own_rows(problem.y, rows), rows), rows.shape)
            lost = (size > 0) & (size < SMALLEST_DATA)
            rows, size = rows[lost], size[lost]
            if rows.size:
                proven = largest(residuals(ends["x"], rows), rows) <= 8 * np.finfo(np.float64).eps * size
                ends["status"][rows[~proven]] = int(FitStatus.ROUNDING)


def solved(
    problem: FitProblem, run: Callable[[FitProblem, Any], dict[str, Any]], evaluation: Evaluation, curve: Curve | None
) -> FitResult:
    """Run a batch and return its result; Ctrl-C raises `stepwell.Interrupted`, which has the result so far."""
    try:
        ends = run(problem, evaluation)
    except Halted as halted:
        from stepwell.quasi_newton.driver import Interrupted

        problem.raises = False
        carrier = Interrupted(*halted.args)
        carrier.result = result_of(problem, halted.ends, evaluation, curve)
        raise carrier.with_traceback(halted.__traceback__) from None
    return result_of(problem, ends, evaluation, curve)


def in_library(result: FitResult, problem: FitProblem) -> FitResult:
    """Return the same with arrays of the caller's library."""
    for name, value in list(vars(result).items()):
        if isinstance(value, np.ndarray):
            if shapes_are_compiled(problem.template) and value.dtype == np.float64 and problem.single:
                value = value.astype(np.float32)
            vars(result)[name] = copy_to_device_of(np.ascontiguousarray(value), problem.template)
    return result


class Again:
    """Evaluates weighed residuals, or their derivatives, at the end of all fits."""

    def __init__(self, problem: FitProblem, evaluation: Evaluation, x: np.ndarray) -> None:
        self._problem, self._evaluation, self._x = problem, evaluation, x

    def __call__(self, derivatives: bool) -> Any:
        """Return the residuals, or with `derivatives` these."""
        problem = self._problem
        x = self._x.astype(np.float32, copy=False) if problem.single else self._x
        rows = np.arange(problem.problems)
        weights = np.ones((1, 1)) if problem.weights is None else problem.weights
        with np.errstate(all="ignore"):
            values = self._evaluation.values(x, rows)
            if derivatives:
                found = self._evaluation.jacobian(x, rows, values) * weights[..., None]
            else:
                found = (values if problem.y is None else values - problem.y) * weights
                found = np.where(np.broadcast_to(weights == 0, found.shape), 0.0, found)
        found = found[0] if problem.lone else found.reshape(problem.lead + found.shape[1:])
        if of_numpy(problem.template):
            return found
        return copy_to_device_of(np.ascontiguousarray(found), problem.template)


class _Picture:
    """Data, their deviations and the model's values of one fit."""

    def __init__(self, problem: FitProblem, evaluation: Evaluation, x: np.ndarray) -> None:
        self._problem, self._evaluation, self._x = problem, evaluation, x

    def __call__(self, index: int | tuple[int, ...]) -> tuple[Any, np.ndarray, np.ndarray | None, np.ndarray]:
        problem = self._problem
        place = index if isinstance(index, tuple) else (index,)
        number = 0 if problem.lone else int(np.ravel_multi_index(place or (0,) * len(problem.lead), problem.lead))
        rows = np.array([number])
        x = self._x[rows].astype(np.float32) if problem.single else self._x[rows]
        values = self._evaluation.values(x, rows)[0]
        assert problem.y is not None
        y = own_rows(problem.y, rows)[0]
        sigma = None
        if problem.weights is not None:
            with np.errstate(divide="ignore"):
                sigma = 1 / own_rows(problem.weights, rows)[0]
            sigma = np.where(np.isfinite(sigma), sigma, np.nan)
        abscissa = problem.x[..., number, :] if problem.own_x else problem.x
        if is_cuda(abscissa) or not of_numpy(abscissa):
            from stepwell.arrays import host_copy

            abscissa = host_copy(abscissa)
        return abscissa, np.asarray(y), sigma, np.asarray(values)
