"""The generalized Cauchy point of the engine against a dense walk along the projected path, and against sampling."""

from __future__ import annotations

import numpy as np
import pytest
from qn_oracles import EPS, Quadratic, breakpoints, cauchy_time, dense_bfgs, held, model, random_box

from stepwell import LBFGSB, Status, minimize


def cauchy_points(opt, fun, h0=None):
    """Yield (state, b, x, g, h) at every iteration with a history; h scales the path x - t h g."""
    resets = 0
    while not opt.done:
        opt.tell(*fun(opt.x))
        state = opt.state.copy()
        if opt.accepted and not opt.done and state["pairs"] > 0 and state["resets"] == resets:
            s, y = map(np.array, opt.pairs())
            x, g = opt.accepted_point(), opt.accepted_gradient()
            h = np.ones(x.size) if h0 is None else h0
            start = h0 if h0 is not None else np.full(x.size, state["gamma"])
            yield state, dense_bfgs(s, y, start), condition(s, y, start), x, g, h
        resets = state["resets"]


def condition(s, y, h0):
    """Condition of the small matrix of the compact representation, its rows and columns scaled to one."""
    sy = s @ y.T
    lower = np.tril(sy, -1)
    k = np.block([[-np.diag(np.diag(sy)), lower.T], [lower, (s / h0) @ s.T]])
    scale = 1 / np.sqrt(np.abs(np.diag(k)))
    return np.linalg.cond(scale[:, None] * k * scale)


def check_cauchy(state, b, amplification, x, g, h, lower, upper):
    """Time and carried variables of one iteration, against the dense walk and the definition."""
    expected = cauchy_time(b, x, g, h, lower, upper)
    # Rounding is amplified by the small matrix in the engine and by B in the dense walk.
    tolerance = 100 * EPS * (amplification + np.linalg.cond(b))
    assert state["cauchy_time"] == pytest.approx(expected, rel=tolerance)
    stuck = held(x, g, lower, upper)
    t = np.where(stuck, np.inf, breakpoints(x, h * g, lower, upper))
    clear = np.abs(t - expected) > tolerance * expected
    assert np.array_equal((t <= state["carry_time"])[clear], (t < expected)[clear])
    # The definition: the model falls all the way there, and not at once beyond.
    bound = np.where(g > 0, lower, upper)
    times = np.append(np.linspace(0, expected, 30), 1.001 * expected)[:, None]
    steps = np.where(stuck, 0.0, np.where(t <= times, bound - x, -times * h * g))
    values = model(b, g, steps)
    noise = 100 * EPS * np.linalg.cond(b) * np.abs(values).max()
    assert (np.diff(values[:-1]) <= noise).all()
    assert values[-1] >= values[-2] - noise
    return int((t <= state["carry_time"]).sum())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kinds", ["both", "lower none", "upper fixed both", "both lower upper none fixed"])
def test_exact_cauchy_point_is_that_of_the_dense_walk(kinds, weighted):
    walked = []
    for seed in range(15):
        rng = np.random.default_rng([seed, len(kinds)])
        n = int(rng.integers(5, 40))
        fun = Quadratic(n, rng, condition=300.0, quartic=0.05, shift=30.0)
        lower, upper, x0 = random_box(n, rng, kinds)
        h0 = rng.uniform(0.1, 3.0, size=n) / 100 if weighted else None
        opt = LBFGSB(x0, (lower, upper), m=6, h0=h0, gtol=1e-6, ftol=0, maxiter=12)
        for sample in cauchy_points(opt, fun, h0):
            walked.append(check_cauchy(*sample, lower, upper))
    assert 0 in walked
    assert 1 in walked
    assert max(walked) > 1


def test_ties_are_crossed_together():
    """Four copies of one problem have every breakpoint four times."""
    rng = np.random.default_rng(3)
    one, n = Quadratic(8, rng, condition=1e3, shift=10.0), 8
    lower, upper, x0 = random_box(n, rng, "both")

    def fun(x):
        parts = [one(part) for part in x.reshape(4, n)]
        return sum(f for f, _ in parts), np.concatenate([g for _, g in parts])

    lower, upper = np.tile(lower, 4), np.tile(upper, 4)
    opt = LBFGSB(np.tile(x0, 4), (lower, upper), m=5, gtol=1e-6, ftol=0)
    carried = [check_cauchy(*sample, lower, upper) for sample in cauchy_points(opt, fun)]
    assert max(carried) >= 4
    assert all(count % 4 == 0 for count in carried)
    assert opt.status.success
    assert np.array_equal(opt.x, np.tile(opt.x[:n], 4))


def test_no_finite_breakpoint():
    """Every movable variable moves away from its only bound: the Cauchy point is the unconstrained minimiser of it."""
    a = np.geomspace(1.0, 50.0, 12)

    def fun(x):
        return float(0.5 * a @ (x - 9) ** 2), a * (x - 9)

    lower, upper = np.zeros(12), np.full(12, np.inf)
    opt = LBFGSB(np.zeros(12), (lower, upper), m=4, gtol=1e-9, ftol=0)
    free_runs = 0
    for state, b, k, x, g, h in cauchy_points(opt, fun):
        check_cauchy(state, b, k, x, g, h, lower, upper)
        if (g < 0).all():
            free_runs += 1
            assert state["cauchy_time"] == pytest.approx(g @ g / (g @ b @ g), rel=1e-9)
            assert state["carry_time"] < 0
    assert free_runs > 0


def test_almost_everything_held():
    """One movable variable among many that are pressed against their bounds or fixed."""
    rng = np.random.default_rng(0)
    n = 40
    lower, upper = np.zeros(n), np.full(n, 3.0)
    upper[10:20] = 0.0
    cost = np.abs(rng.normal(size=n)) + 0.5
    cost[7] = -5.0

    def fun(x):
        g = cost + 0.0 * x
        g[7] = cost[7] + x[7] ** 3
        return float(cost @ x + x[7] ** 4 / 4), g

    opt = LBFGSB(np.zeros(n), (lower, upper), gtol=1e-10, ftol=0)
    for state, b, k, x, g, h in cauchy_points(opt, fun):
        assert state["held"] == n - 1
        check_cauchy(state, b, k, x, g, h, lower, upper)
    assert opt.x[7] == pytest.approx(5 ** (1 / 3), rel=1e-9)
    assert np.count_nonzero(opt.x) == 1


@pytest.mark.parametrize("line_search", ["lbfgsb", "va15"])
@pytest.mark.parametrize("policy", ["exact", "first-interval", "none"])
def test_linear_function_in_a_box_ends_at_the_vertex(line_search, policy):
    """No pair has curvature, f'' = 0 along every path: the answer is the vertex against the gradient."""
    rng = np.random.default_rng(1)
    cost = rng.normal(size=17) * 10.0 ** rng.uniform(-2, 2, size=17)
    lower, upper = -rng.uniform(0, 3, size=17), rng.uniform(0, 3, size=17)
    options = dict(line_search=line_search, cauchy=policy)
    r = minimize(lambda x: (cost @ x, cost), np.zeros(17), jac=True, bounds=(lower, upper), options=options)
    assert np.array_equal(r.x, np.where(cost > 0, lower, upper))
    assert r.reason is Status.GRADIENT
    assert r.skipped > 0


def test_almost_linear_function_in_a_box():
    """Curvature at the edge of rounding: gamma is enormous, and every breakpoint is passed at once."""
    cost = np.array([-1.0, 2.0, -0.5])

    def fun(x):
        return float(cost @ x + 0.5e-13 * x @ x), cost + 1e-13 * x

    r = minimize(fun, np.zeros(3), jac=True, bounds=(-7.0, 1e3))
    assert np.array_equal(r.x, [1e3, -7.0, 1e3])
    assert r.success


@pytest.mark.parametrize("n", [1, 2])
def test_tiny_problems_walk_too(n):
    rng = np.random.default_rng(n)
    for seed in range(20):
        rng = np.random.default_rng([n, seed])
        fun = Quadratic(n, rng, quartic=1.0, shift=20.0)
        lower, upper, x0 = random_box(n, rng, "both lower")
        opt = LBFGSB(x0, (lower, upper), m=3, gtol=1e-8, ftol=0)
        for sample in cauchy_points(opt, fun):
            check_cauchy(*sample, lower, upper)
        assert opt.status is not Status.RUNNING


def plain_walk(s, y, gamma, x, g, lower, upper):
    """Cauchy time and last breakpoint before it, from the compact formula of B, all segments at once.

    With c = Wᵀ z and p = Wᵀ d for the displacement z and the velocity d of a segment, the slope of the model is
    gᵀd + (zᵀd)/gamma - cᵀ M p, linear in t. (As Byrd et al. 1995 have it; the engine works in another basis.)
    """
    t = np.where(held(x, g, lower, upper), np.inf, breakpoints(x, g, lower, upper))
    w = np.vstack([y, s / gamma])
    sy = s @ y.T
    k = np.block([[-np.diag(np.diag(sy)), np.tril(sy, -1).T], [np.tril(sy, -1), s @ s.T / gamma]])
    moves = ~held(x, g, lower, upper)
    times = np.unique(t[np.isfinite(t)])
    begins = np.append(0.0, times)
    order = np.argsort(t, kind="stable")
    last = np.searchsorted(t[order], begins, side="right")  # variables at rest from each beginning on
    wg = (w * g)[:, order]
    rest = np.cumsum(np.where(np.isfinite(t[order]), wg, 0.0), axis=1)
    rest_t = np.cumsum(np.where(np.isfinite(t[order]), wg * np.where(np.isfinite(t), t, 0.0)[order], 0.0), axis=1)
    squares = np.cumsum(np.where(np.isfinite(t[order]), (g * g)[order], 0.0))
    pick = lambda sums: np.concatenate([np.zeros((*sums.shape[:-1], 1)), sums], axis=-1)[..., last]  # noqa: E731
    p = -((w[:, moves] @ g[moves])[:, None] - pick(rest))
    a = g[moves] @ g[moves] - pick(squares)
    fixed = -pick(rest_t)
    solved = np.linalg.solve(k, p)
    slopes = -a - (solved * fixed).sum(0)
    curvatures = a / gamma - (solved * p).sum(0)
    roots = np.where(slopes + curvatures * begins >= 0, begins, -slopes / curvatures)
    first = int(np.argmax(roots <= np.append(times, np.inf)))
    return roots[first], (begins[first] if first else -1.0), t


def carried_in_walks(opt, fun, lower, upper):
    """Run to the end, hold every walk to the dense one, and return how many breakpoints each has crossed."""
    carried = []
    while not opt.done:
        opt.tell(*fun(np.asarray(opt.x)))
        state = opt.state.copy()
        if opt.done or not opt.accepted or state["pairs"] == 0:
            continue
        s, y = map(np.array, opt.pairs())
        x, g = opt.accepted_point(), opt.accepted_gradient()
        expected, crossed, t = plain_walk(s, y, float(state["gamma"]), x, g, lower, upper)
        assert state["cauchy_time"] == pytest.approx(expected, rel=1e-8)
        carried.append(int((t <= state["carry_time"]).sum()))
        # The last breakpoint before the minimiser; which of two is a matter of rounding where it lies on one.
        if abs(expected - crossed) > 1e-8 * expected:
            assert carried[-1] == int((t <= crossed).sum())
    return carried


@pytest.mark.parametrize(("centres", "threads"), [(36_000, 1), (36_000, 2), (40, 1), (6, 2)])
def test_a_walk_over_tens_of_thousands_of_breakpoints(centres, threads):
    """Lists that grow, and where the last one ends; ties that fit a later list, and ties that fit none."""
    n = 36_000
    centre = np.repeat(3 * np.sin(np.linspace(0, 7, centres)), n // centres)

    def fun(x):
        return float((0.25 * (x - centre) ** 4 + np.cos(x)).sum()), (x - centre) ** 3 - np.sin(x)

    lower, upper = np.full(n, -0.5), np.where(np.arange(n) % 4 == 0, np.inf, 0.8)
    opt = LBFGSB(np.zeros(n), (lower, upper), maxiter=6, threads=threads)
    carried = carried_in_walks(opt, fun, lower, upper)
    assert max(carried) > 15 * 512


@pytest.mark.parametrize(("n", "copies"), [(3000, 1), (3, 700)])
def test_walks_over_more_breakpoints_than_a_list_holds(n, copies):
    """Many distinct ones, which are counted in bins; and ties, more at one time than fit a list."""
    rng = np.random.default_rng([n, 2])
    curvature = np.tile(np.geomspace(1.0, 30.0, n), copies)
    centre = np.tile(rng.normal(size=n) * 3, copies)
    width = 10 ** rng.uniform(-2, 1, size=n)
    lower = -width * rng.uniform(0.1, 0.9, size=n)
    upper = lower + width
    upper[0] = np.inf  # the first step is short, and the path after it crosses many bounds at once
    lower, upper = np.tile(lower, copies), np.tile(upper, copies)

    def fun(x):
        away = x - centre
        return float(0.5 * curvature @ away**2 + 0.25 * np.sum(away**4)), curvature * away + away**3

    opt = LBFGSB(np.zeros(n * copies), (lower, upper), m=5, gtol=1e-4, ftol=0)
    carried = carried_in_walks(opt, fun, lower, upper)
    assert opt.status.success
    assert max(carried) > 512
    assert all(count % copies == 0 for count in carried)
