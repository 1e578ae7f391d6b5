"""Ill-conditioned systems that are fitted exactly, or nearly: the residual decides far below the rounding of b.

The oracles are the x that b was made from, SciPy's residual, and residuals computed in a longer format.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import hilbert
from scipy.optimize import nnls as scipy_nnls

import stepwell

EPS = np.finfo(float).eps


def decays() -> np.ndarray:
    return np.exp(-7e-3 * np.arange(1, 57)[:, None] / np.geomspace(0.01, 2, 40))


def gaussians(width: float) -> np.ndarray:
    return np.exp(-0.5 * ((np.arange(60)[:, None] - np.arange(0, 60, 1.5)) / width) ** 2)


MATRICES = {
    "decays": (decays(), 3),
    "powers": (np.vander(np.linspace(0, 1, 30), 12, increasing=True), 5),
    "hilbert": (hilbert(10), 4),
    "gaussians": (gaussians(3.0), 4),
    "wide gaussians": (gaussians(8.0), 4),
    "random": (np.random.default_rng(1).random((30, 20)), 8),
}


def made_from(A: np.ndarray, positive: int, systems: int, seed: int, noise: np.ndarray | float = 0.0):
    rng = np.random.default_rng(seed)
    x = np.zeros((systems, A.shape[1]))
    for row in x:
        row[rng.choice(A.shape[1], positive, replace=False)] = rng.random(positive) + 0.2
    b = x @ A.T
    size = np.linalg.norm(b, axis=1, keepdims=True) / np.sqrt(len(A))
    return x, b + np.asarray(noise).reshape(-1, 1) * size * rng.standard_normal(b.shape)


def long_residuals(A, x, b):
    A, x, b = (np.asarray(part, np.longdouble) for part in (A, x, b))
    return np.sqrt(((x @ A.T - b) ** 2).sum(axis=1)).astype(float)


def scipys(A, b):
    return np.array([scipy_nnls(A, row, maxiter=1000)[0] for row in b])


@pytest.mark.parametrize("method", ["auto", "gram", "qr"])
def test_the_three_components_of_a_decay_are_found(method):
    A, truth = decays(), np.zeros(40)
    truth[[20, 24, 28]] = 0.2, 0.5, 0.3
    result = stepwell.nnls(A, A @ truth, method=method)
    assert result.status is stepwell.NNLSStatus.CONVERGED
    # The smallest singular value of the three columns is 1e-2: rounding of b moves x by 1e-14, that of the
    # columns left out by the 1e-10 that SciPy has as well.
    np.testing.assert_allclose(result.x, truth, rtol=0, atol=1e-8)


@pytest.mark.parametrize("method", ["auto", "qr"])
@pytest.mark.parametrize("name", MATRICES)
def test_residuals_are_at_least_as_good_as_scipys(name, method):
    A, positive = MATRICES[name]
    noise = 10.0 ** np.random.default_rng(2).uniform(-16, -5, 200)
    noise[::2] = 0
    _, b = made_from(A, positive, 200, seed=3, noise=noise)
    result, peer = stepwell.nnls(A, b, method=method), scipys(A, b)
    assert (result.status == stepwell.NNLSStatus.CONVERGED).all()
    # x in doubles leaves a rounding of each a_j x_j in the residual: no answer can be held to less.
    floor = EPS * (np.linalg.norm(b, axis=1) + peer @ np.linalg.norm(A, axis=0))
    assert (long_residuals(A, result.x, b) <= 1.01 * long_residuals(A, peer, b) + floor).all()


def test_what_scipy_recovers_is_recovered():
    A = decays()
    x = np.zeros((300, 40))
    rng = np.random.default_rng(5)
    for row in x:
        row[rng.choice(np.arange(4, 36, 4), 3, replace=False)] = rng.random(3) + 0.2
    b = x @ A.T
    ours, peer = stepwell.nnls(A, b).x, scipys(A, b)
    found = np.abs(ours - x).max(axis=1) < 1e-6
    assert found.mean() >= (np.abs(peer - x).max(axis=1) < 1e-6).mean()


@pytest.mark.parametrize("start", [None, "solution"])
def test_hilbert(start):
    # cond(A) is 1.5e10: b's rounding moves x by up to 1e-6.
    A, truth = hilbert(8), np.ones(8)
    result = stepwell.nnls(A, A @ truth, warm_start=truth if start else None)
    assert np.abs(result.x - truth).max() < 1e10 * 4 * EPS * 8


def test_gram_is_within_ten_times_of_qr():
    A = decays()
    _, b = made_from(A, 3, 200, seed=7)
    gram, qr = (long_residuals(A, stepwell.nnls(A, b, method=method).x, b) for method in ("gram", "qr"))
    assert (gram <= 10 * qr + EPS * np.linalg.norm(b, axis=1)).all()


def test_damped_systems_are_those_with_rows_below():
    A, lam = decays(), 1e-9
    _, b = made_from(A, 3, 50, seed=9)
    stacked = np.vstack([A, lam * np.eye(40)])
    below = np.hstack([b, np.zeros((50, 40))])
    result = stepwell.nnls(A, b, lam=lam)
    ours, peer = (long_residuals(stacked, x, below) for x in (result.x, scipys(stacked, below)))
    floor = EPS * (np.linalg.norm(b, axis=1) + result.x @ np.linalg.norm(A, axis=0))
    assert (ours <= 1.01 * peer + floor).all()


def test_a_coarse_tol_is_all_that_is_asked():
    A = decays()
    _, b = made_from(A, 3, 20, seed=11)
    coarse, full = stepwell.nnls(A, b, tol=1e-6), stepwell.nnls(A, b)
    assert (coarse.violation <= 1e-6).all()
    assert coarse.solves.sum() < full.solves.sum()


def test_pulses_that_fit_exactly():
    rng = np.random.default_rng(13)
    pulse = np.exp(-0.5 * ((np.arange(25) - 12) / 4.0) ** 2)
    A = stepwell.Convolution(pulse, 120)
    dense = np.asarray(A @ np.eye(A.shape[1]))
    x = np.zeros((40, A.shape[1]))
    for row in x:
        row[rng.choice(np.arange(15, A.shape[1] - 15, 5), 4, replace=False)] = rng.random(4) + 0.2
    b = x @ dense.T
    result, peer = stepwell.nnls(A, b), scipys(dense, b)
    floor = EPS * (np.linalg.norm(b, axis=1) + peer @ np.linalg.norm(dense, axis=0))
    assert (long_residuals(dense, result.x, b) <= 1.01 * long_residuals(dense, peer, b) + floor).all()
