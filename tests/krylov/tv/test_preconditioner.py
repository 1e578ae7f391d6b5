"""The cosine preconditioner: exact where AᵀA is diagonal in cosines, symmetric, fewer products, same solution."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import stepwell
from stepwell.apps import tomography

SHAPE = (12, 10)
N = 120


def dense(M):
    return np.asarray(M(np.eye(N)))


@pytest.mark.parametrize("size", [1.0, 1e-90, 1e90])
def test_it_is_the_inverse_where_the_normal_matrix_is_a_multiple_of_one(size):
    M = stepwell.cosine_preconditioner(size * sp.identity(N, format="csr"), np.ones(N), 0.7 * size, shape=SHAPE)
    L = stepwell.operators.gradient(SHAPE).toarray()
    np.testing.assert_allclose(size * dense(M) * size, np.linalg.inv(np.eye(N) + 0.49 * L.T @ L), atol=1e-12)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_it_is_symmetric_positive_definite_in_any_library(library):
    xp = pytest.importorskip({"torch": "torch", "jax": "jax.numpy"}[library])
    rng = np.random.default_rng(0)
    A = rng.normal(size=(80, N)).astype(np.float32)
    M = stepwell.cosine_preconditioner(xp.asarray(A), xp.asarray(A[:, 0]), 0.5, shape=SHAPE)
    image = M(xp.asarray(np.eye(N, dtype=np.float32)))
    assert type(image) is type(xp.asarray(A))
    matrix = np.asarray(image, dtype=float)
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-5 * np.abs(matrix).max())
    assert np.linalg.eigvalsh(matrix + matrix.T).min() > 0


def test_products_halve_and_the_solution_stays():
    A = sp.csr_matrix(tomography.parallel_beam(48, angles=np.arange(0, 180, 4.0)))
    X = tomography.shepp_logan_3d(48)[[20, 24]].reshape(2, -1).T
    B = tomography.add_noise(A @ X, 0.02, 0)
    L = stepwell.operators.gradient((48, 48))
    M = stepwell.cosine_preconditioner(A, B, 2.0, shape=(48, 48))
    plain, quick = (stepwell.tikhonov(A, B, 2.0, L, tol=1e-8, preconditioner=one) for one in (None, M))
    assert plain.success
    assert quick.success
    assert np.mean(quick.products) <= 0.5 * np.mean(plain.products)
    exact = np.linalg.solve((A.T @ A + 4 * L.T @ L).toarray(), A.T @ B)
    # residual 1e-8 of the normal equations, times their condition
    np.testing.assert_allclose(quick.x, exact, atol=1e-4 * np.abs(exact).max())


@pytest.mark.parametrize(("lam", "shape"), [(0.0, SHAPE), (-1.0, SHAPE), (1.0, (5, 5)), (np.nan, SHAPE)])
def test_wrong_input_is_named(lam, shape):
    with pytest.raises(ValueError, match="allowed"):
        stepwell.cosine_preconditioner(np.eye(N), np.ones(N), lam, shape=shape)
