"""Gradients of every origin: finite differences, callables, what is none."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qn_bowl import LOWER, REFERENCE, UPPER, N, slope, value

from stepwell import minimize, minimize_batch


@pytest.mark.parametrize("jac", [None, "3-point"])
def test_differences_keep_the_shape_of_x0(jac):
    centre = np.random.default_rng(5).normal(size=(6, 4))
    result = minimize(lambda x: ((x - centre) ** 2).sum(), np.zeros((6, 4)), jac=jac, bounds=(-2.0, 2.0))
    assert result.x.shape == (6, 4)
    assert np.abs(result.x - np.clip(centre, -2, 2)).max() < 1e-5


@pytest.mark.parametrize("jac", [None, False, "2-point", "3-point"])
def test_differences(jac):
    points = []

    def fun(x):
        points.append(np.array(x))
        return value(x)

    r = minimize(fun, np.zeros(N), jac=jac, bounds=(LOWER, UPPER), options=dict(gtol=1e-6))
    assert r.success
    assert r.nfev == len(points)
    # The error of a difference: sqrt(eps) forward, eps^(2/3) central, times second and third derivatives (below 100).
    accuracy = 100 * np.finfo(float).eps ** (2 / 3 if jac == "3-point" else 1 / 2)
    assert np.abs(r.jac - slope(r.x)).max() <= 10 * accuracy
    assert r.x == pytest.approx(REFERENCE.x, abs=1e-4)
    assert (np.array(points) >= LOWER).all()
    assert (np.array(points) <= UPPER).all()


@pytest.mark.parametrize("jac", ["2-point", "3-point"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 10**6))
def test_differences_stay_inside_to_the_last_bit(jac, dtype, seed):
    """Boxes narrower than the step, starts on and next to bounds, fixed variables."""
    rng = np.random.default_rng(seed)
    n = 5
    lower = rng.normal(size=n).astype(dtype)
    width = (10.0 ** rng.uniform(-12, 1, size=n) * (rng.random(n) < 0.8)).astype(dtype)
    upper = lower + width
    share = rng.choice([0.0, 1.0, 1e-9, 0.5, 1 - 1e-9], size=n).astype(dtype)
    x0 = np.clip(lower + share * width, lower, upper)
    points = []

    def fun(x):
        points.append(np.array(x))
        return float(((x - 0.3) ** 2).sum())

    minimize(fun, x0, jac=jac, bounds=(lower, upper), options=dict(maxiter=3))
    assert (np.array(points) >= lower).all()
    assert (np.array(points) <= upper).all()


def test_difference_step_is_the_caller_s():
    moves = []
    minimize(
        lambda x: (moves.append(float(x[0])), value(x))[1],
        np.zeros(N),
        options=dict(finite_diff_rel_step=1e-3, maxiter=0),
    )
    assert max(moves) == 1e-3


@pytest.mark.parametrize("jac", ["2-point", "3-point"])
@pytest.mark.parametrize("width", [np.float32, np.float16])
def test_differences_of_values_coarser_than_the_point(jac, width):
    """As of a JAX function in single precision of a NumPy point: with a step for doubles they would all be zero."""
    x0 = np.array([0.0, -0.5, 0.25])
    epsilon = float(np.finfo(width).eps)
    step = epsilon ** (1 / 3 if jac == "3-point" else 1 / 2)
    r = minimize(lambda x: width(((x - 1) ** 2).sum()), x0, jac=jac, options=dict(maxiter=0))
    # The second derivative is 2, the third 0; f < 6 nearby, and each value is rounded by half an ulp at most.
    assert np.abs(r.jac - 2 * (x0 - 1)).max() <= (step if jac == "2-point" else 0) + 6 * epsilon / step
    rows = minimize_batch(lambda x: ((x - 1) ** 2).sum(1).astype(width), x0[None], jac=jac, options=dict(maxiter=0))
    assert np.array_equal(rows.jac[0], r.jac)


def test_differences_where_f_is_infinite():
    r = minimize(lambda x: np.inf if x[0] > 0.5 else float(((x - 1) ** 2).sum()), np.zeros(2))
    assert r.x[0] <= 0.5
    batch = minimize_batch(
        lambda x: np.where(x[:, 0] > 0.5, np.inf, ((x - 1) ** 2).sum(1)), np.zeros((3, 2)), options=dict(maxiter=5)
    )
    assert (batch.fun < 2).all()


@pytest.mark.parametrize("jac", [None, "2-point", "3-point"])
def test_differences_of_a_batch(jac):
    centre = np.arange(6.0).reshape(2, 3)
    calls = []

    def fun(x):
        calls.append(x.shape)
        return ((x - centre) ** 2).sum(1)

    r = minimize_batch(fun, np.zeros((2, 3)), jac=jac, bounds=(0.0, 3.5))
    assert r.x == pytest.approx(np.clip(centre, 0, 3.5), abs=1e-4)
    assert set(calls) == {(2, 3)}


@pytest.mark.parametrize("jac", ["2-point", "3-point"])
@pytest.mark.parametrize("maxfun", [1, 20, 50, 15000])
def test_differences_of_a_batch_are_counted_and_limited_as_alone(jac, maxfun):
    centre = np.array([[1.0, 2.0, -1.0], [0.0, 0.1, 0.0], [30.0, -8.0, 5.0]])
    quartic = lambda x, c: ((x - c) ** 4 + (x - c) ** 2).sum(-1)  # noqa: E731
    batch = minimize_batch(quartic, np.zeros((3, 3)), (centre,), jac=jac, options={"maxfun": maxfun})
    for k, c in enumerate(centre):
        calls = []
        fun = lambda x, c, calls=calls: calls.append(1) or float(quartic(x, c))  # noqa: E731
        alone = minimize(fun, np.zeros(3), (c,), jac=jac, options={"maxfun": maxfun})
        assert np.array_equal(batch.x[k], alone.x)
        assert batch.nfev[k] == alone.nfev == len(calls)
        assert (batch.reason[k], batch.nit[k]) == (alone.reason, alone.nit)


def test_the_result_of_a_batch_can_be_pickled():
    centre = np.arange(6.0).reshape(2, 3)
    r = minimize_batch(lambda x: (((x - centre) ** 4).sum(1), 4 * (x - centre) ** 3), np.zeros((2, 3)), jac=True)
    again = pickle.loads(pickle.dumps(r))
    assert np.array_equal(again.x, r.x)
    assert again.reason == r.reason
    for k in range(2):
        assert np.array_equal(again.hess_inv(k).todense(), r.hess_inv(k).todense())


def test_jac_callable_of_a_batch_and_args():
    r = minimize_batch(lambda x, c: ((x - c) ** 2).sum(1), np.zeros((2, 3)), args=(1.5,), jac=lambda x, c: 2 * (x - c))
    assert r.x == pytest.approx(np.full((2, 3), 1.5))
    s = minimize(lambda x, c: ((x - c) ** 2).sum(), np.zeros(3), args=(1.5,), jac=lambda x, c: 2 * (x - c))
    assert s.x == pytest.approx(np.full(3, 1.5))
    assert s.nfev == s.njev


@pytest.mark.parametrize("jac", ["cs", "4-point", 3.5, [1]])
def test_jac_of_other_kinds_is_refused(jac):
    with pytest.raises((ValueError, TypeError), match="jac"):
        minimize(value, np.zeros(N), jac=jac)


def test_fun_must_be_callable():
    with pytest.raises(TypeError, match="fun"):
        minimize(3.0, np.zeros(2))
