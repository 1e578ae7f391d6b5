"""The estimator for scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

from stepwell.plugs.sklearn import NNLS

random = np.random.default_rng(2)


def test_scikit_learns_own_checks():
    check_estimator(NNLS(), on_skip=None)  # one is of arrays of other libraries, where SciPy is told to take them


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("targets", [None, 3])
def test_against_linear_regression(intercept, targets):
    """Both are exact to rounding, and well conditioned."""
    X = random.normal(size=(40, 6))
    y = random.normal(size=40 if targets is None else (40, targets)) + (X[:, 0] if targets is None else X[:, :1])
    weights = random.uniform(0.5, 2, 40)
    ours = NNLS(fit_intercept=intercept).fit(X, y, weights)
    own = LinearRegression(positive=True, fit_intercept=intercept).fit(X, y, weights)
    np.testing.assert_allclose(ours.coef_, own.coef_, atol=1e-12)
    np.testing.assert_allclose(ours.intercept_, own.intercept_, atol=1e-12)
    np.testing.assert_allclose(ours.predict(X), own.predict(X), atol=1e-11)


def test_a_penalty_is_found_by_a_grid():
    X = random.normal(size=(30, 8))
    y = X @ np.array([1.0, 0, 2, 0, 0, 0.5, 0, 0]) + random.normal(size=30)
    search = GridSearchCV(NNLS(), {"lam": [0.0, 1.0, 30.0]}, cv=3).fit(X, y)
    assert search.best_params_["lam"] in (0.0, 1.0)
