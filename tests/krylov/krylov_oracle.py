"""Dense normal equations, and how far from their solution a stated tolerance allows an answer to be."""

from __future__ import annotations

import numpy as np

METHODS = ("cgls", "pseudo-block", "block", "prcg", "aprcg", "direct")
ITERATIVE = METHODS[:-1]


def normal_matrix(A, lam, L=None):
    A = np.asarray(A, dtype=np.float64)
    return A.T @ A + lam**2 * (np.eye(A.shape[1]) if L is None else L.T @ L)


def exact(A, B, lam, L=None):
    return np.linalg.solve(normal_matrix(A, lam, L), A.T.astype(np.float64) @ B)


def assert_solves(x, H, rhs, tol, dtype="float64"):
    """Assert that x solves Hx = rhs as well as a relative residual of ``tol`` says.

    The error is at most ‖H⁻¹‖ times the residual, tol ‖rhs‖; the residual itself is known to some ε ‖H‖ ‖x‖ (ten of
    them here, for sums of hundreds of terms whose errors mostly cancel).
    """
    x, rhs = np.asarray(x, dtype=np.float64), np.asarray(rhs, dtype=np.float64)
    values = np.linalg.eigvalsh(H)
    solution = np.linalg.solve(H, rhs)
    rounding = 10 * np.finfo(dtype).eps * values[-1] * np.linalg.norm(solution, axis=0)
    bound = (tol * np.linalg.norm(rhs, axis=0) + rounding) / values[0]
    error = np.linalg.norm(x - solution, axis=0)
    assert np.all(error <= bound), f"errors {error}, allowed {bound}"
