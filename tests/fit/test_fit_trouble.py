"""What happens to fits that cannot go well: degenerate problems, walls of NaN, wrong derivatives, wrong arguments."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import curve_fit as scipy_curve_fit

import stepwell
from stepwell import FitStatus

T = np.linspace(0, 3, 20)
Y = 2 * np.exp(-T)


def curve(t, a, k):
    return a * np.exp(-k * t)


def derivatives(t, a, k):
    return np.stack([np.exp(-k * t), -a * t * np.exp(-k * t)], axis=-1)


def test_zero_residual():
    r = stepwell.curve_fit(curve, T, Y, [1.0, 0.5], jac=derivatives)
    assert r.status in (FitStatus.ZERO_RESIDUAL, FitStatus.GTOL)
    np.testing.assert_allclose(r.x, [2, 1], rtol=1e-12)
    begun = stepwell.curve_fit(curve, T, Y, [2.0, 1.0], jac=derivatives)
    assert (begun.success, begun.nfev) == (True, 1)


@pytest.mark.parametrize("size", [1e-152, 1e-158, 1e-165, 1e-200, 1e-300])
@pytest.mark.parametrize("compiled", [False, True], ids=["callable", "compiled"])
def test_squares_that_underflow_prove_nothing(size, compiled):
    model = stepwell.models.expression("a*exp(-k*t)", "t") if compiled else curve
    scales = np.array([size, 1.0, 0.0, size])[:, None]
    start = np.stack([scales[:, 0] * 1.0 + (scales[:, 0] == 0), np.full(4, 0.5)], axis=-1)
    r = stepwell.curve_fit(model, T, scales * Y, start)
    right = np.isclose(r.x, np.stack([2 * scales[:, 0], np.ones(4)], axis=-1), rtol=1e-6, atol=0).all(axis=1)
    success = np.asarray(r.status) > 0
    assert success[1]
    assert success[2]  # a black pixel, fitted by a = 0
    assert not np.any(success[[0, 3]] & ~right[[0, 3]])
    lone = stepwell.least_squares(lambda x: curve(T, *x) - size * Y, [size, 0.5])
    assert not lone.success or np.allclose(lone.x, [2 * size, 1], rtol=1e-6, atol=0)


def test_solution_in_a_corner():
    r = stepwell.curve_fit(curve, T, Y, [1.0, 0.5], jac=derivatives, bounds=([0, 0], [1.5, 0.6]))
    assert r.success
    assert np.array_equal(r.x, [1.5, 0.6])
    assert np.array_equal(r.active_mask, [1, 1])
    assert np.array_equal(r.stderr, [0, 0])


def test_rosenbrock_at_a_bound():
    def fun(x):
        return np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]])

    r = stepwell.least_squares(fun, [0.0, 0.0], bounds=(-np.inf, 0.75))
    np.testing.assert_allclose(r.x, [0.75, 0.5625], rtol=1e-9)
    assert r.active_mask.tolist() == [1, 0]


def test_nan_in_one_of_three_problems():
    y = np.stack([Y + 0.01 * np.sin(9 * T), Y, Y + 0.02 * np.cos(7 * T)])
    broken = y.copy()
    broken[1, 4] = np.nan
    whole, some = (stepwell.curve_fit(curve, T, data, [1.0, 0.5]) for data in (y, broken))
    assert some.status[1] == FitStatus.NON_FINITE_START
    assert np.isnan(some.cost[1])
    assert np.isnan(some.stderr[1]).all()
    for i in (0, 2):
        assert np.array_equal(whole.x[i], some.x[i])
    with pytest.raises(ValueError, match="finite"):
        stepwell.curve_fit(curve, T, broken[1], [1.0, 0.5])
    none = stepwell.curve_fit(curve, T, np.full((2, 20), np.nan), [1.0, 0.5], nan_policy="omit")
    assert none.status.tolist() == [FitStatus.NO_POINTS] * 2


def test_a_wall_of_nan():
    def wall(t, a, k):
        return np.where(k > 0.9, np.nan, curve(t, a, k))

    r = stepwell.curve_fit(wall, T, Y, [1.0, 0.5], jac=derivatives)
    assert r.status in (FitStatus.NON_FINITE, FitStatus.STALLED)
    assert not r.success
    assert np.isfinite(r.cost)
    assert r.x[1] <= 0.9


def test_columns_that_cannot_be_told_apart():
    def f(t, a, k, b):
        return (a + b) * np.exp(-k * t)

    noisy = Y + 0.01 * np.sin(9 * T)
    r = stepwell.curve_fit(f, T, noisy, [1.0, 0.5, 0.3], jac="cs")
    two = stepwell.curve_fit(curve, T, noisy, [1.0, 0.5], jac="cs")
    assert r.success
    assert r.rank == 2
    assert r.x[0] + r.x[2] == pytest.approx(two.x[0], rel=1e-6)
    assert np.isinf(r.stderr[[0, 2]]).all()
    assert r.stderr[1] == pytest.approx(two.stderr[1], rel=0.05)


def test_a_parameter_that_nothing_depends_on():
    def f(t, a, k, unseen):
        return curve(t, a, k) + 0 * unseen

    r = stepwell.curve_fit(f, T, Y + 0.01 * np.sin(9 * T), [1.0, 0.5, 7.0])
    assert r.success
    assert r.x[2] == 7
    assert r.rank == 2
    assert np.isinf(r.stderr[2])
    assert np.isfinite(r.stderr[:2]).all()


def test_fewer_points_than_parameters():
    r = stepwell.curve_fit(curve, T[:1], Y[:1], [1.0, 0.5])
    assert r.success
    assert r.cost < 1e-20
    assert np.isinf(r.stderr).all()


def test_derivatives_of_the_wrong_sign():
    r = stepwell.curve_fit(curve, T, Y, [1.0, 0.5], jac=lambda t, a, k: -derivatives(t, a, k))
    assert r.status == FitStatus.STALLED
    assert "check_jac" in r.message


def test_limits():
    r = stepwell.curve_fit(curve, T, Y, [1.0, 0.1], maxiter=1)
    assert (r.status, r.nit) == (FitStatus.LIMIT, 1)
    assert stepwell.curve_fit(curve, T, Y, [1.0, 0.1], max_nfev=2).nfev == 2


def test_crossed_bounds_are_one_problems_status():
    low, high = np.zeros((2, 2)), np.full((2, 2), 3.0)
    low[1, 0] = 5
    r = stepwell.curve_fit(curve, T, np.stack([Y, Y]), [1.0, 0.5], bounds=(low, high))
    assert r.status[1] == FitStatus.CROSSED_BOUNDS
    assert r.success[0]
    with pytest.raises(ValueError, match="lower <= upper"):
        stepwell.curve_fit(curve, T, Y, [1.0, 0.5], bounds=([5, 0], [3, 3]))


def test_a_start_outside_the_bounds_is_moved_with_a_warning():
    with pytest.warns(Warning, match="outside the bounds"):
        r = stepwell.curve_fit(curve, T, Y, [9.0, 0.5], bounds=(0, 3))
    np.testing.assert_allclose(r.x, [2, 1], rtol=1e-6)


def test_functions_of_numbers_alone():
    """What SciPy calls with numbers, and cannot be called with columns, is called so."""

    def f(t, a, k):
        if a < 0:
            return np.zeros_like(t)
        return a * np.exp(-float(k) * t)

    np.testing.assert_allclose(stepwell.curve_fit(f, T, Y, [1.0, 0.5]).x, [2, 1], rtol=1e-6)
    with pytest.raises((TypeError, ValueError)):
        stepwell.curve_fit(f, T, np.stack([Y, Y]), [1.0, 0.5])


@pytest.mark.parametrize(
    ("f", "match"),
    [
        (lambda t, a, k: a[:, 0] + k[:, 0], "shape"),
        (lambda t, a, k: curve(t, a, k).T, "shape"),
        (lambda t, a, k: curve(t, a, k) * 1j, "complex"),
    ],
)
def test_wrong_shapes_say_what_is_wanted(f, match):
    y = np.stack([Y, Y, Y])
    with pytest.raises((ValueError, TypeError), match=match):
        stepwell.curve_fit(f, T, y, [1.0, 0.5])


def test_a_callback_can_stop():
    seen = []

    def stop(x):
        seen.append(x.copy())
        if len(seen) == 2:
            raise StopIteration

    r = stepwell.curve_fit(curve, T, Y, [1.0, 0.1], callback=stop)
    assert r.status == FitStatus.CALLBACK
    assert np.array_equal(r.x, seen[-1][0])
    told = []
    stepwell.curve_fit(curve, T, np.stack([Y, Y]), [1.0, 0.1], progress=lambda done, all_: told.append((done, all_)))
    assert told[-1] == (2, 2)


@pytest.mark.parametrize("lone", [True, False])
def test_ctrl_c_has_the_best_so_far(lone):
    calls = []

    def slow(x, *p):
        calls.append(1)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return curve(x, *p)

    y = Y if lone else np.stack([Y, Y + 0.1])
    with pytest.raises(stepwell.Interrupted) as caught:
        stepwell.curve_fit(slow, T, y, [1.0, 0.1])
    r = caught.value.result
    assert np.all(np.asarray(r.status) == FitStatus.CALLBACK)
    start = 0.5 * ((curve(T, 1.0, 0.1) - y) ** 2).sum(axis=-1)
    assert np.all(np.asarray(r.cost) < start)
    assert np.isfinite(r.pcov).all()
    whole = stepwell.curve_fit(curve, T, y, [1.0, 0.1])
    assert np.all(np.asarray(whole.cost) <= r.cost)


def test_what_the_function_raises_passes_unchanged():
    class MineError(Exception):
        pass

    def broken(x, p, rows):
        if (rows == 1).any():
            raise MineError("row 1")
        return curve(x, p[:, :1], p[:, 1:])

    with pytest.raises(MineError, match="row 1"):
        stepwell.curve_fit(broken, T, np.stack([Y, Y]), [1.0, 0.1])


def test_nan_in_the_data_of_one_fit():
    y = Y.copy()
    y[3] = np.nan
    with pytest.raises(ValueError, match="finite"):
        stepwell.curve_fit(curve, T, y, [1.0, 0.1])
    r = stepwell.curve_fit(curve, T, y, [1.0, 0.1], check_finite=False)
    assert r.status == FitStatus.NON_FINITE_START
    assert np.isnan(r.cost)
    assert np.array_equal(r.x, [1.0, 0.1])


def test_no_fits_at_all():
    r = stepwell.curve_fit(curve, T, np.zeros((0, len(T))), [1.0, 0.1])
    assert r.x.shape == (0, 2)
    assert r.message == "there were no fits"


#: IVIM voxels whose fits pass a plateau between two minima: the gradient nearly vanishes on it, the curvature along the
#: valley is negative, and JᵀJ says that it is not.
B_VALUES = np.array([0, 10, 20, 30, 50, 75, 100, 150, 200, 300, 400, 500, 600, 700, 800, 1000]) / 1000
PLATEAUS = np.array(
    [
        [1.001906, 0.86367, 0.8673687, 0.8869024, 0.844917, 0.7714723, 0.770447, 0.6849213, 0.7277657, 0.6731246,
         0.6376115, 0.6187751, 0.5356612, 0.4807063, 0.4469955, 0.3622957],
        [1.065865, 1.0272709, 1.069322, 1.0351754, 0.9620397, 0.9469183, 0.8951849, 0.9177832, 0.920384, 0.8352971,
         0.8003506, 0.6512335, 0.7364097, 0.6965625, 0.6525352, 0.6180057],
        [1.0348483, 0.972427, 0.9467533, 0.9910832, 0.902562, 0.8388726, 0.9029321, 0.8231579, 0.7724827, 0.7176935,
         0.5692896, 0.5231729, 0.5320701, 0.4713803, 0.3952474, 0.2849899],
        [0.9412064, 0.8344941, 0.8556409, 0.852276, 0.779606, 0.8118546, 0.7725309, 0.7154734, 0.6633376, 0.6470971,
         0.6192556, 0.5368392, 0.5245757, 0.4707861, 0.4617221, 0.3565331],
    ]
)  # fmt: skip


@pytest.mark.parametrize("model", ["compiled", "callable"])
def test_plateaus_are_left_by_steps_that_grow(model):
    """Steps of Gauss and Newton creep: they took over 200 evaluations each. Doubled from 1e-4 of x they take 14."""

    def ivim(b, signal, fraction, fast, slow):
        return signal * (fraction * np.exp(-b * fast) + (1 - fraction) * np.exp(-b * slow))

    f = stepwell.models.ivim() if model == "compiled" else ivim
    start, box = [1.0, 0.1, 20.0, 1.0], ([0.5, 0, 3, 0], [1.5, 0.7, 300, 5])
    found = stepwell.curve_fit(f, B_VALUES, PLATEAUS, start, bounds=box)
    assert found.success.all()
    assert found.nfev.max() <= 70  # five such stretches
    for y, x in zip(PLATEAUS, found.x, strict=True):
        theirs, _ = scipy_curve_fit(ivim, B_VALUES, y, start, bounds=box, maxfev=2000)
        cost, wanted = (((ivim(B_VALUES, *p) - y) ** 2).sum() for p in (x, theirs))
        assert cost <= wanted * (1 + 1e-9)


def test_a_singular_solution_is_approached_as_newton_does():
    """Powell's singular function: each step halves the distance; S, which is noise there, must not shorten it.

    From 3 to where the squares of the quadratic residuals lie 1e-32 under the others takes 27 halvings; bounds that cut
    the path off, and rounding, let it take up to four times that.
    """

    def fun(x, rows):
        return np.stack(
            [x[:, 0] + 10 * x[:, 1], 5**0.5 * (x[:, 2] - x[:, 3]), (x[:, 1] - 2 * x[:, 2]) ** 2,
             10**0.5 * (x[:, 0] - x[:, 3]) ** 2], axis=1
        )  # fmt: skip

    lower, upper = [-np.inf, -0.7454747515, -np.inf, -np.inf], [np.inf, 0.7454742973, np.inf, np.inf]
    found = stepwell.least_squares(fun, [[3.0, -0.7454747515, 0, 1], [3.0, -0.5, 0.1, 1]], bounds=(lower, upper))
    assert found.success.all()
    assert found.nfev.max() <= 120


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (dict(method="bfgs"), "lm"),
        (dict(loss="hubr"), "huber"),
        (dict(sigma=-np.ones(20)), "positive"),
        (dict(fixed=["b"]), "fixed"),
        (dict(nan_policy="propagate"), "omit"),
        (dict(full_output=True), "result"),
        (dict(ftol=-1.0), "ftol"),
        (dict(uncertainty="all"), "stderr"),
        (dict(starts=3), "finite bounds"),
        (dict(jac="4-point"), "jac"),
    ],
)
def test_refused(wrong, match):
    with pytest.raises(ValueError, match=match):
        stepwell.curve_fit(curve, T, Y, [1.0, 0.5], **wrong)


def test_statuses_are_those_of_the_core():
    from stepwell import _core

    names = {"GRADIENT": "GTOL", "PROMISE": "FTOL", "STEP": "XTOL"}
    assert {names.get(name, name): code for name, code in _core.FIT_STATUSES.items()} == {
        status.name: int(status) for status in FitStatus
    }
    assert all(status.success == (status > 0) for status in FitStatus)


@pytest.mark.parametrize("argument", ["ydata", "sigma"])
def test_rows_of_different_lengths_are_named(argument):
    given = dict(ydata=Y, sigma=np.ones(20)) | {argument: [[1], [1, 2]]}
    with pytest.raises(TypeError, match=rf"^{argument} is \[\[1\], \[1, 2\]\]; allowed: an array of real numbers"):
        stepwell.curve_fit(curve, T, p0=[1.0, 1.0], **given)
