"""Batches whose objective takes rows: only problems that still run are evaluated, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell

PROBLEMS, SIZE = 40, 6
_RNG = np.random.default_rng(0)
CENTRES = _RNG.normal(size=(PROBLEMS, SIZE))
#: Conditions of the problems differ, so that they end at different times.
WEIGHTS = np.exp(_RNG.uniform(0, 6, size=(PROBLEMS, SIZE)) * np.linspace(0, 1, PROBLEMS)[:, None])
START = np.zeros((PROBLEMS, SIZE))
BOUNDS = (-0.8, 0.9)


def value(x, c, w):
    return ((x - c) ** 2 * w).sum(1) + 0.1 * ((x - c) ** 4).sum(1)


def gradient(x, c, w):
    return 2 * (x - c) * w + 0.4 * (x - c) ** 3


class Rows:
    """An objective that keeps what it was asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, x, rows):
        self.asked.append(np.array(rows))
        c, w = CENTRES[rows], WEIGHTS[rows]
        return value(x, c, w), gradient(x, c, w)


def everything(x):
    return value(x, CENTRES, WEIGHTS), gradient(x, CENTRES, WEIGHTS)


@pytest.mark.parametrize("bounds", [None, BOUNDS])
def test_rows_evaluated_are_the_sum_of_evaluations(bounds):
    fun = Rows()
    result = stepwell.minimize_batch(fun, START, jac=True, bounds=bounds)
    whole = stepwell.minimize_batch(everything, START, jac=True, bounds=bounds)
    assert result.success.all()
    assert len(set(result.nfev)) > 3  # they do end at different times
    for name in ("x", "fun", "jac", "nit", "nfev", "status"):
        np.testing.assert_array_equal(getattr(result, name), getattr(whole, name))
    asked = np.concatenate(fun.asked)
    np.testing.assert_array_equal(np.bincount(asked, minlength=PROBLEMS), result.nfev)
    assert result.rows_evaluated == len(asked) == result.nfev.sum()
    assert whole.rows_evaluated == whole.evaluations * PROBLEMS > result.rows_evaluated


def test_a_separate_gradient_takes_rows_too():
    result = stepwell.minimize_batch(
        lambda x, rows: value(x, CENTRES[rows], WEIGHTS[rows]),
        START,
        jac=lambda x, rows: gradient(x, CENTRES[rows], WEIGHTS[rows]),
    )
    np.testing.assert_array_equal(result.x, stepwell.minimize_batch(everything, START, jac=True).x)


def test_further_arguments_come_after_the_rows():
    def fun(x, rows, scale):
        return scale * value(x, CENTRES[rows], WEIGHTS[rows]), scale * gradient(x, CENTRES[rows], WEIGHTS[rows])

    result = stepwell.minimize_batch(fun, START, args=(1.0,), jac=True)
    np.testing.assert_array_equal(result.x, stepwell.minimize_batch(everything, START, jac=True).x)


@pytest.mark.parametrize("options", [{}, {"threads": 3}, {"zero_copy": True}])
def test_many_rows_are_points_of_their_own(options):
    copies = 60  # enough that an array of points is worth keeping for the next
    centres, weights = np.tile(CENTRES, (copies, 1)), np.tile(WEIGHTS, (copies, 1))
    kept = []

    def fun(x, rows):
        found = value(x, centres[rows], weights[rows]), gradient(x, centres[rows], weights[rows])
        if "zero_copy" not in options:
            if len(kept) % 3:
                x[...] = np.nan  # its own, to do with as it likes
            kept.append((x, x.copy()))
        return found

    start = np.zeros((copies * PROBLEMS, SIZE))
    result = stepwell.minimize_batch(fun, start, jac=True, bounds=BOUNDS, options=options)
    alone = stepwell.minimize_batch(everything, START, jac=True, bounds=BOUNDS)
    for name in ("x", "fun", "nfev"):
        one = getattr(alone, name)
        np.testing.assert_array_equal(getattr(result, name), np.tile(one, (copies,) + (1,) * (one.ndim - 1)))
    assert result.rows_evaluated == result.nfev.sum()
    for x, as_it_was in kept:
        np.testing.assert_array_equal(x, as_it_was)


def test_a_diagonal_that_changes():
    options = {"h0": lambda x: 1 / (2 * WEIGHTS + 1.2 * (x - CENTRES) ** 2)}
    result = stepwell.minimize_batch(Rows(), START, jac=True, bounds=BOUNDS, options=options)
    whole = stepwell.minimize_batch(everything, START, jac=True, bounds=BOUNDS, options=options)
    assert len(set(result.nfev)) > 3
    np.testing.assert_array_equal(result.x, whole.x)
    assert result.rows_evaluated == result.nfev.sum()


def test_a_stop_while_some_have_ended():
    def stop(intermediate_result):
        if intermediate_result.running.sum() < PROBLEMS // 2:
            raise StopIteration

    result = stepwell.minimize_batch(Rows(), START, jac=True, callback=stop)
    whole = stepwell.minimize_batch(everything, START, jac=True)
    ended = result.success
    assert 0 < ended.sum() < PROBLEMS
    np.testing.assert_array_equal(result.x[ended], whole.x[ended])


def test_rows_that_may_be_left_out():
    seen = []

    def fun(x, rows=None):
        assert rows is not None
        seen.append(len(rows))
        return value(x, CENTRES[rows], WEIGHTS[rows]), gradient(x, CENTRES[rows], WEIGHTS[rows])

    result = stepwell.minimize_batch(fun, START, jac=True)
    np.testing.assert_array_equal(result.x, stepwell.minimize_batch(everything, START, jac=True).x)
    assert sum(seen) == result.nfev.sum()


@pytest.mark.parametrize("default", [1.0, None])
def test_another_argument_with_a_default_is_no_place_for_rows(default):
    def fun(x, scale=default):
        assert scale is default
        return everything(x)

    assert stepwell.minimize_batch(fun, START, jac=True).success.all()


@pytest.mark.parametrize("per_problem", [False, True])
def test_differences_of_the_rows_stay_inside_their_bounds(per_problem):
    lower, upper = np.full(START.shape, BOUNDS[0]), np.full(START.shape, BOUNDS[1])
    upper[:, 0] = np.linspace(0.1, 0.9, PROBLEMS)
    bounds = (lower, upper) if per_problem else BOUNDS
    limits = upper if per_problem else np.full_like(upper, BOUNDS[1])

    def fun(x, rows):
        assert (x <= limits[rows]).all()
        assert (x >= BOUNDS[0]).all()
        return value(x, CENTRES[rows], WEIGHTS[rows])

    result = stepwell.minimize_batch(fun, START, bounds=bounds)
    whole = stepwell.minimize_batch(lambda x: value(x, CENTRES, WEIGHTS), START, bounds=bounds)
    np.testing.assert_array_equal(result.x, whole.x)
    np.testing.assert_array_equal(result.nfev, whole.nfev)
    assert result.rows_evaluated == result.nfev.sum()


@pytest.mark.parametrize("graph", [False, True])
def test_torch(graph):
    torch = pytest.importorskip("torch")
    centres, weights = torch.as_tensor(CENTRES), torch.as_tensor(WEIGHTS)
    seen = []

    def fun(x, rows):
        seen.append(len(rows))
        f = value(x, centres[rows], weights[rows])
        return f if graph else (f, gradient(x, centres[rows], weights[rows]))

    result = stepwell.minimize_batch(fun, torch.zeros(START.shape, dtype=torch.float64), jac=None if graph else True)
    np.testing.assert_allclose(result.x.numpy(), stepwell.minimize_batch(everything, START, jac=True).x, atol=1e-5)
    assert result.rows_evaluated == result.nfev.sum()
    assert min(seen) < max(seen) == PROBLEMS


def test_jax_has_few_shapes():
    jax = pytest.importorskip("jax")
    shapes = set()
    with jax.enable_x64(True):
        centres, weights = jax.numpy.asarray(CENTRES), jax.numpy.asarray(WEIGHTS)

        @jax.jit
        def both(x, c, w):
            return value(x, c, w), gradient(x, c, w)

        def fun(x, rows):
            shapes.add(x.shape[0])
            return both(x, centres[rows], weights[rows])

        result = stepwell.minimize_batch(fun, jax.numpy.zeros(START.shape), jac=True)
    np.testing.assert_allclose(np.asarray(result.x), stepwell.minimize_batch(everything, START, jac=True).x, atol=1e-5)
    assert result.nfev.sum() <= result.rows_evaluated <= 1.3 * result.nfev.sum()
    # Each step leaves at most four of five rows.
    assert len(shapes) <= 1 + np.log(PROBLEMS) / np.log(1.25)


@pytest.mark.cuda
@pytest.mark.parametrize("graph", ["auto", True, False])
def test_on_a_device_rows_leave_in_steps(graph):
    torch = pytest.importorskip("torch")
    many = 50  # copies of the problems, so that turns are many
    centres = torch.as_tensor(np.tile(CENTRES, (many, 1)), device="cuda")
    weights = torch.as_tensor(np.tile(WEIGHTS, (many, 1)), device="cuda")

    def fun(x, rows):
        c, w = centres[rows], weights[rows]
        return value(x, c, w), gradient(x, c, w)

    def whole(x):
        return value(x, centres, weights), gradient(x, centres, weights)

    start = torch.zeros(centres.shape, dtype=torch.float64, device="cuda")
    result = stepwell.minimize_batch(fun, start, jac=True, bounds=BOUNDS, options={"graph": graph})
    expected = stepwell.minimize_batch(whole, start, jac=True, bounds=BOUNDS, options={"graph": graph})
    assert bool((result.x == expected.x).all())
    np.testing.assert_array_equal(result.nfev, expected.nfev)
    # How far the host runs ahead of the device is a matter of time; where it looks at every turn, it is not.
    watched = stepwell.minimize_batch(
        fun, start, jac=True, bounds=BOUNDS, options={"graph": graph}, callback=lambda intermediate_result: None
    )
    assert bool((watched.x == expected.x).all())
    assert watched.nfev.sum() <= watched.rows_evaluated <= 1.3 * watched.nfev.sum()
