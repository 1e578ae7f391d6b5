"""Functions that fall by twenty orders of magnitude and more in their first steps: success means a minimum."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from qn_oracles import PRESSURE, VOLUME

import stepwell
from stepwell import Status, minimize, minimize_batch
from stepwell.distributed import run_threads, split

# Each is a pair: a gentle part, whose gradient is lost beside that of the steep part at the start, and that steep part.
# Rows of x are points; values and gradients are of rows.


def exponential(rate):
    def fun(x):
        steep = np.exp(-rate * x[:, 1])
        return x[:, 0] ** 2 + steep, np.stack([2 * x[:, 0], -rate * steep], 1)

    return fun


def power(degree):
    def fun(x):
        steep = np.abs(x[:, 1])
        slope = degree * np.sign(x[:, 1]) * steep ** (degree - 1)
        return (x[:, 0] - 3) ** 2 + steep**degree, np.stack([2 * (x[:, 0] - 3), slope], 1)

    return fun


def catenary(x):
    return (x[:, 0] - 2) ** 2 + np.cosh(x[:, 1]) - 1, np.stack([2 * (x[:, 0] - 2), np.sinh(x[:, 1])], 1)


def exponential_and_line(x):
    return x[:, 0] ** 2 + np.exp(x[:, 1]) - x[:, 1] - 1, np.stack([2 * x[:, 0], np.exp(x[:, 1]) - 1], 1)


def stiff(curvature):
    def fun(x):
        return (x[:, 0] - 7) ** 2 + curvature * x[:, 1] ** 2, np.stack([2 * (x[:, 0] - 7), 2 * curvature * x[:, 1]], 1)

    return fun


#: Function, start, bounds. All have their minimum, 0, inside the bounds (exponential: less than exp(-200) there).
CASES = (
    {f"exp {e}": (exponential(1000), (500, -e / 1000), (-1e3, 1e3)) for e in (10, 30, 50, 70, 100, 300, 600)}
    | {f"slow exp {e}": (exponential(1), (500, -e), (-1e3, 1e3)) for e in (5, 20, 50, 300)}
    | {f"power {p} of {a:g}": (power(p), (-50, a), (-2 * a, 2 * a)) for p, a in ((4, 1e10), (4, 1e70), (10, 1e25))}
    | {f"cosh {a}": (catenary, (500, a), (-1e3, 1e3)) for a in (30, 100, 300, 700)}
    | {f"exp and line {a}": (exponential_and_line, (300, a), (-700, 700)) for a in (50, 200, 600)}
    | {f"stiff {c:g}": (stiff(c), (500, 1.3), (-1e3, 1e3)) for c in (1e10, 1e20, 1e40, 1e100, 1e300)}
)
#: Condition numbers beyond 1e16: a run may end without success. So it may where the power leaves x without a digit.
HARD = {"stiff 1e+20", "stiff 1e+40", "stiff 1e+100", "stiff 1e+300", "power 4 of 1e+70"}
TOLERANCE = 1e-5
POLICIES = ("exact", "first-interval", "none")


def single(fun, dtype=np.float64):
    def one(x):
        f, g = fun(x.astype(np.float64)[None])
        return float(f[0]), g[0].astype(dtype)

    return one


def check(name, r, *, must_end=True):
    least = r.fun <= TOLERANCE
    assert least or not r.success, f"{name}: {r.reason} at f = {r.fun}"
    assert least or name in HARD or not must_end, f"{name}: {r.reason} at f = {r.fun}"


@pytest.fixture(autouse=True)
def overflow_is_no_error():
    with np.errstate(over="ignore", invalid="ignore"):  # trial points may lie where f is infinite
        yield


@pytest.mark.parametrize("name", CASES)
def test_without_bounds(name):
    fun, start, _ = CASES[name]
    for search in ("lbfgsb", "va15"):
        check(name, minimize(single(fun), np.array(start, float), jac=True, options={"line_search": search}))


@pytest.mark.parametrize("cauchy", POLICIES)
@pytest.mark.parametrize("name", CASES)
def test_within_bounds(name, cauchy):
    fun, start, bounds = CASES[name]
    for search in ("lbfgsb", "va15"):
        options = {"line_search": search, "cauchy": cauchy}
        r = minimize(single(fun), np.array(start, float), jac=True, bounds=bounds, options=options)
        check(name, r, must_end=search == "lbfgsb")
        assert (np.abs(r.x) <= bounds[1]).all()


@pytest.mark.parametrize("name", CASES)
def test_as_a_method_of_scipy(name):
    """One decrease below ftol is the end there, but not one by a step that nobody saw."""
    fun, start, bounds = CASES[name]
    for box in (None, [bounds] * 2):
        r = scipy.optimize.minimize(single(fun), start, jac=True, bounds=box, method=stepwell.scipy_method)
        check(name, r, must_end=False)


@pytest.mark.parametrize("bounded", [False, True])
def test_batches_take_the_same_steps(bounded):
    names = [name for name in CASES if name not in HARD]
    for name in names:
        fun, start, bounds = CASES[name]
        starts = np.array([start, (5.0, 0.25)], float)
        box = bounds if bounded else None
        batch = minimize_batch(fun, starts, jac=True, bounds=box)
        alone = minimize(single(fun), starts[0], jac=True, bounds=box)
        check(name, alone)
        assert batch.fun[0] == alone.fun, name
        assert batch.success.all()


@pytest.mark.parametrize("name", ["exp 10", "exp 30", "exp 50", "exp 70", "slow exp 50", "cosh 30", "exp and line 50"])
def test_single_precision(name):
    """A step that is too short is not even a number of that precision."""
    fun, start, bounds = CASES[name]
    for box in (None, bounds):
        r = minimize(single(fun, np.float32), np.array(start, np.float32), jac=True, bounds=box)
        assert r.fun <= 1e-3, name


def test_over_ranks():
    """As many variables of each kind as make several chunks."""
    n, gentle = 20_000, 15_000

    def solve(comm):
        layout = split(n, comm)
        i = np.arange(*layout)
        steep = i >= gentle

        def fun(x):
            exponent = np.exp(np.where(steep, -1000 * x, 0.0))
            each = np.where(steep, exponent, x**2)
            return layout.chunk_sums(each), np.where(steep, -1000 * exponent, 2 * x)

        return minimize(fun, np.where(steep, -0.1, 500.0), jac=True, comm=layout)

    alone = run_threads(1, solve)[0]
    assert alone.success
    assert alone.fun <= TOLERANCE
    found = run_threads(3, solve)
    assert [r.fun for r in found] == [alone.fun] * 3
    assert [(r.nit, r.nfev) for r in found] == [(alone.nit, alone.nfev)] * 3


def test_a_search_that_ends_where_it_began_is_no_iteration():
    """f rises whatever the gradient says: no success, and not the same search again and again."""
    values = iter([0.0])
    r = minimize(lambda x: (next(values, 1.0), -np.ones(2)), np.zeros(2), jac=True)
    assert not r.success
    assert r.nit == 0
    assert r.nfev <= 21


def test_the_promise_of_old_pairs_is_not_the_end():
    """x1 lies on its bound, held there by a curvature of 1e18 that it once had; its gradient is -1."""
    fun, start, bounds = CASES["exp and line 50"]
    points = []

    def recorded(x):
        points.append(x.copy())
        return single(fun)(x)

    r = minimize(recorded, np.array(start, float), jac=True, bounds=bounds)
    assert min(x[1] for x in points) == bounds[0]
    assert r.reason in (Status.GRADIENT, Status.DECREASE)
    assert np.abs(r.x).max() < 1e-2


def test_a_fit_that_begins_beyond_an_exponential():
    """Misra1a of NIST's Statistical Reference Datasets, y = b1 (1 - exp(-b2 x)), from a start with b2 < 0."""

    def fun(b):
        decay = np.exp(-b[1] * PRESSURE)
        rest = b[0] * (1 - decay) - VOLUME
        return float(rest @ rest), 2 * np.array([rest @ (1 - decay), rest @ (b[0] * PRESSURE * decay)])

    start = np.array([500.0, 1e-4])
    start += 0.1 * (1 + start) * np.random.default_rng(77).normal(size=2)
    assert fun(start)[0] > 1e10
    r = minimize(fun, start, jac=True)
    assert r.success
    assert r.fun == pytest.approx(1.2455138894e-01, rel=1e-6)  # certified
