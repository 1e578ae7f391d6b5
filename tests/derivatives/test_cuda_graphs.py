"""On a CUDA device: every differentiable function in PyTorch, the optimizer, and the solvers in programs of JAX.

The oracle is the same call on the host, whose derivatives other tests hold against differences.
"""

from __future__ import annotations

import numpy as np
import pytest

import stepwell

pytestmark = pytest.mark.cuda
random = np.random.default_rng(11)
A, B = random.normal(size=(9, 6)), random.normal(size=(4, 9))
GRAM = A.T @ A + 0.1 * np.eye(6)
LARGE = random.normal(size=(2, 500, 150))
LARGE_GRAM, LARGE_B = np.swapaxes(LARGE, 1, 2) @ LARGE, random.normal(size=(2, 150))


@pytest.fixture
def torch():
    library = pytest.importorskip("torch")
    if not library.cuda.is_available():
        pytest.skip("torch has no GPU")
    return library


def minimiser(A, b):
    """A bounded minimiser whose parameters are a matrix and a vector."""
    start = A.sum(0).detach() * 0
    return stepwell.argmin(lambda x: ((A @ x - b[0]) ** 2).sum() + (x**4).sum(), start, bounds=(-0.3, 2.0))


FUNCTIONS = {
    "nnls": (lambda A, b: stepwell.nnls(A, b, lam=0.1).x, A, B),
    "nnls, own matrices": (lambda A, b: stepwell.nnls(A, b).x, np.stack([A, A + 0.1, A - 0.1, 2 * A]), B),
    "convolution": (lambda p, b: stepwell.nnls(stepwell.Convolution(p, 9, origin=1), b, lam=0.3).x, A[:3, 0] ** 2, B),
    "lsq_linear": (lambda A, b: stepwell.lsq_linear(A, b, (-0.1, 0.2)).x, A, B),
    "lsq_linear, sum": (lambda A, b: stepwell.lsq_linear(A, b, (0.0, 0.5), sum_bounds=(1.0, 1.0)).x, A, B),
    "lsq_gram": (lambda G, c: stepwell.lsq_gram(G, c, (-0.1, 0.2)).x, GRAM, B[:, :6]),
    "lsq_gram, large": (lambda G, c: stepwell.lsq_gram(G, c, (0.0, 0.1)).x, LARGE_GRAM, LARGE_B),
    "tikhonov": (lambda A, b: stepwell.tikhonov(A, b.T, 0.7, tol=1e-12).x, A, B),
    "cg": (lambda H, b: stepwell.cg(H, b.T, tol=1e-12).x, GRAM, B[:, :6]),
}


def gradients(torch, function, given, device):
    there = [torch.tensor(array, device=device, requires_grad=True) for array in given]
    x = function(*there)
    weights = torch.linspace(0.5, 1.5, x.numel(), dtype=torch.float64, device=device).reshape(x.shape)
    return [x.detach(), *torch.autograd.grad((weights * x).sum(), there)]


def nearly_dependent(m, n, condition):
    """A matrix of a known condition, with singular values evenly spread in their logarithm."""
    U, V = (np.linalg.qr(random.normal(size=(k, n)))[0] for k in (m, n))
    return (U * np.geomspace(1, 1 / condition, n)) @ V.T


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("systems", "m", "n"), [(None, 20, 8), (300, 20, 8), (70, 56, 40), (3, 200, 100), (1, 600, 300)]
)
def test_gradients_of_all_sizes(torch, systems, m, n, dtype):
    """In A, b and λ, each system with a matrix of its own; the host's bounds are those of its dtype."""
    lead = () if systems is None else (systems,)
    given = [random.normal(size=(*lead, m, n)), random.normal(size=(*lead, m)), 0.3]

    def found(device):
        there = [torch.tensor(a, dtype=getattr(torch, dtype), device=device, requires_grad=True) for a in given]
        x = stepwell.nnls(there[0], there[1], lam=there[2]).x
        weights = torch.linspace(0.5, 1.5, n, dtype=x.dtype, device=device)
        return torch.autograd.grad((weights * x).sum(), there)

    close = 1e-10 if dtype == "float64" else 1e-3
    for here, there in zip(found("cpu"), found("cuda")):
        assert here.shape == there.shape
        assert here.dtype == there.dtype
        assert (here - there.cpu()).abs().max() <= close * max(1.0, float(here.abs().max()))


def test_gradients_where_columns_are_nearly_dependent(torch):
    """Condition κ = 1e6: by the columns the gradient in b is right to about κ ulp, by their products to κ² ulp.

    (That in A has b − Ax in it, which is of rounding size here, times u, which is as large as κ².)
    """
    A = nearly_dependent(50, 12, 1e6)
    given = A, A @ np.abs(random.normal(size=12))[None].T
    function = lambda A, b: stepwell.nnls(A, b.T).x  # noqa: E731
    on_host, there = (gradients(torch, function, given, device) for device in ("cpu", "cuda"))
    for here, other, close in zip(on_host, there, (1e-7, 1e-5, 1e-8)):
        assert (here - other.cpu()).abs().max() <= close * here.abs().max()


def test_a_system_that_is_not_finite_has_no_gradients_alone(torch):
    b = B.copy()
    b[1, 2] = np.nan
    own = np.stack([A, A + 0.1, A - 0.1, 2 * A])
    there = [torch.tensor(array, device="cuda", requires_grad=True) for array in (own, b)]
    slopes = torch.autograd.grad(stepwell.nnls(*there).x.sum(), there)
    for slope in slopes:
        assert slope[1].isnan().all()
        assert slope[[0, 2, 3]].isfinite().all()


@pytest.mark.parametrize("name", [*FUNCTIONS, "argmin"])
def test_gradients_are_those_of_the_host(torch, name):
    """To rounding times conditions of some hundreds; iterations and minimisers to their tolerances."""
    function, *given = (minimiser, A, B) if name == "argmin" else FUNCTIONS[name]
    close = 1e-6 if name == "argmin" else 1e-8 if name in ("tikhonov", "cg") else 1e-9
    on_host = gradients(torch, function, given, "cpu")
    with torch.cuda.stream(torch.cuda.Stream()):  # the current stream, not the default one
        on_device = gradients(torch, function, given, "cuda")
        for own, other in zip(on_device, on_host):
            assert own.is_cuda
            torch.testing.assert_close(own.cpu(), other, rtol=close, atol=close)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_transformations(torch, name):
    function, first, second = FUNCTIONS[name]
    first, second = (torch.tensor(array, device="cuda") for array in (first, second))
    backward = torch.func.jacrev(lambda b: function(first, b))(second)
    forward = torch.func.jacfwd(lambda b: function(first, b))(second)
    torch.testing.assert_close(backward, forward, rtol=1e-7, atol=1e-7)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # PyTorch 2.11's own compiler
@pytest.mark.parametrize("name", ["nnls", "lsq_linear, sum", "lsq_gram", "tikhonov", "cg"])
def test_compiled_programs(torch, name):
    function, *given = FUNCTIONS[name]
    there = [torch.tensor(array, device="cuda") for array in given]
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*there), function(*there), rtol=1e-9, atol=1e-9)


def test_operations(torch):
    """PyTorch's own checks of operations, with tensors of the device."""
    A_, b, one = torch.tensor(A, device="cuda"), torch.tensor(B, device="cuda"), torch.tensor(0.1, dtype=torch.float64)
    free = (random.random((4, 6)) < 0.6).astype(float)
    how = ("", False, None, None, None, "auto", "guarded", 1.02)
    stepwell.nnls(A_.clone().requires_grad_(), b)  # what registers the operations
    stepwell.lsq_linear(A_.clone().requires_grad_(), b, (0, 1))
    arrays = (A_, b, *[None] * 6, one.cuda(), *[None] * 4)
    torch.library.opcheck(torch.ops.stepwell.lsq.default, (*arrays, -1, 0, 0, *how))
    marks = torch.tensor(free, device="cuda")
    step = (A_, marks, one.cuda(), b[:, :6], None, None, -1, 0, 0)
    torch.library.opcheck(torch.ops.stepwell.lsq_step.default, step)


# ---- the optimizer ----


@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
def test_no_wait_inside_a_step(torch, monkeypatch):
    """From the first evaluation to the last no operation waits for the host, and the run is looked at once or twice."""
    import stepwell.torch
    from stepwell.quasi_newton.cuda.target import CudaTarget

    x = torch.nn.Parameter(torch.full((1000,), -1.0, dtype=torch.float64, device="cuda"))
    optimizer = stepwell.torch.LBFGSB([x], max_iter=20, tolerance_grad=0, tolerance_change=0, bounds=(None, 2.0))
    calls, waits = [], []
    usual = CudaTarget.wait

    def noted(self):
        waits.append(len(calls))
        usual(self)

    def closure():
        if not calls:
            torch.cuda.set_sync_debug_mode("error")
        optimizer.zero_grad()
        loss = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
        loss.backward()
        calls.append(1)
        if len(calls) == 19:  # fewer than the iterations of a step
            torch.cuda.set_sync_debug_mode("default")
        return loss

    first = float(((100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()).detach())
    monkeypatch.setattr(CudaTarget, "wait", noted)
    try:
        optimizer.step(closure)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert not [at for at in waits if 0 < at < 19]
    monkeypatch.undo()
    assert 20 <= len(calls) <= 25
    assert float(optimizer.step(closure_of(torch, optimizer, x))) < 0.5 * first


def closure_of(torch, optimizer, x):
    def closure():
        optimizer.zero_grad()
        loss = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
        loss.backward()
        return loss

    return closure


def test_a_captured_closure_takes_the_same_steps(torch):
    """Bit for bit, and Python sees the closure twice; another closure is recorded anew."""
    import stepwell.torch

    ends, calls = [], []
    for capture in (False, True):
        x = torch.nn.Parameter(torch.full((50,), -1.0, dtype=torch.float64, device="cuda"))
        y = torch.nn.Parameter(torch.full((3, 2), 1.5, dtype=torch.float64, device="cuda"))
        optimizer = stepwell.torch.LBFGSB([x, y], bounds=(None, 1.9), max_iter=15, capture=capture)

        def closure(optimizer=optimizer, x=x, y=y, capture=capture):
            calls.append(capture)
            optimizer.zero_grad()
            loss = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum() + (y**4).sum()
            loss.backward()
            return loss

        losses = [float(optimizer.step(closure).detach()) for _ in range(3)]
        losses.append(float(optimizer.step(lambda closure=closure: closure()).detach()))
        ends.append((torch.cat([x.detach(), y.detach().reshape(-1)]).cpu(), losses))
    assert ends[0][1] == ends[1][1]
    assert torch.equal(ends[0][0], ends[1][0])
    assert calls.count(True) == 4


def test_a_closure_that_looks_at_values_cannot_be_captured(torch):
    import stepwell.torch

    x = torch.nn.Parameter(torch.ones(5, dtype=torch.float64, device="cuda"))
    optimizer = stepwell.torch.LBFGSB([x], capture=True)

    def closure():
        optimizer.zero_grad()
        loss = (x**2).sum() * (2.0 if float(x[0].detach()) > 0 else 1.0)
        loss.backward()
        return loss

    with pytest.raises(RuntimeError, match="capture is True"):
        optimizer.step(closure)


def test_the_optimizer_ends_where_that_of_the_host_does(torch):
    import stepwell.torch

    ends = []
    for device in ("cpu", "cuda"):
        x = torch.nn.Parameter(torch.full((50,), -1.0, dtype=torch.float64, device=device))
        optimizer = stepwell.torch.LBFGSB([x], max_iter=400, tolerance_change=0, bounds=(None, 0.9))
        optimizer.step(closure_of(torch, optimizer, x))
        ends.append(x.detach().cpu())
    torch.testing.assert_close(*ends, rtol=1e-5, atol=1e-5)


# ---- programs of JAX ----


@pytest.fixture(params=["cupy", "torch"])
def jax(request, monkeypatch):
    """JAX in double precision on the device, whose memory a library stands for."""
    library = pytest.importorskip("jax")
    pytest.importorskip(request.param)
    if library.default_backend() != "gpu":
        pytest.skip("JAX has no GPU")
    from stepwell.arrays import borrowed
    from stepwell.derivatives import jax_calls

    monkeypatch.setattr(borrowed, "lender", lambda: request.param)
    if not jax_calls.lends_buffers():
        pytest.skip("this JAX lends no buffers")
    library.config.update("jax_enable_x64", True)
    yield library
    library.config.update("jax_enable_x64", False)


def seen_homes(monkeypatch, module):
    """Note where the arrays of calls lie."""
    from stepwell.arrays import is_cuda

    homes, usual = [], module.solve_folded

    def noted(first, *others):
        homes.append(is_cuda(first[0] if isinstance(first, tuple) else first))
        return usual(first, *others)

    monkeypatch.setattr(module, "solve_folded", noted)
    return homes


def test_nnls_in_a_program_stays_on_the_device(jax, monkeypatch):
    from stepwell.derivatives import jax_lsq

    homes = seen_homes(monkeypatch, jax_lsq)
    A_, B_ = jax.numpy.asarray(A), jax.numpy.asarray(B)
    found = jax.jit(jax.vmap(lambda b: stepwell.nnls(A_, b, lam=0.1).x))(B_)
    assert homes == [True]
    assert "cuda" in str(found.device).lower()
    np.testing.assert_allclose(found, stepwell.nnls(A, B, lam=0.1).x, rtol=1e-10, atol=1e-12)
    # Work before and after on the same stream, many times over.
    chained = jax.jit(lambda b: stepwell.nnls(A_, 3.0 * b - 2.0 * b, lam=0.1).x * 2.0)
    for _ in range(50):
        np.testing.assert_allclose(chained(B_), 2 * found, rtol=1e-10, atol=1e-12)


JAX_FUNCTIONS = {name: FUNCTIONS[name] for name in FUNCTIONS if name != "convolution"}


@pytest.mark.parametrize("name", JAX_FUNCTIONS)
def test_gradients_in_programs_are_those_of_the_host(jax, name):
    function, *given = JAX_FUNCTIONS[name]

    def weighed(A, b):
        x = function(A, b)
        return (x * jax.numpy.linspace(0.5, 1.5, x.size).reshape(x.shape)).sum()

    slopes = jax.jit(jax.grad(weighed, (0, 1)))(*map(jax.numpy.asarray, given))
    torch = pytest.importorskip("torch")
    wanted = gradients(torch, function, given, "cpu")[1:]
    for own, other in zip(slopes, wanted):
        np.testing.assert_allclose(own, other.numpy(), rtol=1e-7, atol=1e-8)


def test_single_precision_without_double():
    library = pytest.importorskip("jax")
    if library.default_backend() != "gpu":
        pytest.skip("JAX has no GPU")
    A_, B_ = (library.numpy.asarray(array, "float32") for array in (A, B))
    found = library.jit(library.vmap(lambda b: stepwell.nnls(A_, b).x))(B_)
    assert found.dtype == "float32"
    np.testing.assert_allclose(found, stepwell.nnls(np.asarray(A_), np.asarray(B_)).x, rtol=1e-4, atol=1e-5)
