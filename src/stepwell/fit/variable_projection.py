"""Variable projection: parameters that the model is linear in are found inside, by bounded linear least squares.

What is left of the data after them is fitted over the others alone (Golub and Pereyra 1973), with Kaufman's Jacobian.
The answer is handed to the engine once more with all parameters, which verifies it and has the uncertainties.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from stepwell import _core
from stepwell.common.checks import require
from stepwell.fit.evaluation import Evaluation
from stepwell.fit.loop import solve
from stepwell.fit.problem import FitProblem, own_rows


class Projection:
    """Residuals of the nonlinear parameters alone; the linear ones are the best within their bounds.

    Parameters
    ----------
    places, others : list of int
        Linear and nonlinear parameters.
    """

    picks = False  # what is kept between values and derivatives has the same rows

    def __init__(self, problem: FitProblem, inner: Evaluation, places: list[int], others: list[int]) -> None:
        self._problem, self._inner = problem, inner
        self._places, self._others = places, others
        self.accuracy = inner.accuracy
        self.amplitudes = np.zeros((problem.problems, len(places)))

    def _full(self, q: np.ndarray, a: np.ndarray) -> np.ndarray:
        p = np.empty((len(q), self._problem.parameters), q.dtype)
        p[:, self._others], p[:, self._places] = q, a
        return p

    def _columns(self, q: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the model without its linear part (k, m), and the columns of that (k, m, K): one call for all."""
        K, k = len(self._places), len(q)
        a = np.concatenate([np.zeros((1, K)), np.eye(K)])
        p = self._full(np.tile(q, (K + 1, 1)), np.repeat(a, k, axis=0))
        found = np.asarray(self._inner.values(p, np.tile(rows, K + 1)), np.float64).reshape(K + 1, k, -1)
        return found[0], np.moveaxis(found[1:] - found[0], 0, 2)

    def values(self, q: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return what the best amplitudes leave of the data."""
        problem = self._problem
        rest, columns = self._columns(q, rows)
        assert problem.y is not None
        target = own_rows(problem.y, rows) - rest
        if problem.weights is not None:
            weights = own_rows(problem.weights, rows)
            columns, target = columns * weights[..., None], np.where(weights == 0, 0.0, target * weights)
        low, high = (own_rows(side[:, self._places], rows) for side in (problem.low, problem.high))
        self._phi = np.where(np.isfinite(columns), columns, 0.0)
        a, self._side = bounded_amplitudes(self._phi, np.where(np.isfinite(target), target, 0.0), low, high)
        self.amplitudes[rows] = a
        self._a = a
        return np.asarray(np.einsum("bmk,bk->bm", columns, a) - target)

    def jacobian(self, q: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return Kaufman's (I − ΦΦ⁺)(dΦ)a over the amplitudes between their bounds."""
        problem = self._problem
        p = self._full(q, self._a)
        plain = self._inner.values(p, rows)
        W = np.asarray(self._inner.jacobian(p, rows, plain), np.float64)[:, :, self._others]
        if problem.weights is not None:
            weights = own_rows(problem.weights, rows)[..., None]
            W = np.where(weights == 0, 0.0, W * weights)
        free = (self._side == 0).astype(float)
        phi = self._phi * free[:, None, :]
        G = np.einsum("bmk,bml->bkl", phi, phi)
        size = np.einsum("bkk->bk", G)
        K = phi.shape[2]
        G[:, range(K), range(K)] += np.where(free > 0, 1e-13 * size.max(axis=1, keepdims=True), 1.0) + 1e-300
        X = np.linalg.solve(G, np.einsum("bmk,bmq->bkq", phi, W))
        return np.asarray(W - np.einsum("bmk,bkq->bmq", phi, X))


def bounded_amplitudes(
    phi: np.ndarray, target: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the amplitudes (k, K) that fit targets (k, m) best within bounds, and where they are: −1, 0, 1."""
    gram = np.einsum("bmk,bml->bkl", phi, phi)
    linear = np.einsum("bmk,bm->bk", phi, target)
    k, K = linear.shape
    lows, highs = (np.ascontiguousarray(np.broadcast_to(side, (k, K)), np.float64) for side in (low, high))
    a, side = _core.fit_bounded(np.ascontiguousarray(gram), np.ascontiguousarray(linear), lows, highs)
    return a, side


def solve_projected(problem: FitProblem, evaluation: Evaluation, places: list[int]) -> dict[str, Any]:
    """Fit with linear parameters projected out, then once more with all, from there."""
    n = problem.parameters
    others = [j for j in range(n) if j not in places]
    require(len(places) > 0 and len(others) > 0, "linear", places, "some of the parameters, but not all")
    if problem.problems == 0:
        return solve(problem, evaluation)
    projection = Projection(problem, evaluation, places, others)
    inner = dataclasses.replace(
        problem,
        x0=np.ascontiguousarray(problem.x0[:, others]),
        low=np.ascontiguousarray(problem.low[:, others]),
        high=np.ascontiguousarray(problem.high[:, others]),
        y=None,
        weights=None,
        lone=False,
        uncertainty=None,
        single=False,
    )
    first = solve(inner, projection)
    problem.points = inner.points
    x = np.empty_like(problem.x0)
    x[:, others] = first["x"]
    # The amplitudes of the last trial may be those of a point that was rejected.
    with np.errstate(all="ignore"):
        projection.values(first["x"], np.arange(problem.problems))
    x[:, places] = projection.amplitudes
    started = np.isfinite(x).all(axis=1, keepdims=True)
    found = solve(dataclasses.replace(problem, x0=np.where(started, x, problem.x0), lone=problem.lone), evaluation)
    for name in ("nfev", "njev", "nit"):
        found[name] = found[name] + first[name]
    return found
