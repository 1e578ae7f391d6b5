"""What must hold in every run: descent, exact feasibility, the secant equation, and bits that do not depend on company.

A batch gives each problem the bits it has alone. Threads: test_qn_threads.py. Runs that are resumed: test_qn_resume.py.
"""

from __future__ import annotations

import gc
import warnings
from functools import partial

import numpy as np
import pytest
import scipy.optimize
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from qn_family import Family
from qn_oracles import Quadratic, random_box

from stepwell import LBFGSB, Status, minimize, minimize_batch, problems

QUIET = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], database=None
)

# ---- feasibility and descent ----

ends = st.one_of(
    st.floats(-3, 3),
    st.sampled_from([0.0, -0.0, 1e300, -1e300, 5e-324, -5e-324, 1e-310, 1e-30, 1e17, 0.1, 1 / 3, 1e38, -1e39]),
)


@st.composite
def intervals(draw):
    """One pair of bounds: two-sided, one-sided, absent, equal, of one unit in the last place, huge or denormal."""
    kind = draw(st.sampled_from(["two", "lower", "upper", "none", "fixed", "ulp", "tiny"]))
    a, b = draw(ends), draw(ends)
    if kind == "two":
        return min(a, b), max(a, b)
    if kind == "fixed":
        return a, a
    if kind == "ulp":
        return a, float(np.nextafter(a, np.inf))
    if kind == "tiny":
        return a, a + 1e-9 * abs(a)
    return (a if kind == "lower" else -np.inf), (b if kind == "upper" else np.inf)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@QUIET
@given(
    pairs=st.lists(intervals(), min_size=1, max_size=9),
    seed=st.integers(0, 1000),
    policy=st.sampled_from(["exact", "first-interval", "none"]),
    preset=st.sampled_from(["lbfgsb", "va15"]),
    weighted=st.booleans(),
)
def test_every_point_lies_inside_exactly(dtype, pairs, seed, policy, preset, weighted):
    rng = np.random.default_rng(seed)
    lower, upper = np.array(pairs).T
    n = len(lower)
    if dtype == np.float32:
        with np.errstate(over="ignore"):
            low, high = lower.astype(dtype), upper.astype(dtype)
        if np.isposinf(low).any() or np.isneginf(high).any():
            return  # no number of single precision there: an error, tested elsewhere
        # Where no number of single precision lies between, the nearest one stands for both.
        narrow = np.nextafter(low, dtype(np.inf)).astype(float) > upper
        narrow &= low.astype(float) != lower
        lower, upper = np.where(narrow, low, lower), np.where(narrow, low, upper)
    target, scale = 3 * rng.normal(size=n), 10.0 ** rng.uniform(-2, 2, size=n)
    with np.errstate(over="ignore"):
        x0 = np.clip(rng.normal(size=n), lower, upper).astype(dtype)
    points = []

    def fun(x):
        points.append(np.array(x, float))
        with np.errstate(over="ignore"):
            move = np.asarray(x, float) - target
            return float(scale @ np.sqrt(1 + move**2)), (scale * move / np.sqrt(1 + move**2))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.optimize.OptimizeWarning)  # rounding to float32 may put the start outside
        r = minimize(
            fun, x0, jac=True, bounds=(lower, upper),
            options=dict(cauchy=policy, line_search=preset, maxiter=40, h0=1 / scale if weighted else None),
        )  # fmt: skip
    visited = np.array(points)
    assert (visited >= lower).all()
    assert (visited <= upper).all()
    assert r.fun <= fun(visited[0])[0]
    assert r.reason is not Status.RUNNING


@pytest.mark.parametrize("preset", ["lbfgsb", "va15"])
@pytest.mark.parametrize("bounded", [False, True])
def test_values_descend_and_slopes_are_negative(bounded, preset):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        fun = Quadratic(20, rng, condition=1e4, quartic=0.5, shift=5.0)
        lower, upper, x0 = random_box(20, rng) if bounded else (None, None, rng.normal(size=20))
        opt = LBFGSB(x0, (lower, upper) if bounded else None, m=5, line_search=preset, gtol=1e-7)
        last = np.inf
        while not opt.done:
            opt.tell(*fun(opt.x))
            state = opt.state
            if opt.accepted:
                assert state["f"] < last or (opt.done and state["f"] <= last)
                assert state["f"] == fun(opt.accepted_point())[0]
                last = float(state["f"])
            if not opt.done:
                assert state["slope"] < 0
        assert opt.status.success


def test_a_step_that_rounds_to_a_bound_does_not_point_beyond_it():
    """Far from zero a small step does not move a held variable, and must not stop the others."""

    def fun(x):
        f = (x[0] - 3) ** 2 + 0.1 * x[0] ** 4 + 1e-9 * (x[1] - 1e8)
        return f, np.array([2 * (x[0] - 3) + 0.4 * x[0] ** 3, 1e-9])

    r = minimize(fun, np.array([0.0, 1e8]), jac=True, bounds=[(None, None), (1e8, None)], options=dict(ftol=0))
    assert r.reason is Status.GRADIENT
    assert r.x[1] == 1e8
    assert abs(fun(r.x)[1][0]) <= 1e-5


# ---- the secant equation ----


def test_hess_inv_takes_complex_vectors_apart():
    r = minimize(problems.get("rosenbrock", n=6).fun, np.full(6, 0.3), jac=True)
    v = np.arange(6.0) + 1j * np.arange(6.0)[::-1]
    np.testing.assert_allclose(r.hess_inv @ v, r.hess_inv.todense() @ v, rtol=1e-12)


def secant_error(operator, trace, fun):
    s = trace[-1] - trace[-2]
    y = fun(trace[-1])[1] - fun(trace[-2])[1]
    return np.linalg.norm(operator @ y - s) / np.linalg.norm(s)


@pytest.mark.parametrize("iterations", [1, 3, 4, 5, 7, 8, 9, 12, 13, 17])
@pytest.mark.parametrize("bounded", [False, True])
def test_hess_inv_satisfies_the_secant_equation_of_the_latest_pair(iterations, bounded):
    p = problems.get("rosenbrock", n=20)
    trace = [p.x0]
    r = minimize(
        p.fun, p.x0, jac=True, bounds=(-5.0, 5.0) if bounded else None, callback=lambda x: trace.append(x),
        options=dict(maxcor=4, maxiter=iterations, gtol=0, ftol=0),
    )  # fmt: skip
    assert r.nit == iterations
    assert r.hess_inv.n_corrs == min(4, iterations)
    # s and y are differences of points of size one: their own rounding, over the smallest step here.
    assert secant_error(r.hess_inv, trace, p.fun) < 1e-10
    dense = r.hess_inv.todense()
    assert dense == pytest.approx(dense.T, abs=1e-12 * np.abs(dense).max())
    assert np.linalg.eigvalsh((dense + dense.T) / 2)[0] > 0


def test_hess_inv_shares_the_history_of_an_ended_run_and_copies_that_of_one_that_goes_on():
    p = problems.get("rosenbrock", n=30)
    opt = LBFGSB(p.x0, m=3, maxiter=9, gtol=0.0, ftol=0.0)
    for _ in range(7):
        opt.tell(*p.fun(opt.x))
    on_the_way = opt.result().hess_inv
    before = on_the_way.todense()
    while not opt.done:
        opt.tell(*p.fun(opt.x))
    assert np.array_equal(on_the_way.todense(), before)
    ended = opt.result().hess_inv
    assert np.shares_memory(ended._s[0], opt._run.target.arrays()["s"])
    s, y = map(np.array, opt.pairs())
    assert np.array_equal(ended.sk, s)
    assert np.array_equal(ended.yk, y)
    dense = ended.todense()
    del opt
    gc.collect()
    _ = [np.full(30 * 3 * 8, np.nan) for _ in range(100)]  # whatever was freed is written over
    assert np.array_equal(ended.todense(), dense)


def test_the_pair_of_a_point_taken_before_its_search_was_over_is_the_step_made():
    # The first trial point decreases f, but its slope is still steep: the search wants to go on from there.
    opt = LBFGSB(np.zeros(1), target=-0.9)
    while not opt.done:
        x = float(opt.x[0])
        opt.tell(-x + 0.01 * x * x, np.array([-1 + 0.02 * x]))
    result = opt.result()
    assert opt.status is Status.TARGET
    assert result.nfev == 2
    change = 0.02 * result.x[0]
    assert np.isclose(result.hess_inv @ np.array([change]), result.x[0], rtol=1e-12)


def test_scipy_s_hess_inv_where_ours_differs():
    """Documents a difference, whichever way it turns out: SciPy's ring order after wrap-around is its own affair."""
    p = problems.get("rosenbrock", n=20)
    errors = []
    for iterations in range(5, 12):
        options = dict(maxcor=4, maxiter=iterations, gtol=0, ftol=0)
        for solve in (minimize, partial(scipy.optimize.minimize, method="L-BFGS-B")):
            trace = [p.x0]
            r = solve(p.fun, p.x0, jac=True, callback=lambda x, trace=trace: trace.append(x.copy()), options=options)
            errors.append(secant_error(r.hess_inv, trace, p.fun))
    assert max(errors[0::2]) < 1e-10
    if max(errors[1::2]) < 1e-10:
        pytest.skip("this SciPy satisfies the secant equation too: the difference is gone")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("bounds", ["none", "shared", "own"])
@pytest.mark.parametrize("h0", ["none", "shared", "own", "callable"])
def test_batch_is_bitwise_each_problem_alone(dtype, bounds, h0):
    count, n = 21, 17
    family = Family(count, n)
    rng = np.random.default_rng(1)
    lower = {"none": None, "shared": np.full(n, -0.5), "own": -rng.uniform(0, 1, size=(count, n))}[bounds]
    diagonals = {"none": None, "shared": rng.uniform(0.1, 1, n), "own": rng.uniform(0.1, 1, (count, n))}
    diagonals["callable"] = lambda x: 1 / (1 + x * x)

    def part(array, k):
        return array[k] if isinstance(array, np.ndarray) and array.ndim == 2 else array

    def narrow(pair):
        return pair[0].astype(np.float64), pair[1].astype(dtype)

    options = dict(maxcor=3, gtol=1e-4)
    together = minimize_batch(
        lambda x: narrow(family(x)), np.zeros((count, n), dtype), jac=True,
        bounds=None if lower is None else (lower, -lower), options=dict(options, h0=diagonals[h0]),
    )  # fmt: skip
    assert len(set(together.nit.tolist())) > 3
    for k in range(count):
        own = None if lower is None else (part(lower, k), -part(lower, k))
        alone = minimize(
            lambda x, k=k: (float(narrow(family(x, k))[0]), family(x, k)[1].astype(dtype)), np.zeros(n, dtype),
            jac=True, bounds=own, options=dict(options, h0=part(diagonals[h0], k)),
        )  # fmt: skip
        assert np.array_equal(together.x[k], alone.x)
        assert np.array_equal(together.jac[k], alone.jac)
        assert together.fun[k] == alone.fun
        assert (together.nit[k], together.nfev[k], together.reason[k]) == (alone.nit, alone.nfev, alone.reason)
        assert np.array_equal(together.hess_inv(k).todense(), alone.hess_inv.todense())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_problems_of_a_batch_with_bounds_of_different_kinds(dtype):
    """None, one-sided, two of every variable, one alone: the first step depends on it, and so do the sums taken."""
    n, infinity = 12, np.inf
    lower, upper = np.full((6, n), -infinity), np.full((6, n), infinity)
    lower[1], upper[1] = -1, 2
    lower[2, 0] = 0
    lower[3], upper[3] = -3, 0.5
    upper[4, : n // 2] = 0.3
    p = problems.get("rosenbrock", n=n)
    x0 = np.clip(np.random.default_rng(0).normal(size=(6, n)), lower, upper).astype(dtype)

    def one(x):
        f, g = p.fun(x.astype(float))
        return float(f), g.astype(dtype)

    def fun(x):
        pairs = [one(row) for row in x]
        return np.array([f for f, _ in pairs]), np.stack([g for _, g in pairs])

    options = dict(maxcor=4, gtol=1e-8, ftol=0.0, maxiter=300)
    together = minimize_batch(fun, x0, jac=True, bounds=(lower, upper), options=options)
    for k in range(6):
        alone = minimize(one, x0[k], jac=True, bounds=(lower[k], upper[k]), options=options)
        assert np.array_equal(together.x[k], alone.x)
        assert (together.nit[k], together.nfev[k], together.reason[k]) == (alone.nit, alone.nfev, alone.reason)


def test_a_batch_of_batches():
    """Sizes around the pieces in which problems are handed to threads."""
    family = Family(70, 6, seed=4)
    whole = minimize_batch(family, np.zeros((70, 6)), jac=True, bounds=(-0.7, 0.7))
    for first, count in ((0, 1), (3, 15), (20, 16), (30, 17), (50, 2)):
        some = slice(first, first + count)
        r = minimize_batch(lambda x, some=some: family(x, some), np.zeros((count, 6)), jac=True, bounds=(-0.7, 0.7))
        assert np.array_equal(r.x, whole.x[some])
        assert np.array_equal(r.nfev, whole.nfev[some])


def test_finished_problems_stop_moving_and_counting():
    family = Family(12, 9, seed=2)
    trail = []

    def record(intermediate_result):
        trail.append(intermediate_result)

    r = minimize_batch(family, np.zeros((12, 9)), jac=True, bounds=(-0.5, 1.0), callback=record)
    for k in range(12):
        ended = next(i for i, seen in enumerate(trail) if not seen.running[k])
        for later in trail[ended:]:
            assert not later.running[k]
            assert np.array_equal(later.x[k], trail[ended].x[k])
            assert later.nfev[k] == trail[ended].nfev[k] == ended + 1
            assert later.nit[k] == trail[ended].nit[k]
            assert later.fun[k] == trail[ended].fun[k]
    assert len({tuple(r.nfev)}) == 1
    assert r.nfev.max() == len(trail) == r.evaluations
    assert r.nfev.min() < r.nfev.max()


def test_finished_rows_may_turn_bad():
    """What the objective says about a row that has ended no longer matters."""
    family, ended = Family(6, 5), np.zeros(6, bool)

    def fun(x):
        f, g = family(x)
        return np.where(ended, np.nan, f), np.where(ended[:, None], np.nan, g)

    def note(intermediate_result):
        ended[:] = ~intermediate_result.running

    shaken = minimize_batch(fun, np.zeros((6, 5)), jac=True, callback=note)
    assert np.array_equal(shaken.x, minimize_batch(family, np.zeros((6, 5)), jac=True).x)
