"""Objectives that fail, in every way; starts, shapes and kinds that are odd or wrong."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from qn_oracles import Quadratic, run
from scipy.optimize import OptimizeWarning
from scipy.optimize import minimize as scipy_minimize

import stepwell
from stepwell import LBFGSB, Status, minimize, minimize_batch

NONFINITE = [math.nan, math.inf, -math.inf]


def bowl(x):
    return float(x @ x), 2 * x


# ---- values that are not finite ----


@pytest.mark.parametrize("value", NONFINITE)
@pytest.mark.parametrize("where", ["f", "g", "both"])
def test_not_finite_at_the_start(value, where):
    def fun(x):
        f, g = bowl(x)
        if where != "f":
            g = g.copy()
            g[1] = value
        return (f if where == "g" else value), g

    x0 = np.array([3.0, -7.0, 1.5])
    r = minimize(fun, x0, jac=True, bounds=(-10.0, 10.0))
    assert (r.reason, r.status, r.nfev, r.nit) == (Status.NONFINITE_START, 2, 1, 0)
    assert np.array_equal(r.x, x0)
    assert np.array_equal(r.jac, fun(x0)[1], equal_nan=True)
    assert np.array_equal(r.fun, fun(x0)[0], equal_nan=True)


@pytest.mark.parametrize("value", NONFINITE)
@pytest.mark.parametrize("where", ["f", "g"])
@pytest.mark.parametrize("preset", ["lbfgsb", "va15"])
def test_not_finite_now_and_then_is_backed_off_from(value, where, preset):
    fun, calls = Quadratic(6, np.random.default_rng(0), quartic=0.1), 0

    def sometimes(x):
        nonlocal calls
        calls += 1
        f, g = fun(x)
        if calls in (2, 3, 6, 9):
            return (value, g) if where == "f" else (f, np.where(np.arange(6) == 4, value, g))
        return f, g

    r = minimize(sometimes, np.ones(6), jac=True, options=dict(line_search=preset))
    clean = minimize(fun, np.ones(6), jac=True)
    assert calls > 9
    assert r.success
    assert r.fun == pytest.approx(clean.fun, rel=1e-8)


@pytest.mark.parametrize("value", NONFINITE)
def test_not_finite_everywhere_after_the_start(value):
    calls = 0

    def fun(x):
        nonlocal calls
        calls += 1
        return (bowl(x)[0] if calls == 1 else value), 2 * x

    r = minimize(fun, np.ones(4), jac=True)
    assert (r.reason, r.status, r.nit) == (Status.NONFINITE, 2, 0)
    assert (r.fun, r.nfev) == (4.0, calls)
    assert calls <= 21
    assert np.array_equal(r.x, np.ones(4))


@pytest.mark.parametrize("value", NONFINITE)
def test_not_finite_everywhere_from_the_middle_on(value):
    """The last good point is kept, after one more try along the steepest descent."""
    fun, points = Quadratic(5, np.random.default_rng(3), quartic=0.2), []

    def breaks(x):
        f, g = fun(x)
        points.append((f, x.copy()))
        return (f, g) if len(points) <= 6 else (value, g)

    r = minimize(breaks, np.ones(5), jac=True)
    best = min(points[:6], key=lambda point: point[0])
    assert r.reason is Status.NONFINITE
    assert r.fun == best[0]
    assert np.array_equal(r.x, best[1])
    assert r.nfev <= 6 + 2 * 20


@pytest.mark.parametrize("preset", ["lbfgsb", "va15"])
@pytest.mark.parametrize("wall", [math.inf, math.nan])
def test_log_barrier_walls(wall, preset):
    """min c x - Σ log x: infinite beyond a wall that the solver is not told of. The minimum is x = 1/c."""
    cost = np.geomspace(0.01, 100.0, 12)

    def fun(x):
        if (x <= 0).any():
            return wall, np.full_like(x, math.nan)
        return float(cost @ x - np.log(x).sum()), cost - 1 / x

    r = minimize(fun, np.full(12, 2.0), jac=True, options=dict(line_search=preset, gtol=1e-7, ftol=0, maxls=40))
    assert r.x == pytest.approx(1 / cost, rel=1e-4)
    assert r.projected_gradient < 1e-5


def test_walls_and_bounds_together():
    def fun(x):
        if x[0] > 1.5:
            return math.inf, x
        return float(((x - 3) ** 2).sum()), 2 * (x - 3)

    r = minimize(fun, np.zeros(2), jac=True, bounds=(0.0, 10.0), options=dict(maxls=60))
    assert r.x[0] <= 1.5
    assert r.fun < fun(np.zeros(2))[0]


def test_one_bad_problem_does_not_disturb_a_batch():
    def fun(x):
        f, g = (x**2).sum(1), 2 * x
        f[1] = math.nan
        return f, g

    r = minimize_batch(fun, np.ones((3, 4)), jac=True)
    assert r.reason == [Status.GRADIENT, Status.NONFINITE_START, Status.GRADIENT]
    assert np.array_equal(r.x[1], np.ones(4))
    assert r.nfev.tolist()[1] == 1


# ---- exceptions ----


class Oops(Exception):
    pass


@pytest.mark.parametrize("when", [1, 2, 5])
def test_exceptions_of_the_objective_pass_through(when):
    calls, error = 0, Oops("mine")

    def fun(x):
        nonlocal calls
        calls += 1
        if calls == when:
            raise error
        return float((x**4).sum()), 4 * x**3

    with pytest.raises(Oops) as caught:
        minimize(fun, np.arange(1.0, 6.0), jac=True)
    assert caught.value is error


def test_the_optimizer_stays_usable_after_an_exception():
    fun = Quadratic(7, np.random.default_rng(2), quartic=0.3)
    plain, shaken = LBFGSB(np.ones(7), (-0.5, 1.0)), LBFGSB(np.ones(7), (-0.5, 1.0))
    while not plain.done:
        for wrong in (np.zeros(6), np.zeros((7, 2)), "no gradient"):
            with pytest.raises((ValueError, TypeError)):
                shaken.tell(0.0, wrong)
        with pytest.raises(TypeError):
            shaken.tell(None, np.zeros(7))
        assert np.array_equal(plain.x, shaken.x)
        plain.tell(*fun(plain.x))
        shaken.tell(*fun(shaken.x))
    assert shaken.done
    with pytest.raises(RuntimeError, match="ended"):
        shaken.tell(0.0, np.zeros(7))


def test_the_optimizer_stays_usable_after_an_exception_of_h0():
    fun = Quadratic(6, np.random.default_rng(4), quartic=0.3)
    calls = 0

    def h0(x):
        return 0.1 / (1 + x * x)

    def shaky(x):
        nonlocal calls
        calls += 1
        if calls % 2:
            raise Oops
        return h0(x)

    plain, shaken = LBFGSB(np.ones(6), h0=h0), LBFGSB(np.ones(6), h0=shaky)
    while not plain.done:
        plain.tell(*fun(plain.x))
        point = np.array(shaken.x)
        try:
            shaken.tell(*fun(point))
        except Oops:
            shaken.tell(*fun(point))
        assert np.array_equal(plain.x, shaken.x)
    assert calls > 4
    assert (shaken.nfev, shaken.nit, shaken.status) == (plain.nfev, plain.nit, plain.status)


def test_exceptions_of_the_callback_pass_through():
    def callback(x):
        raise Oops

    with pytest.raises(Oops):
        minimize(bowl, np.ones(2), jac=True, callback=callback)


# ---- starts ----


def test_one_variable():
    r = minimize(lambda x: (float((x[0] - 2) ** 4), 4 * (x - 2) ** 3), np.array([5.0]), jac=True, options=dict(ftol=0))
    assert r.x == pytest.approx([2.0], abs=0.05)
    assert minimize(lambda x: bowl(x - 3), [0.0], jac=True, bounds=(-1.0, 1.0)).x == pytest.approx([1.0], abs=0)


def test_scalar_start_is_one_variable():
    r = minimize(lambda x: bowl(x.reshape(-1) - 3), 0.0, jac=True)
    assert r.x == pytest.approx(3.0)


def test_start_outside_the_bounds_is_projected_and_said_so():
    with pytest.warns(OptimizeWarning, match=r"2 of 3 variables"):
        opt = LBFGSB(np.array([5.0, 0.5, -9.0]), (-1.0, 1.0))
    assert np.array_equal(opt.x, [1.0, 0.5, -1.0])
    with pytest.warns(OptimizeWarning, match="projected"):
        minimize(bowl, np.full(2, 5.0), jac=True, bounds=(-1.0, 1.0))
    with pytest.warns(OptimizeWarning, match="projected"):
        minimize_batch(lambda x: ((x**2).sum(1), 2 * x), np.full((2, 2), 5.0), jac=True, bounds=(-1.0, 1.0))


def test_a_start_outside_by_rounding_alone_is_projected_without_words():
    """0.1 in single precision is larger than 0.1: the nearest number inside is the one below."""
    opt = LBFGSB(np.array([0.1], np.float32), (0.0, 0.1))
    assert opt.x[0] == np.nextafter(np.float32(0.1), np.float32(0))


def test_the_start_is_never_changed():
    x0 = np.arange(1.0, 5.0)
    minimize(bowl, x0, jac=True)
    assert np.array_equal(x0, [1, 2, 3, 4])


@pytest.mark.parametrize(
    "x0",
    [
        np.array([3, -2, 5]),
        np.array([3, -2, 5], dtype=np.int8),
        [3, -2, 5],
        (3.0, -2.0, 5.0),
        np.array([3, 0, -2, 0, 5, 0], float)[::2],
        np.array([5.0, -2.0, 3.0])[::-1],
        np.array([3, -2, 5], dtype=np.float16),
        np.array([3, -2, 5], dtype=np.longdouble),
        np.array([3, -2, 5], dtype=">f8"),
    ],
    ids=["int64", "int8", "list", "tuple", "strided", "reversed", "float16", "longdouble", "big-endian"],
)
def test_starts_of_all_kinds_give_one_answer(x0):
    fun = Quadratic(3, np.random.default_rng(0), quartic=0.5)
    r = minimize(fun, x0, jac=True)
    expected = minimize(fun, np.array([3.0, -2.0, 5.0]), jac=True)
    assert r.x.dtype == np.float64
    assert np.array_equal(r.x, expected.x)


def test_non_contiguous_start_of_two_dimensions():
    x0 = np.arange(12.0).reshape(3, 4).T[::2]
    r = minimize(lambda x: (float((x**2).sum()), 2 * x), x0, jac=True)
    assert r.x.shape == r.jac.shape == x0.shape
    assert np.abs(r.x).max() < 1e-5


def test_two_dimensional_start_keeps_its_shape_everywhere():
    target = np.arange(6.0).reshape(2, 3)
    shapes = set()

    def fun(x):
        shapes.add(x.shape)
        return float(((x - target) ** 2).sum()), 2 * (x - target)

    bounds = (np.zeros((2, 3)), np.full((2, 3), 4.0))
    r = minimize(
        fun, np.ones((2, 3)), jac=True, bounds=bounds, options=dict(h0=np.full((2, 3), 0.5)),
        callback=lambda x: shapes.add(x.shape),
    )  # fmt: skip
    assert shapes == {(2, 3)}
    assert r.x == pytest.approx(np.clip(target, 0, 4))


def test_read_only_start_and_bounds():
    x0, lower, upper = np.ones(3), np.zeros(3), np.ones(3)
    for array in (x0, lower, upper):
        array.flags.writeable = False
    assert np.array_equal(minimize(bowl, x0, jac=True, bounds=(lower, upper)).x, np.zeros(3))


@pytest.mark.parametrize(
    ("x0", "error", "said"),
    [
        (np.ones(2) * 1j, TypeError, "complex"),
        (np.array(["a", "b"]), TypeError, "x0"),
        (np.array([None, 1.0]), TypeError, "x0"),
        (np.array([]), ValueError, r"x0 has shape \(0,\); allowed: at least one"),
        (np.zeros((0, 3)), ValueError, r"x0 has shape \(0, 3\); allowed: at least one"),
        (np.array([1.0, np.nan, 2.0]), ValueError, "x0 is nan at index 1; allowed: finite"),
        (np.array([np.inf]), ValueError, "x0 is inf at index 0; allowed: finite"),
    ],
    ids=["complex", "text", "object", "empty", "empty 2-D", "nan", "inf"],
)
def test_bad_starts(x0, error, said):
    for solve in (minimize, lambda fun, x, **kw: LBFGSB(x)):
        with pytest.raises(error, match=said):
            solve(bowl, x0, jac=True)


def test_starts_that_are_no_array_are_named():
    with pytest.raises(ValueError, match="x0 cannot be read as an array"):
        minimize(bowl, [[1.0, 2.0], [3.0]], jac=True)
    torch = pytest.importorskip("torch")
    for start in (torch.ones(3).to_sparse(), torch.ones(3, device="meta")):
        with pytest.raises(TypeError, match="x0 cannot be read as an array"):
            minimize(bowl, start, jac=True)


def test_warnings_point_to_the_line_of_the_caller():
    box, options = (0.0, 1.0), {"foo": 1}
    for call, warned in (
        (lambda: minimize(bowl, np.full(2, 5.0), jac=True, bounds=box, options=options), 2),
        (lambda: minimize_batch(lambda x: ((x**2).sum(1), 2 * x), np.full((1, 2), 5.0), jac=True, bounds=box), 1),
        (lambda: LBFGSB(np.full(2, 5.0), box), 1),
        (lambda: scipy_minimize(bowl, np.full(2, 5.0), jac=True, bounds=[box] * 2, method=stepwell.scipy_method), 1),
    ):
        with pytest.warns(OptimizeWarning) as caught:
            call()
        assert [w.filename for w in caught] == [__file__] * warned
        assert {w.lineno for w in caught} == {call.__code__.co_firstlineno}


# ---- what the objective returns ----


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


@pytest.mark.parametrize("value", [None, "one", np.ones(2), 1j, [1.0]])
def test_values_that_are_no_number(value):
    with pytest.raises(TypeError, match="allowed: a number"):
        minimize(lambda x: (value, 2 * x), np.ones(2), jac=True)


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


def test_the_objective_cannot_change_the_point():
    def fun(x):
        x[0] = 5.0
        return bowl(x)

    with pytest.raises(ValueError, match="read-only"):
        minimize(fun, np.ones(2), jac=True)


def test_a_gradient_array_that_is_used_again_and_again():
    """The objective may return one and the same array each time."""
    fun, g = Quadratic(5, np.random.default_rng(8), quartic=0.5), np.empty(5)

    def reuse(x):
        f, g[...] = fun(x)
        return f, g

    a, b = minimize(reuse, np.ones(5), jac=True), minimize(fun, np.ones(5), jac=True)
    assert np.array_equal(a.x, b.x)
    assert a.jac is not g


# ---- h0 ----


@pytest.mark.parametrize(
    ("h0", "said"),
    [
        (np.array([1.0, 0.0, 1.0]), "h0 is 0.0 at index 1"),
        (np.array([1.0, 1.0, -2.0]), "h0 is -2.0 at index 2"),
        (np.array([np.nan, 1.0, 1.0]), "h0 is nan at index 0"),
        (np.array([1.0, np.inf, 1.0]), "h0 is inf at index 1"),
        (np.ones(2), r"shape \(2,\)"),
        (np.ones((3, 3)), r"shape \(3, 3\)"),
    ],
    ids=["zero", "negative", "nan", "inf", "short", "square"],
)
@pytest.mark.parametrize("callable_h0", [False, True])
def test_bad_diagonals(h0, said, callable_h0):
    given = (lambda x: h0) if callable_h0 else h0
    with pytest.raises(ValueError, match=said):
        minimize(bowl, np.ones(3), jac=True, options=dict(h0=given))
    with pytest.raises(ValueError, match=said.split(" ")[0]):
        minimize_batch(lambda x: ((x**2).sum(1), 2 * x), np.ones((2, 3)), jac=True, options=dict(h0=given))


def test_diagonal_of_the_true_scales_solves_a_diagonal_problem_at_once():
    scales = np.geomspace(1e-3, 1e3, 30)
    r = minimize(
        lambda x: (0.5 * float(scales @ x**2), scales * x), np.ones(30), jac=True,
        options=dict(h0=1 / scales, line_search=dict(preset="lbfgsb")),
    )  # fmt: skip
    assert r.nit <= 3
    assert np.abs(r.jac).max() < 1e-5


def test_nothing_warns_in_an_ordinary_run():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(LBFGSB(np.ones(4), [(0, None), (None, 1), (0.5, 2), (None, None)]), bowl)
