"""Systems with many positive unknowns: starts with many wrong signs, and little damping on more columns than rows.

The oracles are SciPy's solution of the rows stacked by hand, and the optimality conditions, which every solve here is
held against (see conftest.py).
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls as scipy_nnls

import stepwell


def fitted(m: int, n: int, kind: str, seed: int = 0, noise: float = 0.0):
    """A system whose b is that of a half-empty x, up to noise."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((m, n)) if kind == "normal" else rng.random((m, n))
    return A, A @ np.maximum(rng.standard_normal(n), 0) + noise * rng.standard_normal(m)


@pytest.mark.parametrize("lam", [1e-2, 1e-3, 1e-5])
@pytest.mark.parametrize(("kind", "noise"), [("normal", 0.0), ("uniform", 0.1)])
def test_little_damping_on_more_columns_than_rows(kind, noise, lam):
    A, b = fitted(110, 180, kind, noise=noise)
    result = stepwell.nnls(A, b, lam=lam)
    peer = scipy_nnls(np.vstack([A, lam * np.eye(180)]), np.append(b, np.zeros(180)), maxiter=20000)[0]
    assert result.status is stepwell.NNLSStatus.CONVERGED

    def objective(x):
        return np.hypot(np.linalg.norm(A @ x - b), lam * np.linalg.norm(x))

    # SciPy's own error: a rounding of b, over and above the tiny optimum.
    assert objective(result.x) <= objective(peer) * (1 + 1e-6) + 1e-15 * np.linalg.norm(b)
    # A vertex would be exchanged for the solution by hundreds of solves, each for one column.
    assert result.solves < 180


def test_the_limit_counts_what_more_damping_took():
    A, b = fitted(110, 180, "normal")
    result = stepwell.nnls(A, b, lam=1e-3, maxiter=3)
    assert result.status is stepwell.NNLSStatus.LIMIT
    assert result.solves <= 3
    assert result.residual < np.linalg.norm(b)
    assert (result.x >= 0).all()


@pytest.mark.parametrize("method", ["gram", "qr"])
@pytest.mark.parametrize("start", ["x", "set"])
def test_a_start_with_many_wrong_signs(method, start):
    rng = np.random.default_rng(1)
    A, b = rng.random((200, 150)), rng.random(200)  # of the unconstrained solution half is negative
    cold = stepwell.nnls(A, b, method=method)
    warm = stepwell.nnls(A, b, method=method, warm_start=np.ones(150) if start == "x" else np.ones(150, bool))
    np.testing.assert_allclose(warm.x, cold.x, rtol=1e-9, atol=1e-12)
    assert warm.removals >= 150 - np.count_nonzero(cold.x)
    assert warm.solves < 30  # one by one: as many as leave
    assert warm.insertions - warm.removals == np.count_nonzero(cold.x)


def test_wrong_signs_of_many_systems_with_one_matrix():
    rng = np.random.default_rng(2)
    A, b = rng.random((120, 100)), rng.random((5, 120))
    cold = stepwell.nnls(A, b)
    warm = stepwell.nnls(A, b, warm_start=np.ones((5, 100)))
    np.testing.assert_allclose(warm.x, cold.x, rtol=1e-9, atol=1e-12)
    assert (warm.solves < 30).all()


def test_wrong_signs_in_single_precision_and_with_damping():
    A, b = fitted(150, 200, "normal", seed=3, noise=1.0)
    A, b = A.astype(np.float32), b.astype(np.float32)
    cold = stepwell.nnls(A, b, lam=0.5)
    warm = stepwell.nnls(A, b, lam=0.5, warm_start=np.ones(200, np.float32))
    np.testing.assert_allclose(warm.x, cold.x, rtol=1e-5, atol=1e-6)


def test_lawson_and_hanson_take_their_own_steps():
    rng = np.random.default_rng(4)
    A, b = rng.random((150, 120)), rng.random(150)
    alone = stepwell.nnls(A, b, insertion="single", warm_start=np.ones(120))
    together = stepwell.nnls(A, b, warm_start=np.ones(120))
    np.testing.assert_allclose(alone.x, together.x, rtol=1e-9, atol=1e-12)
    assert alone.solves > together.solves
