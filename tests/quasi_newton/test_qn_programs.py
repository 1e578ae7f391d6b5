"""Programs written for SciPy, and what people do wrong: arguments of the other library, kept points, Ctrl-C."""

from __future__ import annotations

import gc
import inspect
import os
import signal
import subprocess
import sys
import warnings
import weakref

import numpy as np
import pytest
import scipy.optimize
from scipy.optimize import OptimizeWarning
from small_problems import bowl_about

import stepwell
from stepwell import Status, minimize, minimize_batch

N = 12
CENTRE = np.linspace(-1, 2, N)
WEIGHT = np.arange(1.0, N + 1)
bowl = bowl_about(CENTRE, WEIGHT)


def value(x):
    return bowl(x)[0]


def slope(x):
    return bowl(x)[1]


def test_scipys_arguments_in_scipys_order():
    ours = minimize(value, np.zeros(N), (), "L-BFGS-B", slope, None, None, [(-0.5, 1.0)] * N, (), 1e-9)
    theirs = scipy.optimize.minimize(value, np.zeros(N), (), "L-BFGS-B", slope, None, None, [(-0.5, 1.0)] * N, (), 1e-9)
    assert ours.success
    assert np.allclose(ours.x, theirs.x, atol=1e-6)
    names = list(inspect.signature(scipy.optimize.minimize).parameters)
    own = list(inspect.signature(minimize).parameters.values())
    assert [parameter.name for parameter in own[: len(names)]] == names
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in own[len(names) :])  # ours alone, by name


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"hess": lambda x: np.eye(N)}, "does not use Hessian information"),
        ({"hessp": lambda x, p: p}, "does not use Hessian-vector product information"),
        ({"constraints": {"type": "eq", "fun": value}}, "cannot handle constraints"),
    ],
)
def test_what_the_method_does_not_use_draws_scipys_warning(given, words):
    for solve in (minimize, scipy.optimize.minimize):
        with pytest.warns(RuntimeWarning, match=words):
            solve(value, np.zeros(N), method="L-BFGS-B", jac=slope, **given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        minimize(value, np.zeros(N), method="l-bfgs-b", jac=slope, hess=None, hessp=None, constraints=())


def test_other_methods_are_refused():
    for method in ("BFGS", "trust-constr", 3, True, slope, "2-point"):
        with pytest.raises(ValueError, match=r"method is .*; allowed: None or 'L-BFGS-B'"):
            minimize(bowl, np.zeros(N), method=method, jac=True)


def test_eps_is_scipys_step_and_no_silent_stopping_rule():
    points = []

    def seen(x):
        points.append(np.array(x))
        return value(x)

    minimize(seen, np.zeros(N), options={"eps": 1e-3, "maxiter": 1})
    assert np.allclose((points[1] - points[0]).max(), 1e-3)
    with pytest.warns(OptimizeWarning, match="no effect with a gradient"):
        assert minimize(bowl, np.zeros(N), jac=True, options={"eps": 1e10}).nit > 1


def test_fixed_variables_are_not_differenced():
    bounds = [(0.25, 0.25)] * (N - 2) + [(None, None)] * 2
    r = minimize(value, np.full(N, 0.25), bounds=bounds)
    assert r.nfev == 3 * r.njev
    assert np.allclose(r.x[-2:], CENTRE[-2:], atol=1e-5)
    assert (r.x[:-2] == 0.25).all()
    free = minimize(value, np.full(N, 0.25))
    assert free.nfev == (N + 1) * free.njev


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_a_forgotten_jac_is_named(library):
    xp = pytest.importorskip({"jax": "jax.numpy"}.get(library, library))
    with pytest.raises(TypeError, match="fun returned a pair; did you mean jac=True"):
        minimize(lambda x: ((x * x).sum(), 2 * x), xp.ones(3))
    with pytest.raises(TypeError, match="fun returned a pair; did you mean jac=True"):
        minimize_batch(lambda x: ((x * x).sum(-1), 2 * x), xp.ones((2, 3)))


def test_fun_and_jac_get_copies_of_their_own():
    def spoils(x):
        f = value(x)
        x[:] = 0
        return f

    assert minimize(spoils, np.full(N, 3.0), jac=slope).success


def test_an_interrupt_in_the_diagonal_leaves_a_point_with_its_own_value():
    for call in (1, 4):
        asked = []

        def h0(x, asked=asked, call=call):
            asked.append(1)
            if len(asked) == call:
                raise KeyboardInterrupt
            return 1 / WEIGHT

        with pytest.raises(stepwell.Interrupted) as caught:
            minimize(bowl, np.zeros(N), jac=True, options={"h0": h0, "gtol": 0, "ftol": 0})
        result = caught.value.result
        assert result.fun == value(result.x)
        assert np.array_equal(result.jac, slope(result.x))


def test_numbers_of_any_kind():
    options = {"gtol": np.array(1e-3), "maxiter": np.float64(90), "maxcor": np.int64(3), "maxls": np.array(20)}
    assert minimize(bowl, np.zeros(N), jac=True, options=options).success
    assert minimize(bowl, np.zeros(N), jac=True, tol=np.array(1e-3)).success
    two = minimize_batch(lambda x: [float(row @ row) for row in x], np.ones((2, 3)), jac="2-point")
    assert two.success.all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"eps": np.ones(3)}, r"eps is \(3,\); allowed: a number or 12"),
        ({"finite_diff_rel_step": np.ones(5)}, r"finite_diff_rel_step is \(5,\); allowed"),
        ({"workers": 0}, "workers is 0; allowed"),
        ({"workers": "a"}, "workers is 'a'; allowed"),
    ],
)
def test_wrong_options_of_differences_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        minimize(value, np.zeros(N), options=options)


def test_texts_are_short():
    opt = stepwell.LBFGSB(np.zeros(3))
    opt.tell(1.0, np.ones(3))
    assert repr(opt) == "LBFGSB(n=3, running, f=1, 0 iterations, 1 evaluations, 0 pairs)"
    batch = minimize_batch(lambda x: ((x * x).sum(1), 2 * x), np.ones((400, 3)), jac=True)
    assert len(repr(batch).splitlines()) <= 24
    assert "hess_inv(k) of 400 problems" in repr(batch)


def test_a_wrong_gradient_is_suspected():
    wrong = minimize(lambda x: (value(x), -slope(x)), np.zeros(N), jac=True)
    assert wrong.reason in (Status.LINE_SEARCH, Status.ROUNDING)
    assert "the gradient" in wrong.message
    assert "stepwell.check_grad" in wrong.message
    many = minimize_batch(
        lambda x: (((x - 1) ** 2).sum(1), np.array([[2.0], [-2.0]]) * (x - 1)), np.zeros((2, 3)), jac=True
    )
    assert many.success[0]
    assert "check_grad" in many.message[1]
    rough = lambda x: (value(x) + 1e6, slope(x))  # noqa: E731
    right = minimize(rough, np.zeros(N), jac=True, options={"gtol": 0, "ftol": 0})
    assert right.reason is Status.ROUNDING
    assert "check_grad" not in right.message


def test_an_objective_that_remembers_its_point():
    class Memo:
        x = None
        evaluations = 0

        def value(self, x):
            if self.x is None or not np.array_equal(self.x, x):
                self.x, self.evaluations = x, self.evaluations + 1
                self.f, self.g = bowl(x)
            return self.f

        def gradient(self, x):
            self.value(x)
            return self.g

    memo = Memo()
    r = minimize(memo.value, np.zeros(N), jac=memo.gradient, method="L-BFGS-B")
    assert r.success
    assert np.allclose(r.x, CENTRE, atol=1e-3)
    assert memo.evaluations == r.nfev


@pytest.mark.parametrize("solve", [minimize, stepwell.scipy_method])
@pytest.mark.parametrize("jac", [None, True])
def test_the_objective_is_let_go_at_the_end(solve, jac):
    """Its data may be large; garbage collection may be far off."""

    class Bowl:
        def __call__(self, x):
            return bowl(x) if jac else value(x)

    fun = Bowl()
    gone = weakref.ref(fun)
    gc.disable()
    try:
        result = solve(fun, np.zeros(N), jac=jac, callback=lambda x: None)
        del fun
        assert gone() is None
    finally:
        gc.enable()
    assert result.success


def test_an_interrupt_has_the_outcome_so_far():
    calls = []

    def fun(x):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return bowl(x)

    with pytest.raises(KeyboardInterrupt) as caught:
        minimize(fun, np.zeros(N), jac=True)
    assert isinstance(caught.value, stepwell.Interrupted)
    result = caught.value.result
    assert result.reason is Status.RUNNING
    assert not result.success
    assert result.fun < value(np.zeros(N))
    assert result.fun == value(result.x)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_signal_does_the_same():
    calls = []

    def fun(x):
        calls.append(1)
        if len(calls) == 6:
            os.kill(os.getpid(), signal.SIGINT)
        return bowl(x)

    with pytest.raises(stepwell.Interrupted) as caught:
        minimize(fun, np.zeros(N), jac=True, options={"ftol": 0, "gtol": 0})
    assert 0 < caught.value.result.nit < 6


def test_imports_are_not_part_of_the_time():
    """The clock starts before `Run`: what takes long to import is there by then, or is not asked for at all."""
    program = (
        "import sys, numpy as np, stepwell\n"
        "from stepwell.quasi_newton import api\n"
        "run, seen = api.Run, []\n"
        "api.Run = lambda *args, **more: seen.append('scipy.optimize' in sys.modules) or run(*args, **more)\n"
        "stepwell.minimize(lambda x: (x @ x, 2 * x), np.ones(3), jac=True)\n"
        "assert seen == ['scipy.optimize' in sys.modules]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
