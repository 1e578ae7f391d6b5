"""Points, values and gradients of PyTorch and JAX."""

from __future__ import annotations

import numpy as np
import pytest
from qn_bowl import FUN, N

from stepwell import LBFGSB, minimize, minimize_batch

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
    address = opt._run.target.trial.ctypes.data
    while not opt.done:
        x = opt.x
        assert x.data_ptr() == address
        opt.tell((x * x).sum(), 2 * x)
    seen = set()

    def fun(x):
        seen.add(x.data_ptr())
        return (x * x).sum(), 2 * x

    minimize(fun, torch.ones(100_000, dtype=torch.float64), jac=True)
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
def test_torch_points_that_are_lent_cannot_be_changed_in_place_unnoticed(form):
    torch = pytest.importorskip("torch")
    x0 = torch.tensor([3.0, 4.0], dtype=torch.float64)

    def value(x):
        with torch.no_grad():
            x.add_(1)
        return (x * x).sum(-1)

    good = lambda x: (x * x).sum(-1)  # noqa: E731
    views = {"zero_copy": True}
    call = {
        "pair": lambda: minimize(lambda x: (value(x), 2 * x), x0, jac=True, options=views),
        "callable": lambda: minimize(good, x0, jac=lambda x: x.mul_(2), options=views),
        "autograd": lambda: minimize(value, x0, options=views),
        "differences": lambda: minimize(value, x0, jac="2-point", options=views),
        "batch": lambda: minimize_batch(lambda x: (value(x), 2 * x), x0[None], jac=True, options=views),
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
