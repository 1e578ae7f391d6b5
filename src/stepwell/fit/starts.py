"""Several starts of each problem, as one batch; the least cost wins."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.common.checks import read_whole, require, require_shape
from stepwell.fit.arguments import on_host
from stepwell.fit.evaluation import Evaluation
from stepwell.fit.problem import FitProblem

#: Costs that differ by less, relative to the least, are the same end.
SAME_END = 1e-6


class _Repeated:
    """An evaluation whose problems are repeated, once per start."""

    def __init__(self, inner: Evaluation, times: int) -> None:
        self._inner, self._times = inner, times
        self.picks, self.accuracy = inner.picks, inner.accuracy

    def values(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return self._inner.values(x, rows // self._times)

    def jacobian(self, x: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        return self._inner.jacobian(x, rows // self._times, values)


def over_starts(
    problem: FitProblem,
    evaluation: Evaluation,
    starts: Any,
    solve: Callable[[FitProblem, Any], dict[str, Any]],
) -> tuple[dict[str, Any], tuple[np.ndarray, np.ndarray]]:
    """Fit from all starts; return the ends of the best, which start that was, and how many ended at its cost."""
    if problem.problems == 0:
        none = np.zeros(0, np.int32)
        return solve(problem, evaluation), (none, none)
    points = _read(starts, problem)  # (problems or 1, k, n)
    B, n = problem.x0.shape
    low, high = problem.low[:, None], problem.high[:, None]
    every = np.concatenate([problem.x0[:, None], np.broadcast_to(points, (B, *points.shape[1:]))], axis=1)
    every = np.minimum(np.maximum(every, low), high)
    k = every.shape[1]

    def repeated(rows: np.ndarray | None) -> np.ndarray | None:
        return rows if rows is None or len(rows) == 1 else np.repeat(rows, k, axis=0)

    one = len(problem.y) == 1 if problem.y is not None else True
    whole = dataclasses.replace(
        problem,
        x0=np.ascontiguousarray(every.reshape(-1, n)),
        low=np.ascontiguousarray(repeated(problem.low)),
        high=np.ascontiguousarray(repeated(problem.high)),
        y=problem.y if one else repeated(problem.y),
        weights=repeated(problem.weights),
        lone=False,
        lead=(B * k,),
    )
    if problem.own_x and hasattr(problem.x, "shape"):
        whole.x = np.repeat(problem.x, k, axis=-2) if isinstance(problem.x, np.ndarray) else problem.x
    found = solve(whole, _Repeated(evaluation, k))
    problem.points = whole.points
    cost = found["cost"].reshape(B, k)
    usable = np.where(np.isnan(cost), np.inf, cost)
    # Among equal costs one that has converged.
    done = found["status"].reshape(B, k) > 0
    least = usable.min(axis=1, keepdims=True)
    near = usable <= least * (1 + SAME_END)
    best = np.where(near & done, usable, np.where(near, usable * (1 + SAME_END), np.inf)).argmin(axis=1)
    chosen = np.arange(B) * k + best
    ends = {name: values[chosen] for name, values in found.items()}
    ends["nfev"], ends["njev"] = (found[name].reshape(B, k).sum(axis=1, dtype=np.int32) for name in ("nfev", "njev"))
    return ends, (best.astype(np.int32), near.sum(axis=1).astype(np.int32))


def _read(starts: Any, problem: FitProblem) -> np.ndarray:
    n = problem.parameters
    if isinstance(starts, numbers.Number) or (hasattr(starts, "shape") and tuple(starts.shape) == ()):
        return _drawn(read_whole("starts", starts, 1, 10**6), problem)
    given = on_host("starts", starts).astype(np.float64)
    require_shape(given.ndim >= 2 and given.shape[-1] == n, "starts", given, f"(k, {n}) or (..., k, {n})")
    if given.ndim == 2:
        return given[None]
    fits = given.shape[:-2] == problem.lead
    require_shape(fits, "starts", given, f"(k, {n}) or {(*problem.lead, 'k', n)}")
    return given.reshape(-1, *given.shape[-2:])


def _drawn(count: int, problem: FitProblem) -> np.ndarray:
    """Return points inside the box, evenly spread; in the logarithm where bounds are positive and far apart."""
    low, high = problem.low[:, None], problem.high[:, None]
    require(bool(np.isfinite(low).all() and np.isfinite(high).all()), "starts", count, "an array, or finite bounds")
    u = np.random.default_rng(0).random((1, count, problem.parameters))
    with np.errstate(all="ignore"):
        wide = (low > 0) & (high > 100 * low)
        return np.asarray(np.where(wide, low * (high / np.where(wide, low, 1)) ** u, low + (high - low) * u))
