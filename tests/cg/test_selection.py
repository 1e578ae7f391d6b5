"""The rules for λ against brute force with dense solves."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell
from stepwell.krylov import selection


def blurred(size: int = 48):
    """A smooth blur, a signal with edges and 1 % noise: ill-posed, so that the rules have something to choose."""
    random = np.random.default_rng(5)
    grid = np.arange(size)
    A = np.exp(-0.5 * ((grid[:, None] - grid) / 2.0) ** 2)
    X = np.stack([(grid > 10) & (grid < 25), np.sin(grid / 5.0) + 1, np.exp(-(((grid - 30) / 6.0) ** 2))], axis=1)
    clean = A @ X.astype(float)
    E = random.normal(size=clean.shape) * 0.01 * np.linalg.norm(clean, axis=0) / np.sqrt(size)
    return A, clean + E, np.linalg.norm(E, axis=0)


def dense(A, b, lam, L):
    H = A.T @ A + lam**2 * L.T @ L
    x = np.linalg.solve(H, A.T @ b)
    return np.sum((A @ x - b) ** 2), np.sum((L @ x) ** 2), np.trace(A @ np.linalg.solve(H, A.T))


PENALTIES = {"identity": np.eye(48), "difference": np.diff(np.eye(48), axis=0)}
LAMS = np.geomspace(1e-5, 1e2, 1501)


@pytest.fixture(params=["exact", "krylov"])
def evaluation(request, monkeypatch):
    """Both ways to evaluate: with the whole space, and with a Krylov space large enough to hold the solution."""
    if request.param == "krylov":
        monkeypatch.setattr(selection, "EXACT_SIZE", 0)
        monkeypatch.setattr(selection, "KRYLOV_TOLERANCE", 1e-9)
        monkeypatch.setattr(selection, "KRYLOV_LAM", 1e-4)
        monkeypatch.setattr(selection, "PROBES", 200)
    return request.param


@pytest.mark.parametrize("penalty", PENALTIES)
def test_gcv(penalty, evaluation):
    A, B, _ = blurred()
    L = PENALTIES[penalty]
    result = stepwell.tikhonov(A, B, "gcv", None if penalty == "identity" else L, tol=1e-8)
    for j in range(3):

        def score(lam, j=j):
            residual, _, trace = dense(A, B[:, j], lam, L)
            return residual / (48 - trace) ** 2

        best = min(score(lam) for lam in LAMS)
        # The trace is exact, or a mean over 200 sign vectors; the minimum is flat, so compare scores.
        assert score(result.lam[j]) <= best * (1 + (1e-4 if evaluation == "exact" else 0.05))


@pytest.mark.parametrize("penalty", PENALTIES)
def test_discrepancy(penalty, evaluation):
    A, B, noise = blurred()
    L = PENALTIES[penalty]
    result = stepwell.tikhonov(A, B, "discrepancy", None if penalty == "identity" else L, noise=noise, tol=1e-10)
    left = np.linalg.norm(A @ result.x - B, axis=0)
    np.testing.assert_allclose(left, noise, rtol=1e-4)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_lcurve(penalty, evaluation):
    A, B, _ = blurred()
    L = PENALTIES[penalty]
    result = stepwell.tikhonov(A, B, "lcurve", None if penalty == "identity" else L, tol=1e-8)
    for j in range(3):
        points = np.array([dense(A, B[:, j], lam, L)[:2] for lam in LAMS])
        rho, eta, t = 0.5 * np.log(points[:, 0]), 0.5 * np.log(points[:, 1]), np.log(LAMS)
        d_rho, d_eta = np.gradient(rho, t), np.gradient(eta, t)
        speed = np.hypot(d_rho, d_eta)
        bend = (d_rho * np.gradient(d_eta, t) - np.gradient(d_rho, t) * d_eta) / speed**3
        bend[(speed < 1e-3) | (np.arange(LAMS.size) < 5) | (np.arange(LAMS.size) > LAMS.size - 6)] = -np.inf
        at_ours = np.interp(np.log(result.lam[j]), t, bend)
        assert at_ours >= 0.95 * bend.max()


def test_a_joint_rule_gives_one_lam_and_lets_columns_share_a_space():
    A, B, noise = blurred()
    operator = (lambda v: A @ v, lambda v: A.T @ v)
    result = stepwell.tikhonov(operator, B, "discrepancy", noise=noise, joint=True, tol=1e-10)
    assert result.method == "block"
    assert np.unique(result.lam).size == 1
    total = np.sum((A @ result.x - B) ** 2)
    np.testing.assert_allclose(total, np.sum(noise**2), rtol=1e-4)


def test_zero_columns_take_no_part_in_the_choice():
    A, B, _ = blurred()
    B[:, 1] = 0
    result = stepwell.tikhonov(A, B, "gcv")
    assert result.success
    assert not result.x[:, 1].any()


def test_unreachable_noise_levels_end_at_the_edge_of_the_range():
    A, B, _ = blurred()
    low = stepwell.tikhonov(A, B[:, 0], "discrepancy", noise=0.0)
    high = stepwell.tikhonov(A, B[:, 0], "discrepancy", noise=1e6)
    assert low.lam[0] < high.lam[0]
    assert np.isfinite([low.lam[0], high.lam[0]]).all()
