"""The limited-memory matrices: the direction of the engine against the dense recursive BFGS formula."""

from __future__ import annotations

import numpy as np
import pytest
from qn_oracles import EPS, Quadratic, breakpoints, cauchy_time, dense_bfgs, held, random_box, subspace_trial

from stepwell import LBFGSB


def follow(opt, fun, iterations):
    """Yield (state, x, g, trial) after every iteration; the trial is the one at step 1."""
    while not opt.done and opt.nit < iterations:
        opt.tell(*fun(opt.x))
        if opt.accepted and not opt.done:
            yield opt.state.copy(), opt.accepted_point(), opt.accepted_gradient(), np.array(opt.x)


def error_limit(b, trial, x):
    """Forward error of solving with B: eps times its condition, a factor for sums of some hundred terms."""
    return 100 * EPS * np.linalg.cond(b) * np.abs(trial - x).max() + 4 * EPS * np.abs(x).max()


@pytest.mark.parametrize("m", [1, 2, 3, 5, 8, 13, 32, 64])
@pytest.mark.parametrize("diagonal", [None, "constant", "callable"])
def test_direction_without_bounds_is_that_of_dense_bfgs(m, diagonal):
    rng = np.random.default_rng(m)
    n = 90
    fun = Quadratic(n, rng, condition=1e3, quartic=0.1)
    constant = rng.uniform(0.2, 3.0, size=n) / 100
    h0 = {None: None, "constant": constant, "callable": lambda x: 0.01 / (1 + x**2)}[diagonal]
    opt = LBFGSB(rng.normal(size=n), m=m, h0=h0, gtol=0, ftol=0)
    most = 0
    for state, x, g, trial in follow(opt, fun, 3 * m + 5 if m < 32 else m + 12):
        s, y = map(np.array, opt.pairs())
        most = max(most, len(s))
        h = np.full(n, state["gamma"]) if h0 is None else h0(x) if callable(h0) else h0
        b = dense_bfgs(s, y, h)
        assert np.abs(trial - (x - np.linalg.solve(b, g))).max() <= error_limit(b, trial, x)
    assert most == m
    assert opt.state["skipped"] == 0


@pytest.mark.parametrize("m", [1, 4, 9])
def test_pairs_are_the_latest_steps_in_order_of_age(m):
    rng = np.random.default_rng(m)
    fun = Quadratic(20, rng, condition=300.0, quartic=0.3)
    x0 = rng.normal(size=20)
    opt = LBFGSB(x0, m=m, gtol=0, ftol=0)
    points, gradients = [x0], [fun(x0)[1]]
    for state, x, g, _ in follow(opt, fun, 25):
        points.append(x)
        gradients.append(g)
        s, y = map(np.array, opt.pairs())
        assert len(s) == min(m, len(points) - 1)
        assert state["iterations"] == len(points) - 1
        recent = slice(-len(s) - 1, None)
        # A step kept as step * d differs from the difference of the points by the rounding of the points.
        assert np.abs(s - np.diff(points[recent], axis=0)).max() <= 4 * EPS * np.abs(points[recent]).max()
        assert np.array_equal(y, np.diff(gradients[recent], axis=0))
    assert len(points) > 2 * m


def compare_directions(seed, n, m, diagonal, cauchy, iterations, shift=8.0):
    """Every direction of a bounded run against the dense oracle; counts of walks, truncations and comparisons."""
    rng = np.random.default_rng([seed, m])
    fun = Quadratic(n, rng, condition=1e3, quartic=0.1, shift=shift)
    lower, upper, x0 = random_box(n, rng)
    constant = rng.uniform(0.2, 3.0, size=n) / 100
    h0 = {None: None, "constant": constant, "callable": lambda x: 0.01 / (1 + x**2)}[diagonal]
    opt = LBFGSB(x0, (lower, upper), m=m, h0=h0, gtol=1e-9, ftol=0, cauchy=cauchy)
    before, compared = np.zeros(2, int), 0
    for state, x, g, trial in follow(opt, fun, iterations):
        counts = np.array([state["truncations"], state["resets"]])
        truncated, reset = counts > before
        before = counts
        s, y = map(np.array, opt.pairs())
        if len(s) == 0 or reset:
            continue
        h = np.full(n, state["gamma"]) if h0 is None else h0(x) if callable(h0) else h0
        b = dense_bfgs(s, y, h)
        path = np.ones(n) if h0 is None else h
        carried = np.zeros(n, bool)
        if state["carry_time"] >= 0:
            carried = ~held(x, g, lower, upper) & (breakpoints(x, path * g, lower, upper) <= state["carry_time"])
            assert carried.any()
        share = state["step"] if len(s) > 1 else 1.0  # a first step's length is a guess
        expected, gave_up = subspace_trial(b, x, g, path, lower, upper, carried, state["cauchy_time"], share)
        assert gave_up == truncated
        assert np.abs(trial - expected).max() <= error_limit(b, expected, x) * (10 if gave_up else 1)
        compared += 1
    return np.array([opt.state["cauchy_walks"], opt.state["truncations"], compared])


@pytest.mark.parametrize("m", [1, 2, 5, 12, 64])
@pytest.mark.parametrize("diagonal", [None, "constant", "callable"])
@pytest.mark.parametrize("cauchy", ["exact", "first-interval", "none"])
@pytest.mark.parametrize("seeds", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_direction_with_bounds_is_the_minimiser_over_the_free_variables(m, diagonal, cauchy, seeds):
    n, seeds, iterations = (80, seeds // 2, 70) if m == 64 else (24, seeds, 3 * m + 8)
    walks, _, compared = sum(compare_directions(seed, n, m, diagonal, cauchy, iterations) for seed in range(seeds))
    assert compared > 10
    assert (walks > 0) == (cauchy != "none")


@pytest.mark.parametrize("cauchy", ["exact", "none"])
@pytest.mark.parametrize("diagonal", [None, "constant"])
def test_directions_cut_at_the_first_bound_where_the_projection_does_not_descend(diagonal, cauchy):
    """The fallback of Morales and Nocedal (2011), rare enough to need a search for it."""
    total = sum(compare_directions(seed, 6, 2, diagonal, cauchy, 15, shift=100.0) for seed in range(40))
    assert total[1] > 0


@pytest.mark.parametrize("m", [1, 2, 3])
def test_pairs_without_curvature_are_refused_and_the_rest_stay_in_order(m):
    """Waves in a box, steps cut short: they may see negative curvature, also when the ring is full."""
    refused_when_full = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n = 6
        weight, phase = rng.uniform(0.2, 5, n), rng.uniform(0, 6, n)

        def fun(x, weight=weight, phase=phase):
            y = x + 0.3 * np.roll(x, 1)
            slope = weight * np.cos(y + phase)
            return float(weight @ np.sin(y + phase)), slope + 0.3 * np.roll(slope, -1)

        lower, upper = np.full(n, -4.0), rng.uniform(-2, 4, n)
        x0 = np.clip(rng.normal(size=n), lower, upper)
        opt = LBFGSB(x0, (lower, upper), m=m, gtol=1e-7, ftol=0, line_search=dict(stpmax=0.1))
        last, kept, resets = (x0, fun(x0)[1]), [], 0
        for state, x, g, _ in follow(opt, fun, 40):
            goal = x + opt._run.target.arrays()["d"][0]
            y = g - last[1]
            s = x - last[0]
            last = x, g
            stored, changes = (np.array(rows).reshape(-1, n) for rows in opt.pairs())
            if state["resets"] > resets:
                resets, kept = state["resets"], []
                continue
            full = len(kept) >= m
            if s @ y > EPS * (y @ y):
                kept.append(y)
            else:
                refused_when_full += full
            count = len(changes)
            assert min(len(kept), m - 1) <= count <= m
            assert np.array_equal(changes, kept[len(kept) - count :] if count else np.empty((0, n)))
            kept = kept[len(kept) - count :]
            if count == 0:
                expected = np.clip(x - state["gamma"] * g, lower, upper)
                assert np.abs(goal - expected).max() <= 8 * EPS * np.abs(x).max()
                continue
            b = dense_bfgs(stored, changes, np.full(n, state["gamma"]))
            carried = np.zeros(n, bool)
            if state["carry_time"] >= 0:
                carried = ~held(x, g, lower, upper) & (breakpoints(x, g, lower, upper) <= state["carry_time"])
            # The longest step is a tenth here: the share that counts as nothing is of that.
            share = 10 * state["step"] if count > 1 else 1.0
            expected, _ = subspace_trial(b, x, g, np.ones(n), lower, upper, carried, state["cauchy_time"], share)
            assert np.abs(goal - expected).max() <= 10 * error_limit(b, expected, x)
    assert refused_when_full > 0


def test_hand_worked_cauchy_time_of_one_pair():
    """The oracle itself, against a case worked by hand: B = I, one bound on the way."""
    x, g = np.zeros(2), np.array([-2.0, -1.0])
    upper = np.array([1.0, np.inf])
    # Segment one ends at t = 1/2; the slope there is -5 + 5/2 < 0; then -1 + t = 0 at t = 1.
    assert cauchy_time(np.eye(2), x, g, np.ones(2), np.full(2, -np.inf), upper) == 1.0


def test_secant_equation_holds_after_any_number_of_wraps():
    rng = np.random.default_rng(5)
    fun = Quadratic(15, rng, condition=200.0, quartic=0.5)
    opt = LBFGSB(rng.normal(size=15), m=4, gtol=0, ftol=0)
    last = None
    for _, x, g, _ in follow(opt, fun, 22):
        if last is not None:
            s, y = x - last[0], g - last[1]
            operator = opt.inverse_hessian()
            # H y = s is an identity of the two-loop recursion: H's condition times rounding, and that of s itself.
            limit = 100 * EPS * np.linalg.cond(operator.todense()) * np.abs(s).max() + 8 * EPS * np.abs(x).max()
            assert np.abs(operator @ y - s).max() <= limit
            assert np.abs(operator.T @ y - s).max() <= limit
        last = x, g
    assert opt.nit > 3 * 4


@pytest.mark.parametrize("diagonal", [None, "constant", "callable"])
@pytest.mark.parametrize("bounds", [None, (-np.inf, 100.0)])
@pytest.mark.parametrize("line_search", ["lbfgsb", "va15"])
def test_a_given_diagonal_is_trusted_with_the_length_of_the_first_step(diagonal, bounds, line_search):
    """Without one the first step has length one; VA15 takes 1/|g| of any direction (Liu, Nocedal 1989)."""
    rng = np.random.default_rng(5)
    scale = rng.uniform(0.5, 4.0, size=15)
    h0 = {None: None, "constant": 1 / scale, "callable": lambda x: 1 / scale}[diagonal]
    x0 = rng.normal(size=15)
    opt = LBFGSB(x0, bounds, h0=h0, line_search=line_search)
    g = scale * (x0 - 2)
    opt.tell(float(0.5 * scale @ (x0 - 2) ** 2), g)
    direction = -g if h0 is None else -g / scale
    length = np.linalg.norm(g if line_search == "va15" else direction)
    step = 1 / length if h0 is None or line_search == "va15" else 1.0
    assert np.linalg.norm(g) > 1
    assert np.abs(opt.x - (x0 + min(step, 1.0) * direction)).max() <= 4 * EPS * np.abs(x0).max()
