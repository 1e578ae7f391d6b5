"""``tikhonov`` and ``cg`` in JAX's programs."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell

jax = pytest.importorskip("jax")
jnp = jax.numpy
random = np.random.default_rng(3)


@pytest.fixture
def double():
    jax.config.update("jax_enable_x64", True)


def draw(*shape):
    return jnp.asarray(random.normal(size=shape))


def solution(A, B, lam, L=None, **options):
    return stepwell.tikhonov(A, B, lam, L, tol=1e-12, **options).x


def oracle(A, B, lam, L=None):
    """The normal equations, differentiated by JAX itself."""
    penalty = jnp.eye(A.shape[1]) if L is None else L.T @ L
    return jnp.linalg.solve(A.T @ A + lam**2 * penalty, A.T @ B)


def test_derivatives_of_two_orders_are_those_of_the_normal_equations(double):
    A, B, lam, L = draw(7, 4), draw(7, 2), jnp.asarray(0.6), draw(3, 4)
    weights = draw(4, 2)

    def loss(solve):
        return lambda A, B, lam, L: (weights * solve(A, B, lam, L) ** 2).sum()

    every = (0, 1, 2, 3)
    own, wanted = (jax.jit(jax.grad(loss(f), argnums=every))(A, B, lam, L) for f in (solution, oracle))
    for one, other in zip(own, wanted):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)
    second, wanted = (jax.jit(jax.hessian(loss(f), argnums=2))(A, B, lam, L) for f in (solution, oracle))
    np.testing.assert_allclose(second, wanted, rtol=1e-7)
    dots = (draw(7, 4), draw(7, 2), jnp.asarray(0.3), draw(3, 4))
    tangents = [jax.jit(lambda *a, f=f: jax.jvp(f, a[:4], a[4:])[1])(A, B, lam, L, *dots) for f in (solution, oracle)]
    np.testing.assert_allclose(*tangents, rtol=1e-8, atol=1e-9)


def test_maps_vectors_rows_and_a_lam_a_column(double):
    A, blocks, lams = draw(7, 4), draw(3, 7, 2), jnp.asarray([0.3, 0.8])
    mapped = jax.jit(jax.vmap(lambda B: solution(A, B, lams)))(blocks)
    for k in range(3):
        for c in range(2):
            np.testing.assert_allclose(mapped[k, :, c], oracle(A, blocks[k, :, c], lams[c]), rtol=1e-9)
    over = jax.jit(jax.vmap(jax.grad(lambda lam: solution(A, blocks[0], lam).sum())))(lams)
    for k in range(2):
        np.testing.assert_allclose(over[k], jax.grad(lambda lam: oracle(A, blocks[0], lam).sum())(lams[k]), rtol=1e-8)
    vector = jax.jit(lambda b: solution(A, b, 0.5))(blocks[0, :, 0])
    np.testing.assert_allclose(vector, oracle(A, blocks[0, :, 0], 0.5), rtol=1e-9)
    across = jax.jit(lambda B: solution(A, B, 0.5, axis=0))(blocks[0].T)
    np.testing.assert_allclose(across.T, oracle(A, blocks[0], 0.5), rtol=1e-9)


def test_cg(double):
    M, B = draw(4, 4), draw(4, 2)

    def loss(solve):
        return lambda M, B: (solve(M @ M.T + jnp.eye(4), B) ** 2).sum()

    ways = (lambda H, B: stepwell.cg(H, B, tol=1e-12).x, jnp.linalg.solve)
    own, wanted = (jax.jit(jax.grad(loss(f), argnums=(0, 1)))(M, B) for f in ways)
    for one, other in zip(own, wanted):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)


def test_single_precision_without_double():
    assert not jax.config.jax_enable_x64
    A, B = draw(7, 4), draw(7, 2)
    own = jax.jit(jax.grad(lambda A: stepwell.tikhonov(A, B, 0.5).x.sum()))(A)
    assert own.dtype == jnp.float32
    np.testing.assert_allclose(own, jax.grad(lambda A: oracle(A, B, 0.5).sum())(A), rtol=1e-3, atol=1e-4)


def test_errors_come_while_tracing(double):
    A, B = jnp.ones((5, 3)), jnp.ones((5, 2))
    for call, said in (
        (lambda A, B: stepwell.tikhonov(A, B, "gcv"), "lam is 'gcv'; allowed: numbers where arrays are traced"),
        (lambda A, B: stepwell.tikhonov(A, B[:4], 1.0), "allowed: 5 rows"),
        (lambda A, B: stepwell.tikhonov((lambda x: A @ x, lambda y: A.T @ y), B, 1.0), "a dense matrix where arrays"),
        (lambda A, B: stepwell.tikhonov(A, B, 1.0, callback=print), "callback is"),
    ):
        with pytest.raises(ValueError, match=said):
            jax.jit(call)(A, B)
