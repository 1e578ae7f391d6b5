"""The functions: SciPy's own minimize, callbacks, ask and tell."""

from __future__ import annotations

import itertools
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.optimize
from qn_bowl import FUN, LOWER, REFERENCE, UPPER, N, slope, value
from scipy.optimize import Bounds, OptimizeResult, OptimizeWarning

import stepwell
from stepwell import LBFGSB, Status, minimize, minimize_batch

# ---- SciPy ----


@pytest.mark.parametrize("form", ["pair", "callable", "differences"])
def test_as_a_method_of_scipy(form):
    fun, jac = {"pair": (FUN, True), "callable": (value, slope), "differences": (value, None)}[form]
    r = scipy.optimize.minimize(
        fun, np.zeros(N), jac=jac, method=stepwell.scipy_method, bounds=Bounds(LOWER, UPPER),
        options=dict(maxcor=5, gtol=1e-6),
    )  # fmt: skip
    assert isinstance(r, OptimizeResult)
    assert r.success
    assert r.x == pytest.approx(REFERENCE.x, abs=1e-4)


class Remembering:
    """Code as it is written for SciPy: it keeps the point, without a copy, to know when to evaluate again."""

    def __init__(self):
        self.x = None

    def evaluate(self, x):
        if self.x is None or not np.array_equal(self.x, x):
            self.x, self.pair = x, (value(x), slope(x))
        return self.pair

    def fun(self, x):
        return self.evaluate(x)[0]

    def jac(self, x):
        return self.evaluate(x)[1]


def changing(x):
    f, g = value(x), slope(x)
    x[:] = 1e30
    return f, g


@pytest.mark.parametrize("threads", [1, 2])
def test_points_that_several_threads_copy_are_the_callers(threads):
    """Of 10,000 variables: one copy serves again and again unless it is kept, and who keeps it has it for good."""
    problem = stepwell.problems.get("torsion", nx=100, ny=100)
    places, points, copies = set(), [], []

    def passing(x):
        places.add(x.ctypes.data)
        return problem.fun(x)

    def keeping(x):
        points.append(x)
        copies.append(x.copy())
        return problem.fun(x)

    options = {"maxiter": 10, "threads": threads}
    first, second = (
        stepwell.minimize(fun, problem.x0, jac=True, bounds=problem.bounds, options=options)
        for fun in (passing, keeping)
    )
    assert len(places) == 1
    assert len({x.ctypes.data for x in points}) == len(points) == second.nfev
    assert all(np.array_equal(*pair) for pair in zip(points, copies, strict=True))
    assert np.array_equal(first.x, second.x)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("form", ["changed", "returned", "kept for the next", "changed in between"])
def test_large_points_are_the_functions_own(form, library):
    """A turn leaves the next point of 10,000 variables in the last one's memory, unless somebody has that still."""
    xp = np if library == "numpy" else pytest.importorskip("torch")
    target, weights = np.linspace(-3, 5, 10_000), np.geomspace(1, 100, 10_000)
    own_target, own_weights = xp.asarray(target), xp.asarray(weights)
    last = []

    def changed(x):
        f, g = float((own_weights * (x - own_target) ** 2).sum()), 2 * own_weights * (x - own_target)
        x[:] = 1e30
        return f, g

    def returned(x):
        x -= own_target
        f = float((own_weights * x**2).sum())
        x *= 2 * own_weights
        return f, x

    def kept(x):
        last[:] = [*last[-1:], (x, x + 0.0)]
        return changed(x + 0.0)

    functions = {"changed": (changed, True), "returned": (returned, True), "kept for the next": (kept, True)}
    functions["changed in between"] = lambda x: changed(x)[0], lambda x: returned(x)[1]
    fun, jac = functions[form]
    options = {"threads": 2, "ftol": 0, "gtol": 1e-3}
    found = stepwell.minimize(fun, xp.asarray(np.zeros(10_000)), jac=jac, bounds=(-1.0, 1.0), options=options)
    assert found.nit > 5
    assert found.success
    # The projected gradient, 2 w (x - target), is at most gtol, and w at least 1.
    np.testing.assert_allclose(np.asarray(found.x), np.clip(target, -1, 1), atol=5e-4)
    assert all(np.array_equal(np.asarray(x), np.asarray(copy)) for x, copy in last)


@pytest.mark.parametrize("form", ["remembering", "changing"])
def test_code_written_for_scipy_may_keep_and_change_its_points(form):
    found = []
    for method in (stepwell.scipy_method, "L-BFGS-B"):
        memory = Remembering()
        fun, jac = (memory.fun, memory.jac) if form == "remembering" else (changing, True)
        found.append(scipy.optimize.minimize(fun, np.zeros(N), jac=jac, method=method, bounds=Bounds(LOWER, UPPER)))
    assert all(r.success for r in found)
    assert found[0].fun == pytest.approx(found[1].fun, rel=1e-7)


def test_as_a_method_of_scipy_with_everything_else():
    seen = []

    def callback(intermediate_result):
        seen.append(intermediate_result.fun)
        if len(seen) == 3:
            raise StopIteration

    r = scipy.optimize.minimize(
        lambda x, shift: (FUN(x)[0] + shift, FUN(x)[1]), np.zeros(N), args=(10.0,), jac=True, callback=callback,
        method=stepwell.scipy_method, bounds=[(-0.2, 0.4)] * N, tol=1e-12,
    )  # fmt: skip
    assert (r.status, r.nit) == (99, 3)
    assert r.fun == seen[-1]


def test_result_fields():
    r = REFERENCE
    for field in ["x", "fun", "jac", "nfev", "njev", "nit", "status", "message", "success", "hess_inv"]:
        assert field in r
    for field in [
        "reason",
        "info",
        "projected_gradient",
        "seconds",
        "cauchy_walks",
        "truncations",
        "resets",
        "skipped",
    ]:
        assert field in r
    assert set(r.seconds) == {"total", "setup", "objective", "solver"}
    assert r.hess_inv.shape == (N, N)
    assert isinstance(r.reason, Status)
    assert "converged" in str(r)


def test_options_of_scipy_and_tol():
    loose = minimize(FUN, np.zeros(N), jac=True, tol=1e-2)
    tight = minimize(FUN, np.zeros(N), jac=True, tol=1e-9)
    assert loose.nit < tight.nit
    kept = minimize(FUN, np.zeros(N), jac=True, tol=1e-9, options=dict(ftol=1e-2, gtol=1e-2))
    assert kept.nit == loose.nit
    assert minimize(FUN, np.zeros(N), jac=True, options=dict(maxcor=2)).hess_inv.n_corrs <= 2


def test_unknown_options_warn_by_name():
    with pytest.warns(OptimizeWarning, match="'displ', 'factr'"):
        r = minimize(FUN, np.zeros(N), jac=True, options=dict(displ=True, factr=3))
    assert r.success
    with pytest.warns(OptimizeWarning, match="'verbous'"):
        minimize_batch(lambda x: ((x**2).sum(1), 2 * x), np.ones((2, 2)), jac=True, options=dict(verbous=1))


def test_options_that_ask_for_silence_are_heard_in_silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert minimize(FUN, np.zeros(N), jac=True, options=dict(disp=False, iprint=-1, workers=None)).success


@pytest.mark.parametrize("options", [{"disp": True}, {"verbose": 1}, {"verbose": True}, {"iprint": 1}, {"disp": 1}])
def test_options_that_ask_for_words_get_a_summary(options, capsys):
    r = minimize(FUN, np.zeros(N), jac=True, options=options)
    first, second = capsys.readouterr().out.splitlines()
    assert first == r.message
    assert f"{r.nit} iterations, {r.nfev} evaluations" in second


def test_verbose_prints_a_line_an_iteration(capsys):
    r = minimize(FUN, np.zeros(N), jac=True, options={"verbose": 2, "maxiter": 5})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["iterations", "evaluations"]
    assert [int(line.split()[0]) for line in lines[1:6]] == [1, 2, 3, 4, 5]
    assert lines[6] == r.message
    minimize_batch(lambda x: ((x**2).sum(1), 2 * x), np.ones((2, 2)), jac=True, options={"verbose": 2})
    assert "2 of 2 problems converged" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"options\['verbose'\] is 7; allowed: 0, 1, 2"):
        minimize(FUN, np.zeros(N), jac=True, options={"verbose": 7})


# ---- callbacks ----


def test_callback_with_the_point():
    points = []
    r = minimize(FUN, np.zeros(N), jac=True, callback=points.append)
    assert len(points) == r.nit
    assert np.array_equal(points[-1], r.x)
    assert all(a is not b and not np.shares_memory(a, b) for a, b in itertools.pairwise(points))


def test_callback_with_the_intermediate_result():
    seen = []
    r = minimize(FUN, np.zeros(N), jac=True, callback=lambda intermediate_result: seen.append(intermediate_result))
    assert [s.nit for s in seen] == list(range(1, r.nit + 1))
    assert seen[-1].fun == r.fun
    assert seen[-1].nfev == r.nfev
    for s in seen:
        f, g = FUN(s.x)
        assert s.fun == f
        assert s.projected_gradient == np.abs(g).max()
        assert s.gradient_norm == pytest.approx(np.linalg.norm(g), rel=1e-14)
        assert s.step > 0


def test_callbacks_of_other_forms():
    class Counter:
        calls = 0

        def __call__(self, xk, extra=None):
            self.calls += 1

    counter = Counter()
    r = minimize(FUN, np.zeros(N), jac=True, callback=counter)
    assert counter.calls == r.nit
    minimize(FUN, np.zeros(N), jac=True, callback=np.sum)
    for call in (minimize, minimize_batch):
        with pytest.raises(TypeError, match="callback"):
            call(FUN, np.zeros((1, N)), jac=True, callback=3)


def test_stop_iteration_in_the_objective_is_no_stop():
    def fun(x):
        raise StopIteration

    with pytest.raises(StopIteration):
        minimize(fun, np.zeros(2), jac=True)


# ---- ask and tell ----


def test_ask_and_tell_is_minimize():
    opt = LBFGSB(np.zeros(N), (LOWER, UPPER), gtol=1e-6, ftol=0)
    while not opt.done:
        opt.tell(*FUN(opt.x))
    r = opt.result()
    assert np.array_equal(r.x, REFERENCE.x)
    assert (r.nit, r.nfev, r.reason) == (REFERENCE.nit, REFERENCE.nfev, REFERENCE.reason)
    assert np.array_equal(opt.x, r.x)
    assert (opt.fun, opt.nit, opt.nfev, opt.message) == (r.fun, r.nit, r.nfev, r.message)


def test_stop():
    opt = LBFGSB(np.ones(3))
    opt.tell(3.0, 2 * np.ones(3))
    opt.stop()
    assert opt.done
    assert opt.status is Status.CALLBACK
    assert np.array_equal(opt.x, np.ones(3))
    assert np.array_equal(opt.result().x, np.ones(3))
    opt = LBFGSB(np.full(3, 7.0))
    opt.stop()
    assert np.array_equal(opt.result().x, np.full(3, 7.0))


def test_a_start_needs_neither_scipy_nor_cuda():
    """Their imports would take longer than everything else before the first turn."""
    program = (
        "import sys, numpy, stepwell\n"
        "opt = stepwell.LBFGSB(numpy.ones(3), bounds=(-2.0, 2.0))\n"
        "opt.tell(3.0, 2 * opt.x)\n"
        "import stepwell.quasi_newton.driver\n"
        "late = [name for name in ('scipy', 'cuda', 'torch', 'jax', 'cupy', 'click') if name in sys.modules]\n"
        "assert not late, late\n"
        "assert stepwell.minimize(lambda x: (x @ x, 2 * x), numpy.ones(3), jac=True).success\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
