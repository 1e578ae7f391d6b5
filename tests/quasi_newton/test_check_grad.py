"""`check_grad`: right gradients pass on every kind of array; wrong ones are named; noise is told from error.

The oracles are functions whose derivatives are known by calculus.
"""

import numpy as np
import pytest
import scipy.optimize

import stepwell
from stepwell import check_grad

START = np.array([0.3, -1.2, 2.5, 0.01, 40.0])


def waves(x):
    return float(np.sum(np.sin(x) * np.exp(-x / 50) + x**2)), np.cos(x) * np.exp(-x / 50) - np.sin(x) * np.exp(
        -x / 50
    ) / 50 + 2 * x


def altered(alter):
    def fun(x):
        f, g = waves(x)
        return f, alter(g)

    return fun


def at(index, change):
    def alter(g):
        g = g.copy()
        g[index] = change(g[index])
        return g

    return alter


def test_a_right_gradient():
    check = check_grad(waves, START)
    assert check
    assert check.verdict == "right"
    # Rounding errors of f divided by the step eps^(1/3), relative to the smallest slope, which is about 1.
    assert check.max_relative_error < waves(START)[0] * np.finfo(float).eps ** (2 / 3)
    assert check.factor == pytest.approx(1, rel=1e-6)
    assert repr(check).startswith("<GradientCheck right: ")
    assert "\n" not in repr(check)


def test_gradients_apart_arguments_and_shapes():
    def fun(x, power, shift):
        assert x.shape == (2, 3)
        return np.sum(x**power) + shift

    def jac(x, power, shift):
        return power * x ** (power - 1)

    x = np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 4.0]])
    assert check_grad(fun, x, (3, 10.0), jac)
    assert not check_grad(fun, x, (3, 10.0), lambda x, *args: 2 * x)


@pytest.mark.parametrize("n", [5, 200])
def test_what_is_wrong_is_said(n):
    x = np.resize(START, n)
    sign = check_grad(altered(lambda g: -g), x)
    assert (sign.verdict, sign.message) == ("wrong", "the gradient has the wrong sign")
    assert sign.factor == pytest.approx(-1)
    scale = check_grad(altered(lambda g: 0.5 * g), x)
    assert (scale.verdict, scale.message) == ("wrong", "differences are 2 times the gradient in every direction")
    none = check_grad(altered(np.zeros_like), x)
    assert (none.verdict, none.message) == ("wrong", "the gradient is zero, the differences are not")


def test_a_component_is_named():
    check = check_grad(altered(at(2, lambda value: 1.01 * value)), START)
    assert check.verdict == "wrong"
    assert check.index == (2,)
    assert "at index 2" in check.message
    assert check.max_relative_error == pytest.approx(0.01 / 1.01, rel=1e-3)
    square = check_grad(
        lambda x: (float((x**2).sum()), 2 * x * np.array([[1, 1], [1, 3]])), np.array([[1.0, 2.0], [3.0, 4.0]])
    )
    assert square.index == (1, 1)
    assert "(1, 1)" in square.message


def test_a_component_among_many_is_seen_by_random_directions():
    x = np.resize(START, 500)
    check = check_grad(altered(at(17, lambda value: value + 10.0)), x)
    assert check.verdict == "wrong"
    assert check.index is None
    assert check.direction.shape == x.shape


@pytest.mark.parametrize("noise", [1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize("seed", range(5))
def test_noise_is_not_taken_for_a_wrong_gradient(noise, seed):
    rng = np.random.default_rng(seed)

    def fun(x):
        f, g = waves(x)
        return f + noise * rng.standard_normal(), g

    assert check_grad(fun, START, seed=seed).verdict != "wrong"


@pytest.mark.parametrize("noise", [1e-9, 1e-6])
def test_a_wrong_gradient_is_seen_through_noise(noise):
    rng = np.random.default_rng(0)

    def fun(x):
        f, g = waves(x)
        return f + noise * rng.standard_normal(), -g

    assert check_grad(fun, START).verdict == "wrong"


def test_what_differences_cannot_tell():
    jumps = check_grad(lambda x: (float(np.sum(np.abs(np.round(x * 1e9)))), np.ones(3)), np.full(3, 1e-10))
    assert jumps.verdict != "right"
    edge = check_grad(lambda x: (float(np.sum(np.log(x))) if (x > 0).all() else np.nan, 1 / x), np.full(2, 1e-12))
    assert (edge.verdict, edge.message) == ("unclear", "f is not finite beside x0")
    nowhere = check_grad(lambda x: (np.nan, x), np.ones(2))
    assert nowhere.verdict == "unclear"
    assert "not finite at x0" in nowhere.message


def test_at_a_minimum_both_are_zero():
    assert check_grad(lambda x: (float(x @ x), 2 * x), np.zeros(4))


def test_float32_and_other_libraries():
    def single(x):
        assert x.dtype == np.float32
        return np.sum(x**3), 3 * x**2

    assert check_grad(single, START.astype(np.float32))
    assert check_grad(lambda x: (np.sum(x**3), -3 * x**2), START.astype(np.float32)).factor == pytest.approx(-1, 1e-2)


def test_torch():
    torch = pytest.importorskip("torch")

    def fun(x):
        assert isinstance(x, torch.Tensor)
        return (x**4).sum(), 4 * x**3

    for dtype in (torch.float64, torch.float32):
        x = torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=dtype)
        assert check_grad(fun, x)
        assert check_grad(lambda x: (x**4).sum(), x, jac=lambda x: x**3).factor == pytest.approx(4, rel=1e-2)


def test_jax():
    jax = pytest.importorskip("jax")
    x = jax.numpy.array([1.0, -2.0, 0.5])
    assert check_grad(lambda x: jax.numpy.sum(x**4), x, jac=jax.grad(lambda x: jax.numpy.sum(x**4)))
    assert not check_grad(lambda x: (jax.numpy.sum(x**4), x**3), x)


def test_agrees_with_scipy_on_rosenbrocks_function():
    rng = np.random.default_rng(3)
    for n in (2, 10, 100):
        x = rng.standard_normal(n)
        check = check_grad(scipy.optimize.rosen, x, jac=scipy.optimize.rosen_der)
        assert check
        assert scipy.optimize.check_grad(scipy.optimize.rosen, scipy.optimize.rosen_der, x) < 1e-2
        assert check.evaluations >= 4 * 6


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="jac is None; allowed: a callable, or True"):
        check_grad(waves, START, jac=None)
    with pytest.raises(TypeError, match="must return a pair"):
        check_grad(lambda x: 1.0, START)
    with pytest.raises(ValueError, match="directions is 0"):
        check_grad(waves, START, directions=0)
    with pytest.raises(ValueError, match="gradient has shape"):
        check_grad(lambda x: (1.0, np.ones(3)), START)
    with pytest.raises(ValueError, match="x0"):
        check_grad(waves, np.array([1.0, np.nan]))
    assert "check_grad" in dir(stepwell)
