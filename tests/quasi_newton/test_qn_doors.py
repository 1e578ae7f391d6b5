"""The doors: SciPy's own minimize, callbacks, gradients of every origin, and arrays of every library."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st
from qn_oracles import Quadratic
from scipy.optimize import Bounds, OptimizeResult, OptimizeWarning

import stepwell
from stepwell import LBFGSB, Status, minimize, minimize_batch

N = 7
FUN = Quadratic(N, np.random.default_rng(0), condition=50.0, quartic=0.2)
LOWER, UPPER = np.full(N, -0.2), np.full(N, 0.4)
REFERENCE = minimize(FUN, np.zeros(N), jac=True, bounds=(LOWER, UPPER), options=dict(gtol=1e-6, ftol=0))


def value(x):
    return FUN(x)[0]


def slope(x):
    return FUN(x)[1]


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


def test_as_a_method_of_scipy_hessians_and_constraints_are_refused():
    for extra in (dict(hess=lambda x: np.eye(N)), dict(constraints=[dict(type="eq", fun=value)])):
        with pytest.raises(ValueError, match=next(iter(extra))):
            scipy.optimize.minimize(FUN, np.zeros(N), jac=True, method=stepwell.scipy_method, **extra)


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
    assert set(r.seconds) == {"total", "objective", "solver"}
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
    with pytest.warns(OptimizeWarning, match="'disp', 'iprint'"):
        r = minimize(FUN, np.zeros(N), jac=True, options=dict(disp=True, iprint=3))
    assert r.success
    with pytest.warns(OptimizeWarning, match="'verbose'"):
        minimize_batch(lambda x: ((x**2).sum(1), 2 * x), np.ones((2, 2)), jac=True, options=dict(verbose=1))


def test_options_that_ask_for_silence_are_heard_in_silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert minimize(FUN, np.zeros(N), jac=True, options=dict(disp=False, iprint=-1, workers=None)).success


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
    for door in (minimize, minimize_batch):
        with pytest.raises(TypeError, match="callback"):
            door(FUN, np.zeros((1, N)), jac=True, callback=3)


def test_stop_iteration_in_the_objective_is_no_stop():
    def fun(x):
        raise StopIteration

    with pytest.raises(StopIteration):
        minimize(fun, np.zeros(2), jac=True)


# ---- gradients ----


@pytest.mark.parametrize("jac", [None, "3-point"])
def test_differences_keep_the_shape_of_x0(jac):
    centre = np.random.default_rng(5).normal(size=(6, 4))
    result = minimize(lambda x: ((x - centre) ** 2).sum(), np.zeros((6, 4)), jac=jac, bounds=(-2.0, 2.0))
    assert result.x.shape == (6, 4)
    assert np.abs(result.x - np.clip(centre, -2, 2)).max() < 1e-5


@pytest.mark.parametrize("jac", [None, False, "2-point", "3-point"])
def test_differences(jac):
    points = []

    def fun(x):
        points.append(np.array(x))
        return value(x)

    r = minimize(fun, np.zeros(N), jac=jac, bounds=(LOWER, UPPER), options=dict(gtol=1e-6))
    assert r.success
    assert r.nfev == len(points)
    # The error of a difference: sqrt(eps) forward, eps^(2/3) central, times second and third derivatives (below 100).
    accuracy = 100 * np.finfo(float).eps ** (2 / 3 if jac == "3-point" else 1 / 2)
    assert np.abs(r.jac - slope(r.x)).max() <= 10 * accuracy
    assert r.x == pytest.approx(REFERENCE.x, abs=1e-4)
    assert (np.array(points) >= LOWER).all()
    assert (np.array(points) <= UPPER).all()


@pytest.mark.parametrize("jac", ["2-point", "3-point"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 10**6))
def test_differences_stay_inside_to_the_last_bit(jac, dtype, seed):
    """Boxes narrower than the step, starts on and next to bounds, fixed variables."""
    rng = np.random.default_rng(seed)
    n = 5
    lower = rng.normal(size=n).astype(dtype)
    width = (10.0 ** rng.uniform(-12, 1, size=n) * (rng.random(n) < 0.8)).astype(dtype)
    upper = lower + width
    share = rng.choice([0.0, 1.0, 1e-9, 0.5, 1 - 1e-9], size=n).astype(dtype)
    x0 = np.clip(lower + share * width, lower, upper)
    points = []

    def fun(x):
        points.append(np.array(x))
        return float(((x - 0.3) ** 2).sum())

    minimize(fun, x0, jac=jac, bounds=(lower, upper), options=dict(maxiter=3))
    assert (np.array(points) >= lower).all()
    assert (np.array(points) <= upper).all()


def test_difference_step_is_the_caller_s():
    moves = []
    minimize(
        lambda x: (moves.append(float(x[0])), value(x))[1],
        np.zeros(N),
        options=dict(finite_diff_rel_step=1e-3, maxiter=0),
    )
    assert max(moves) == 1e-3


@pytest.mark.parametrize("jac", ["2-point", "3-point"])
@pytest.mark.parametrize("width", [np.float32, np.float16])
def test_differences_of_values_coarser_than_the_point(jac, width):
    """As of a JAX function in single precision of a NumPy point: with a step for doubles they would all be zero."""
    x0 = np.array([0.0, -0.5, 0.25])
    epsilon = float(np.finfo(width).eps)
    step = epsilon ** (1 / 3 if jac == "3-point" else 1 / 2)
    r = minimize(lambda x: width(((x - 1) ** 2).sum()), x0, jac=jac, options=dict(maxiter=0))
    # The second derivative is 2, the third 0; f < 6 nearby, and each value is rounded by half an ulp at most.
    assert np.abs(r.jac - 2 * (x0 - 1)).max() <= (step if jac == "2-point" else 0) + 6 * epsilon / step
    rows = minimize_batch(lambda x: ((x - 1) ** 2).sum(1).astype(width), x0[None], jac=jac, options=dict(maxiter=0))
    assert np.array_equal(rows.jac[0], r.jac)


def test_differences_where_f_is_infinite():
    r = minimize(lambda x: np.inf if x[0] > 0.5 else float(((x - 1) ** 2).sum()), np.zeros(2))
    assert r.x[0] <= 0.5
    batch = minimize_batch(
        lambda x: np.where(x[:, 0] > 0.5, np.inf, ((x - 1) ** 2).sum(1)), np.zeros((3, 2)), options=dict(maxiter=5)
    )
    assert (batch.fun < 2).all()


@pytest.mark.parametrize("jac", [None, "2-point", "3-point"])
def test_differences_of_a_batch(jac):
    centre = np.arange(6.0).reshape(2, 3)
    calls = []

    def fun(x):
        calls.append(x.shape)
        return ((x - centre) ** 2).sum(1)

    r = minimize_batch(fun, np.zeros((2, 3)), jac=jac, bounds=(0.0, 3.5))
    assert r.x == pytest.approx(np.clip(centre, 0, 3.5), abs=1e-4)
    assert set(calls) == {(2, 3)}


@pytest.mark.parametrize("jac", ["2-point", "3-point"])
@pytest.mark.parametrize("maxfun", [1, 20, 50, 15000])
def test_differences_of_a_batch_are_counted_and_limited_as_alone(jac, maxfun):
    centre = np.array([[1.0, 2.0, -1.0], [0.0, 0.1, 0.0], [30.0, -8.0, 5.0]])
    quartic = lambda x, c: ((x - c) ** 4 + (x - c) ** 2).sum(-1)  # noqa: E731
    batch = minimize_batch(quartic, np.zeros((3, 3)), (centre,), jac=jac, options={"maxfun": maxfun})
    for k, c in enumerate(centre):
        calls = []
        fun = lambda x, c, calls=calls: calls.append(1) or float(quartic(x, c))  # noqa: E731
        alone = minimize(fun, np.zeros(3), (c,), jac=jac, options={"maxfun": maxfun})
        assert np.array_equal(batch.x[k], alone.x)
        assert batch.nfev[k] == alone.nfev == len(calls)
        assert (batch.reason[k], batch.nit[k]) == (alone.reason, alone.nit)


def test_the_result_of_a_batch_can_be_pickled():
    centre = np.arange(6.0).reshape(2, 3)
    r = minimize_batch(lambda x: (((x - centre) ** 4).sum(1), 4 * (x - centre) ** 3), np.zeros((2, 3)), jac=True)
    again = pickle.loads(pickle.dumps(r))
    assert np.array_equal(again.x, r.x)
    assert again.reason == r.reason
    for k in range(2):
        assert np.array_equal(again.hess_inv(k).todense(), r.hess_inv(k).todense())


def test_jac_callable_of_a_batch_and_args():
    r = minimize_batch(lambda x, c: ((x - c) ** 2).sum(1), np.zeros((2, 3)), args=(1.5,), jac=lambda x, c: 2 * (x - c))
    assert r.x == pytest.approx(np.full((2, 3), 1.5))
    s = minimize(lambda x, c: ((x - c) ** 2).sum(), np.zeros(3), args=(1.5,), jac=lambda x, c: 2 * (x - c))
    assert s.x == pytest.approx(np.full(3, 1.5))
    assert s.nfev == s.njev


@pytest.mark.parametrize("jac", ["cs", "4-point", 3.5, [1]])
def test_jac_of_other_kinds_is_refused(jac):
    with pytest.raises((ValueError, TypeError), match="jac"):
        minimize(value, np.zeros(N), jac=jac)


def test_fun_must_be_callable():
    with pytest.raises(TypeError, match="fun"):
        minimize(3.0, np.zeros(2))


# ---- PyTorch ----


@pytest.mark.parametrize("width", ["float64", "float32"])
@pytest.mark.parametrize("form", ["autograd", "pair", "callable"])
def test_torch(width, form):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, width)
    target = torch.arange(6, dtype=dtype).reshape(2, 3)
    kinds = set()

    def f(x):
        kinds.add((type(x), x.dtype, tuple(x.shape)))
        return ((x - target) ** 2).sum()

    fun, jac = {
        "autograd": (f, None),
        "pair": (lambda x: (f(x), 2 * (x - target)), True),
        "callable": (f, lambda x: 2 * (x - target)),
    }[form]
    x0 = torch.zeros(2, 3, dtype=dtype)
    r = minimize(fun, x0, jac=jac, bounds=(0.0, 3.5), callback=lambda x: kinds.add((type(x), x.dtype, tuple(x.shape))))
    assert kinds == {(torch.Tensor, dtype, (2, 3))}
    for out in (r.x, r.jac):
        assert type(out) is torch.Tensor
        assert out.dtype == dtype
        assert out.shape == (2, 3)
        assert not out.requires_grad
    assert torch.allclose(r.x, target.clamp(0, 3.5), atol=1e-4)
    assert isinstance(r.fun, float)
    assert torch.equal(x0, torch.zeros(2, 3, dtype=dtype))


def test_torch_points_are_the_engine_s_memory():
    torch = pytest.importorskip("torch")
    opt = LBFGSB(torch.ones(100_000, dtype=torch.float64), (0.0, 2.0))
    address = opt._target.trial.ctypes.data
    while not opt.done:
        x = opt.x
        assert x.data_ptr() == address
        opt.tell((x * x).sum(), 2 * x)
    seen = set()

    def fun(x):
        seen.add(x.data_ptr())
        return (x * x).sum(), 2 * x

    minimize(fun, torch.ones(1000, dtype=torch.float64), jac=True)
    assert len(seen) == 1


def test_torch_parameters_batches_and_gradients_left_alone():
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.full((3,), 2.0, dtype=torch.float64))
    r = minimize(lambda x: ((x - 1) ** 4).sum(), parameter, options=dict(ftol=0))
    assert torch.allclose(r.x, torch.ones(3, dtype=torch.float64), atol=0.1)
    assert parameter.grad is None
    centre = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    batch = minimize_batch(
        lambda x: ((x - centre) ** 2).sum(1), torch.zeros(5, 4, dtype=torch.float64), bounds=(-1.0, 1.0)
    )
    assert type(batch.x) is type(batch.fun) is torch.Tensor
    assert torch.allclose(batch.x, centre.clamp(-1, 1), atol=1e-6)
    with torch.no_grad():
        assert minimize(lambda x: (x * x).sum(), torch.ones(2, dtype=torch.float64)).success


def test_torch_values_with_a_graph_are_taken_without_a_warning():
    """What `loss.backward()` leaves; PyTorch warns, once a process unless told otherwise, of making it a number."""
    torch = pytest.importorskip("torch")

    def fun(x):
        x = x.detach().requires_grad_()
        loss = ((x - 1) ** 2).sum()
        loss.backward()
        return loss, x.grad

    torch.set_warn_always(True)
    try:
        assert torch.allclose(minimize(fun, torch.zeros(3), jac=True).x, torch.ones(3))
        opt = LBFGSB(torch.zeros(3))
        while not opt.done:
            opt.tell(*fun(opt.x))
        assert torch.allclose(opt.x, torch.ones(3))
    finally:
        torch.set_warn_always(False)


def test_torch_functions_without_a_graph_are_refused():
    torch = pytest.importorskip("torch")
    for fun, what in (
        (lambda x: float((x.detach() ** 2).sum()), "float"),
        (lambda x: torch.ones(()), "a tensor without a graph"),
    ):
        with pytest.raises(TypeError, match=f"fun returned {what}; without jac PyTorch differentiates"):
            minimize(fun, torch.ones(3))
    with torch.inference_mode(), pytest.raises(TypeError, match="a tensor without a graph"):
        minimize(lambda x: (x**2).sum(), torch.ones(3))


@pytest.mark.parametrize("form", ["pair", "callable", "autograd", "differences", "batch"])
def test_torch_points_cannot_be_changed_in_place_unnoticed(form):
    torch = pytest.importorskip("torch")
    x0 = torch.tensor([3.0, 4.0], dtype=torch.float64)

    def value(x):
        with torch.no_grad():
            x.add_(1)
        return (x * x).sum(-1)

    good = lambda x: (x * x).sum(-1)  # noqa: E731
    call = {
        "pair": lambda: minimize(lambda x: (value(x), 2 * x), x0, jac=True),
        "callable": lambda: minimize(good, x0, jac=lambda x: x.mul_(2)),
        "autograd": lambda: minimize(value, x0),
        "differences": lambda: minimize(value, x0, jac="2-point"),
        "batch": lambda: minimize_batch(lambda x: (value(x), 2 * x), x0[None], jac=True),
    }[form]
    with pytest.raises(ValueError, match=r"(fun|jac) changed x in place"):
        call()
    inside = minimize(lambda x: (good(x.clone().mul_(2)), 8 * x), x0, jac=True)
    assert inside.success


def test_torch_integers_and_halves_become_doubles():
    torch = pytest.importorskip("torch")
    for dtype in (torch.int32, torch.float16, torch.bfloat16):
        r = minimize(lambda x: ((x - 0.5) ** 2).sum(), torch.ones(3, dtype=dtype))
        assert r.x.dtype == torch.float64
        assert torch.allclose(r.x, torch.full((3,), 0.5, dtype=torch.float64))


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_values_bounds_and_gradients_of_bfloat16(library):
    """Everything here is a whole number, which bfloat16 holds."""
    xp = pytest.importorskip({"torch": "torch", "jax": "jax.numpy"}[library])

    def half(values):
        return xp.asarray(np.asarray(values), dtype=xp.bfloat16)

    seen = minimize(
        lambda x: (half(float(x @ x)), half(2 * x)),
        np.array([4.0, 5.0]),
        jac=True,
        bounds=(half([2.0, -1.0]), half([9.0, 9.0])),
        options=dict(h0=half([0.5, 0.5])),
    )
    assert np.array_equal(seen.x, [2.0, 0.0])
    batch = minimize_batch(lambda x: (half((x**2).sum(1)), half(2 * x)), np.array([[4.0, 5.0]]), jac=True)
    assert batch.success.all()
    assert batch.x[0] == pytest.approx(np.zeros(2), abs=1e-5)


# ---- JAX ----


@pytest.mark.parametrize("form", ["autograd", "pair"])
def test_jax(form):
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    target = jnp.arange(4.0)
    kinds = set()

    def f(x):
        if not isinstance(x, jax.core.Tracer):
            kinds.add(x.dtype)
        return ((x - target) ** 2).sum()

    fun, jac = {"autograd": (f, None), "pair": (lambda x: (f(x), 2 * (x - target)), True)}[form]
    r = minimize(fun, jnp.zeros(4), jac=jac, bounds=(0.0, 2.5))
    assert isinstance(r.x, jax.Array)
    assert r.x.dtype == jnp.zeros(4).dtype
    assert np.asarray(r.x) == pytest.approx([0, 1, 2, 2.5], abs=1e-4)
    assert isinstance(r.jac, jax.Array)


def test_jax_double_precision_and_batches():
    jax = pytest.importorskip("jax")
    if not hasattr(jax, "enable_x64"):
        pytest.skip("this JAX has no enable_x64 context")
    with jax.enable_x64(True):
        centre = jax.numpy.arange(6.0).reshape(2, 3)
        r = minimize_batch(lambda x: ((x - centre) ** 2).sum(1), jax.numpy.zeros((2, 3)), bounds=(-1.0, 4.0))
        assert r.x.dtype == np.float64
        assert np.asarray(r.x) == pytest.approx(np.clip(np.arange(6.0).reshape(2, 3), -1, 4), abs=1e-8)
        results = [minimize(lambda x: ((x - 3) ** 4).sum(), jax.numpy.zeros(2)).x for _ in range(2)]
        assert np.array_equal(results[0], results[1])


@pytest.mark.parametrize("wide", [False, True])
def test_jax_integers_and_halves_become_its_default_float(wide):
    jax = pytest.importorskip("jax")
    if not hasattr(jax, "enable_x64"):
        pytest.skip("this JAX has no enable_x64 context")
    with jax.enable_x64(wide):
        jnp = jax.numpy
        for start in (jnp.arange(3), jnp.ones(3, jnp.float16), jnp.ones(3, jnp.bfloat16)):
            usual = jnp.zeros(1).dtype
            r = minimize(lambda x: ((x - 0.5) ** 2).sum(), start)
            batch = minimize_batch(lambda x: ((x - 0.5) ** 2).sum(1), start[None])
            optimizer = LBFGSB(start)
            assert r.x.dtype == r.jac.dtype == batch.x.dtype == optimizer.x.dtype == usual
            assert np.asarray(r.x) == pytest.approx(np.full(3, 0.5), abs=1e-5)


def test_one_problem_in_three_libraries_takes_one_path():
    torch = pytest.importorskip("torch")
    points = {"numpy": [], "torch": []}
    minimize(lambda x: (points["numpy"].append(np.array(x)), FUN(x))[1], np.ones(N), jac=True)

    def through(x):
        points["torch"].append(x.numpy().copy())
        f, g = FUN(x.numpy())
        return f, torch.from_numpy(g)

    minimize(through, torch.ones(N, dtype=torch.float64), jac=True)
    assert np.array_equal(points["numpy"], points["torch"])


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
        "import stepwell.device_doors\n"
        "late = [name for name in ('scipy', 'cuda', 'torch', 'jax', 'cupy', 'click') if name in sys.modules]\n"
        "assert not late, late\n"
        "assert stepwell.minimize(lambda x: (x @ x, 2 * x), numpy.ones(3), jac=True).success\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
