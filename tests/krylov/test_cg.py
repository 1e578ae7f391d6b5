"""`cg`: symmetric positive definite systems with many right-hand sides."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from krylov_oracle import METHODS, assert_solves

import stepwell
from stepwell.krylov import LinearStatus as Status


def laplacian(size: int) -> sp.csr_matrix:
    one = sp.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(size, size))
    return sp.csr_matrix(sp.kronsum(one, one))


@pytest.mark.parametrize("method", METHODS)
def test_agrees_with_a_dense_solve(method):
    H = laplacian(12)
    B = np.random.default_rng(0).normal(size=(144, 5))
    B[:, 2] = 0
    result = stepwell.cg(H, B, method=method, tol=1e-11)
    assert result.success
    assert result.lam is None
    assert_solves(result.x, H.toarray(), B, 1e-11)


def test_function_preconditioner_and_start():
    H = laplacian(12)
    B = np.random.default_rng(0).normal(size=(144, 2))
    X = np.linalg.solve(H.toarray(), B)
    inverse = np.linalg.inv(H.toarray())
    result = stepwell.cg(lambda v: H @ v, B, tol=1e-10, method="pseudo-block", preconditioner=inverse)
    assert result.iterations.max() == 1  # an exact inverse leaves one step
    assert_solves(result.x, H.toarray(), B, 1e-10)
    started = stepwell.cg(H, B, tol=1e-10, method="block", x0=X)
    assert started.iterations.max() == 0
    np.testing.assert_array_equal(started.products, [2.0, 2.0])  # the start's residual and the final one


@pytest.mark.parametrize("method", ["cgls", "block", "aprcg"])
def test_an_indefinite_matrix_is_told(method):
    H = np.diag([1.0, -1.0, 2.0])
    result = stepwell.cg(H, np.array([0.1, 1.0, 0.1]), method=method, tol=1e-10)
    assert result.status is result.reason is Status.BREAKDOWN
    assert "not positive definite" in result.message
    assert np.isfinite(result.x).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(12))
def test_a_singular_matrix_leaves_no_worse_point_than_zero(method, seed):
    """Without a solution conjugate gradients diverge: that is a status, without NumPy's warnings, and x is finite."""
    random = np.random.default_rng(seed)
    rank, size = int(random.integers(0, 5)), 8
    turn = np.linalg.qr(random.normal(size=(size, size)))[0] if seed % 2 else np.eye(size)
    H = turn * np.append(10.0 ** random.uniform(-8, 8, size=rank), np.zeros(size - rank)) @ turn.T
    B = random.normal(size=(size, 3)) * 10.0 ** random.integers(-20, 20)
    H = (H + H.T) / 2
    result = stepwell.cg(H, B, method=method)
    assert not result.success
    assert np.isfinite(result.x).all()
    assert (result.residual <= 1).all()
    left = np.linalg.norm(B - H @ result.x, axis=0) / np.linalg.norm(B, axis=0)
    # Sums of eight products, rounded here and there, and one subtraction.
    rounding = 10 * np.finfo(float).eps * np.linalg.norm(abs(H) @ abs(result.x) + abs(B), axis=0)
    assert (abs(result.residual - left) <= 2 * rounding / np.linalg.norm(B, axis=0)).all()


@pytest.mark.parametrize("method", ["cgls", "pseudo-block", "block", "aprcg"])
def test_an_operator_that_turns_nan_is_told(method):
    calls = []

    def poisoned(v):
        calls.append(1)
        return np.full_like(v, np.nan) if len(calls) > 4 else np.arange(1.0, 31.0) * v

    result = stepwell.cg(poisoned, np.ones(30), method=method, tol=1e-12)
    assert result.status is Status.NONFINITE
    assert np.isfinite(result.x).all()


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"H has shape \(4, 3\); allowed: as many columns as rows"):
        stepwell.cg(np.zeros((4, 3)), np.zeros(4))
    with pytest.raises(ValueError, match=r"B has shape \(5,\); allowed: 4 rows, as H of shape \(4, 4\) has"):
        stepwell.cg(np.eye(4), np.zeros(5))
