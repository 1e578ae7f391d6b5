"""What holds of fits whatever the data: order, weights, one call or two of the model, precision that is stated."""

from __future__ import annotations

import numpy as np
import pytest
from simulated_fits import Decays, Spots, decay

import stepwell
from stepwell.fit import evaluation

T = np.linspace(0, 4, 60)


def bend(t, a, k, c):
    return a * np.exp(-k * t) + c


def jacobian(t, a, k, c):
    return np.stack([np.exp(-k * t), -a * t * np.exp(-k * t), np.ones_like(np.broadcast_to(t, np.shape(k * t)))], -1)


@pytest.fixture(scope="module")
def y():
    return bend(T, 2.5, 1.3, 0.5) + 0.05 * np.random.default_rng(2).standard_normal(60)


def test_order_of_parameters_and_of_points(y):
    """Sums in another order round otherwise: ends that differ by far less than a standard error."""
    r = stepwell.curve_fit(bend, T, y, [1, 1, 1], jac=jacobian)
    turned = stepwell.curve_fit(
        lambda t, c, k, a: bend(t, a, k, c), T, y, [1, 1, 1], jac=lambda t, c, k, a: jacobian(t, a, k, c)[..., ::-1]
    )
    np.testing.assert_allclose(turned.x[::-1], r.x, atol=1e-4 * r.stderr.min())
    np.testing.assert_allclose(turned.pcov[::-1, ::-1], r.pcov, rtol=1e-5)
    mixed = np.random.default_rng(0).permutation(60)
    other = stepwell.curve_fit(bend, T[mixed], y[mixed], [1, 1, 1], jac=jacobian)
    np.testing.assert_allclose(other.x, r.x, atol=1e-4 * r.stderr.min())


def test_a_weight_of_two_is_the_point_four_times(y):
    """1/sigma² counts points."""
    sigma = np.where(np.arange(60) % 3 == 0, 0.5, 1.0)
    weighed = stepwell.curve_fit(bend, T, y, [1, 1, 1], sigma=sigma, absolute_sigma=True, jac=jacobian)
    times = np.where(sigma < 1, 4, 1)
    often = stepwell.curve_fit(
        bend, np.repeat(T, times), np.repeat(y, times), [1, 1, 1], sigma=1.0, absolute_sigma=True, jac=jacobian
    )
    np.testing.assert_allclose(weighed.x, often.x, atol=1e-4 * often.stderr.min())
    np.testing.assert_allclose(weighed.pcov, often.pcov, rtol=1e-5)
    assert weighed.cost == pytest.approx(often.cost, rel=1e-9)


@pytest.mark.parametrize("how", [{}, {"bounds": (0, 1.2)}, {"fixed": ["k"]}, {"loss": "huber"}])
def test_values_ahead_are_those_of_two_calls(y, how, monkeypatch):
    """One fit asks for values at a point and beside it in one call; the bits are those of two, and of a batch."""
    calls = []

    def counted(t, a, k, c):
        calls.append(1)
        return bend(t, a, k, c)

    ahead = stepwell.curve_fit(counted, T, y, [1, 1, 1], **how)
    few = len(calls)
    monkeypatch.setattr(evaluation, "AHEAD", 0)
    calls.clear()
    apart = stepwell.curve_fit(counted, T, y, [1, 1, 1], **how)
    assert few < len(calls)
    batch = stepwell.curve_fit(bend, T, np.stack([y, y]), [1, 1, 1], **how)
    for one in (apart, ahead):
        assert np.array_equal(one.x, batch.x[1])
        assert np.array_equal(one.pcov, batch.pcov[1])
        assert (one.nfev, one.njev, one.status) == (batch.nfev[1], batch.njev[1], batch.status[1])


def test_float32_states_how_far_it_is():
    """`distance` in single precision with exact derivatives: true within a factor of three, against double."""
    p, model = Spots(300, seed=3), stepwell.models.gaussian2d()
    double = stepwell.curve_fit(model, p.t, p.y, p.p0, bounds=p.bounds, ftol=1e-16)
    single = stepwell.curve_fit(model, p.t.astype(np.float32), p.y.astype(np.float32), p.p0, bounds=p.bounds)
    step = single.x - double.x
    far = np.sqrt(np.einsum("bi,bij,bj->b", step, np.linalg.inv(double.pcov), step))
    assert (far <= 3 * single.distance).all()
    assert (far >= single.distance / 3).all()
    assert far.max() <= 3e-2


def test_starts_and_bounds_by_name(y):
    plain = stepwell.curve_fit(bend, T, y, [1, 2, 3], bounds=([0, -np.inf, 0], [2, np.inf, np.inf]))
    named = stepwell.curve_fit(bend, T, y, {"k": 2, "c": 3, "a": 1}, bounds={"a": (0, 2), "c": (0, None)})
    assert np.array_equal(named.x, plain.x)
    batch = stepwell.curve_fit(bend, T, np.stack([y, y]), {"a": np.array([1.0, 1.5]), "k": 2, "c": 3})
    assert np.array_equal(batch.x[1], stepwell.curve_fit(bend, T, y, [1.5, 2, 3]).x)
    model = stepwell.models.exponentials(2)
    p = Decays(2)
    by_name = dict(zip(model.parameters, p.p0[0] if p.p0.ndim == 2 else p.p0, strict=True))
    assert stepwell.curve_fit(model, p.t, p.y, by_name).success.all()


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"p0": {"a": 1, "k": 1}}, "all of a, k, c"),
        ({"p0": {"a": 1, "k": 1, "b": 1}}, "p0 is 'b'; allowed: names among a, k, c"),
        ({"bounds": {"b": (0, 1)}}, "bounds is 'b'; allowed: names among a, k, c"),
        ({"bounds": {"a": 1}}, "a pair"),
        ({"p0": {"a": np.ones(2), "k": np.ones(3), "c": 1}}, "shapes that broadcast"),
    ],
)
def test_wrong_names_are_refused(y, wrong, match):
    with pytest.raises((ValueError, TypeError), match=match):
        stepwell.curve_fit(bend, T, y, **wrong)


def test_dask_blocks_of_compiled_models_have_the_bits_of_a_direct_call():
    da = pytest.importorskip("dask.array")
    p, model = Decays(30, seed=4), stepwell.models.exponentials(2)
    direct = stepwell.curve_fit(model, p.t, p.y, p.p0, bounds=p.bounds)
    lazy = stepwell.curve_fit(model, p.t, da.from_array(p.y, chunks=(7, 32)), p.p0, bounds=p.bounds)
    assert np.array_equal(lazy.x.compute(), direct.x)
    assert np.array_equal(lazy.pcov.compute(), direct.pcov)
    callable_ = stepwell.curve_fit(decay, p.t, p.y, p.p0, bounds=p.bounds)
    np.testing.assert_allclose(direct.cost, callable_.cost, rtol=1e-8)
