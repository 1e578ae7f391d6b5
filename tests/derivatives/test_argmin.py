"""Minimisers as functions of parameters and bounds, in PyTorch and in JAX."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import OptimizeWarning

import stepwell

random = np.random.default_rng(6)


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def jax():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    return jax


MATRIX = random.normal(size=(9, 6))


def smooth(x, b, A, log, cosh):
    """Least squares through log cosh: convex, and not quadratic."""
    r = A @ x - b
    return log(cosh(r)).sum() + 0.05 * (r * r).sum()


def test_parameters_and_bounds_in_torch(torch):
    """x is exact to rounding, so that differences with the usual step agree."""
    A = torch.tensor(MATRIX)

    def minimiser(b, lower, upper):
        return stepwell.argmin(
            lambda x, b: smooth(x, b, A, torch.log, torch.cosh),
            torch.zeros(6, dtype=torch.float64),
            b,
            bounds=(lower, upper),
        )

    b = torch.tensor(3 * random.normal(size=9), requires_grad=True)
    lower = torch.full((6,), -0.3, dtype=torch.float64, requires_grad=True)
    upper = torch.tensor([0.2, 0.3, np.inf, 0.3, 0.2, 0.25], dtype=torch.float64, requires_grad=True)
    x = minimiser(b, lower, upper).detach()
    assert (x == lower).any() or (x == upper).any()
    assert ((x > lower) & (x < upper)).any()
    finite = upper.detach().isfinite()

    def by_finite(b, lower, part):
        whole = torch.full((6,), torch.inf, dtype=torch.float64).masked_scatter(finite, part)
        return minimiser(b, lower, whole)

    part = upper.detach()[finite].requires_grad_()
    assert torch.autograd.gradcheck(by_finite, (b, lower, part), atol=1e-5)


def test_captured_tensors_get_their_gradients_in_torch(torch):
    """The minimiser of (x − 2 c)² + x⁴/10 in each variable: dx/dc = 4/(2 + 1.2 x²)."""
    c = torch.tensor([0.3, 2.0, -1.0], dtype=torch.float64, requires_grad=True)
    scaled = 2 * c
    x = stepwell.argmin(lambda x: ((x - scaled) ** 2).sum() + 0.1 * (x**4).sum(), torch.zeros(3, dtype=torch.float64))
    x.sum().backward()
    at = x.detach()
    torch.testing.assert_close(2 * (at - 2 * c.detach()) + 0.4 * at**3, torch.zeros_like(at), atol=1e-12, rtol=0)
    torch.testing.assert_close(c.grad, 4 / (2 + 1.2 * at**2), rtol=1e-9, atol=0)


def test_equal_bounds_give_their_derivative_to_the_lower_one(torch):
    lower = torch.tensor([0.5, -1.0], dtype=torch.float64, requires_grad=True)
    upper = torch.tensor([0.5, 3.0], dtype=torch.float64, requires_grad=True)
    start = torch.full((2,), 0.5, dtype=torch.float64)
    x = stepwell.argmin(lambda x: ((x - 1) ** 2).sum(), start, bounds=(lower, upper))
    x.sum().backward()
    assert lower.grad.tolist() == [1.0, 0.0]
    assert upper.grad is None or upper.grad.tolist() == [0.0, 0.0]


def test_points_that_are_no_minimisers_are_said(torch):
    zero = torch.zeros(2, dtype=torch.float64)
    c = torch.ones(2, dtype=torch.float64, requires_grad=True)

    def saddle(x, c):  # the gradient vanishes at zero, where the curvature has both signs
        return c[0] * x[0] ** 2 - c[1] * x[1] ** 2

    x = stepwell.argmin(saddle, zero, c)
    with pytest.warns(OptimizeWarning, match=r"argmin: .*x is no strict minimiser"):
        x[1].backward()
    with pytest.raises(RuntimeError, match=r"argmin: .*x is no strict minimiser"):
        stepwell.argmin(saddle, zero, c, on_failure="raise")[1].backward()
    with pytest.warns(OptimizeWarning, match=r"argmin: .*limit"):
        stepwell.argmin(lambda x, c: ((x - c) ** 4).sum(), zero + 3, c, options={"maxiter": 1})


def test_parameters_and_bounds_in_jax(jax):
    from jax.test_util import check_grads

    jnp = jax.numpy
    A = jnp.asarray(MATRIX)

    fun = jax.jit(lambda x, b: smooth(x, b, A, jnp.log, jnp.cosh))

    def minimiser(b, upper):
        return stepwell.argmin(fun, jnp.zeros(6), b, bounds=(-0.3, upper))

    b, upper = jnp.asarray(3 * random.normal(size=9)), jnp.full(6, 0.25)
    x = minimiser(b, upper)
    assert ((x == upper) | (x == -0.3)).any()
    assert ((x < upper) & (x > -0.3)).any()
    # Differences of a point that is right to 1e-9, with a step of 1e-4: 1e-5.
    check_grads(minimiser, (b, upper), order=1, modes=("rev",), atol=1e-3, rtol=1e-3, eps=1e-4)


def test_second_derivatives_in_jax(jax):
    """x = c/(1 + t) has derivatives in closed form."""
    jnp = jax.numpy

    fun = jax.jit(lambda x, t: ((x - 2.0) ** 2 + t * x**2).sum())

    def value(t):
        return stepwell.argmin(fun, jnp.zeros(1), t)[0]

    t = jnp.asarray(0.5)
    np.testing.assert_allclose(value(t), 2 / 1.5, rtol=1e-8)
    np.testing.assert_allclose(jax.grad(value)(t), -2 / 1.5**2, rtol=1e-7)
    np.testing.assert_allclose(jax.grad(jax.grad(value))(t), 4 / 1.5**3, rtol=1e-6)
    with pytest.raises(TypeError, match="outside of jit and vmap"):
        jax.jit(value)(t)


def test_arguments_are_checked():
    with pytest.raises(TypeError, match="x0 is a numpy array on cpu; allowed: a tensor of PyTorch or an array of JAX"):
        stepwell.argmin(lambda x: x.sum(), np.zeros(2))
    with pytest.raises(TypeError, match="fun is None"):
        stepwell.argmin(None, np.zeros(2))
    with pytest.raises(ValueError, match="on_failure is 'ignore'"):
        stepwell.argmin(lambda x: x.sum(), np.zeros(2), on_failure="ignore")


def test_where_all_are_at_bounds_parameters_get_zeros():
    torch = pytest.importorskip("torch")
    c = torch.tensor([5.0, 6.0], dtype=torch.float64, requires_grad=True)
    x = stepwell.argmin(lambda x: ((x - c) ** 2).sum(), torch.zeros(2, dtype=torch.float64), bounds=(0.0, 1.0))
    x.sum().backward()
    assert x.tolist() == [1.0, 1.0]
    assert c.grad.tolist() == [0.0, 0.0]
