"""Non-negative least squares as an estimator of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from stepwell.api.lsq import nnls


class NNLS(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Linear regression with coefficients of at least zero, and a penalty λ²‖coef‖² if asked for.

    The same model as ``sklearn.linear_model.LinearRegression(positive=True)``; targets are solved together, as many
    systems with one matrix.

    Parameters
    ----------
    lam : float, default 0
        λ ≥ 0; it enters squared.
    fit_intercept : bool, default True
        Whether there is a constant beside, of any sign.
    threads : int, default all
        CPU threads.

    Attributes
    ----------
    coef_ : array, (n_features,) or (n_targets, n_features)
    intercept_ : float or array, (n_targets,)
    n_iter_ : int
        The most least-squares solutions that a target took.

    Examples
    --------
    >>> X, y = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.array([2.0, -1.0, 1.0])
    >>> NNLS(fit_intercept=False).fit(X, y).coef_
    array([1.5, 0. ])
    """

    def __init__(self, lam: float = 0.0, *, fit_intercept: bool = True, threads: int | None = None) -> None:
        self.lam = lam
        self.fit_intercept = fit_intercept
        self.threads = threads

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> NNLS:
        """Fit to samples.

        Parameters
        ----------
        X : array, (n_samples, n_features)
        y : array, (n_samples,) or (n_samples, n_targets)
        sample_weight : array, (n_samples,), optional
            What squares of residuals are multiplied with.

        Returns
        -------
        NNLS
            Itself.
        """
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32), multi_output=True, y_numeric=True)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=X.dtype)
        targets = y[:, None] if y.ndim == 1 else y
        targets = targets.astype(X.dtype, copy=False)
        mean_x, mean_y = np.zeros(X.shape[1], X.dtype), np.zeros(targets.shape[1], X.dtype)
        if self.fit_intercept:
            mean_x, mean_y = np.average(X, axis=0, weights=weights), np.average(targets, axis=0, weights=weights)
        rows, right = X - mean_x, targets - mean_y
        if weights is not None:
            root = np.sqrt(weights)[:, None]
            rows, right = root * rows, root * right
        result = nnls(rows, np.ascontiguousarray(right.T), lam=self.lam, threads=self.threads)
        coefficients = np.asarray(result.x)
        intercepts = mean_y - coefficients @ mean_x
        self.coef_ = coefficients[0] if y.ndim == 1 else coefficients
        self.intercept_ = (float(intercepts[0]) if y.ndim == 1 else intercepts) if self.fit_intercept else 0.0
        self.n_iter_ = int(np.max(result.solves)) if len(coefficients) else 0
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return X coef + intercept.

        Parameters
        ----------
        X : array, (n_samples, n_features)
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=(np.float64, np.float32))
        return np.asarray(X @ self.coef_.T + self.intercept_)
