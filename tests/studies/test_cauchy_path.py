"""The NumPy Cauchy point against a dense model evaluated on a fine grid and segment by segment."""

from __future__ import annotations

import numpy as np
import pytest

from stepwell.lab.studies.cauchy_path import cauchy_times, compact_form


def dense(s, y):
    """B by the recursive BFGS formula from θI (Nocedal & Wright, eq. 6.19)."""
    b = np.eye(s.shape[1]) * (y[-1] @ y[-1]) / (s[-1] @ y[-1])
    for step, change in zip(s, y):
        bs = b @ step
        b = b - np.outer(bs, bs) / (step @ bs) + np.outer(change, change) / (change @ step)
    return b


def draw(seed, n=12, pairs=3, spread=1.0):
    rng = np.random.default_rng(seed)
    hessian = rng.normal(size=(n, n))
    hessian = hessian @ hessian.T + 0.1 * np.eye(n)
    s = rng.normal(size=(pairs, n))
    lower, upper = -spread * rng.random(n), spread * rng.random(n)
    x = np.clip(rng.normal(size=n) * spread, lower, upper)
    return x, 3 * rng.normal(size=n), lower, upper, s, s @ hessian


def model_along_path(t, x, g, lower, upper, b):
    z = np.clip(x - t * g, lower, upper) - x
    return g @ z + 0.5 * z @ b @ z


@pytest.mark.parametrize("seed", range(5))
def test_compact_form_is_the_recursive_one(seed):
    *_, s, y = draw(seed)
    theta, m = compact_form(s, y)
    w = np.concatenate([y, theta * s]).T
    b = theta * np.eye(s.shape[1]) - w @ m @ w.T
    np.testing.assert_allclose(b, dense(s, y), rtol=1e-8, atol=1e-8 * np.abs(b).max())


@pytest.mark.parametrize("spread", [0.01, 0.3, 3.0])
@pytest.mark.parametrize("seed", range(20))
def test_first_local_minimiser_of_the_model(seed, spread):
    x, g, lower, upper, s, y = draw(seed, spread=spread)
    b = dense(s, y)
    found = cauchy_times(x, g, lower, upper, s, y)
    step = 1e-6 * max(found.exact, 1e-12)
    value = model_along_path(found.exact, x, g, lower, upper, b)
    around = [model_along_path(found.exact + k * step, x, g, lower, upper, b) for k in (-1, 1)]
    assert min(around) >= value - 1e-12 * abs(value)
    # The first one: the model falls all the way there.
    grid = np.array([model_along_path(t, x, g, lower, upper, b) for t in np.linspace(0, found.exact, 400)])
    assert (np.diff(grid) <= 1e-12 * np.abs(grid).max()).all()
    # t^c is t* where that lies in the first interval, else the first breakpoint.
    with np.errstate(divide="ignore"):
        t = np.where(g < 0, (x - upper) / g, (x - lower) / g)
    end = t[t > 0].min()
    assert found.first == pytest.approx(found.exact if found.crossed == 0 else end, rel=1e-12)
    assert found.crossed == np.count_nonzero((t > 0) & (t <= found.exact * (1 + 1e-12)))
    assert found.difference == pytest.approx(abs(found.first - found.exact) / found.exact)


def test_everything_meets_its_bound():
    n = 6
    s = np.eye(n)[:2]
    found = cauchy_times(np.zeros(n), np.full(n, -1.0), np.full(n, -1.0), 1e-6 * np.arange(1, n + 1), s, s)
    assert found.exact == pytest.approx(6e-6)
    assert found.first == pytest.approx(1e-6)
    assert found.crossed == n


def test_many_breakpoints_are_crossed_in_chunks():
    """Ten thousand ties and steps, beyond one chunk: against the same path with a dense diagonal model."""
    n = 10_000
    rng = np.random.default_rng(1)
    g = -1 - rng.random(n)
    upper = 0.5 * rng.integers(1, 200, n) / 200
    s = rng.normal(size=(1, n))
    found = cauchy_times(np.zeros(n), g, np.full(n, -9.0), upper, s, s.copy())  # s = y: B is the identity
    # With B = I the slope at t is −Σ g²(1 − t) over the moving: its root is t = 1, or the last breakpoint before.
    last = (upper / -g).max()
    assert found.exact == pytest.approx(min(1.0, last), rel=1e-9)
