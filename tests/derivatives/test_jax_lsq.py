"""Least squares within bounds in JAX's programs: jit, vmap, grad, jvp and their combinations."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell

jax = pytest.importorskip("jax")
jnp = jax.numpy
random = np.random.default_rng(14)
LOWER, UPPER = np.full(4, -0.21), np.array([0.4, 0.3, 0.5, 0.45])
lsq, gram = stepwell.lsq_linear, stepwell.lsq_gram


@pytest.fixture
def double():
    jax.config.update("jax_enable_x64", True)


def array(*shape):
    return jnp.asarray(random.normal(size=shape))


CASES = {
    "bounds": (lambda A, b, u: lsq(A, b, (LOWER, u)), lambda: (array(6, 4), array(6), jnp.asarray(UPPER)), 2),
    "penalty and weights": (
        lambda A, b, lam, L, w: lsq(A, b, (LOWER, UPPER), lam=lam, L=L, weights=w),
        lambda: (array(6, 4), array(2, 6), jnp.asarray(0.3), array(3, 4), abs(array(6)) + 0.1),
        1,
    ),
    "a sum": (
        lambda A, b, s: lsq(A, b, (LOWER, UPPER), sum_bounds=(s, s), lam=0.1),
        lambda: (array(6, 4), array(6), jnp.asarray(0.3)),
        1,
    ),
    "equalities": (
        lambda A, b, d: lsq(A, b, (-2, 2), equality=(np.array([[1.0, -1, 0.5, 0]]), d)),
        lambda: (array(6, 4), array(6), array(1)),
        1,
    ),
    "normal equations": (
        lambda S, c, lam: gram(S.T @ S, c, (LOWER, UPPER), lam=lam),
        lambda: (array(6, 4), array(2, 4), jnp.asarray([0.3, 0.5])),
        1,
    ),
    "nnls": (lambda A, b, w: stepwell.nnls(A, b, weights=w), lambda: (array(6, 4), array(2, 6), abs(array(6))), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_derivatives(double, name):
    """The tolerance is that of second differences in double precision, √√ε = 1e-4."""
    from jax.test_util import check_grads

    solve, make, order = CASES[name]
    for _ in range(200):
        given = make()
        result = solve(*map(np.asarray, given))
        held = result.x == 0 if name == "nnls" else abs(result.state) == 1
        if (abs(result.dual[held]) > 2e-2).all():
            break
    check_grads(jax.jit(lambda *a: solve(*a).x), given, order=order, modes=("fwd", "rev"), atol=2e-4, rtol=2e-4)


def solution(A, b, total=0.3):
    return lsq(A, b, (LOWER, UPPER), sum_bounds=(-0.1, total), lam=0.1).x


def test_jit_and_vmap_give_the_solution(double):
    A, b = array(6, 4), array(4, 6)
    direct = lsq(np.asarray(A), np.asarray(b), (LOWER, UPPER), sum_bounds=(-0.1, 0.3), lam=0.1)
    np.testing.assert_array_equal(jax.jit(solution)(A, b), direct.x)
    np.testing.assert_array_equal(jax.jit(jax.vmap(lambda b: solution(A, b)))(b), direct.x)
    image = jax.jit(lambda b: lsq(A, b, (LOWER, UPPER), sum_bounds=(-0.1, 0.3), lam=0.1))(b.reshape(2, 2, 6))
    np.testing.assert_array_equal(image.x.reshape(4, 4), direct.x)
    for name in ("dual", "state", "residual", "status", "multipliers"):
        np.testing.assert_array_equal(getattr(image, name).reshape(getattr(direct, name).shape), getattr(direct, name))
    gradient = jax.grad(lambda A, b, s: (solution(A, b, s) ** 2).sum(), argnums=(0, 1, 2))
    totals = jnp.asarray([0.3, 0.2, 0.1, 0.25])
    mapped, alone = jax.jit(jax.vmap(gradient, (None, 0, 0)))(A, b, totals), jax.jit(gradient)
    for k in range(4):
        for found, one in zip(mapped, alone(A, b[k], totals[k])):
            np.testing.assert_allclose(found[k], one, rtol=1e-9, atol=1e-11)
    chosen = jax.jit(lambda b: lsq(A, b, (0, 1), lam="chi2"))(b)
    np.testing.assert_array_equal(chosen.lam, lsq(np.asarray(A), np.asarray(b), (0, 1), lam="chi2").lam)


def test_single_precision_without_double():
    assert not jax.config.jax_enable_x64
    A, b = (jnp.asarray(random.normal(size=s), jnp.float32) for s in ((6, 4), (3, 6)))
    x, own = jax.jit(solution)(A, b), jax.jit(jax.grad(lambda A: solution(A, b).sum()))(A)
    assert x.dtype == own.dtype == jnp.float32
    want = lsq(np.asarray(A), np.asarray(b), (LOWER, UPPER), sum_bounds=(-0.1, 0.3), lam=0.1).x
    np.testing.assert_allclose(x, want, rtol=1e-5, atol=1e-6)


def test_systems_that_are_not_finite_are_a_status(double):
    b = random.normal(size=(3, 6))
    b[1, 0] = np.nan
    A = array(6, 4)
    assert jax.jit(lambda b: lsq(A, b, (0, 1)).status)(jnp.asarray(b)).tolist() == [0, 4, 0]
    grads = jax.jit(jax.vmap(jax.grad(lambda b: solution(A, b).sum())))(jnp.asarray(b))
    assert np.isnan(grads[1]).all()
    assert np.isfinite(grads[jnp.array([0, 2])]).all()


def test_errors_come_while_tracing(double):
    A, b = jnp.ones((5, 3)), jnp.ones(5)
    for call, said in (
        (lambda A, b: lsq(A, b[:4], (0, 1)), r"b has shape \(4,\)"),
        (lambda A, b: lsq(A, b, (0, jnp.ones(2))), r"bounds has shape \(2,\)"),
        (lambda A, b: lsq(A, b, (0, 1), progress=print), "progress is"),
        (lambda A, b: lsq(A, b, (0, 1), warm_start="chains"), "warm_start is 'chains'"),
    ):
        with pytest.raises(ValueError, match=said):
            jax.jit(call)(A, b)
