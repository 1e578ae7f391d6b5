"""Bounds: SciPy's BVLS, the optimality conditions, and identities."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from lsq_cases import KINDS, bounded_problem, breach

import stepwell
from stepwell import NNLSStatus


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["auto", "qr", "gram"])
def test_against_bvls_and_the_optimality_conditions(kind, method):
    rng = np.random.default_rng([7, KINDS.index(kind)])
    for _ in range(40):
        A, b, lower, upper = bounded_problem(kind, rng)
        r = stepwell.lsq_linear(A, b, (lower, upper), method=method)
        assert r.status == NNLSStatus.CONVERGED
        worst, outside = breach(A, b, r.x, lower, upper)
        assert outside == 0
        assert worst < 1e-11
        assert r.violation < 1e-11
        assert r.residual == pytest.approx(np.linalg.norm(b - A @ r.x), rel=1e-9, abs=1e-12 * (1 + np.linalg.norm(b)))
        if (lower == upper).any():
            continue  # which SciPy refuses
        other = scipy.optimize.lsq_linear(A, b, (lower, upper), method="bvls", tol=1e-15, max_iter=2000).x
        size = np.linalg.norm(b) + np.linalg.norm(A, axis=0) @ np.abs(other)
        assert np.linalg.norm(A @ r.x - b) <= np.linalg.norm(A @ np.clip(other, lower, upper) - b) + 1e-11 * size


def test_bounds_are_returned_as_they_are():
    A, b = np.eye(3), np.array([5.0, -5.0, 0.2])
    lower, upper = np.array([0.1, 0.1, 0.1]), np.array([0.3, 0.3, 0.3])
    r = stepwell.lsq_linear(A, b, (lower, upper))
    assert r.x.tolist() == [0.3, 0.1, 0.2]
    assert r.state.tolist() == [1, -1, 0]
    assert r.state.dtype == np.int8


def test_fixed_variables_are_constants():
    rng = np.random.default_rng(1)
    A, b, value = rng.standard_normal((12, 4)), rng.standard_normal(12), 0.7
    r = stepwell.lsq_linear(A, b, ([value, 0, 0, 0], [value, np.inf, np.inf, np.inf]))
    rest = stepwell.nnls(A[:, 1:], b - value * A[:, 0])
    assert r.state[0] == 2
    np.testing.assert_allclose(r.x, np.r_[value, rest.x], atol=1e-13)


@pytest.mark.parametrize("shared", [True, False])
def test_identities(shared):
    rng = np.random.default_rng(3)
    A = rng.standard_normal((14, 6) if shared else (20, 14, 6))
    b, each = rng.standard_normal((20, 14)), rng.standard_normal(6)
    lower, upper = -np.abs(rng.standard_normal(6)), np.abs(rng.standard_normal(6))
    inf = np.inf
    r = stepwell.lsq_linear(A, b, (lower, upper))

    def close(x, y):
        np.testing.assert_allclose(x, y, atol=1e-12)

    close(stepwell.lsq_linear(A, b, (0, inf)).x, stepwell.nnls(A, b).x)
    free = stepwell.lsq_linear(A, b).x
    close(free, [np.linalg.lstsq(A if shared else A[s], b[s], rcond=None)[0] for s in range(20)])
    shifted = stepwell.lsq_linear(A, b + (A @ each), (lower + each, upper + each))
    close(shifted.x - each, r.x)
    close(-stepwell.lsq_linear(-A, b, (-upper, -lower)).x, r.x)
    order = rng.permutation(6)
    close(stepwell.lsq_linear(A[..., order], b, (lower[order], upper[order])).x, r.x[:, order])
    # A free column is two that are not negative.
    half = np.r_[np.zeros(4), -inf, -inf]
    doubled = stepwell.nnls(np.concatenate([A, -A[..., 4:]], axis=-1), b).x
    close(stepwell.lsq_linear(A, b, (half, inf)).x, doubled[:, :6] - np.c_[np.zeros((20, 4)), doubled[:, 6:]])


def test_masks_and_weights_are_submatrices():
    rng = np.random.default_rng(5)
    A, b = rng.standard_normal((15, 7)), rng.standard_normal((30, 15))
    mask, weights = rng.random((30, 7)) < 0.6, rng.random((30, 15)) * (rng.random((30, 15)) < 0.8)
    b[weights == 0] = np.nan  # rows of weight zero are absent
    many = stepwell.lsq_linear(A, b, (-0.2, 0.4), mask=mask, weights=weights)
    own = stepwell.lsq_linear(np.broadcast_to(A, (30, 15, 7)), b, (-0.2, 0.4), mask=mask, weights=weights)
    for s in range(30):
        kept = weights[s] > 0
        W = weights[s, kept, None]
        expected = np.zeros(7)
        expected[mask[s]] = stepwell.lsq_linear(W * A[kept][:, mask[s]], W[:, 0] * b[s, kept], (-0.2, 0.4)).x
        np.testing.assert_allclose(many.x[s], expected, atol=1e-12)
        np.testing.assert_allclose(own.x[s], expected, atol=1e-12)
    assert (many.state[~mask] == 2).all()


def test_a_bound_that_is_crossed_is_infeasible():
    r = stepwell.lsq_linear(np.eye(2), np.ones((2, 2)), (np.array([[0, 0], [2.0, 0]]), 1))
    assert r.status.tolist() == [NNLSStatus.CONVERGED, NNLSStatus.INFEASIBLE]
    assert np.isnan(r.x[1]).all()


def test_a_random_box():
    rng = np.random.RandomState(159)
    A = rng.normal(size=(20, 10))
    b = rng.normal(size=20)
    lower = rng.uniform(-1, 0, 10)
    upper = rng.uniform(0, 1, 10)
    r = stepwell.lsq_linear(A, b, (lower, upper))
    assert breach(A, b, r.x, lower, upper)[0] < 1e-14
