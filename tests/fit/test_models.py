"""Compiled models: their values and derivatives are those of the formula, and their fits those of the callable."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest
import scipy.optimize

import stepwell
from stepwell import models
from stepwell.fit.models import host

RNG = np.random.default_rng(5)
T = np.linspace(0.1, 3, 40)
ROWS, COLUMNS = (side.ravel().astype(float) for side in np.mgrid[:5, :6])
GRID = np.stack([COLUMNS, ROWS])
TIMES = np.cumsum(RNG.uniform(0.05, 0.3, 40))
BLOOD = np.stack([TIMES, TIMES * np.exp(-TIMES)])

#: A model, its x, true parameters, a start, and bounds that do not cut them off.
CASES = [
    (models.exponentials(1), T, [2.0, 0.7], [1.0, 1.0]),
    (models.exponentials(2, offset=True), T, [1.0, 2.0, 1.0, 6.0, 0.3], [1.0, 1.0, 0.8, 5.0, 0.0]),
    (models.gaussians(2), T, [1.0, 2.0, 0.8, 2.0, 0.2, 0.3], [1.0, 1.0, 0.9, 1.9, 0.3, 0.3]),
    (models.gaussians(1, offset=True), T, [2.0, 1.2, 0.4, 0.5], [1.0, 1.0, 0.5, 0.0]),
    (models.lorentzians(1, offset=True), T, [2.0, 1.2, 0.4, 0.5], [1.0, 1.0, 0.5, 0.0]),
    (models.pseudo_voigts(1), T, [2.0, 1.2, 0.6, 0.4], [1.0, 1.0, 0.5, 0.5]),
    (models.polynomial_peak(2), T, [2.0, 1.5, 0.2, 1.0, -0.5, 0.3], [1.0, 1.4, 0.3, 0.0, 0.0, 0.0]),
    (models.ivim(), T, [1.0, 0.3, 5.0, 0.6], [1.0, 0.2, 8.0, 1.0]),
    (models.gaussian2d(), GRID, [3.0, 2.3, 1.8, 1.1, 0.5], [2.0, 2.5, 2.0, 1.0, 0.0]),
    (models.gaussian2d(elliptical=True), GRID, [3.0, 2.3, 1.8, 1.1, 0.8, 0.5], [2.0, 2.5, 2.0, 1.0, 1.0, 0.0]),
    (models.gaussian2d(), GRID[:, RNG.permutation(30)], [3.0, 2.3, 1.8, 1.1, 0.5], [2.0, 2.5, 2.0, 1.0, 0.0]),
    (models.tofts(), BLOOD, [0.8, 1.5], [0.5, 1.0]),
    (models.tofts(extended=True), BLOOD, [0.8, 1.5, 0.1], [0.5, 1.0, 0.05]),
    (models.expression("a*exp(-k*t) + c", "t"), T, [2.0, 1.3, 0.2], [1.0, 1.0, 0.0]),
    (models.expression("a*exp(-k*x)*cos(w*y)", "x", "y"), GRID, [2.0, 0.3, 1.2], [1.0, 0.2, 1.1]),
]
NAMES = [f"{k} {case[0]!r}" for k, case in enumerate(CASES)]


def by_complex_steps(model, x, p):
    """Derivatives of the formula to rounding: Im f(p + ih) / h."""
    steps = [[value + (1e-30j if i == j else 0) for i, value in enumerate(p)] for j in range(len(p))]
    return np.stack([np.imag(model(x, *point)) / 1e-30 for point in steps], axis=-1)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
@pytest.mark.parametrize("single", [False, True])
def test_values_and_derivatives_are_those_of_the_formula(case, single):
    model, x, p, _ = case
    dtype = np.float32 if single else np.float64
    given = [np.array(value, dtype) for value in p]
    found = host.rows(model, x.astype(dtype), *given)
    assert found.dtype == dtype
    p = [float(value) for value in given]
    x = x.astype(dtype).astype(float)
    # Some ten operations on numbers of the size of the terms.
    size = max(1.0, float(np.abs(model(x, *p)).max()))
    assert np.abs(found[:, -1] - model(x, *p)).max() <= 40 * np.finfo(dtype).eps * size
    exact = by_complex_steps(model, x, p)
    assert np.abs(found[:, :-1] - exact).max() <= 100 * np.finfo(dtype).eps * max(1.0, np.abs(exact).max())


@pytest.mark.parametrize(("dtype", "ulps"), [(np.float64, 1.5), (np.float32, 1.5)])
def test_the_exponential_is_exact_to_about_a_unit_in_the_last_place(dtype, ulps):
    span = 700 if dtype == np.float64 else 85
    x = np.concatenate([RNG.uniform(-span, span, 4000), RNG.uniform(-1, 1, 4000)]).astype(dtype)
    found = host.rows(models.exponentials(1), x, dtype(1), dtype(-1))[:, -1]
    exact = np.exp(x.astype(np.longdouble))
    error = np.abs(found.astype(np.longdouble) - exact) / np.spacing(exact.astype(dtype)).astype(np.longdouble)
    assert error.max() <= ulps


def test_the_exponential_at_its_ends():
    x = np.array([-np.inf, -746.0, -745.1, -709.0, -0.0, 709.7, 710.0, np.inf, np.nan])
    found = host.rows(models.expression("a*exp(x)", "x"), x, 1.0)[:, -1]
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_allclose(found, np.exp(x), rtol=4e-16, atol=5e-324)


def noisy(case, problems=7, dtype=np.float64):
    model, x, p, start = case
    rng = np.random.default_rng(len(p))
    truth = np.asarray(p) * rng.uniform(0.95, 1.05, (problems, len(p)))
    clean = model(x, *(truth[:, k : k + 1] for k in range(len(p))))
    y = clean + 0.005 * np.abs(clean).max() * rng.standard_normal(clean.shape)
    return model, x.astype(dtype), y.astype(dtype), np.asarray(start, dtype)


def assert_same_minimum(found, wanted, rtol=1e-8):
    """Costs of two fits to one tolerance of the cost differ by about that; parameters by its root in errors."""
    np.testing.assert_allclose(found.cost, wanted.cost, rtol=rtol)
    gap = np.abs(np.asarray(found.x) - wanted.x) / np.where(wanted.stderr > 0, wanted.stderr, 1)
    assert np.nanmax(np.where(np.isfinite(gap), gap, np.nan)) < 1e3 * np.sqrt(rtol)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_fit_is_that_of_the_callable(case):
    model, x, y, start = noisy(case)
    found = stepwell.curve_fit(model, x, y, start)
    wanted = stepwell.curve_fit(lambda x, *p: model(x, *p), x, y, start, jac="3-point")
    assert np.all(found.success)
    assert_same_minimum(found, wanted)
    for name in ("dof", "rank", "active_mask"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    np.testing.assert_allclose(found.stderr, wanted.stderr, rtol=1e-3)
    np.testing.assert_allclose(found.pcov, wanted.pcov, rtol=2e-3, atol=1e-3 * np.abs(wanted.pcov).max())


@pytest.mark.parametrize(
    "how",
    [
        {"bounds": ([0.0, 0.0, 0.5, 0.1, 0.0], [1.0, 5.0, 3.0, 5.5, 0.25])},
        {"sigma": np.linspace(0.5, 2, 40), "absolute_sigma": True},
        {"mask": np.arange(40) % 3 != 1},
        {"fixed": ["k2"]},
        {"loss": "huber", "f_scale": 0.02},
        {"loss": "soft_l1", "f_scale": 0.05, "sigma": np.linspace(0.5, 2, 40)},
        {"loss": "cauchy", "f_scale": 0.05},
        {"loss": "poisson", "bounds": (1e-3, 20.0)},
        {"uncertainty": None},
        {"uncertainty": "stderr", "ftol": 1e-12},
    ],
    ids=lambda how: " ".join(how),
)
def test_options_do_what_they_do_for_callables(how):
    model, x, y, start = noisy(CASES[1])
    y, start = np.abs(y), np.array([0.9, 1.5, 0.8, 5.0, 0.2])
    found = stepwell.curve_fit(model, x, y, start, **how)
    wanted = stepwell.curve_fit(lambda x, a1, a2, k1, k2, c: model(x, a1, a2, k1, k2, c), x, y, start, jac="cs", **how)
    assert np.all(found.success)
    np.testing.assert_allclose(found.cost, wanted.cost, rtol=1e-7)
    np.testing.assert_array_equal(found.active_mask, wanted.active_mask)
    if how.get("uncertainty", "") is not None:
        np.testing.assert_allclose(found.stderr, wanted.stderr, rtol=1e-2)


def test_scipy_takes_a_model_as_a_function():
    model, x, y, start = noisy(CASES[13])
    popt, pcov = scipy.optimize.curve_fit(model, x, y[0], start)
    found = stepwell.curve_fit(model, x, y[0], start)
    np.testing.assert_allclose(found.x, popt, rtol=1e-5)
    np.testing.assert_allclose(found.pcov, pcov, rtol=1e-3)
    assert list(inspect.signature(model).parameters) == ["t", "a", "k", "c"]


def bits(result):
    return {name: np.asarray(getattr(result, name)) for name in ("x", "pcov", "cost", "promise", "nfev", "status")}


@pytest.mark.parametrize("case", [CASES[1], CASES[8], CASES[13]], ids=repr)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_problem_has_the_same_bits_alone_and_in_any_batch(case, dtype):
    model, x, y, start = noisy(case, 45, dtype)
    y[3, 2] = np.nan
    whole = bits(stepwell.curve_fit(model, x, y, start, threads=2))
    assert whole["status"][3] == stepwell.FitStatus.NON_FINITE_START
    order = np.random.default_rng(1).permutation(45)
    mixed = bits(stepwell.curve_fit(model, x, y[order], start, threads=1))
    for name, values in whole.items():
        np.testing.assert_array_equal(values[order], mixed[name])
    for k in (0, 17, 44):
        alone = bits(stepwell.curve_fit(model, x, y[k], start))
        for name, values in whole.items():
            np.testing.assert_array_equal(values[k], alone[name])


def test_what_a_lane_held_before_is_forgotten():
    """Voxels of noise alone: on such flat ground a fit goes elsewhere if anything is left of another one."""
    rng = np.random.default_rng(3)
    b = np.array([0, 10, 20, 40, 80, 110, 140, 170, 200, 300, 400, 500, 600, 700, 800, 900.0])
    y = np.abs(10 * rng.standard_normal((60, 16)))
    given = dict(p0=[12, 0.02, 0.03, 1e-4], bounds=([0, 0, 0.005, 0], [np.inf, 1, 0.2, 0.005]))
    whole = stepwell.curve_fit(stepwell.models.ivim(), b, y, **given)
    for k in range(0, 60, 5):
        alone = stepwell.curve_fit(stepwell.models.ivim(), b, y[k : k + 1], **given)
        assert np.array_equal(alone.x[0], whole.x[k])
        assert alone.nfev[0] == whole.nfev[k]


def test_problems_with_points_of_their_own():
    model, x, y, start = noisy(CASES[13], 9)
    own = x + np.linspace(0, 0.2, 9)[:, None]
    found = stepwell.curve_fit(model, own, y, start)
    for k in (0, 8):
        np.testing.assert_array_equal(stepwell.curve_fit(model, own[k], y[k], start).x, found.x[k])


def test_statuses_of_problems_that_cannot_be_fitted():
    model, x, y, start = noisy(CASES[13], 4)
    mask = np.ones(y.shape, bool)
    mask[1] = False
    found = stepwell.curve_fit(model, x, y, start, mask=mask)
    np.testing.assert_array_equal(found.status, [2, stepwell.FitStatus.NO_POINTS, 2, 2])
    low = np.tile([-np.inf] * 3, (4, 1))
    low[2] = 100.0
    found = stepwell.curve_fit(model, x, y, start, bounds=(low, np.full((4, 3), 50.0)))
    assert found.status[2] == stepwell.FitStatus.CROSSED_BOUNDS


def test_a_model_that_nothing_but_rounding_separates_from_the_data():
    model, x, p, start = CASES[13]
    found = stepwell.curve_fit(model, x, model(x, *p), start)
    assert found.status == stepwell.FitStatus.ZERO_RESIDUAL
    np.testing.assert_allclose(found.x, p, rtol=1e-12)


def test_many_parameters_take_the_turn_of_one_problem():
    """More than twelve parameters: one lane after the other."""
    model = models.gaussians(5)
    x = np.arange(120.0)
    truth = np.concatenate([np.linspace(1, 2, 5), np.linspace(10, 110, 5), np.linspace(3, 5, 5)])
    y = model(x, *truth) + 0.01 * np.random.default_rng(2).standard_normal((3, 120))
    start = truth * 1.05
    found = stepwell.curve_fit(model, x, y, start)
    wanted = stepwell.curve_fit(lambda x, *p: model(x, *p), x, y, start, jac="3-point")
    assert np.all(found.success)
    assert_same_minimum(found, wanted)


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_a_model_survives_pickling_and_names_itself(case):
    model = case[0]
    again = pickle.loads(pickle.dumps(model))
    assert again == model
    assert hash(again) == hash(model)
    assert repr(again) == repr(model)
    assert again.parameters == model.parameters
    assert len(model.bounds[0]) == len(model.bounds[1]) == model.n


def test_wrong_calls_say_what_is_allowed():
    model = models.exponentials(2)
    with pytest.raises(TypeError, match="allowed: a1, a2, k1, k2"):
        model(T, 1.0)
    with pytest.raises(TypeError, match="allowed: a1, a2, k1, k2"):
        model.jac(T, 1.0)
    with pytest.raises(ValueError, match="allowed: 2, which are x, y"):
        models.gaussian2d()(GRID[:1], 1, 1, 1, 1, 1)
    with pytest.raises(ValueError, match="count is 0; allowed: 1 to"):
        models.exponentials(0)
    with pytest.raises(ValueError, match="xdata has shape"):
        stepwell.curve_fit(model, T[:-1], np.ones(40), [1, 1, 1, 1])
    with pytest.raises(ValueError, match="p0 has 3 parameters"):
        stepwell.curve_fit(model, T, np.ones(40), [1, 1, 1])
