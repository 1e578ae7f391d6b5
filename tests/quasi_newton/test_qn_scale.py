"""Units of x and f do not matter; arguments of the wrong type are named."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize
from scipy.optimize import rosen, rosen_der

import stepwell


@pytest.mark.parametrize("unit", [1e-9, 1e-8, 1.0, 1e3])
@pytest.mark.parametrize("search", ["lbfgsb", "va15"])
def test_units_of_the_variables(unit, search):
    weight = np.linspace(1, 3, 4)

    def fun(x):
        away = x / unit - 1
        return float(weight @ away**2), 2 * weight * away / unit

    options = {"gtol": 1e-6 / unit, "ftol": 0.0, "line_search": search}
    result = stepwell.minimize(fun, np.zeros(4), jac=True, options=options)
    assert result.success
    # The gradient 2 w (x/u - 1) / u is at most gtol.
    np.testing.assert_allclose(result.x / unit, 1, atol=1e-6)


@pytest.mark.parametrize("unit", [1e-6, 1e13, 1e18, 1e30])
@pytest.mark.parametrize("bounds", [None, (-5.0, 5.0)])
def test_units_of_the_function(unit, bounds):
    # (Inside bounds the projected gradient is no larger than the way to them.)
    options = {"gtol": 1e-9 * min(unit, 1.0) if bounds else 1e-9 * unit, "ftol": 0.0}
    result = stepwell.minimize(
        lambda x: (unit * rosen(x), unit * rosen_der(x)), [-1.2, 1.0], jac=True, bounds=bounds, options=options
    )
    np.testing.assert_allclose(result.x, 1, atol=1e-6)


@pytest.mark.parametrize("args", [0, 0.0, 5, [1.0, 2.0], np.array(2.0), np.array([1.0, 2.0]), (3.0,), ()])
def test_arguments_of_the_objective_are_scipys(args):
    def fun(x, shift=7.0):
        return float(((x - np.asarray(shift)) ** 2).sum())

    ours = stepwell.minimize(fun, np.zeros(2), args=args, jac="3-point")
    theirs = scipy_minimize(fun, np.zeros(2), args=args, method="L-BFGS-B", jac="3-point")
    np.testing.assert_allclose(ours.x, theirs.x, atol=1e-4)


def test_the_limit_on_evaluations_counts_those_of_differences():
    calls = []
    result = stepwell.minimize(
        lambda x: calls.append(1) or float(((x - 1) ** 4).sum()), np.zeros(10), options={"maxfun": 20}
    )
    assert result.nfev == len(calls)
    assert len(calls) < 20 + 11  # a gradient is finished once begun
    assert result.status == 1
    assert "maxfun" in result.message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxiter": "10"}, "maxiter is '10'; allowed: a whole number of at least 0"),
        ({"maxiter": 1.5}, "maxiter is 1.5; allowed: a whole number"),
        ({"maxiter": True}, "maxiter is True; allowed"),
        ({"maxfun": 2.7}, "maxfun is 2.7; allowed: a whole number of at least 1"),
        ({"gtol": "a"}, "gtol is 'a'; allowed: a finite number of at least 0"),
        ({"gtol": 1j}, "gtol is 1j; allowed"),
        ({"ftol": [1e-5]}, r"ftol is \[1e-05\]; allowed"),
        ({"eps": "a"}, "eps is 'a'; allowed"),
        ({"target": "a"}, "target is 'a'; allowed: a number"),
        ({"time_limit": "a"}, "time_limit is 'a'; allowed: a number above 0"),
        ({"gtol": True}, "gtol is True; allowed: a finite number of at least 0"),
        ({"ftol": np.True_}, r"ftol is (np\.)?True_?; allowed: a finite number of at least 0"),
        ({"maxcor": True}, r"m \(maxcor\) is True; allowed: an integer from 1 to"),
        ({"threads": "a"}, "threads is 'a'; allowed"),
        ({"threads": 10**6}, "threads is 1000000; allowed: a whole number from 1 to 4096"),
        ({"threads": 1.5}, "threads is 1.5; allowed"),
        ({"maxls": "a"}, "maxls is 'a'; allowed"),
        ({"line_search": 5}, "line_search is 5; allowed: 'lbfgsb', 'va15'"),
        ({"line_search": {"ftol": "a"}}, "line_search ftol is 'a'; allowed: a finite number above 0 and below 1"),
        ({"finite_diff_rel_step": -1}, "finite_diff_rel_step is -1; allowed: a finite number above 0"),
        ({"finite_diff_rel_step": np.nan}, "finite_diff_rel_step is nan; allowed"),
        ({"graph": "x"}, r"options\['graph'\] is 'x'; allowed"),
    ],
)
def test_wrong_options_are_named_before_the_first_evaluation(options, message):
    def never(x):
        raise AssertionError("evaluated")

    with pytest.raises(ValueError, match=message):
        stepwell.minimize(never, np.zeros(3), options=options)


def test_wrong_types_of_arguments():
    with pytest.raises(TypeError, match=r"options is \[1\]; allowed: None or a dict"):
        stepwell.minimize(rosen, np.zeros(3), options=[1])
    with pytest.raises(TypeError, match="tol is 'a'; allowed: a finite number of at least 0"):
        stepwell.minimize(rosen, np.zeros(3), tol="a")


@pytest.mark.parametrize("tol", [-1, np.nan, np.inf, True])
def test_wrong_tol_is_named(tol):
    with pytest.raises(ValueError, match=f"^tol is {tol}; allowed: a finite number of at least 0"):
        stepwell.minimize(rosen, np.zeros(3), tol=tol)


def test_a_whole_number_may_be_a_float():
    assert stepwell.minimize(rosen, np.zeros(3), options={"maxiter": 3.0}).nit == 3


def test_points_cannot_be_moved_from_outside():
    opt = stepwell.LBFGSB(np.ones(3), bounds=(0.5, 2.0))
    with pytest.raises(ValueError, match="read-only"):
        opt.x[:] = 99


def test_a_norm_that_overflows_meets_no_relative_gtol():
    # |g| / |x| is 1e-5 and the tolerance far below: the sum of squares of x, not that, is what is beyond all numbers.
    fun = lambda x: (1e150 * np.abs(x).sum(), 1e150 * np.sign(x))  # noqa: E731
    result = stepwell.minimize(fun, np.full(3, 1e155), jac=True, options={"relative_gtol": 1e-8})
    assert not result.success
