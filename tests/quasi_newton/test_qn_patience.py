"""When a small decrease of f ends a run: `ftol`, `patience`, and what happens at the rounding of f."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from qn_oracles import PRESSURE, VOLUME

import stepwell
from stepwell import LBFGSB, Status
from stepwell.quasi_newton.settings import Settings


def rosenbrock(x):
    return scipy.optimize.rosen(x), scipy.optimize.rosen_der(x)


#: Misra1d of NIST's Statistical Reference Datasets: y = b₁b₂x/(1 + b₂x), dental research; the certified sum of squares.
MISRA1D_START, MISRA1D_CERTIFIED = np.array([500.0, 1e-4]), 5.6419295283e-02


def misra1d(b):
    share = b[1] * PRESSURE / (1 + b[1] * PRESSURE)
    rest = b[0] * share - VOLUME
    slope = b[0] * PRESSURE / (1 + b[1] * PRESSURE) ** 2
    return float(rest @ rest), 2 * np.array([rest @ share, rest @ slope])


def test_a_run_whose_decreases_grow_goes_on():
    """The second parameter's units make the valley so narrow that f hardly falls before the model has found its way."""
    early = stepwell.minimize(misra1d, MISRA1D_START, jac=True, options={"patience": 1})
    assert early.reason is Status.DECREASE
    assert early.fun > 10 * MISRA1D_CERTIFIED
    late = stepwell.minimize(misra1d, MISRA1D_START, jac=True)
    assert late.fun == pytest.approx(MISRA1D_CERTIFIED, rel=1e-8)
    assert late.success


@pytest.mark.parametrize("patience", [1, 2, 3, 6])
def test_ftol_has_to_hold_for_as_many_iterations_as_asked(patience):
    """Oracle: the rule, counted again from the values of a run that does not stop by it."""
    x0, ftol = np.array([-1.2, 1.0, -0.5, 2.0]), 0.05
    values, gradients = [rosenbrock(x0)[0]], [np.inf]

    def note(intermediate_result):
        values.append(intermediate_result.fun)
        gradients.append(intermediate_result.projected_gradient)

    stepwell.minimize(rosenbrock, x0, jac=True, callback=note, options={"ftol": 0.0})
    stalls, decrease_before, expected = 0, np.inf, None
    for iteration in range(1, len(values)):
        decrease = values[iteration - 1] - values[iteration]
        if decrease > ftol * max(1.0, abs(values[iteration - 1])):
            stalls = 0
        elif patience == 1 or not decrease > 1.5 * decrease_before:
            stalls += 1
        decrease_before = decrease
        settled = stalls and gradients[iteration] <= 1e-4
        if stalls >= patience or settled:
            expected = iteration
            break
    assert expected is not None
    assert gradients[expected] > 1e-4  # by patience, then, not as settled
    run = stepwell.minimize(rosenbrock, x0, jac=True, options={"ftol": ftol, "patience": patience})
    assert (run.nit, run.reason, run.fun) == (expected, Status.DECREASE, values[expected])


def test_a_run_that_has_settled_stops_at_once():
    """At a well-scaled minimum nothing is in doubt: the first small decrease is the end, whatever the patience."""
    n = 20
    scales = np.linspace(1.0, 3.0, n)
    fun = lambda x: (1.0 + 0.5 * float(scales @ x**2), scales * x)  # noqa: E731
    runs = [
        stepwell.minimize(fun, np.ones(n), jac=True, options={"gtol": 0.0, "patience": patience})
        for patience in (1, 1000)
    ]
    assert all(run.reason is Status.DECREASE for run in runs)
    assert runs[0].nit == runs[1].nit


def test_scipy_method_stops_as_scipy_does():
    for fun, x0 in ((rosenbrock, np.linspace(-1.0, 1.5, 6)), (misra1d, MISRA1D_START)):
        theirs = scipy.optimize.minimize(fun, x0, jac=True, method="L-BFGS-B", options={"gtol": 0.0, "ftol": 1e-4})
        ours = scipy.optimize.minimize(
            fun, x0, jac=True, method=stepwell.scipy_method, options={"gtol": 0.0, "ftol": 1e-4}
        )
        assert (ours.nit, ours.nfev, ours.message) == (theirs.nit, theirs.nfev, theirs.message)
        assert ours.fun == pytest.approx(theirs.fun, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("wrong", [0, -1, 2.5])
def test_patience_is_checked(wrong):
    with pytest.raises((ValueError, TypeError), match="patience"):
        Settings(patience=wrong)


def test_a_restart_keeps_the_last_scale():
    """A history that cannot be trusted is dropped; the next trial is x − γg with the γ = sᵀy/yᵀy of its last pair."""
    curvature = np.array([1e6, 2e6, 4e6])
    opt = LBFGSB(np.ones(3), gtol=0.0, ftol=0.0)
    while opt.nit < 4:
        opt.tell(0.5 * float(curvature @ opt.x**2), curvature * opt.x)
    x, gamma = np.array(opt.result().x), float(opt.state["gamma"])
    g = curvature * x
    while not opt.state["resets"]:
        opt.tell(1e30, g)  # the direction leads nowhere
    assert opt.state["pairs"] == 0
    assert 1e-7 < gamma < 1e-6  # between the inverses of the curvatures
    np.testing.assert_allclose(opt.x - x, -gamma * g, rtol=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_single_precision_ends_converged_or_at_rounding(seed):
    """Logistic regression computed in float32: near the minimum f is made of rounding, and no search may fail by it."""
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((200, 12)).astype(np.float32)
    signs = np.sign(data @ rng.standard_normal(12) + rng.standard_normal(200)).astype(np.float32)
    margin = data * signs[:, None]

    def fun(w):
        z = margin @ w
        weights = 1 / (1 + np.exp(z))
        f = np.logaddexp(np.float32(0), -z).sum(dtype=np.float32) + np.float32(0.05) * (w @ w)
        return f, np.float32(0.1) * w - margin.T @ weights

    x0 = np.zeros(12, np.float32)
    run = stepwell.minimize(fun, x0, jac=True, options={"gtol": 1e-7})
    assert run.reason in (Status.GRADIENT, Status.DECREASE, Status.ROUNDING)
    best = scipy.optimize.minimize(lambda w: np.asarray(fun(w)[0], float), run.x.astype(float), method="BFGS").fun
    assert float(run.fun) <= best + 1e-5 * abs(best)
    assert run.nfev < 100


def test_a_wrong_gradient_is_still_told_from_rounding():
    run = stepwell.minimize(lambda x: (float(x @ x), -2 * x), np.ones(4), jac=True)
    assert run.reason is Status.LINE_SEARCH
    assert "check_grad" in run.message
