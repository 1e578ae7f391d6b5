"""curve_fit against SciPy, and identities that hold whatever the data."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from simulated_fits import Decays, Spots, Voxels, decay

import stepwell

T = np.linspace(0, 4, 60)


def bend(t, a, k, c):
    return a * np.exp(-k * t) + c


@pytest.fixture(scope="module")
def y():
    return bend(T, 2.5, 1.3, 0.5) + 0.05 * np.random.default_rng(2).standard_normal(60)


SIGMA = np.linspace(0.02, 0.1, 60)
COVARIANCE = 0.05**2 * np.exp(-np.abs(T[:, None] - T) / 0.1)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"sigma": SIGMA},
        {"sigma": SIGMA, "absolute_sigma": True},
        {"sigma": COVARIANCE, "absolute_sigma": True},
        {"bounds": ([0, 0, 0], [5, 5, 5])},
        {"bounds": ([0, 0, 0], [5, 5, 5]), "method": "trf"},
        {"bounds": ([0, 0, 0], [5, 5, 5]), "method": "dogbox"},
        {"jac": lambda t, a, k, c: np.stack([np.exp(-k * t), -a * t * np.exp(-k * t), np.ones_like(t)], axis=1)},
    ],
)
def test_as_scipy(y, how):
    """Both end within 1e-4 standard errors of the minimum (measured for SciPy's defaults here: 1e-5)."""
    x, cov = scipy.optimize.curve_fit(bend, T, y, [1, 1, 1], **how)
    popt, pcov = stepwell.curve_fit(bend, T, y, [1, 1, 1], **how)
    assert np.abs((popt - x) / np.sqrt(np.diagonal(cov))).max() < 1e-4
    np.testing.assert_allclose(pcov, cov, rtol=1e-4, atol=1e-4 * np.abs(cov).max())


def test_no_start_as_scipy(y):
    np.testing.assert_allclose(stepwell.curve_fit(bend, T, y).x, scipy.optimize.curve_fit(bend, T, y)[0], rtol=1e-5)
    bounds = ([0, 0, -1], [4, np.inf, 2])
    ours, theirs = stepwell.curve_fit(bend, T, y, bounds=bounds), scipy.optimize.curve_fit(bend, T, y, bounds=bounds)
    np.testing.assert_allclose(ours.x, theirs[0], rtol=1e-5)


def test_a_parameter_may_be_called_p(y):
    """Only f(x, p) and f(x, p, rows) take all parameters as one array."""
    found = stepwell.curve_fit(lambda t, p, q, r: bend(t, p, q, r), T, y, [1, 1, 1])
    assert found.names == ("p", "q", "r")
    assert np.array_equal(found.x, stepwell.curve_fit(bend, T, y, [1, 1, 1]).x)


@pytest.mark.parametrize("loss", ["soft_l1", "huber", "cauchy", "arctan"])
def test_robust_losses_as_scipy(y, loss):
    bad = y.copy()
    bad[::9] += 2

    def residual(p):
        return bend(T, *p) - bad

    tight = dict(ftol=1e-14, xtol=1e-14, gtol=1e-14)
    theirs = scipy.optimize.least_squares(residual, [2, 1, 1], loss=loss, f_scale=0.1, **tight)
    ours = stepwell.curve_fit(bend, T, bad, [2, 1, 1], loss=loss, f_scale=0.1)
    assert ours.success
    assert ours.cost == pytest.approx(theirs.cost, rel=1e-8)
    same = stepwell.least_squares(residual, [2, 1, 1], loss=loss, f_scale=0.1)
    assert same.cost == pytest.approx(theirs.cost, rel=1e-8)


def test_poisson_is_the_maximum_of_the_likelihood():
    rng = np.random.default_rng(5)
    counts = rng.poisson(bend(T, 30, 1.3, 2)).astype(float)
    r = stepwell.curve_fit(bend, T, counts, [20, 1, 1], bounds=(0, 1000), loss="poisson")

    def deviance(p):
        return np.sum(bend(T, *p) - counts * np.log(bend(T, *p)))

    best = scipy.optimize.minimize(deviance, r.x, method="Nelder-Mead", options=dict(xatol=1e-10, fatol=1e-13))
    assert r.success
    assert deviance(r.x) <= best.fun + 1e-9 * abs(best.fun)
    mean = bend(T, *r.x)
    J = np.stack([np.exp(-r.x[1] * T), -r.x[0] * T * np.exp(-r.x[1] * T), np.ones_like(T)], axis=1)
    np.testing.assert_allclose(r.pcov, np.linalg.inv(J.T @ (J / mean[:, None])), rtol=1e-5)


def test_batch_has_the_bits_of_each_alone():
    p = Decays(40, seed=5)
    y = p.y.copy()
    y[7, 3] = np.nan
    whole = stepwell.curve_fit(decay, p.t, y, p.p0, bounds=p.bounds)
    assert whole.status[7] == stepwell.FitStatus.NON_FINITE_START
    for i in (0, 6, 8, 39):
        alone = stepwell.curve_fit(decay, p.t, p.y[i], p.p0, bounds=p.bounds)
        assert np.array_equal(whole.x[i], alone.x)
        assert np.array_equal(whole.pcov[i], alone.pcov)
        assert whole.nfev[i] == alone.nfev
    one = stepwell.curve_fit(decay, p.t, y, p.p0, bounds=p.bounds, threads=1)
    assert np.array_equal(one.x, whole.x)


def test_costs_are_no_higher_than_scipys():
    p = Voxels(30, seed=4)
    ours = stepwell.curve_fit(p.model, p.t, p.y, p.p0, bounds=p.bounds)
    assert ours.success.all()
    assert (ours.active_mask != 0).any()
    higher = 0
    for i in range(30):
        theirs = scipy.optimize.least_squares(
            lambda q, y=p.y[i]: p.model(p.t, *q) - y,
            p.p0,
            bounds=p.bounds,
            x_scale="jac",
            ftol=1e-12,
            xtol=1e-12,
            gtol=1e-12,
        )
        higher += ours.cost[i] > theirs.cost * (1 + 1e-7)
    assert higher <= 1  # one has two minima: SciPy's end and one at f = 0


def test_shapes_of_images():
    p = Decays(6)
    image = p.y.reshape(2, 3, -1)
    r = stepwell.curve_fit(
        decay, p.t, image, np.broadcast_to(p.p0, (2, 3, 4)), bounds=p.bounds, sigma=np.full(32, 0.01)
    )
    assert (r.x.shape, r.pcov.shape, r.cost.shape) == ((2, 3, 4), (2, 3, 4, 4), (2, 3))
    assert set(r.params) == {"a1", "a2", "k1", "k2"}
    assert r.residuals.shape == image.shape
    assert r.jac.shape == (2, 3, 32, 4)
    np.testing.assert_allclose(0.5 * np.sum(r.residuals**2, axis=-1), r.cost, rtol=1e-12)
    assert len(r.reason) == 6
    assert r.covariance((1, 2)).shape == (4, 4)
    np.testing.assert_allclose(np.diagonal(r.correlation((1, 2))), 1)


def test_rows_that_run_are_handed_over():
    p = Decays(20)
    seen = []

    def f(x, p, rows):
        seen.append(len(rows))
        return decay(x, *p.T[:, :, None])

    r = stepwell.curve_fit(f, p.t, p.y, p.p0, bounds=p.bounds)
    assert np.array_equal(r.x, stepwell.curve_fit(decay, p.t, p.y, p.p0, bounds=p.bounds).x)
    assert seen[0] == 20
    assert min(seen) < 20


def test_own_x():
    p = Decays(5)
    x = p.t * np.linspace(0.9, 1.1, 5)[:, None]
    y = decay(x, *p.truth.T[:, :, None])
    r = stepwell.curve_fit(decay, x, y, p.p0, bounds=p.bounds)
    np.testing.assert_allclose(r.x, p.truth, rtol=1e-4)
    with pytest.raises(ValueError, match="own_x"):
        stepwell.curve_fit(decay, x[:2], y[:2], p.p0)
    assert np.array_equal(stepwell.curve_fit(decay, x[:2], y[:2], p.p0, bounds=p.bounds, own_x=True).x, r.x[:2])


def test_a_masked_point_is_as_if_it_were_not_there():
    p = Decays(3)
    keep = np.ones(32, bool)
    keep[[3, 17]] = False
    short = stepwell.curve_fit(decay, p.t[keep], p.y[:, keep], p.p0, bounds=p.bounds, own_x=False)
    masked = stepwell.curve_fit(decay, p.t, p.y, p.p0, bounds=p.bounds, mask=keep)
    missing = np.where(keep, p.y, np.nan)
    omitted = stepwell.curve_fit(decay, p.t, missing, p.p0, bounds=p.bounds, nan_policy="omit")
    infinite = stepwell.curve_fit(decay, p.t, p.y, p.p0, bounds=p.bounds, sigma=np.where(keep, 1.0, np.inf))
    for other in (masked, omitted, infinite):
        assert np.array_equal(other.x, short.x)
        assert np.array_equal(other.dof, short.dof)
    with pytest.raises(ValueError, match="nan_policy"):
        stepwell.curve_fit(decay, p.t, missing, p.p0, nan_policy="raise")


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize("sigma", [None, 0.1, np.full(30, 0.1)], ids=["equal", "one", "own"])
def test_missing_data_are_as_if_they_were_never_taken(lead, sigma):
    rng = np.random.default_rng(7)
    t = np.linspace(0, 4, 30)
    y = bend(t, 2.5, 1.3, 0.5) + 0.05 * rng.standard_normal(30)
    missing = (t > 3.9) | (t == t[3])
    data = np.broadcast_to(np.where(missing, np.nan, y), (*lead, 30))
    fit = stepwell.curve_fit(bend, t, data, [1, 1, 0], sigma=sigma, nan_policy="omit")
    expected, _ = scipy.optimize.curve_fit(bend, t[~missing], y[~missing], [1, 1, 0])
    np.testing.assert_allclose(fit.x, np.broadcast_to(expected, (*lead, 3)), rtol=1e-5)
    assert (np.asarray(fit.dof) == 30 - missing.sum() - 3).all()


def test_a_fixed_parameter_is_a_constant(y):
    held = stepwell.curve_fit(bend, T, y, [2, 1.3, 0.5], fixed=["k"])
    without = stepwell.curve_fit(lambda t, a, c: bend(t, a, 1.3, c), T, y, [2, 0.5])
    np.testing.assert_allclose(held.x[[0, 2]], without.x, rtol=1e-9)
    np.testing.assert_allclose(held.pcov[np.ix_([0, 2], [0, 2])], without.pcov, rtol=1e-6)
    assert (held.x[1], held.stderr[1], held.active_mask[1], held.dof) == (1.3, 0, 2, 58)
    equal = stepwell.curve_fit(bend, T, y, [2, 1.3, 0.5], bounds=([-9, 1.3, -9], [9, 1.3, 9]))
    np.testing.assert_allclose(equal.x, held.x, rtol=1e-9)
    all_held = stepwell.curve_fit(bend, T, y, [2, 1.3, 0.5], fixed=[True, True, True])
    assert np.array_equal(all_held.x, [2, 1.3, 0.5])
    assert (all_held.success, all_held.nit) == (True, 0)


def test_scaling_by_powers_of_two_changes_x_alone(y):
    scale = np.array([2.0**9, 2.0**-7, 4.0])
    plain = stepwell.curve_fit(bend, T, y, [1, 1, 1], jac="cs")
    scaled = stepwell.curve_fit(
        lambda t, a, k, c: bend(t, a * scale[0], k * scale[1], c * scale[2]), T, y, 1 / scale, jac="cs"
    )
    np.testing.assert_allclose(scaled.x * scale, plain.x, rtol=1e-12)
    assert scaled.nfev == plain.nfev


def test_a_linear_model_is_lsq_linear():
    rng = np.random.default_rng(1)
    A, b = rng.standard_normal((30, 5)), rng.standard_normal(30)
    bounds = (-0.05, 0.1)
    r = stepwell.least_squares(lambda x: A @ x - b, np.zeros(5), jac=lambda x: A, bounds=bounds)
    np.testing.assert_allclose(r.x, scipy.optimize.lsq_linear(A, b, bounds, tol=1e-14).x, atol=1e-7)
    assert r.nit <= 3


def test_variable_projection_ends_where_all_parameters_do():
    p = Decays(60, seed=9)
    whole = stepwell.curve_fit(decay, p.t, p.y, p.p0, bounds=p.bounds)
    inner = stepwell.curve_fit(decay, p.t, p.y, p.p0, bounds=p.bounds, linear=["a1", "a2"])
    assert inner.success.all()
    np.testing.assert_allclose(inner.cost, whole.cost, rtol=1e-9)
    # The two terms may change places: rates are compared in order, in the smaller of their standard errors.
    apart = np.sort(whole.x[:, 2:], axis=1) - np.sort(inner.x[:, 2:], axis=1)
    assert np.abs(apart / whole.stderr[:, 2:].min(axis=1, keepdims=True)).max() < 1e-2
    bounded = stepwell.curve_fit(decay, p.t, p.y, p.p0, bounds=([0, 0, 0, 0], [0.6, 0.6, 50, 50]), linear=[0, 1])
    assert (bounded.x[:, :2] <= 0.6).all()
    both = stepwell.curve_fit(decay, p.t, p.y, p.p0, bounds=([0, 0, 0, 0], [0.6, 0.6, 50, 50]))
    assert np.mean(bounded.cost <= both.cost * (1 + 1e-6)) > 0.9


def test_several_starts_find_the_least_cost():
    t = np.linspace(0, 10, 80)

    def wave(t, w, phase):
        return np.sin(w * t + phase)

    y = wave(t, 3.1, 0.4)
    alone = stepwell.curve_fit(wave, t, y, [1.0, 0.0], bounds=([0.1, -3], [8, 3]))
    many = stepwell.curve_fit(wave, t, y, [1.0, 0.0], bounds=([0.1, -3], [8, 3]), starts=40)
    assert many.cost < 1e-12 < alone.cost
    np.testing.assert_allclose(many.x, [3.1, 0.4], rtol=1e-6)
    assert many.start > 0
    assert many.spread >= 1
    batch = stepwell.curve_fit(wave, t, np.stack([y, wave(t, 2.0, 1.0)]), [1.0, 0.0], starts=[[3.0, 0], [2.2, 0.5]])
    np.testing.assert_allclose(batch.x, [[3.1, 0.4], [2.0, 1.0]], rtol=1e-6)
    assert batch.start.tolist() == [1, 2]


def test_float32_data_end_where_doubles_do():
    """ftol is 1e-6 there: within √(ftol·dof) standard errors; the spots have 20 degrees of freedom."""
    p = Spots(50)
    double = stepwell.curve_fit(p.model, p.t, p.y, p.p0, bounds=p.bounds)
    single = stepwell.curve_fit(p.model, p.t.astype(np.float32), p.y.astype(np.float32), p.p0, bounds=p.bounds)
    assert single.x.dtype == np.float32
    low, high = p.bounds
    assert ((single.x >= low) & (single.x <= high)).all()
    near = np.isin(single.status, [1, 2, -3])
    assert near.all()
    free = (double.active_mask == 0).all(axis=1)
    assert np.abs((single.x - double.x) / double.stderr)[free].max() < 3e-2


@pytest.mark.slow
def test_intervals_cover_the_truth():
    """Student's t with 28 and 20 degrees of freedom: 0.93 to 0.965 of 3000 fits (two deviations are 0.008)."""
    for p, t in ((Decays(3000, seed=21), 2.048), (Spots(3000, seed=21), 2.086)):
        r = stepwell.curve_fit(p.model, p.t, p.y, p.p0, bounds=p.bounds)
        free = (r.active_mask == 0).all(axis=1)
        inside = (np.abs(r.x - p.truth) <= t * r.stderr)[free].mean(axis=0)
        assert (inside > 0.93).all(), inside
        assert (inside < 0.965).all(), inside
