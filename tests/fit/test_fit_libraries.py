"""Models of PyTorch and JAX: forward mode, running rows, functions of one problem; results are of the same library."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_fits import Decays, decay

import stepwell

P = Decays(12, seed=3)


@pytest.fixture(scope="module")
def plain():
    return stepwell.curve_fit(decay, P.t, P.y, P.p0, bounds=P.bounds, jac="cs")


def near(r, plain, tolerance=1e-3):
    """Within so many standard errors of the same minimum."""
    apart = np.asarray(r.x, float) - plain.x
    return np.abs(apart / plain.stderr).max() < tolerance


def test_torch(plain):
    torch = pytest.importorskip("torch")

    def f(t, a1, a2, k1, k2):
        return a1 * torch.exp(-k1 * t) + a2 * torch.exp(-k2 * t)

    t, y = torch.from_numpy(P.t), torch.from_numpy(P.y)
    r = stepwell.curve_fit(f, t, y, P.p0, bounds=P.bounds)
    assert isinstance(r.x, torch.Tensor)
    assert r.x.dtype == torch.float64
    assert bool(r.success.all())
    assert near(r, plain)
    np.testing.assert_allclose(r.pcov.numpy(), plain.pcov, rtol=1e-4, atol=1e-9)
    alone = stepwell.curve_fit(f, t, y[5], P.p0, bounds=P.bounds)
    assert np.abs((alone.x.numpy() - plain.x[5]) / plain.stderr[5]).max() < 1e-3
    single = stepwell.curve_fit(f, t.float(), y.float(), P.p0, bounds=P.bounds)
    assert single.x.dtype == torch.float32
    assert near(single, plain, 3e-2)


def test_torch_residuals_and_rows(plain):
    torch = pytest.importorskip("torch")
    t, y = torch.from_numpy(P.t), torch.from_numpy(P.y)

    def fun(p, rows):
        return p[:, :1] * torch.exp(-p[:, 2:3] * t) + p[:, 1:2] * torch.exp(-p[:, 3:] * t) - y[rows]

    x0 = torch.from_numpy(np.tile(P.p0, (12, 1)))
    assert near(stepwell.least_squares(fun, x0, bounds=P.bounds), plain)


def test_torch_function_of_one_problem(plain):
    torch = pytest.importorskip("torch")

    def f(t, p):
        return torch.exp(-t[:, None] * p[2:]) @ p[:2]

    r = stepwell.curve_fit(f, torch.from_numpy(P.t), torch.from_numpy(P.y), P.p0, bounds=P.bounds)
    assert near(r, plain)


@pytest.mark.parametrize("jit", [False, True])
def test_jax(plain, jit):
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def f(t, a1, a2, k1, k2):
        return a1 * jnp.exp(-k1 * t) + a2 * jnp.exp(-k2 * t)

    with jax.enable_x64(True):
        t, y = jnp.asarray(P.t), jnp.asarray(P.y)
        r = stepwell.curve_fit(jax.jit(f) if jit else f, t, y, P.p0, bounds=P.bounds)
        assert isinstance(r.x, jax.Array)
        assert bool(r.success.all())
        assert near(r, plain)
        if jit:  # the data are NumPy's, the function JAX's
            assert near(stepwell.curve_fit(jax.jit(f), P.t, P.y, P.p0, bounds=P.bounds), plain)


def test_jax_function_of_one_problem(plain):
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def f(t, a1, a2, k1, k2):
        return jnp.stack([a1, a2]) @ jnp.exp(-jnp.stack([k1, k2])[:, None] * t)

    with jax.enable_x64(True):
        r = stepwell.curve_fit(f, jnp.asarray(P.t), jnp.asarray(P.y), P.p0, bounds=P.bounds)
        assert near(r, plain)


def test_jax_in_single_precision(plain):
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def f(t, a1, a2, k1, k2):
        return a1 * jnp.exp(-k1 * t) + a2 * jnp.exp(-k2 * t)

    r = stepwell.curve_fit(f, jnp.asarray(P.t, jnp.float32), jnp.asarray(P.y, jnp.float32), P.p0, bounds=P.bounds)
    assert r.x.dtype == jnp.float32
    assert near(r, plain, 3e-2)
