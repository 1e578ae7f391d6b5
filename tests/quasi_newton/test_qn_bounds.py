"""Every form of bounds, the rule where two forms could be confused, and errors that name index and value."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import Bounds

from stepwell import LBFGSB, minimize, minimize_batch, problems
from stepwell.quasi_newton import inputs
from stepwell.quasi_newton.variables import Variables

F8, F4 = np.dtype(float), np.dtype(np.float32)


def read_bounds(bounds, shape, dtype, batch=False):
    box = inputs.read_bounds(bounds, Variables(np.empty(0, dtype), shape, dtype, batch, on_device=False))
    if box is None:
        return None
    # A number stays one; here it stands for what it means.
    return tuple(np.broadcast_to(side, (np.prod(shape[batch:]),)) if side.shape == (1,) else side for side in box[:2])


def read(bounds, n=3, dtype=F8):
    return read_bounds(bounds, (n,), dtype)


LOWER, UPPER = np.array([0.0, -np.inf, 2.0]), np.array([1.0, 5.0, np.inf])
FORMS = {
    "Bounds": Bounds(LOWER, UPPER),
    "tuple of arrays": (LOWER, UPPER),
    "list of pairs": [(0, 1), (-np.inf, 5), (2, np.inf)],
    "pairs with None": [(0, 1), (None, 5), (2, None)],
    "tuple of pairs": ((0, 1), (None, 5), (2, None)),
    "list of lists": [[0, 1], [None, 5], [2, None]],
    "array of objects": np.array([[0, 1], [None, 5], [2, None]], dtype=object),
    "array of pairs": np.stack([LOWER, UPPER], axis=1),
    "list of arrays": [np.array([0.0, 1.0]), np.array([-np.inf, 5.0]), np.array([2.0, np.inf])],
    "array of halves": np.stack([LOWER, UPPER]),
    "halves as lists": ([0, None, 2], [1, 5, None]),
    "list of halves": [LOWER, UPPER],
    "list and array": ([0, None, 2], UPPER),
    "Fortran order": np.asfortranarray(np.stack([LOWER, UPPER], axis=1)),
    "zip": None,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_reads_the_same(form):
    bounds = zip(LOWER, UPPER) if form == "zip" else FORMS[form]
    lower, upper = read(bounds)
    assert np.array_equal(lower, LOWER)
    assert np.array_equal(upper, UPPER)
    assert lower.dtype == upper.dtype == F8
    assert lower.flags.c_contiguous


@pytest.mark.parametrize("bounds", [(0.0, 2), (np.float32(0), np.array(2.0)), Bounds(0, 2), (np.zeros(3), 2.0)])
def test_numbers_hold_for_all_variables(bounds):
    lower, upper = read(bounds)
    assert np.array_equal(lower, np.zeros(3))
    assert np.array_equal(upper, np.full(3, 2.0))


def test_one_side_only():
    assert np.array_equal(read((None, 1.0))[0], np.full(3, -np.inf))
    assert np.array_equal(read((np.zeros(3), None))[1], np.full(3, np.inf))


@pytest.mark.parametrize(
    "bounds", [None, (None, None), (-np.inf, np.inf), Bounds(), [(None, None)] * 3, Bounds(-np.inf)]
)
def test_no_bounds_at_all(bounds):
    assert read(bounds) is None


def test_the_rule_at_two_variables():
    """A tuple of two arrays or numbers is (lower, upper); anything else is pairs."""
    pairs = np.array([0.0, 2.0]), np.array([1.0, 3.0])
    halves = np.array([0.0, 1.0]), np.array([2.0, 3.0])
    for bounds, expected in [
        (((0, 1), (2, 3)), pairs),
        ([(0, 1), (2, 3)], pairs),
        ([[0, 1], [2, 3]], pairs),
        (np.array([[0, 1], [2, 3]]), pairs),
        ([np.array([0, 1]), np.array([2, 3])], pairs),
        ((np.array([0, 1]), np.array([2, 3])), halves),
        (Bounds([0, 1], [2, 3]), halves),
        ((np.array([0, 1]), 3), (halves[0], np.array([3.0, 3.0]))),
    ]:
        lower, upper = read(bounds, n=2)
        assert np.array_equal(lower, expected[0])
        assert np.array_equal(upper, expected[1])


def test_pairs_of_one_variable():
    for bounds in [[(0, 1)], ((0, 1),), (0, 1), np.array([[0, 1]]), [(0, 1.0)]]:
        assert [float(half[0]) for half in read(bounds, n=1)] == [0.0, 1.0]


def test_bounds_of_the_shape_of_the_start():
    shape = (2, 3)
    lower = np.arange(6.0).reshape(shape)
    for bounds in [(lower, lower + 1), (lower.ravel(), lower.ravel() + 1), Bounds(lower, lower + 1)]:
        low, high = read_bounds(bounds, shape, F8)
        assert np.array_equal(low, np.arange(6.0))
        assert np.array_equal(high, np.arange(1.0, 7.0))


def test_bounds_of_a_batch():
    rows = np.arange(6.0).reshape(2, 3)
    shared = read_bounds((np.arange(3.0), 9.0), (2, 3), F8, batch=True)
    assert [half.shape for half in shared] == [(3,), (3,)]
    own = read_bounds((rows, 9.0), (2, 3), F8, batch=True)
    assert [half.shape for half in own] == [(2, 3), (3,)]
    assert np.array_equal(own[0], rows)
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        read_bounds((np.zeros(2), 1.0), (2, 3), F8, batch=True)


def test_torch_and_jax_bounds():
    torch = pytest.importorskip("torch")
    lower, upper = read((torch.zeros(3, dtype=torch.float64), torch.ones(3)))
    assert np.array_equal(upper - lower, np.ones(3))
    jnp = pytest.importorskip("jax.numpy")
    assert np.array_equal(read((jnp.zeros(3), jnp.ones(3)))[1], np.ones(3))


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ((np.array([0.0, 2.0, 0.0]), np.ones(3)), r"index 1 \(2.0 > 1.0\)"),
        ([(0, 1), (0, 1), (3, -3)], r"index 2 \(3.0 > -3.0\)"),
        ((np.array([0.0, np.nan, 0.0]), np.ones(3)), "lower bound is nan at index 1; allowed: numbers"),
        ((0.0, np.array([1.0, 1.0, np.nan])), "upper bound is nan at index 2"),
        ([(0, 1), (0, float("nan")), (0, 1)], "upper bound is nan at index 1"),
        ((np.full(3, np.inf), np.full(3, np.inf)), "inf"),
        ((np.full(3, -np.inf), np.full(3, -np.inf)), "inf"),
        ((np.zeros(2), np.ones(3)), r"lower bounds have shape \(2,\)"),
        ((np.zeros(3), np.ones((3, 2))), r"upper bounds have shape \(3, 2\)"),
        ([(0, 1), (0, 1)], r"shape \(2,\)"),
        ([(0, 1)] * 4, r"shape \(4,\)"),
        (np.zeros((3, 3)), r"shape \(3, 3\)"),
        (np.zeros(3), r"shape \(3,\)"),
        ([(0, 1, 2), (3, 4, 5), (6, 7, 8)], r"bounds\[0\] has 3 members"),
        ([(0, 1), (0,), (0, 1, 2)], r"bounds\[1\] has 1 members"),
        (([0, 0, 0], [1, 1]), r"bounds\[0\] has 3 members; .* a tuple of two arrays or numbers \(lower, upper\)"),
        (([0, 0, 0, 0], [1, 1, 1, 1]), r"lower bounds have shape \(4,\)"),
        ([(0, 1), None, (0, 1)], "cannot be read"),
        ([0, 1, 2], "cannot be read"),
        ("abc", "bounds"),
        ([("a", "b")] * 3, "cannot be read"),
        (5.0, "cannot be read"),
    ],
    ids=str,
)
def test_bad_bounds(bounds, said):
    with pytest.raises(ValueError, match=said):
        read(bounds)
    with pytest.raises(ValueError, match=said):
        minimize(lambda x: (float(x @ x), 2 * x), np.zeros(3), jac=True, bounds=bounds)


def test_bad_bounds_of_a_batch_name_the_place():
    lower = np.zeros((2, 3))
    lower[1, 2] = 7.0
    with pytest.raises(ValueError, match=r"index 5 \(7.0 > 1.0\)"):
        minimize_batch(lambda x: ((x**2).sum(1), 2 * x), np.zeros((2, 3)), jac=True, bounds=(lower, 1.0))


@pytest.mark.parametrize("n", [10**5, pytest.param(10**6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", ["tuple", "array", "list", "list with None"])
def test_many_bounds(form, n):
    lower, upper = np.full(n, -1.0), np.linspace(0.0, 1.0, n)
    bounds = {
        "tuple": (lower, upper),
        "array": np.stack([lower, upper], axis=1),
        "list": list(zip(lower.tolist(), upper.tolist())),
        "list with None": [(None, 1.0)] * n,
    }[form]
    opt = LBFGSB(np.zeros(n), bounds, m=1)
    low, high = opt._run.box[:2]
    if form == "list with None":
        assert low[-1] == -np.inf
    else:
        assert np.array_equal(low, lower)
        assert np.array_equal(high, upper)


def test_bounds_in_single_precision_are_rounded_inwards():
    lower, upper = np.array([0.1, 1 / 3, -1e300, 1e-320, -0.1]), np.array([0.7, 2 / 3, 1e300, 1.0, 0.1])
    low, high = read((lower, upper), n=5, dtype=F4)
    assert low.dtype == high.dtype == F4
    assert (low.astype(float) >= lower).all()
    assert (high.astype(float) <= upper).all()
    assert np.isfinite(low).all()
    ordinary = [0, 1, 3, 4]
    assert (low[ordinary] - lower[ordinary] <= np.spacing(np.abs(low[ordinary]))).all()


def test_intervals_that_single_precision_cannot_enter():
    third = 1 / 3
    low, high = read(([third, 0.0, 0.0] * np.ones(3), [third, 1.0, 1.0] * np.ones(3)), dtype=F4)
    assert low[0] == high[0] == np.float32(third)
    with pytest.raises(ValueError, match=r"index 1 .*1e\+200"):
        read((np.array([0.0, 1e200, 0.0]), np.full(3, 1e300)), dtype=F4)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("cauchy", ["exact", "first-interval", "none"])
@pytest.mark.parametrize("box", [(-0.6, 0.4), (-0.6, np.inf), (-np.inf, 0.4)])
def test_numbers_take_no_arrays_and_give_their_bits(dtype, cauchy, box):
    """A number on either side is kept as one, and the run is that of the array which repeats it."""
    n = 3001
    fun, x0 = problems.get("rosenbrock", n=n + 1).fun, np.resize(np.array([-1.2, 1.0, 0.3], dtype), n + 1)
    box = tuple(float(F4.type(half)) for half in box)
    x0 = np.clip(x0, *box)
    pairs = [(low, high) for low in (box[0], np.full(n + 1, box[0])) for high in (box[1], np.full(n + 1, box[1]))]
    options = {"cauchy": cauchy, "maxiter": 40, "gtol": 0.0, "ftol": 0.0, "maxcor": 6}
    runs = [minimize(lambda x: fun(x.astype(float)), x0, jac=True, bounds=pair, options=options) for pair in pairs]
    for run in runs[1:]:
        np.testing.assert_array_equal(run.x, runs[0].x)
        assert (run.nit, run.nfev, run.fun) == (runs[0].nit, runs[0].nfev, runs[0].fun)
    # No array, one on either side, both.
    word = np.dtype(dtype).itemsize
    held = [LBFGSB(x0, pair).nbytes for pair in pairs]
    assert [(each - held[0]) // (word * n) for each in held] == [0, 1, 1, 2]


def test_numbers_in_a_batch_and_in_saved_runs():
    fun, x0 = problems.get("rosenbrock", n=20).fun, np.tile([-1.2, 1.0], 10)

    def both(x):
        values = [fun(row) for row in x]
        return np.array([f for f, _ in values]), np.array([g for _, g in values])

    lows = np.stack([np.full(20, -1.3), np.full(20, -0.9)])
    options = {"gtol": 1e-9, "ftol": 0.0}
    starts = np.clip(np.stack([x0, x0]), lows, 0.8)
    mixed = minimize_batch(both, starts, jac=True, bounds=(lows, 0.8), options=options)
    arrays = minimize_batch(both, starts, jac=True, bounds=(lows, np.full((2, 20), 0.8)), options=options)
    np.testing.assert_array_equal(mixed.x, arrays.x)

    def run(opt, turns):
        while not opt.done and turns:
            opt.tell(*fun(opt.x))
            turns -= 1
        return opt

    through = run(LBFGSB(starts[0], (-1.3, 0.8), gtol=0, ftol=0), 25)
    state = run(LBFGSB(starts[0], (-1.3, 0.8), gtol=0, ftol=0), 11).state_dict()
    np.testing.assert_array_equal(run(LBFGSB.from_state_dict(state), 14).accepted_point(), through.accepted_point())


@pytest.mark.parametrize("use", ["minimize", "optimizer", "batch"])
def test_arrays_that_the_caller_uses_again_do_not_move_the_bounds(use):
    """Arrays of bounds and of the starting matrix are read once: a run within [-1, 1] stays there."""
    shape = (3, 50) if use == "batch" else 50
    low, high, h0 = np.full(50, -1.0), np.full(50, 1.0), np.full(50, 0.5)
    seen = []

    def fun(x):
        seen.append(np.array(x))
        low[:], high[:], h0[:] = -9.0, 9.0, 1e9
        return np.sum((x - 5) ** 2, axis=-1), 2 * (x - 5)

    if use == "optimizer":
        opt = LBFGSB(np.zeros(shape), (low, high), h0=h0)
        while not opt.done:
            opt.tell(*fun(np.array(opt.x)))
        found = opt.result().x
    else:
        solve = minimize_batch if use == "batch" else minimize
        found = solve(fun, np.zeros(shape), jac=True, bounds=(low, high), options={"h0": h0}).x
    assert np.array_equal(found, np.ones(shape))
    assert all(np.abs(x).max() <= 1 for x in seen)
