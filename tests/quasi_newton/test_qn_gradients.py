"""Gradients of every origin: finite differences, callables, what is none."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from qn_bowl import LOWER, REFERENCE, UPPER, N, slope, value
from scipy.optimize import minimize as scipy_minimize

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


def moves_of(x0, jac=None, **options):
    """Return what `minimize` adds to each variable for its first gradient."""
    points = []

    def fun(x):
        points.append(np.array(x))
        return float(((x - 1) ** 2).sum())

    minimize(fun, x0, jac=jac, options=dict(maxiter=0, **options))
    return np.array(points[1 : len(x0) + 1]) - x0


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_steps_are_scipys(dtype):
    """Relative to abs(x) with the sign of x, or as given; the default where x + step is x."""
    x0 = np.array([2.0, -4.0, 0.0, 2.0**30], dtype)
    epsilon = float(np.finfo(dtype).eps)
    best = np.sqrt(epsilon) * np.array([2.0, -4.0, 1.0, 2.0**30])
    for options, steps in [
        ({}, best),
        ({"finite_diff_rel_step": 2.0**-9}, [2.0**-8, -(2.0**-7), best[2], 2.0**21]),
        ({"finite_diff_rel_step": np.array([2.0**-9, 2.0**-8, 1, 1e-30])}, [2.0**-8, -(2.0**-6), *best[2:]]),
        ({"eps": 2.0**-9}, [2.0**-9] * 3 + [2.0**-9 if dtype is np.float64 else best[3]]),
        ({"eps": np.array([2.0**-9, -(2.0**-9), 2.0**-5, 1e-9])}, [2.0**-9, -(2.0**-9), 2.0**-5, best[3]]),
    ]:
        moved = moves_of(x0, **options)
        rounding = epsilon * (np.abs(x0) + np.abs(steps))  # of x + step and of the step
        assert (np.abs(np.diag(moved) - steps) <= rounding).all()
        assert (moved - np.diag(np.diag(moved)) == 0).all()


def test_where_both_steps_are_given_a_named_scheme_takes_the_relative_one():
    both = {"eps": 2.0**-9, "finite_diff_rel_step": 2.0**-5}
    assert np.diag(moves_of(np.array([2.0, 1.0]), **both)).tolist() == [2.0**-9] * 2
    assert np.diag(moves_of(np.array([2.0, 1.0]), "2-point", **both)).tolist() == [2.0**-4, 2.0**-5]


def test_complex_steps():
    """Without the error of cancellation: the truncation, step^2 times a third derivative, and rounding alone."""
    x0 = np.array([0.3, -0.7, 2.0])
    analytic = lambda x: (np.sin(x) * np.exp(x)).sum()  # noqa: E731
    exact = np.exp(x0) * (np.sin(x0) + np.cos(x0))
    r = minimize(analytic, x0, jac="cs", options=dict(maxiter=0))
    assert r.nfev == 4
    # Third derivative 2 exp(x) (cos(x) - sin(x)), below 21; the step is sqrt(eps) max(1, abs(x)).
    bound = np.finfo(float).eps * (21 / 6 * np.maximum(1, x0**2) + 4 * np.abs(exact).max())
    assert (np.abs(r.jac - exact) <= bound).all()
    rows = minimize_batch(lambda x: (np.sin(x) * np.exp(x)).sum(1), x0[None], jac="cs", options=dict(maxiter=0))
    assert np.abs(rows.jac[0] - exact).max() <= bound.max()
    many = np.linspace(-1, 1, 9000)
    free = np.where(
        np.arange(many.size) < 3, many - 1, many
    )  # points of this size are used again, those of complex numbers apart
    r = minimize(lambda x: (x * x).sum(), many, jac="cs", bounds=(free, many), options={"maxiter": 0})
    assert np.abs(r.jac[:3] - 2 * many[:3]).max() <= 1e-15


def shifted(x, c):
    return float(((x - c) ** 2).sum())


@pytest.mark.parametrize("jac", [None, "3-point", "cs"])
def test_what_was_not_differenced_is_not_a_number(jac):
    """As SciPy has it, of variables with equal bounds; a gradient that was given is left as it is."""
    bounds, x0 = [(0.0, 5.0), (1.0, 1.0), (0.0, 2.0)], np.ones(3)

    def fun(x):
        return ((x - 3) ** 2).sum(-1)

    r = minimize(fun, x0, jac=jac, bounds=bounds)
    expected = scipy_minimize(fun, x0, jac=jac, bounds=bounds, method="L-BFGS-B")
    assert np.array_equal(np.isnan(r.jac), np.isnan(expected.jac))
    np.testing.assert_allclose(r.jac, [0, np.nan, -2], atol=1e-4)
    assert r.success
    lower, upper = np.array([[0, 1, 0], [0, 0, 1.0]]), np.array([[5, 1, 2], [5, 5, 1.0]])
    batch = minimize_batch(fun, np.ones((2, 3)), jac=jac, bounds=(lower, upper))
    assert np.array_equal(np.isnan(batch.jac), lower == upper)
    given = minimize(fun, x0, jac=lambda x: 2 * (x - 3), bounds=bounds)
    np.testing.assert_allclose(given.jac, [0, -4, -2], atol=1e-4)


def test_differences_of_workers():
    seen = []

    def with_care(fun, points):
        points = list(points)
        seen.append(len({id(point) for point in points}))
        return [fun(point) for point in points]

    alone = minimize(shifted, np.zeros((2, 2)), (1.5,), jac="3-point")
    for workers in (with_care, map, 1):
        r = minimize(shifted, np.zeros((2, 2)), (1.5,), jac="3-point", options={"workers": workers})
        assert np.array_equal(r.x, alone.x)
        assert (r.nfev, r.njev) == (alone.nfev, alone.njev)
    assert seen == [8] * alone.njev
    with pytest.raises(ValueError, match="workers is 0; allowed"):
        minimize(shifted, np.zeros(2), (1.5,), options={"workers": 0})


def test_differences_of_processes():
    """In a program of its own: processes that have started threads, as of JAX, had better not be forked."""
    program = (
        "import numpy as np, stepwell, multiprocessing\n"
        "from scipy.optimize import rosen\n"
        "if __name__ == '__main__':\n"
        "    alone = stepwell.minimize(rosen, np.zeros(3))\n"
        "    for solve in (stepwell.minimize, lambda *args, options: stepwell.scipy_method(*args, **options)):\n"
        "        r = solve(rosen, np.zeros(3), options={'workers': 2})\n"
        "        assert np.allclose(r.x, alone.x, atol=1e-4)\n"
        "        assert not multiprocessing.active_children()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("given", [{"jac": "cs"}, {"jac": "2-point", "options": {"workers": map}}])
def test_complex_steps_and_workers_take_numpy_points(given):
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="where x0 is no NumPy array"):
        minimize(lambda x: (x * x).sum(), torch.ones(2), **given)


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


@pytest.mark.parametrize("jac", ["2-point", "3-point"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_differences_of_a_batch_have_the_bits_of_each_problem_alone(jac, dtype):
    x0 = np.random.default_rng(1).uniform(-2, 0.8, size=(3, 7)).astype(dtype)
    quartic = lambda x: ((x - 0.3) ** 4 + x * x).sum(-1, dtype=float)  # noqa: E731
    batch = minimize_batch(quartic, x0, jac=jac, bounds=(-2.0, 0.8))
    for k in range(3):
        alone = minimize(lambda x: float(quartic(x)), x0[k], jac=jac, bounds=(-2.0, 0.8))
        assert np.array_equal(batch.x[k], alone.x)
        assert np.array_equal(batch.jac[k], alone.jac)


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


@pytest.mark.parametrize("jac", ["4-point", 3.5, [1]])
def test_jac_of_other_kinds_is_refused(jac):
    with pytest.raises((ValueError, TypeError), match="jac"):
        minimize(value, np.zeros(N), jac=jac)


def test_fun_must_be_callable():
    with pytest.raises(TypeError, match="fun"):
        minimize(3.0, np.zeros(2))
