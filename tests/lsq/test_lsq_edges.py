"""Edges of constrained least squares: answers against closed forms, statuses beside their own certificates, ends."""

import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import stepwell
from stepwell.lsq.result import NNLSStatus

EPSILON = np.finfo(float).eps


def random_system(seed, m, n):
    random = np.random.default_rng(seed)
    return random.normal(size=(m, n)), random.normal(size=m)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("b", [0.0, 1e-30])
def test_nothing_to_fit_within_bounds_that_are_not_zero(seed, b):
    A, _ = random_system(seed, 20, 4)
    right = np.full(20, b)
    x = np.linalg.lstsq(A, right, rcond=None)[0]
    for given in ({}, {"maxiter": 5}, {"lam": 0.0, "method": "qr"}):
        result = stepwell.lsq_linear(A, right, bounds=(-0.1, 0.2), **given)
        assert result.status == NNLSStatus.CONVERGED
        np.testing.assert_allclose(result.x, x, atol=1e-13 * b)


def test_one_dark_pixel_does_not_hold_up_a_batch():
    random = np.random.default_rng(0)
    A, b = random.normal(size=(100, 50, 4)), random.normal(size=(100, 50))
    b[17] = 0
    result = stepwell.lsq_linear(A, b, bounds=(-0.05, 1.05))
    assert np.all(result.status == NNLSStatus.CONVERGED)
    np.testing.assert_array_equal(result.x[17], 0)


@pytest.mark.parametrize("size", [1e9, 1e15, 1e17, 1e20, 1e100, 1e300])
@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e6])
@pytest.mark.parametrize("lam", [0.0, 1e-3])
def test_bounds_that_are_far_away_do_not_count(size, scale, lam):
    A, b = random_system(3, 9, 3)
    x = scale * np.linalg.solve(A.T @ A + lam**2 * np.eye(3), A.T @ b)
    room = 64 * EPSILON * np.linalg.cond(A) ** 2 * np.abs(x).max()
    for bounds in ((-size, size), (-np.inf, size), (-size, np.inf)):
        for given in ((A, scale * b), (np.stack([A, A]), scale * np.stack([b, b]))):  # the general and the small solver
            result = stepwell.lsq_linear(*given, bounds=bounds, lam=lam)
            np.testing.assert_allclose(np.atleast_2d(result.x)[0], x, rtol=0, atol=room)
            assert np.all(result.status == NNLSStatus.CONVERGED)


def test_far_bounds_count_where_they_are_met():
    # The first column is so small that x would be 1e25; the second has a bound as far away, which it does not meet.
    A, b = np.array([[1e-25, 0.0], [0.0, 1.0]]), np.array([1.0, 3.0])
    result = stepwell.lsq_linear(A, b, bounds=(-1e20, 1e20))
    assert result.status == NNLSStatus.CONVERGED
    np.testing.assert_array_equal(result.x, [1e20, 3.0])
    np.testing.assert_array_equal(result.state, [1, 0])


@pytest.mark.parametrize("seed", range(60))
def test_discrepancy_reaches_its_level_where_it_can_be_reached(seed):
    random = np.random.default_rng(seed)
    m, n = int(random.integers(3, 30)), int(random.integers(2, 20))
    A = random.normal(size=(m, n))
    b = A @ random.normal(size=n) + 0.1 * random.normal(size=m)
    result = stepwell.lsq_linear(A, b, lam="discrepancy", noise=0.1)
    gradient = A.T @ (A @ result.x - b) + result.lam**2 * result.x
    assert np.abs(gradient).max() <= 1e-9 * np.linalg.norm(A, 2) * np.linalg.norm(b)
    least, level = np.linalg.norm(A @ np.linalg.lstsq(A, b, rcond=None)[0] - b) ** 2, 0.01 * m
    if least < level < np.linalg.norm(b) ** 2:
        assert np.linalg.norm(A @ result.x - b) ** 2 == pytest.approx(level, abs=1e-4 * (level - least))
        assert result.lam_at_end == 0
    else:
        assert result.lam_at_end != 0


def test_free_columns_that_depend_without_a_penalty_take_part_with_one():
    A, b = np.array([[1.0, -1.0], [1.0, -1.0]]), np.array([4.3, 4.33])
    result = stepwell.lsq_linear(A, b, lam="chi2")
    x = np.linalg.solve(A.T @ A + result.lam**2 * np.eye(2), A.T @ b)
    np.testing.assert_allclose(result.x, x, rtol=1e-9)


def test_lambda_lets_columns_leave_the_bounds_they_are_at():
    A, b = np.array([[2.0]]), np.array([20.0])
    result = stepwell.lsq_linear(A, b, bounds=(0.0, 0.7), lam="chi2")
    assert (2 * result.x[0] - 20) ** 2 == pytest.approx(1.02 * 18.6**2, rel=1e-6)


@pytest.mark.parametrize("s", [1e-100, 1e-155, 1e-160, 1e-200, 1e-300])
def test_penalties_beside_columns_that_are_nearly_nothing(s):
    result = stepwell.nnls(np.array([[1.0, s]]), np.array([1.0]), lam=1.0, L=np.array([[1.0, -1.0]]))
    np.testing.assert_allclose(result.x, [1.0, 1.0], rtol=1e-12)
    assert result.status == NNLSStatus.CONVERGED


@pytest.mark.parametrize(("lam", "size"), [(1e159, 1e159), (1e-159, 1e-159), (3e100, 1.0)])
def test_a_lambda_whose_square_is_no_number_is_the_one_that_is_used(lam, size):
    result = stepwell.lsq_linear(np.array([[size]]), np.array([2.0]), lam=lam)
    assert result.lam == lam
    assert result.x[0] == pytest.approx(2.0 / size / (1 + (lam / size) ** 2), rel=1e-12)
    assert result.seminorm == pytest.approx(result.x[0], rel=1e-12)


@pytest.mark.parametrize("sums", [(0.5, 1.0), (1.0, 1.0), (-np.inf, 1.0)])
def test_a_sum_is_kept_beside_a_right_hand_side_far_beyond_it(sums):
    A, b = np.array([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]]), np.array([1e40, 2e40])
    result = stepwell.lsq_linear(A, b, bounds=(0, np.inf), sum_bounds=sums)
    assert result.status == NNLSStatus.CONVERGED
    assert np.sum(result.x) == pytest.approx(1.0, abs=4 * EPSILON)
    assert result.x[1] == 0  # the others lower the residual as much as each other, and more


def test_no_system_is_converged_beside_a_violation_that_is_seen():
    """Columns that depend on each other to many digits, in both precisions."""
    random = np.random.default_rng(1)
    for dtype, credible in ((np.float64, 1e-7), (np.float32, 1e-4)):
        base = random.normal(size=(200, 12, 1)) * np.ones(8)
        A = (base + 1e-13 * random.normal(size=(200, 12, 8))).astype(dtype)
        b = random.normal(size=(200, 12)).astype(dtype)
        for result in (stepwell.nnls(A, b), stepwell.lsq_linear(A, b, (-1e12, 1e12))):
            assert np.all(result.violation[result.status == NNLSStatus.CONVERGED] <= credible)


def test_columns_that_change_nothing_are_zero_where_they_may_be():
    A, b = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([1.0, 1.0])
    for bounds, x in (((-1e20, 1e20), [1.0, 0.0]), (([0.0, 2.0], [5.0, 9.0]), [1.0, 2.0])):
        np.testing.assert_allclose(stepwell.lsq_linear(A, b, bounds=bounds).x, x, rtol=4 * EPSILON)


def test_a_search_for_lambda_that_meets_maxiter_says_so():
    result = stepwell.nnls(np.array([[0.2], [0.8]]), np.array([0.43, 1.2]), lam="chi2", maxiter=2)
    assert result.status == NNLSStatus.LIMIT


def test_ctrl_c_ends_one_large_system():
    program = """
        import numpy as np, stepwell
        random = np.random.default_rng(0)
        A = random.normal(size=(3000, 2500)) + 3 * random.normal(size=(3000, 1))
        print("begins", flush=True)
        while True:
            stepwell.lsq_linear(A, random.normal(size=3000), bounds=(-1e-3, 1e-3), threads=1)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "begins\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
