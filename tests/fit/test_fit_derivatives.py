"""Derivatives of fitted parameters in data, sigma, x and bounds: against differences of whole fits."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_fits import Decays

import stepwell

P = Decays(3, seed=11)
#: Tight ends, so that differences of fits are good: x to about 1e-8 of its standard error.
TIGHT = dict(ftol=1e-20, gtol=1e-14)


def by_differences(fit, value, direction, step):
    return (fit(value + step * direction) - fit(value - step * direction)) / (2 * step)


def test_torch():
    torch = pytest.importorskip("torch")
    t = torch.from_numpy(P.t)

    def f(t, a1, a2, k1, k2):
        return a1 * torch.exp(-k1 * t) + a2 * torch.exp(-k2 * t)

    rng = np.random.default_rng(0)
    low, high = (torch.from_numpy(b.copy()) for b in P.bounds)
    low[0] = 0.7  # some fits end there
    values = dict(y=torch.from_numpy(P.y), sigma=torch.full((32,), 0.01, dtype=torch.float64), low=low)

    def fit(y, sigma, low):
        return stepwell.curve_fit(f, t, y, P.p0 + np.array([0.3, 0, 0, 0]), sigma, bounds=(low, high), **TIGHT)

    plain = fit(**values)
    assert (plain.active_mask[:, 0] == -1).any()
    assert (plain.active_mask[:, 0] == 0).any()
    for name, value in values.items():
        tracked = {**values, name: value.clone().requires_grad_()}
        r = fit(**tracked)
        assert torch.equal(r.x.detach(), plain.x)
        cotangent = torch.from_numpy(rng.standard_normal((3, 4)))
        direction = torch.from_numpy(rng.standard_normal(value.shape))
        (gradient,) = torch.autograd.grad((r.x * cotangent).sum(), tracked[name])
        moved = by_differences(lambda v, name=name: fit(**{**values, name: v}).x, value, direction, 1e-6)
        expected = float((moved * cotangent).sum())
        # Differences of steps of 1e-6 have errors of about 1e-5 of the derivative.
        assert float((gradient * direction).sum()) == pytest.approx(expected, rel=2e-4)


@pytest.mark.parametrize("loss", ["soft_l1", "huber", "cauchy", "arctan", "poisson"])
def test_torch_losses(loss):
    torch = pytest.importorskip("torch")
    t = torch.linspace(0, 3, 30, dtype=torch.float64)
    y = 20 * torch.exp(-t) + 3 + torch.from_numpy(np.random.default_rng(3).standard_normal(30)).abs()

    def f(t, a, k, c):
        return a * torch.exp(-k * t) + c

    def fit(y):
        return stepwell.curve_fit(f, t, y, [15.0, 1.2, 2.0], loss=loss, f_scale=0.7, **TIGHT)

    tracked = y.clone().requires_grad_()
    direction = torch.from_numpy(np.random.default_rng(4).standard_normal(30))
    (gradient,) = torch.autograd.grad(fit(tracked).x[1], tracked)
    moved = by_differences(lambda v: fit(v).x, y, direction, 1e-4)  # x itself is good to 1e-9
    assert float((gradient * direction).sum()) == pytest.approx(float(moved[1]), rel=1e-3)


def test_jax():
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def f(t, a1, a2, k1, k2):
        return a1 * jnp.exp(-k1 * t) + a2 * jnp.exp(-k2 * t)

    with jax.enable_x64(True):
        t, y = jnp.asarray(P.t), jnp.asarray(P.y)
        low, high = (jnp.asarray(b) for b in P.bounds)

        def fit(y):
            return stepwell.curve_fit(f, t, y, P.p0, bounds=(low, high), **TIGHT).x

        rng = np.random.default_rng(0)
        direction = jnp.asarray(rng.standard_normal(P.y.shape))
        x, forward = jax.jvp(fit, (y,), (direction,))
        assert np.array_equal(x, fit(y))
        moved = by_differences(fit, y, direction, 1e-6)
        np.testing.assert_allclose(forward, moved, rtol=2e-3, atol=2e-4 * float(jnp.abs(moved).max()))
        cotangent = jnp.asarray(rng.standard_normal((3, 4)))
        gradient = jax.grad(lambda y: (fit(y) * cotangent).sum())(y)
        assert float((gradient * direction).sum()) == pytest.approx(float((forward * cotangent).sum()), rel=1e-8)
        with pytest.raises(Exception, match="jit"):
            jax.jit(fit)(y)
