"""NNLS in JAX's programs: jit, vmap, grad, jvp and their combinations, in double and in single precision."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell

jax = pytest.importorskip("jax")
jnp = jax.numpy
random = np.random.default_rng(4)


@pytest.fixture
def double():
    jax.config.update("jax_enable_x64", True)


def drawn(a_shape, b_shape, lam=0.3):
    """Arrays of systems away from kinks."""
    for _ in range(100):
        A, b = random.normal(size=a_shape), random.normal(size=b_shape)
        result = stepwell.nnls(A, b, lam=lam)
        if np.where(result.x > 0, result.x, -result.dual).min() > 1e-2:
            return jnp.asarray(A), jnp.asarray(b), jnp.asarray(lam)
    raise AssertionError("no such systems")


def solution(A, b, lam=0.0):
    return stepwell.nnls(A, b, lam=lam).x


@pytest.mark.parametrize(
    ("a_shape", "b_shape", "order"), [((6, 4), (6,), 2), ((6, 4), (2, 6), 1), ((2, 6, 4), (2, 6), 1)]
)
def test_derivatives(double, a_shape, b_shape, order):
    """The tolerance is that of second differences in double precision, √√ε = 1e-4."""
    from jax.test_util import check_grads

    solved = jax.jit(solution)
    check_grads(solved, drawn(a_shape, b_shape), order=order, modes=("fwd", "rev"), atol=2e-4, rtol=2e-4)


def test_derivatives_of_a_pulse(double):
    from jax.test_util import check_grads

    for _ in range(100):
        pulse, b = np.abs(random.normal(size=3)), random.normal(size=(2, 6))
        result = stepwell.nnls(stepwell.Convolution(pulse, 6, origin=1), b, lam=0.4)
        if np.where(result.x > 0, result.x, -result.dual).min() > 1e-2:
            break

    def solved(pulse, b):
        return stepwell.nnls(stepwell.Convolution(pulse, 6, origin=1), b, lam=0.4).x

    given = jnp.asarray(pulse), jnp.asarray(b)
    check_grads(jax.jit(solved), given, order=1, modes=("fwd", "rev"), atol=1e-5, rtol=1e-5)


def test_compiled_and_mapped_it_is_the_direct_call(double):
    A, b, _ = drawn((8, 5), (6, 8), 0.0)
    direct = stepwell.nnls(np.asarray(A), np.asarray(b))
    np.testing.assert_array_equal(jax.jit(solution)(A, b), direct.x)
    np.testing.assert_array_equal(jax.jit(jax.vmap(lambda b: solution(A, b)))(b), direct.x)
    nested = jax.vmap(jax.vmap(lambda b: solution(A, b)))(b.reshape(2, 3, 8))
    np.testing.assert_array_equal(nested.reshape(6, 5), direct.x)
    np.testing.assert_array_equal(jax.jit(lambda b: stepwell.nnls(A, b, axis=1).x)(b.T), direct.x.T)
    warm = jax.jit(lambda b, x: stepwell.nnls(A, b, warm_start=x).x)(b, jnp.asarray(direct.x))
    np.testing.assert_allclose(warm, direct.x, atol=1e-12)


def test_the_whole_result_leaves_a_compiled_function(double):
    A, b, _ = drawn((8, 5), (6, 8), 0.0)
    result = jax.jit(stepwell.nnls)(A, b)
    direct = stepwell.nnls(np.asarray(A), np.asarray(b))
    for name in ("dual", "residual", "violation", "state", "insertions", "removals", "solves", "status", "escalated"):
        np.testing.assert_array_equal(getattr(result, name), getattr(direct, name))
    assert result.success.all()
    lone = jax.jit(stepwell.nnls)(A, b[0])
    assert lone.residual.shape == ()
    assert int(lone.status) == 0


@pytest.mark.parametrize(("axes", "batch"), [((0, None), True), ((0, 0), False), ((None, 0), True)])
def test_vmap_is_a_loop(double, axes, batch):
    A = jnp.asarray(random.normal(size=(3, 6, 4) if axes[0] == 0 else (6, 4)))
    b = jnp.asarray(random.normal(size=([3] if axes[1] == 0 else []) + ([2] if batch else []) + [6]))
    gradient = jax.jit(jax.grad(lambda A, b: (solution(A, b, 0.1) ** 2).sum(), argnums=(0, 1)))
    mapped, grads = jax.jit(jax.vmap(solution, axes))(A, b), jax.jit(jax.vmap(gradient, axes))(A, b)
    for k in range(3):
        one = A[k] if axes[0] == 0 else A, b[k] if axes[1] == 0 else b
        np.testing.assert_allclose(mapped[k], solution(*one), rtol=1e-12, atol=1e-13)
        for found, alone in zip(grads, gradient(*one)):
            np.testing.assert_allclose(found[k], alone, rtol=1e-10, atol=1e-12)


def test_a_shared_matrix_stays_shared_under_vmap(double, monkeypatch):
    from stepwell.derivatives import jax_handlers
    from stepwell.lsq import solving

    monkeypatch.setattr(jax_handlers, "registered", lambda: False)  # theirs is in test_jax_handlers.py
    seen = []
    usual = solving.solve_linear
    monkeypatch.setattr(
        solving, "solve_linear", lambda A, *rest, **options: seen.append(A.shape) or usual(A, *rest, **options)
    )
    A, b = jnp.asarray(random.normal(size=(6, 4))), jnp.asarray(random.normal(size=(5, 6)))
    jax.block_until_ready(jax.jit(jax.vmap(lambda b: solution(A, b)))(b))
    assert seen == [(6, 4)]


def test_jacobians_and_hessians(double):
    A, b, _ = drawn((8, 5), (8,), 0.0)
    J = jax.jit(jax.jacrev(lambda b: solution(A, b)))(b)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(lambda b: solution(A, b)))(b), J, rtol=1e-10, atol=1e-13)
    hessian = jax.jit(jax.hessian(lambda b: (solution(A, b) ** 2).sum()))(b)
    np.testing.assert_allclose(hessian, 2 * J.T @ J, rtol=1e-9, atol=1e-12)


def test_lam_alone_can_be_traced(double):
    A, b, lam = drawn((8, 5), (8,))
    own = jax.grad(lambda lam: solution(A, b, lam).sum())(lam)
    ends = [stepwell.nnls(np.asarray(A), np.asarray(b), lam=0.3 + h).x.sum() for h in (1e-5, -1e-5)]
    np.testing.assert_allclose(own, (ends[0] - ends[1]) / 2e-5, rtol=1e-6)


def test_single_precision_without_double():
    assert not jax.config.jax_enable_x64
    A, b = (jnp.asarray(random.normal(size=s), jnp.float32) for s in ((6, 4), (3, 6)))
    x = jax.jit(solution)(A, b)
    assert x.dtype == jnp.float32
    np.testing.assert_allclose(x, stepwell.nnls(np.asarray(A), np.asarray(b)).x, rtol=1e-6)
    own = jax.jit(jax.grad(lambda A, b: solution(A, b, 0.1).sum()))(A, b)
    assert own.dtype == jnp.float32
    double = np.asarray(A, float), np.asarray(b, float)
    change = random.normal(size=(6, 4))
    ends = [stepwell.nnls(double[0] + h * change, double[1], lam=0.1).x.sum() for h in (1e-5, -1e-5)]
    np.testing.assert_allclose((own * change).sum(), (ends[0] - ends[1]) / 2e-5, rtol=1e-3, atol=1e-4)


def test_systems_that_are_not_finite_are_a_status(double):
    A, b = random.normal(size=(5, 3)), random.normal(size=(3, 5))
    b[1, 0] = np.nan
    result = jax.jit(stepwell.nnls)(jnp.asarray(A), jnp.asarray(b))
    assert result.status.tolist() == [0, 4, 0]
    grads = jax.jit(jax.vmap(jax.grad(lambda b: solution(jnp.asarray(A), b).sum())))(jnp.asarray(b))
    assert np.isnan(grads[1]).all()
    assert np.isfinite(grads[jnp.array([0, 2])]).all()
    assert int(jax.jit(stepwell.nnls)(jnp.asarray(A), jnp.asarray(b[1])).status) == 4
    assert jax.jit(stepwell.nnls)(jnp.asarray(A).at[0, 0].set(jnp.inf), jnp.asarray(b)).status.tolist() == [4, 4, 4]


def test_errors_come_while_tracing(double):
    A, b = jnp.ones((5, 3)), jnp.ones(5)
    for call, said in (
        (lambda A, b: stepwell.nnls(A, b[:4]), r"b has shape \(4,\); allowed: 5 entries"),
        (lambda A, b: stepwell.nnls(A[0], b), r"A has shape \(3,\)"),
        (lambda A, b: stepwell.nnls(A, b, progress=print), "progress is"),
        (lambda A, b: stepwell.nnls(A, b, warm_start="chains"), "warm_start is 'chains'"),
        (lambda A, b: stepwell.nnls(A, b, lam=-1.0), "lam is -1.0"),
    ):
        with pytest.raises(ValueError, match=said):
            jax.jit(call)(A, b)
