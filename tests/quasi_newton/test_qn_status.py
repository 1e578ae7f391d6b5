"""Every way a run can end: the status says the truth, and the best point is kept."""

from __future__ import annotations

import numpy as np
import pytest
from qn_oracles import Quadratic, projected_gradient
from scipy.optimize import OptimizeResult

from stepwell import LBFGSB, Status, _core, minimize, minimize_batch, problems
from stepwell.quasi_newton.status import LINE_SEARCH_INFO

ROSENBROCK = problems.get("rosenbrock", n=10)


def solve(fun=ROSENBROCK.fun, x0=ROSENBROCK.x0, bounds=None, callback=None, **options):
    return minimize(fun, x0, jac=True, bounds=bounds, callback=callback, options=options)


def test_codes_are_those_of_the_engine():
    assert {status.name.lower(): status.value for status in Status} == dict(_core.STATUSES)


def test_messages_and_scipy_codes():
    assert len({status.message for status in Status}) == len(Status)
    assert {status.scipy for status in Status} == {0, 1, 2, 99}
    assert all(status.success == (status.scipy == 0) for status in Status)
    assert set(LINE_SEARCH_INFO) == {0, 2, 3, 4, 5, 6}


def test_gtol():
    r = solve(gtol=1e-4, ftol=0)
    assert (r.reason, r.status, r.success) == (Status.GRADIENT, 0, True)
    assert r.projected_gradient == np.abs(r.jac).max() <= 1e-4
    assert np.array_equal(r.jac, ROSENBROCK.fun(r.x)[1])
    assert r.fun == ROSENBROCK.fun(r.x)[0]
    assert "gtol" in r.message


def test_gtol_is_of_the_projected_gradient():
    lower, upper = np.full(10, 0.2), np.full(10, 0.7)
    r = solve(bounds=(lower, upper), x0=np.full(10, 0.5), gtol=1e-6, ftol=0)
    assert r.reason is Status.GRADIENT
    assert np.abs(r.jac).max() > 1e-3
    assert r.projected_gradient == projected_gradient(r.x, r.jac, lower, upper) <= 1e-6


def test_gtol_at_the_start_ends_without_an_iteration():
    r = solve(x0=np.ones(10))
    assert (r.reason, r.nit, r.nfev) == (Status.GRADIENT, 0, 1)
    assert np.array_equal(r.x, np.ones(10))


def test_ftol():
    values = []
    r = solve(
        gtol=0, ftol=1e-3, patience=1, callback=lambda intermediate_result: values.append(intermediate_result.fun)
    )
    assert (r.reason, r.status) == (Status.DECREASE, 0)
    scale = np.maximum(1, np.maximum(np.abs(values[:-1]), np.abs(values[1:])))
    small = -np.diff(values) <= 1e-3 * scale
    assert small[-1]
    assert not small[:-1].any()


def test_relative_gtol():
    r = solve(gtol=0, ftol=0, relative_gtol=1e-5)
    assert (r.reason, r.status) == (Status.GRADIENT_NORM, 0)
    assert np.linalg.norm(r.jac) <= 1e-5 * max(1, np.linalg.norm(r.x))


@pytest.mark.parametrize("limit", [0, 1, 7])
def test_maxiter(limit):
    r = solve(maxiter=limit)
    assert (r.reason, r.status, r.success, r.nit) == (Status.MAX_ITERATIONS, 1, False, limit)
    assert r.fun <= ROSENBROCK.fun(ROSENBROCK.x0)[0]


@pytest.mark.parametrize("preset", ["lbfgsb", "va15"])
@pytest.mark.parametrize("limit", range(1, 30))
def test_maxfun_ends_at_the_best_point_evaluated(limit, preset):
    """Also in the middle of a line search: no point evaluated was better than the one returned."""
    values = []

    def fun(x):
        values.append(ROSENBROCK.fun(x)[0])
        return ROSENBROCK.fun(x)

    r = solve(fun, maxfun=limit, line_search=preset)
    assert (r.reason, r.status, r.nfev) == (Status.MAX_EVALUATIONS, 1, limit)
    assert len(values) == limit
    assert r.fun == min(values)
    assert r.fun == ROSENBROCK.fun(r.x)[0]
    assert np.array_equal(r.jac, ROSENBROCK.fun(r.x)[1])


def test_maxls_keeps_the_best_point():
    """Slopes that never flatten: no step is accepted, yet f fell."""

    def fun(x):
        return float(np.abs(x - 1 / 3).sum()), np.where(x > 1 / 3, 1.0, -1.0)

    values = []
    r = solve(lambda x: (values.append(fun(x)[0]), fun(x))[1], np.array([3.0]), maxls=4, line_search="va15")
    assert r.reason is Status.LINE_SEARCH
    assert r.info == 3
    assert r.fun == min(values) < values[0]
    assert r.fun == fun(r.x)[0]


def test_target():
    r = solve(target=5.0)
    before = solve(maxiter=r.nit - 1)
    assert (r.reason, r.success) == (Status.TARGET, True)
    assert r.fun <= 5.0 < before.fun


def test_time_limit():
    r = solve(time_limit=1e-9)
    assert (r.reason, r.status, r.nfev) == (Status.TIME_LIMIT, 1, 1)
    assert np.array_equal(r.x, ROSENBROCK.x0)
    batch = minimize_batch(ROSENBROCK.fun, np.tile(ROSENBROCK.x0, (3, 1)), jac=True, options=dict(time_limit=1e-9))
    assert batch.reason == [Status.TIME_LIMIT] * 3


def test_callback_stops_with_99():
    seen = []

    def callback(x):
        seen.append(x)
        if len(seen) == 4:
            raise StopIteration

    r = solve(callback=callback)
    assert (r.reason, r.status, r.success, r.nit) == (Status.CALLBACK, 99, False, 4)
    assert np.array_equal(r.x, seen[-1])
    assert len({x.tobytes() for x in seen}) == 4


def test_line_search():
    r = solve(lambda x: (float(x @ x), -2 * x), np.ones(3))
    assert (r.reason, r.status, r.success) == (Status.LINE_SEARCH, 2, False)
    assert np.array_equal(r.x, np.ones(3))
    assert r.fun == 3.0


def test_line_search_with_a_history_starts_afresh_first():
    """A gradient that turns wrong in the middle: the history is dropped, steepest descent is tried, then it ends."""
    calls = []

    def fun(x):
        calls.append(x.copy())
        f, g = ROSENBROCK.fun(x)
        return f, g if len(calls) < 15 else -g

    r = solve(fun, maxfun=500)
    assert r.reason is Status.LINE_SEARCH
    assert r.resets >= 1
    assert r.fun <= ROSENBROCK.fun(calls[13])[0]


@pytest.mark.parametrize("scale", [1e100, 1e153, 1e155, 1e200, 1e300])
def test_values_whose_square_overflows_are_minimised(scale):
    # |g|² = scale² Σ k² overflows above scale 1e154; the minimum is 0.
    stiffness = np.arange(1.0, 6.0)

    def steep(x):
        return scale * float(stiffness @ x**2) / 2, scale * stiffness * x

    least = 1e-9 * steep(np.ones(5))[0]
    assert solve(steep, np.ones(5)).fun <= least
    batch = minimize_batch(lambda x: (scale * (x**2) @ stiffness / 2, scale * stiffness * x), np.ones((2, 5)), jac=True)
    assert (batch.fun <= least).all()
    inside = solve(steep, np.ones(5), bounds=(0.5, 2.0))  # the first step leads to the bounds, whatever its length
    assert inside.reason is Status.GRADIENT
    assert np.array_equal(inside.x, np.full(5, 0.5))


def test_a_slope_that_overflows_ends_truthfully():
    # No direction can be judged that leads to bounds this far away, and the message says why.
    r = solve(lambda x: (1e305 * x.sum(), np.full(2, 1e305)), np.ones(2), bounds=(-1e6, 1e6))
    assert (r.reason, r.info, r.success) == (Status.LINE_SEARCH, 0, False)
    assert np.array_equal(r.x, np.ones(2))
    assert r.fun == 2e305
    assert "square of the gradient overflows; scale f" in r.message


def test_what_was_never_evaluated_is_not_a_number():
    opt = LBFGSB(np.array([3.0, 4.0]))
    assert np.isnan(opt.fun)
    opt.stop()
    r = opt.result()
    assert (r.reason, r.nfev) == (Status.CALLBACK, 0)
    assert np.isnan([r.fun, r.projected_gradient, *r.jac]).all()
    assert np.array_equal(r.x, [3.0, 4.0])


@pytest.mark.parametrize("status", [Status.RUNNING, "x", 8, None])
def test_a_run_is_ended_with_a_status_that_ends(status):
    with pytest.raises(ValueError, match=r"status is .*; allowed: a stepwell.Status other than RUNNING"):
        LBFGSB(np.ones(2)).stop(status)


def test_rounding():
    """No tolerance can be met: the run ends by itself where f has no lower neighbour."""
    fun = Quadratic(8, np.random.default_rng(1))
    r = solve(fun, np.ones(8), gtol=0, ftol=0)
    assert r.reason in (Status.ROUNDING, Status.LINE_SEARCH, Status.GRADIENT)
    assert not r.success or r.projected_gradient == 0
    # f is flat to rounding within sqrt(eps) of the minimum.
    assert np.abs(r.jac).max() <= 100 * np.sqrt(np.finfo(float).eps) * np.abs(fun.b).max()


def test_rounding_status_is_reached():
    reasons = {solve(problems.get("rosenbrock", n=n).fun, problems.get("rosenbrock", n=n).x0, ftol=0, gtol=0).reason
               for n in range(2, 30, 4)} | {
        solve(Quadratic(6, np.random.default_rng(seed)), np.ones(6), ftol=0, gtol=0).reason for seed in range(8)
    }  # fmt: skip
    assert Status.ROUNDING in reasons
    assert reasons <= {Status.ROUNDING, Status.LINE_SEARCH, Status.GRADIENT}


@pytest.mark.parametrize("name", ["rosenbrock", "beale", "wood", "powell"])
@pytest.mark.parametrize("bounded", [False, True])
def test_float32_runs_end_by_themselves_with_a_truthful_status(name, bounded):
    p = problems.get(name, n=40)
    x0 = p.x0.astype(np.float32)
    bounds = (-5.0, 0.9) if bounded else None
    x0 = np.clip(x0, -5.0, 0.9).astype(np.float32) if bounded else x0
    r = solve(p.fun, x0, bounds, gtol=1e-30, ftol=0)
    assert r.x.dtype == np.float32
    assert r.reason in (Status.ROUNDING, Status.LINE_SEARCH, Status.GRADIENT)
    assert r.success == (r.projected_gradient <= 1e-30)
    assert r.nfev < 15000
    loose = solve(p.fun, x0, bounds, gtol=1e-30, ftol=1e-30)
    assert loose.reason in (Status.ROUNDING, Status.LINE_SEARCH, Status.GRADIENT, Status.DECREASE)
    wide = solve(p.fun, x0.astype(float), bounds, gtol=1e-6)
    # Values of f in single precision have errors of eps |f| at the scale of the terms, here below |f(x0)|.
    if name == "wood" and not bounded:
        return  # its saddle at f = 7.88 a block is flat to single precision: a truthful end, though not the minimum
    eps = np.finfo(np.float32).eps
    assert float(p.fun(r.x.astype(float))[0]) <= wide.fun + 100 * eps * max(1.0, abs(wide.fun), abs(r.fun))


def test_every_status_can_be_told_apart_by_its_reason():
    r = minimize(lambda x: (np.nan, x), np.ones(2), jac=True)
    assert r.reason is Status.NONFINITE_START
    assert isinstance(r, OptimizeResult)
    opt = LBFGSB(np.ones(2))
    assert opt.status is Status.RUNNING
    assert np.isnan(opt.result().jac).all()
    assert np.array_equal(opt.result().x, np.ones(2))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (dict(maxcor=0), "maxcor"),
        (dict(maxcor=2.5), "maxcor"),
        (dict(maxcor=10**6), "maxcor"),
        (dict(gtol=-1.0), "gtol"),
        (dict(ftol=np.nan), "ftol"),
        (dict(relative_gtol=np.inf), "relative_gtol"),
        (dict(maxiter=-1), "maxiter"),
        (dict(maxfun=0), "maxfun"),
        (dict(target=np.nan), "target"),
        (dict(time_limit=0), "time_limit"),
        (dict(cauchy="best"), "cauchy"),
        (dict(threads=0), "threads"),
        (dict(line_search="wolfe"), "line_search"),
    ],
    ids=str,
)
def test_bad_settings_are_refused_by_name(given, named):
    with pytest.raises(ValueError, match=named):
        solve(**given)


def test_unknown_settings_of_the_optimizer():
    with pytest.raises(TypeError, match="maxcor"):
        LBFGSB(np.ones(2), maxcor=3)
