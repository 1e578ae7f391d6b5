"""Starts of odd shapes and kinds, and diagonals."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from qn_oracles import Quadratic, run
from scipy.optimize import OptimizeWarning
from scipy.optimize import minimize as scipy_minimize
from small_problems import bowl

import stepwell
from stepwell import LBFGSB, minimize, minimize_batch

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
        (lambda: scipy_minimize(bowl, np.full(2, 5.0), jac=True, method=stepwell.scipy_method, options=options), 1),
    ):
        with pytest.warns(OptimizeWarning) as caught:
            call()
        assert [w.filename for w in caught] == [__file__] * warned
        assert {w.lineno for w in caught} == {call.__code__.co_firstlineno}


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
