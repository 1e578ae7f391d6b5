"""The line search on the six functions of Moré & Thuente (1994, section 5), through problems of one variable."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stepwell import LBFGSB, LineSearch, Status, minimize


def yanai(b1, b2):
    """The functions 4, 5 and 6 of the paper, after Yanai, Ozawa & Kaneko (1981)."""
    g1, g2 = math.sqrt(1 + b1**2) - b1, math.sqrt(1 + b2**2) - b2

    def fun(a):
        r1, r2 = math.hypot(1 - a, b2), math.hypot(a, b1)
        return g1 * r1 + g2 * r2, -g1 * (1 - a) / r1 + g2 * a / r2

    return fun


def third(a, beta=0.01, waves=39):
    if a <= 1 - beta:
        f, g = 1 - a, -1.0
    elif a >= 1 + beta:
        f, g = a - 1, 1.0
    else:
        f, g = (a - 1) ** 2 / (2 * beta) + beta / 2, (a - 1) / beta
    k = waves * math.pi / 2
    return f + (1 - beta) / k * math.sin(k * a), g + (1 - beta) * math.cos(k * a)


#: Function, and the constants mu (ftol) and eta (gtol) of its table in the paper.
FUNCTIONS = {
    1: (lambda a: (-a / (a * a + 2), (a * a - 2) / (a * a + 2) ** 2), 1e-3, 0.1),
    2: (lambda a: ((a + 0.004) ** 5 - 2 * (a + 0.004) ** 4, 5 * (a + 0.004) ** 4 - 8 * (a + 0.004) ** 3), 0.1, 0.1),
    3: (third, 0.1, 0.1),
    4: (yanai(0.001, 0.001), 0.001, 0.001),
    5: (yanai(0.01, 0.001), 0.001, 0.001),
    6: (yanai(0.001, 0.01), 0.001, 0.001),
}
FIRST_STEPS = [1e-3, 1e-1, 1e1, 1e3]


class Search:
    """One line search from 0: x = a / first, so that the first trial of all, one unit long, is a = first."""

    def __init__(self, phi, first, **constants):
        self.opt = LBFGSB(np.zeros(1), line_search=constants, gtol=0, ftol=0, maxiter=1)
        self.trials = []
        self.f0, self.slope0 = phi(0.0)
        while not self.opt.done:
            a = float(self.opt.x[0]) * first
            f, slope = phi(a)
            self.trials.append(a)
            self.opt.tell(f, np.array([slope * first]))
        self.trials = self.trials[1:]
        self.f, self.slope = phi(float(self.opt.x[0]) * first)
        self.a = float(self.opt.x[0]) * first
        self.info = int(self.opt.state["info"])


@pytest.mark.parametrize("preset", ["lbfgsb", "va15"])
@pytest.mark.parametrize("first", FIRST_STEPS)
@pytest.mark.parametrize("number", FUNCTIONS)
def test_both_conditions_hold_at_the_accepted_step(number, first, preset):
    phi, mu, eta = FUNCTIONS[number]
    for constants in (dict(ftol=mu, gtol=eta, xtol=1e-15, stpmax=1e30, maxls=60), dict(xtol=1e-15, stpmax=1e30)):
        search = Search(phi, first, preset=preset, **constants)
        c = LineSearch(preset, **constants).constants()
        assert search.opt.nit == 1
        assert search.info == 1
        # The slope along the unit direction is that in x; both conditions do not change with the scale of x.
        slack = 4 * np.finfo(float).eps * abs(search.f0)
        assert search.f <= search.f0 + c["ftol"] * search.a * search.slope0 + slack
        assert abs(search.slope) <= c["gtol"] * abs(search.slope0) * (1 + 1e-12)
        assert len(search.trials) <= c["maxls"]


@pytest.mark.parametrize("first", FIRST_STEPS)
@pytest.mark.parametrize("number", FUNCTIONS)
def test_trials_are_those_of_dcsrch(number, first):
    """SciPy carries MINPACK-2's dcsrch, whose constants the preset "lbfgsb" has."""
    dcsrch = pytest.importorskip("scipy.optimize._dcsrch").DCSRCH
    phi, mu, eta = FUNCTIONS[number]
    trials = []

    def value(a):
        trials.append(float(a))
        return phi(a)[0]

    step = abs(phi(0.0)[1]) * first**2  # the engine's step 1: the whole gradient in units of x
    peer = dcsrch(value, lambda a: phi(a)[1], mu, eta, 1e-10, 0.0, 1e10 * step)
    peer(first, phi0=phi(0.0)[0], derphi0=phi(0.0)[1], maxiter=60)
    search = Search(phi, first, ftol=mu, gtol=eta, xtol=1e-10, maxls=60)
    assert search.trials == pytest.approx(trials, rel=1e-7)


def test_tables_of_the_paper():
    """Steps of tables I to III, as printed (two figures), for the constants of the paper."""
    printed = {1: [1.4, 1.4, 10, 37], 2: [1.6, 1.6, 1.6, 1.6], 3: [1.0, 1.0, 1.0, 1.0]}
    for number, steps in printed.items():
        phi, mu, eta = FUNCTIONS[number]
        for first, expected in zip(FIRST_STEPS, steps):
            search = Search(phi, first, ftol=mu, gtol=eta, xtol=1e-15, stpmax=1e30, maxls=60)
            assert search.a == pytest.approx(expected, rel=0.051)


@pytest.mark.parametrize("name", ["ftol", "gtol", "xtol", "stpmin", "stpmax", "maxls"])
@pytest.mark.parametrize("preset", ["lbfgsb", "va15"])
def test_every_constant_has_its_effect(name, preset):
    """Over the 24 searches, what the constant promises holds with it, and fails somewhere without it."""
    value = dict(ftol=0.4, gtol=0.01, xtol=0.5, stpmin=30.0, stpmax=1e3, maxls=3)[name]
    base = dict(gtol=1e-3) if name in ("xtol", "maxls") else {}

    def broken(**constants):
        count = 0
        for phi, _, _ in FUNCTIONS.values():
            for first in FIRST_STEPS:
                search = Search(phi, first, preset=preset, **base, **constants)
                steps = np.array(search.trials) / (first**2 * abs(search.slope0))
                if search.info == 1:
                    count += name == "ftol" and search.f > search.f0 + value * search.a * search.slope0
                    count += name == "gtol" and abs(search.slope) > value * abs(search.slope0)
                count += name == "xtol" and search.info == 2
                count += name == "stpmin" and steps.min() < value * (1 - 1e-9)
                count += name == "stpmax" and steps.max() > value * (1 + 1e-9)
                # A search that failed for good goes back to its best step, where the run ends.
                back = search.opt.status is Status.LINE_SEARCH and search.a < max(search.trials)
                count += name == "maxls" and len(search.trials) - back > value
        return count

    without, given = broken(), broken(**{name: value})
    assert (given > without) if name == "xtol" else (given == 0 and without > 0)


def test_info_0_the_direction_does_not_descend():
    """The way to the bounds times the gradient overflows: no step can be compared with a slope of minus infinity."""
    r = minimize(lambda x: (1e305 * x.sum(), np.full(2, 1e305)), np.ones(2), jac=True, bounds=(-1e6, 1e6))
    assert r.reason is Status.LINE_SEARCH
    assert r.info == 0
    assert "info 0" in r.message


def test_info_1_converged():
    assert Search(FUNCTIONS[1][0], 0.1).info == 1


def test_info_2_interval_narrower_than_xtol():
    search = Search(FUNCTIONS[3][0], 10.0, gtol=1e-3, xtol=0.9)
    assert search.info == 2
    assert search.f < search.f0


def test_info_3_too_many_evaluations():
    r = minimize(lambda x: (x @ x, -2 * x), np.ones(2), jac=True, options=dict(maxls=5))  # gradient of the wrong sign
    assert (r.reason, r.info, r.nfev) == (Status.LINE_SEARCH, 3, 6)
    assert "maxls" in r.message
    assert np.array_equal(r.x, np.ones(2))


@pytest.mark.parametrize("preset", ["lbfgsb", "va15"])
def test_info_4_step_at_its_lower_limit(preset):
    search = Search(lambda a: (a**4 - 1e-3 * a, 4 * a**3 - 1e-3), 1.0, preset=preset, stpmin=500.0, stpmax=1e4)
    assert search.info == 4
    assert search.opt.status is Status.LINE_SEARCH
    assert search.opt.nit == 0


def test_info_5_step_at_its_upper_limit():
    """A warning of L-BFGS-B's search is a step; VA15's ends the run, at the better point."""
    down = lambda a: (-a, -1.0)  # noqa: E731
    accepted = Search(down, 1.0, stpmax=3.0)
    assert (accepted.info, accepted.a, accepted.opt.status) == (5, 3.0, Status.MAX_ITERATIONS)
    ended = Search(down, 1.0, preset="va15", stpmax=3.0)
    assert (ended.info, ended.a) == (5, 3.0)
    assert ended.opt.status in (Status.LINE_SEARCH, Status.MAX_ITERATIONS)


def test_info_6_rounding():
    """A cusp: no step has a small slope, the interval shrinks to two neighbouring numbers."""
    search = Search(lambda a: (abs(a - 1 / 3), math.copysign(1.0, a - 1 / 3)), 1.0, xtol=0.0, maxls=200)
    assert search.info == 6
    assert search.a == pytest.approx(1 / 3, rel=1e-12)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (dict(ftol=0.0), "ftol"),
        (dict(ftol=1.0), "ftol"),
        (dict(gtol=-0.1), "gtol"),
        (dict(xtol=-1.0), "xtol"),
        (dict(stpmin=-1.0), "stpmin"),
        (dict(stpmin=2.0, stpmax=1.0), "stpmin"),
        (dict(stpmax=math.inf), "stpmax"),
        (dict(maxls=0), "maxls"),
        (dict(maxls=1.5), "maxls"),
        (dict(ftol=math.nan), "ftol"),
        (dict(preset="wolfe"), "wolfe"),
        (dict(step=1.0), "step"),
    ],
    ids=str,
)
def test_bad_constants_are_refused_by_name(given, named):
    with pytest.raises(ValueError, match=named):
        LBFGSB(np.ones(2), line_search=given)
