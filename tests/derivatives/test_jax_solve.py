"""The solve that programs of JAX make themselves on a GPU, here on the host: against the one of the host."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell
from stepwell.derivatives.normal_equations import solve_free, solve_free_with_rows

jax = pytest.importorskip("jax")

from stepwell.derivatives import jax_calls, jax_handlers, jax_solve  # noqa: E402

random = np.random.default_rng(17)


@pytest.fixture(autouse=True)
def double():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.mark.parametrize("gram", [False, True])
@pytest.mark.parametrize("leads", [((), (), ()), ((1,), (4,), (4,)), ((4,), (4,), (4,)), ((1, 1), (1, 4), (3, 4))])
def test_solves_are_those_of_the_host(leads, gram):
    """Both by factors of well-conditioned columns: equal to rounding times a condition of some tens."""
    A = random.normal(size=(*leads[0], 9, 6))
    A = np.swapaxes(A, -1, -2) @ A if gram else A
    free, g = (random.random((*leads[1], 6)) < 0.6).astype(float), random.normal(size=(*leads[2], 6))
    lam = np.full(leads[0], 0.2)
    found = jax.jit(lambda *given: jax_solve.solve_free(*given, gram=gram))(A, free, lam, g)
    np.testing.assert_allclose(found, solve_free(A, free, lam, g, gram=gram), rtol=1e-9, atol=1e-11)


def test_rows_that_bind_and_systems_without_a_solution():
    A, g, C, t = (random.normal(size=shape) for shape in ((9, 6), (6,), (1, 6), (1,)))
    free, lam = np.array([1.0, 1, 0, 1, 1, 0]), np.asarray(0.1)
    found = solve_free_with_rows(*map(jax.numpy.asarray, (A, free, lam, g, C, t)), None, solve=jax_solve.solve_free)
    np.testing.assert_allclose(found, solve_free_with_rows(A, free, lam, g, C, t, None), rtol=1e-9, atol=1e-11)
    assert np.isnan(jax_solve.solve_free(A, jax.numpy.full(6, np.nan), lam, g)).all()


@pytest.mark.parametrize(
    "solve",
    [
        lambda A, b: stepwell.nnls(A, b, lam=0.1).x,
        lambda A, b: stepwell.lsq_linear(A, b, (-0.1, 0.3), sum_bounds=(0.2, 0.2)).x,
        lambda A, b: stepwell.lsq_gram(A.T @ A, b @ A, (-0.1, 0.3)).x,
    ],
)
def test_gradients_by_such_solves(monkeypatch, solve):
    A, B = random.normal(size=(9, 6)), random.normal(size=(3, 9))
    weights = jax.numpy.arange(1.0, 7.0)
    monkeypatch.setattr(jax_handlers, "registered", lambda: False)
    slopes = []
    for there in (False, True):
        monkeypatch.setattr(jax_calls, "on_gpu", lambda own, other, *given, t=there: (own if t else other)(*given))
        slope = jax.grad(lambda A, b: (weights * solve(A, b)).sum(), (0, 1))
        slopes.append(jax.jit(jax.vmap(slope, (None, 0)))(A, B))
    for own, other in zip(*slopes):
        np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-11)
