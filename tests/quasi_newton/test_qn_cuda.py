"""The quasi-Newton engine on a GPU: parity with the host, bitwise promises, graphs, streams and errors."""

from __future__ import annotations

import copy
import pickle
import time

import numpy as np
import pytest

import stepwell
from stepwell import arrays
from stepwell.quasi_newton.status import Status

pytestmark = pytest.mark.cuda

SIZES = {
    "rosenbrock": {"n": 1000},
    "beale": {"n": 1000},
    "powell": {"n": 1000},
    "wood": {"n": 1000},
    "trigonometric": {"n": 100},
    "torsion": {"nx": 30, "ny": 31},
    "journal-bearing": {"nx": 30, "ny": 30},
    "minimal-surface": {"nx": 20, "ny": 20},
    "composites": {"nx": 20, "ny": 20},
    "ginzburg-landau-1d": {"n": 101},
    "lennard-jones": {"natoms": 27},
    "combustion": {"nx": 20, "ny": 20},
    "ginzburg-landau-2d": {"nx": 8, "ny": 8},
}


def quartic(xp, centre, scale):
    def fun(x):
        r = x - centre
        return (0.25 * scale * r * r * r * r + 0.5 * r * r).sum(-1), scale * r * r * r + r

    return fun


def quartic_data(batch, n):
    rng = np.random.default_rng(3)
    return 2 * rng.normal(size=(batch, n)), 10.0 ** rng.uniform(-2, 2, size=(batch, n))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("cauchy", ["exact", "first-interval", "none"])
@pytest.mark.parametrize("name", list(SIZES))
def test_parity_with_the_host(torch, name, cauchy, dtype):
    """Same problem, same options: as good a minimum, and a run of about the same length.

    Rounding sets the two paths apart, more so on non-convex problems (Lennard-Jones clusters and wood's saddle may
    lead to different local minima): there the GPU must end with a reason that the host may have too.
    """
    real = getattr(torch, dtype)
    problem = stepwell.problems.get(name, **SIZES[name])
    on_gpu = stepwell.problems.get(name, xp=torch, dtype=real, device="cuda", **SIZES[name])
    gtol = 1e-6 if dtype == "float64" else 1e-2
    options = {"gtol": gtol, "ftol": 0, "maxiter": 3000, "maxfun": 6000, "cauchy": cauchy}
    x0 = problem.x0.astype(dtype)
    bounds = problem.bounds
    host = stepwell.minimize(problem.fun, x0, jac=True, bounds=bounds, options=options)
    gpu = stepwell.minimize(on_gpu.fun, on_gpu.x0, jac=True, bounds=on_gpu.bounds, options=options)
    assert gpu.x.is_cuda
    assert gpu.x.dtype == real
    acceptable = {Status.GRADIENT, Status.ROUNDING}
    assert gpu.reason in acceptable
    assert host.reason in acceptable
    if name in ("lennard-jones", "wood", "trigonometric", "ginzburg-landau-2d"):
        return
    scale = max(abs(host.fun), 1.0)
    assert abs(gpu.fun - host.fun) <= (1e-7 if dtype == "float64" else 2e-3) * scale
    if dtype == "float64":
        assert 0.6 * host.nit - 10 <= gpu.nit <= 1.6 * host.nit + 10


@pytest.mark.parametrize(
    ("dtype", "history"), [("float64", "float32"), ("float64", "bfloat16"), ("float32", "bfloat16")]
)
@pytest.mark.parametrize("m", [5, 10, 20])
def test_histories_in_a_narrower_dtype(torch, dtype, history, m):
    """As on the host: about the same run to the same minimum, resumed bit for bit, pairs that keep the secant."""
    real = getattr(torch, dtype)
    problem = stepwell.problems.get("torsion", nx=40, ny=41)
    on_gpu = stepwell.problems.get("torsion", nx=40, ny=41, xp=torch, dtype=real, device="cuda")
    options = {"gtol": 1e-6 if dtype == "float64" else 1e-2, "ftol": 0, "maxcor": m, "history": history}
    host = stepwell.minimize(problem.fun, problem.x0.astype(dtype), jac=True, bounds=problem.bounds, options=options)
    gpu = stepwell.minimize(on_gpu.fun, on_gpu.x0, jac=True, bounds=on_gpu.bounds, options=options)
    assert gpu.reason in {Status.GRADIENT, Status.ROUNDING}
    assert abs(gpu.fun - host.fun) <= (1e-7 if dtype == "float64" else 2e-3)
    assert gpu.nit <= 1.6 * host.nit + 10
    s, y = gpu.hess_inv.sk[-1], gpu.hess_inv.yk[-1]
    assert s.dtype == real
    torch.testing.assert_close(gpu.hess_inv @ y, s, rtol=1e-3, atol=1e-5)

    def run(opt, turns):
        while not opt.done and turns:
            opt.tell(*on_gpu.fun(opt.x))
            turns -= 1
        return opt

    settings = {"m": m, "history": history, "gtol": 0.0, "ftol": 0.0}
    through = run(stepwell.LBFGSB(on_gpu.x0, on_gpu.bounds, **settings), 30)
    state = run(stepwell.LBFGSB(on_gpu.x0, on_gpu.bounds, **settings), 17).state_dict()
    resumed = run(stepwell.LBFGSB.from_state_dict(state, like=on_gpu.x0), 13)
    assert (through.accepted_point() == resumed.accepted_point()).all()


def test_every_point_is_inside_the_bounds(torch):
    centre, scale = (torch.tensor(a[0], device="cuda") for a in quartic_data(1, 3001))
    lower = torch.where(torch.rand(3001, device="cuda", dtype=torch.float64) < 0.5, -0.7, -torch.inf).double()
    upper = lower.clamp(min=-0.3) + torch.rand(3001, device="cuda", dtype=torch.float64)
    outside = torch.zeros((), device="cuda", dtype=torch.int64)
    inner = quartic(torch, centre, scale)

    def fun(x):
        outside.add_(((x < lower) | (x > upper)).sum())
        return inner(x)

    start = torch.zeros(3001, device="cuda", dtype=torch.float64).clamp(lower, upper)
    result = stepwell.minimize(fun, start, jac=True, bounds=(lower, upper), options={"gtol": 1e-9, "ftol": 0})
    assert int(outside) == 0
    best = centre.clamp(lower, upper)
    assert float((result.x - best).abs().max()) < 1e-6


@pytest.mark.parametrize("n", [24, 300, 5000])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_batch_equals_alone(torch, n, dtype):
    batch = 7
    real = getattr(torch, dtype)
    centre, scale = (torch.tensor(a, device="cuda", dtype=real) for a in quartic_data(batch, n))
    x0 = torch.zeros((batch, n), device="cuda", dtype=real)
    options = {"gtol": 1e-4, "graph": False}
    together = stepwell.minimize_batch(quartic(torch, centre, scale), x0, jac=True, bounds=(-1.0, 1.0), options=options)
    for k in range(batch):
        # The rows are summed by the same torch reduction only if the shape is the same: the objective of the lone
        # problem is evaluated inside a batch of copies, and its own row taken.
        def alone(x, k=k):
            f, g = quartic(torch, centre, scale)(x.expand(batch, n))
            return f[k : k + 1], g[k : k + 1].contiguous()

        single = stepwell.minimize_batch(alone, x0[:1], jac=True, bounds=(-1.0, 1.0), options=options)
        assert torch.equal(single.x[0], together.x[k])
        assert single.nit[0] == together.nit[k]


def test_repeats_bitwise(torch):
    problem = stepwell.problems.get("torsion", nx=60, ny=60, xp=torch, dtype=torch.float64, device="cuda")
    runs = [
        stepwell.minimize(problem.fun, problem.x0, jac=True, bounds=problem.bounds, options={"gtol": 1e-8, "ftol": 0})
        for _ in range(3)
    ]
    assert torch.equal(runs[0].x, runs[1].x)
    assert torch.equal(runs[0].x, runs[2].x)


def test_graph_equals_no_graph_torch(torch):
    problem = stepwell.problems.get("torsion", nx=50, ny=50, xp=torch, dtype=torch.float64, device="cuda")
    options = {"gtol": 1e-8, "ftol": 0}
    runs = {
        graph: stepwell.minimize(
            problem.fun, problem.x0, jac=True, bounds=problem.bounds, options=options | {"graph": graph}
        )
        for graph in (False, True)
    }
    assert "graph" in runs[True].mode
    assert torch.equal(runs[False].x, runs[True].x)
    assert runs[False].nit == runs[True].nit


def test_graph_equals_no_graph_cupy(cupy):
    problem = stepwell.problems.get("torsion", nx=50, ny=50, xp=cupy, dtype=cupy.float64)
    options = {"gtol": 1e-8, "ftol": 0}
    runs = {
        graph: stepwell.minimize(
            problem.fun, problem.x0, jac=True, bounds=problem.bounds, options=options | {"graph": graph}
        )
        for graph in (False, True)
    }
    assert "graph" in runs[True].mode
    assert bool((runs[False].x == runs[True].x).all())


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_jax_works_on_after_a_capture(library, request):
    """JAX asks for its stream's status about once a second, from a thread of its own, and gives it up if refused."""
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU")
    xp = request.getfixturevalue(library)
    template = xp.ones(8, device="cuda") if library == "torch" else xp.ones(8)
    out = 0 * template
    double = jax.jit(lambda x: 2 * x)
    assert float(double(1.0)) == 2

    def slow_work(stream):
        time.sleep(1.5)  # twice for CuPy, of which the second time is in the capture
        xp.add(template, 1, out=out)

    arrays.capture(template, slow_work)()
    assert float(out[0]) == 2
    assert float(double(3.0)) == 6


def test_an_objective_that_cannot_be_captured_falls_back(torch):
    x0 = torch.full((500,), 2.0, device="cuda", dtype=torch.float64)

    def fun(x):
        return float((x * x * x * x).sum().item()), 4 * x * x * x  # asks the host

    result = stepwell.minimize(fun, x0, jac=True, options={"gtol": 1e-7, "ftol": 0})
    assert result.success
    assert "not captured" in result.mode or result.nfev < 9
    with pytest.raises(RuntimeError, match="cannot be captured"):
        stepwell.minimize(fun, x0 * 3, jac=True, options={"gtol": 1e-12, "ftol": 0, "graph": True})


def test_autograd_torch(torch):
    x0 = torch.zeros(40, 5, device="cuda", dtype=torch.float64)
    result = stepwell.minimize(lambda x: ((x - 3) ** 4 + (x - 3) ** 2).sum(), x0, bounds=(0.0, 2.0))
    assert result.x.shape == (40, 5)
    assert torch.equal(result.x, torch.full_like(x0, 2.0))


def test_jax(torch):
    jax = pytest.importorskip("jax")
    if not any(d.platform in ("gpu", "cuda") for d in jax.devices()):
        pytest.skip("JAX sees no GPU")
    x0 = jax.numpy.zeros(300)
    result = stepwell.minimize(lambda x: ((x - 0.5) ** 2).sum() + ((x - 0.5) ** 4).sum(), x0)
    assert stepwell.arrays.kind_of(result.x) == "jax"
    assert float(abs(result.x - 0.5).max()) < 1e-3


def test_on_a_stream_of_its_own(torch):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        problem = stepwell.problems.get("rosenbrock", n=2000, xp=torch, dtype=torch.float64, device="cuda")
        result = stepwell.minimize(problem.fun, problem.x0, jac=True, options={"gtol": 1e-7, "ftol": 0})
    stream.synchronize()
    assert float((result.x - 1).abs().max()) < 1e-5


def test_published_table(torch):
    """Liu & Nocedal's VA15 driver on the extended Rosenbrock function, n = 1,000,000 (D'Amore et al. 2013)."""
    problem = stepwell.problems.get("rosenbrock", n=10**6, xp=torch, dtype=torch.float64, device="cuda")
    rows = []

    def callback(intermediate_result):
        r = intermediate_result
        rows.append(f"{r.nit} {r.nfev} {r.fun:.6e} {r.gradient_norm:.6e} {r.step:.6e}")

    options = {"maxcor": 7, "line_search": "va15", "relative_gtol": 1e-5, "gtol": 0, "ftol": 0}
    stepwell.minimize(problem.fun, problem.x0, jac=True, callback=callback, options=options)
    assert rows[0] == "1 4 8.968026e+06 1.338990e+05 1.275337e-04"
    assert rows[5] == "6 9 2.050814e+06 3.691128e+03 1.000000e+00"
    assert rows[33] == "34 48 2.229921e+00 1.018714e+01 1.000000e+00"
    assert len(rows) == 37


@pytest.mark.parametrize("m", [1, 3, 8, 9, 16, 17, 40, 64])
@pytest.mark.parametrize("h0", [False, True])
def test_history_lengths_and_diagonal(torch, m, h0):
    centre, scale = (torch.tensor(a[0], device="cuda") for a in quartic_data(1, 1500))
    x0 = torch.zeros(1500, device="cuda", dtype=torch.float64)
    options = {"maxcor": m, "gtol": 1e-8, "ftol": 0, "maxiter": 4000, "maxfun": 9000}
    if h0:
        options["h0"] = 1 / (1 + scale)
    result = stepwell.minimize(quartic(torch, centre, scale), x0, jac=True, bounds=(-1.0, 1.5), options=options)
    assert float((result.x - centre.clamp(-1.0, 1.5)).abs().max()) < 1e-5


def test_callable_diagonal(torch):
    centre, scale = (torch.tensor(a[0], device="cuda") for a in quartic_data(1, 800))
    x0 = torch.zeros(800, device="cuda", dtype=torch.float64)
    diagonal = lambda x: 1 / (1 + 3 * scale * (x - centre) ** 2)  # noqa: E731
    result = stepwell.minimize(
        quartic(torch, centre, scale),
        x0,
        jac=True,
        bounds=(-1.0, 1.5),
        options={"h0": diagonal, "gtol": 1e-8, "ftol": 0},
    )
    assert float((result.x - centre.clamp(-1.0, 1.5)).abs().max()) < 1e-5
    bad = torch.ones(800, device="cuda", dtype=torch.float64)
    bad[7] = 0
    with pytest.raises(ValueError, match=r"h0 is 0.0 at index 7"):
        stepwell.minimize(quartic(torch, centre, scale), x0, jac=True, options={"h0": bad})


def test_many_equal_breakpoints(torch):
    """All variables alike: every breakpoint ties, far more than a walk holds at once."""
    n = 200_001
    x0 = torch.full((n,), 0.5, device="cuda", dtype=torch.float64)
    weight = torch.linspace(1, 2, n, device="cuda", dtype=torch.float64)
    fun = lambda x: (0.5 * (weight * (x - 3) ** 2).sum(), weight * (x - 3))  # noqa: E731
    result = stepwell.minimize(fun, x0, jac=True, bounds=(0.0, 1.0))
    assert torch.equal(result.x, torch.ones_like(x0))
    flat = lambda x: (0.5 * ((x - 3) ** 2).sum() + ((x[:-1] - x[1:]) ** 2).sum(), _gradient_chain(torch, x))  # noqa: E731
    result = stepwell.minimize(flat, x0, jac=True, bounds=(0.0, 1.0))
    assert torch.equal(result.x, torch.ones_like(x0))


def _gradient_chain(torch, x):
    g = x - 3
    d = 2 * (x[:-1] - x[1:])
    g = g.clone()
    g[:-1] += d
    g[1:] -= d
    return g


def test_ask_tell_and_resume(torch):
    problem = stepwell.problems.get("torsion", nx=40, ny=40, xp=torch, dtype=torch.float64, device="cuda")

    def run(opt, turns):
        for _ in range(turns):
            f, g = problem.fun(opt.x)
            opt.tell(f, g)
        return opt

    whole = run(stepwell.LBFGSB(problem.x0, problem.bounds, m=5, gtol=0, ftol=0), 60)
    part = run(stepwell.LBFGSB(problem.x0, problem.bounds, m=5, gtol=0, ftol=0), 23)
    again = run(stepwell.LBFGSB.from_state_dict(part.state_dict(), like=problem.x0), 37)
    assert torch.equal(whole.x, again.x)
    assert whole.nit == again.nit
    host = stepwell.LBFGSB.from_state_dict(part.state_dict())
    assert host.nit == part.nit
    for copied in (pickle.loads(pickle.dumps(part)), copy.deepcopy(part)):
        assert torch.equal(whole.x, run(copied, 37).x)


def test_inverse_hessian_secant(torch):
    problem = stepwell.problems.get("rosenbrock", n=20, xp=torch, dtype=torch.float64, device="cuda")
    trace = []
    result = stepwell.minimize(
        problem.fun,
        problem.x0,
        jac=True,
        callback=lambda xk: trace.append(xk.clone()),
        options={"maxcor": 5, "maxiter": 13, "gtol": 0, "ftol": 0},
    )
    s = trace[-1] - trace[-2]
    y = problem.fun(trace[-1])[1] - problem.fun(trace[-2])[1]
    assert float((result.hess_inv @ y - s).norm() / s.norm()) < 1e-8


def test_statuses(torch):
    x0 = torch.ones(100, device="cuda", dtype=torch.float64)
    bowl = lambda x: ((x * x).sum(), 2 * x)  # noqa: E731
    nan = lambda x: ((x * x).sum() * torch.nan, 2 * x)  # noqa: E731
    assert stepwell.minimize(nan, x0, jac=True).reason is Status.NONFINITE_START
    problem = stepwell.problems.get("rosenbrock", n=100, xp=torch, dtype=torch.float64, device="cuda")
    cases = {
        Status.MAX_ITERATIONS: {"maxiter": 3},
        Status.MAX_EVALUATIONS: {"maxfun": 4},
        Status.TARGET: {"target": 10.0},
        Status.GRADIENT_NORM: {"relative_gtol": 1e-3, "gtol": 0, "ftol": 0},
        Status.TIME_LIMIT: {"time_limit": 1e-9},
    }
    for reason, options in cases.items():
        assert stepwell.minimize(problem.fun, problem.x0, jac=True, options=options).reason is reason

    def stop(intermediate_result):
        raise StopIteration

    assert stepwell.minimize(problem.fun, problem.x0, jac=True, callback=stop).status == 99
    assert stepwell.minimize(bowl, x0, jac=True).success


def test_errors(torch):
    x0 = torch.ones(10, device="cuda", dtype=torch.float64)
    bowl = lambda x: ((x * x).sum(), 2 * x)  # noqa: E731
    with pytest.raises(ValueError, match="contiguous"):
        stepwell.minimize(bowl, torch.ones(20, device="cuda", dtype=torch.float64)[::2], jac=True)
    with pytest.raises(TypeError, match="dtype"):
        stepwell.minimize(bowl, torch.ones(10, device="cuda", dtype=torch.float16), jac=True)
    cupy = pytest.importorskip("cupy")
    with pytest.raises(ValueError, match="one library and one device"):
        stepwell.minimize(bowl, x0, jac=True, bounds=(cupy.zeros(10), cupy.ones(10)))
    with pytest.raises(TypeError, match="host"):
        stepwell.minimize(lambda x: ((x * x).sum(), (2 * x).cpu()), x0, jac=True)
    with pytest.raises(TypeError, match="dtype"):
        stepwell.minimize(lambda x: ((x * x).sum(), (2 * x).float()), x0, jac=True)
    low = torch.zeros(10, device="cuda", dtype=torch.float64)
    low[3] = 7
    with pytest.raises(ValueError, match="index 3"):
        stepwell.minimize(bowl, x0, jac=True, bounds=(low, low * 0 + 1))
    with pytest.raises(MemoryError, match="smaller m"):
        stepwell.LBFGSB(torch.empty(2**31, device="cuda", dtype=torch.float32).zero_(), m=64)
    with pytest.raises(ZeroDivisionError):
        stepwell.minimize(lambda x: 1 / 0, x0, jac=True)
