"""Objectives that fail: values that are not finite, and exceptions."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest
from qn_oracles import Quadratic
from small_problems import bowl

from stepwell import LBFGSB, Status, minimize, minimize_batch

NONFINITE = [math.nan, math.inf, -math.inf]


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


def test_one_optimizer_serves_one_thread_at_a_time():
    """A second thread is refused while a call is not done, or told that the run has ended; nothing is torn."""
    n = 200_000
    scale = np.linspace(1, 100, n)

    def fun(x):
        return float(scale @ (x - 1) ** 2), 2 * scale * (x - 1)

    def run(opt, refused):
        for _ in range(40):
            try:
                if not opt.done:
                    opt.tell(*fun(np.array(opt.x)))
            except RuntimeError as error:
                refused.append(str(error))

    opt, refused = LBFGSB(np.zeros(n), (0.0, 2.0)), []
    threads = [threading.Thread(target=run, args=(opt, refused)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("this LBFGSB is in use" in text or "ended" in text for text in refused)
    assert np.isfinite(opt.fun)
    assert (np.array(opt.x) >= 0).all()
    assert (np.array(opt.x) <= 2).all()


def test_an_optimizer_that_is_called_from_its_own_call_refuses():
    opt = LBFGSB(np.zeros(3), h0=lambda x: opt.tell(1.0, np.ones(3)) or np.ones(3))
    with pytest.raises(RuntimeError, match="this LBFGSB is in use"):
        opt.tell(1.0, np.ones(3))
