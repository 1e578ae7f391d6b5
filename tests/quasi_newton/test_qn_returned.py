"""What an objective returns: shapes, kinds and memory of values and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from qn_oracles import Quadratic
from small_problems import bowl

import stepwell
from stepwell import LBFGSB, minimize, minimize_batch


@pytest.mark.parametrize("shape", [(2,), (4,), (3, 3), (0,), ()])
def test_gradients_of_the_wrong_shape(shape):
    with pytest.raises(ValueError, match=r"shape .*allowed: \(3,\)"):
        minimize(lambda x: (0.0, np.ones(shape)), np.ones(3), jac=True)
    with pytest.raises(ValueError, match=r"shape"):
        LBFGSB(np.ones(3)).tell(0.0, np.ones(shape))


def test_transposed_gradients_are_not_taken_for_right_ones():
    x0 = np.ones((2, 3))
    with pytest.raises(ValueError, match=r"\(3, 2\)"):
        minimize(lambda x: (float((x**2).sum()), 2 * x.T), x0, jac=True)
    with pytest.raises(ValueError, match=r"\(3, 2\)"):
        minimize_batch(lambda x: ((x**2).sum(1), 2 * x.T), x0, jac=True)


@pytest.mark.parametrize("form", [np.ravel, np.atleast_2d, list, np.asfortranarray, np.float32])
def test_gradients_in_other_forms(form):
    r = minimize(lambda x: (float((x**2).sum()), form(2 * x)), np.array([4.0, -8.0]), jac=True)
    assert np.abs(r.x).max() < 1e-3


@pytest.mark.parametrize("form", [np.float64, np.float32, np.array, np.atleast_1d, np.atleast_2d])
def test_values_in_other_forms(form):
    r = minimize(lambda x: (form(x @ x), 2 * x), np.ones(2), jac=True)
    assert isinstance(r.fun, float)
    assert r.success


@pytest.mark.parametrize(
    "value", [None, "one", "1.0", b"1.0", np.str_("1.0"), np.array("1.0"), np.ones(2), 1j, [1.0]], ids=repr
)
def test_values_that_are_no_number(value):
    with pytest.raises(TypeError, match="allowed: a number"):
        minimize(lambda x: (value, 2 * x), np.ones(2), jac=True)


def test_text_is_no_number_in_any_call():
    for call in (
        lambda: minimize(lambda x: "1.0", np.ones(2)),
        lambda: minimize_batch(lambda x: ["1.0", "2.0"], np.ones((2, 2)), jac=lambda x: 2 * x),
        lambda: scipy.optimize.minimize(lambda x: "1.0", np.ones(2), method=stepwell.scipy_method),
    ):
        with pytest.raises(TypeError, match=r"f (is str|has dtype <U3); allowed: "):
            call()


@pytest.mark.parametrize("form", [np.complex128, np.complex64, np.array, np.atleast_1d])
def test_complex_values_are_refused_even_if_they_are_real(form):
    with pytest.raises(TypeError, match="f is of type complex"):
        minimize(lambda x: (form(1 + 0j), 2 * x), np.ones(2), jac=True)
    with pytest.raises(TypeError, match="f is of type complex"):
        LBFGSB(np.ones(2)).tell(form(1 + 0j), np.ones(2))
    with pytest.raises(TypeError, match="f has dtype complex"):
        minimize_batch(lambda x: (np.full(3, 1 + 0j), 2 * x), np.ones((3, 2)), jac=True)


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_gradients_and_starts_that_hold_no_real_numbers(library):
    xp = pytest.importorskip(library)
    xp = xp.numpy if library == "jax" else xp
    start = xp.ones(2)

    def turned(x):
        return xp.asarray(x) * 1j

    said = r"gradient has dtype complex.*; allowed: real numbers"
    with pytest.raises(TypeError, match=said):
        minimize(lambda x: (float((x**2).sum()), turned(x)), start, jac=True)
    with pytest.raises(TypeError, match=said):
        minimize(lambda x: float((x**2).sum()), start, jac=turned)
    with pytest.raises(TypeError, match=said):
        minimize_batch(lambda x: ((x**2).sum(1), turned(x)), xp.ones((3, 2)), jac=True)
    with pytest.raises(TypeError, match=r"g has dtype complex.*; allowed: real numbers"):
        LBFGSB(start).tell(1.0, turned(start))
    for solve in (minimize, minimize_batch, lambda fun, x: LBFGSB(x)):
        with pytest.raises(TypeError, match=r"x0 has dtype complex.*; allowed: real numbers"):
            solve(lambda x: 0.0, turned(xp.ones((2, 2))))


@pytest.mark.parametrize("gradient", [["1", "2"], [b"1", b"2"], np.array([1, 2], "M8[s]"), [1, 2j]])
def test_gradients_of_text_dates_and_complex_numbers(gradient):
    with pytest.raises(TypeError, match=r"gradient has dtype .*; allowed: real numbers"):
        minimize(lambda x: (0.0, gradient), np.ones(2), jac=True)


def test_complex_bounds_and_diagonals():
    with pytest.raises(TypeError, match=r"lower bounds has dtype complex128; allowed: real numbers"):
        minimize(bowl, np.ones(2), jac=True, bounds=(np.zeros(2, complex), np.ones(2)))
    with pytest.raises(TypeError, match=r"h0 has dtype complex128; allowed: real numbers"):
        minimize(bowl, np.ones(2), jac=True, options={"h0": np.ones(2, complex)})


@pytest.mark.parametrize("value", [1.0, (1.0, 2.0, 3.0), None])
def test_no_pair_with_jac_true(value):
    with pytest.raises(TypeError, match="pair"):
        minimize(lambda x: value, np.ones(2), jac=True)


def test_values_of_a_batch_of_the_wrong_shape():
    for bad in (np.ones((3, 1)), np.ones(2), 1.0):
        with pytest.raises(ValueError, match=r"allowed: \(3,\)"):
            minimize_batch(lambda x, bad=bad: (bad, 2 * x), np.ones((3, 2)), jac=True)
    with pytest.raises(ValueError, match=r"allowed: \(B, n\)"):
        minimize_batch(lambda x: (x, x), np.ones(3), jac=True)


def test_the_objective_may_change_its_point_which_is_a_copy():
    def fun(x):
        f, g = bowl(x)
        x[...] = 5.0
        return f, g

    for n in (2, 20_000):
        expected = minimize(bowl, np.ones(n), jac=True)
        assert np.array_equal(minimize(fun, np.ones(n), jac=True).x, expected.x)
    with pytest.raises(ValueError, match="read-only"):
        minimize(fun, np.ones(2), jac=True, options={"zero_copy": True})


@pytest.mark.parametrize("n", [7, 50_000])
@pytest.mark.parametrize("part", [lambda x: x, lambda x: x[1:3], lambda x: x.reshape(1, -1)[0], memoryview])
def test_points_that_the_objective_keeps_stay_what_they_were(n, part):
    kept, copies = [], []

    def fun(x):
        kept.append(part(x))
        copies.append(np.array(kept[-1]))
        return float(((x - 1) ** 4).sum()), 4 * (x - 1) ** 3

    minimize(fun, np.linspace(2, 3, n), jac=True, options={"maxiter": 12})
    assert len(kept) > 8
    assert all(np.array_equal(a, b) for a, b in zip(kept, copies))


def test_a_gradient_array_that_is_used_again_and_again():
    """The objective may return one and the same array each time."""
    fun, g = Quadratic(5, np.random.default_rng(8), quartic=0.5), np.empty(5)

    def reuse(x):
        f, g[...] = fun(x)
        return f, g

    a, b = minimize(reuse, np.ones(5), jac=True), minimize(fun, np.ones(5), jac=True)
    assert np.array_equal(a.x, b.x)
    assert a.jac is not g
