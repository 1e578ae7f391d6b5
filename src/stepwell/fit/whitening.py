"""Data whose errors are correlated: one problem with a covariance matrix, taken through its factor."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwell.common.checks import require
from stepwell.fit.arguments import on_host
from stepwell.fit.evaluation import Evaluation
from stepwell.fit.problem import FitProblem


class Whitened:
    """Values and derivatives times L⁻¹, where L Lᵀ is the covariance of the data."""

    picks = True

    def __init__(self, inner: Evaluation, inverse: np.ndarray) -> None:
        self._inner, self._inverse = inner, inverse
        self.accuracy = inner.accuracy
        self._plain: np.ndarray | None = None

    def values(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return whitened values."""
        self._plain = self._inner.values(x, rows)
        return np.asarray(self._plain @ self._inverse.T)

    def jacobian(self, x: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return whitened derivatives."""
        plain = self._plain if self._plain is not None and len(self._plain) == len(x) else self._inner.values(x, rows)
        return np.asarray(self._inverse @ self._inner.jacobian(x, rows, plain))


def whitened(evaluation: Evaluation, problem: FitProblem, sigma: Any) -> Whitened:
    """Return an evaluation for data with this covariance matrix, and take the data of the problem along."""
    covariance = on_host("sigma", sigma).astype(np.float64)
    m = problem.points
    require(covariance.shape == (m, m), "sigma", covariance.shape, f"({m},) or ({m}, {m})")
    require(problem.weights is None, "mask", "given", "None with a covariance matrix")
    try:
        factor = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        raise ValueError("sigma is not positive definite; allowed: a covariance matrix of the data") from None
    inverse = np.linalg.solve(factor, np.eye(m))
    assert problem.y is not None
    problem.y = np.ascontiguousarray(problem.y @ inverse.T)
    return Whitened(evaluation, inverse)
