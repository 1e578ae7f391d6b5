"""The same problem in NumPy, PyTorch, JAX and CuPy, in both precisions, one point or many at a time."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from problem_cases import ALL, SMALL, close, points

from stepwell import problems


@contextlib.contextmanager
def double_precision(jax):
    switch = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with switch(True):
        yield


@ALL
def test_torch_agrees_with_numpy(name):
    torch = pytest.importorskip("torch")
    problem = problems.get(name, xp=torch, **SMALL[name])
    assert isinstance(problem.x0, torch.Tensor)
    assert problem.x0.dtype == torch.float64
    x = points(problems.get(name, **SMALL[name]), 3)
    expected = problem.fun(x)
    f, g = problem.fun(torch.from_numpy(x))
    assert (type(f), f.dtype, f.shape) == (torch.Tensor, torch.float64, (3,))
    assert (type(g), g.dtype, g.shape) == (torch.Tensor, torch.float64, (3, problem.n))
    for k in range(3):
        close(f[k], expected[0][k], 1e-12)
    close(g, expected[1], 1e-12)


@ALL
def test_jax_agrees_with_numpy(name):
    jax = pytest.importorskip("jax")
    x = points(problems.get(name, **SMALL[name]), 3)
    with double_precision(jax):
        problem = problems.get(name, xp=jax.numpy, **SMALL[name])
        assert isinstance(problem.x0, jax.Array)
        assert problem.x0.dtype == np.float64
        expected = problem.fun(x)
        f, g = jax.jit(problem.fun)(jax.numpy.asarray(x))
        assert isinstance(f, jax.Array)
        assert (f.dtype, f.shape, g.dtype, g.shape) == (np.float64, (3,), np.float64, (3, problem.n))
        for k in range(3):
            close(f[k], expected[0][k], 1e-12)
        close(g, expected[1], 1e-12)


@pytest.mark.parametrize("name", ["trigonometric", "journal-bearing", "lennard-jones"])
def test_jax_outside_a_transformation(name):
    """After one, to see that nothing of it is kept in the problem's tables."""
    jax = pytest.importorskip("jax")
    with double_precision(jax):
        problem = problems.get(name, **SMALL[name])
        x = points(problem, 1)[0]
        jax.jit(problem.fun)(jax.numpy.asarray(x))
        f, g = problem.fun(jax.numpy.asarray(x))
        assert f.shape == ()
        close(f, problem.fun(x)[0], 1e-12)
        close(g, problem.fun(x)[1], 1e-12)


def test_jax_without_double_precision():
    jax = pytest.importorskip("jax")
    problem = problems.get("journal-bearing", nx=4, ny=3, xp=jax.numpy)
    assert problem.x0.dtype == problem.bounds[1].dtype == np.float32
    f, g = problem.fun(problem.x0)
    assert f.dtype == g.dtype == np.float32
    assert float(f) == pytest.approx(6.84973325767441, rel=1e-5)


@ALL
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_single_precision_is_close_to_double(name, kind):
    xp = pytest.importorskip(kind)
    problem = problems.get(name, xp=xp, dtype="float32", **SMALL[name])
    x = points(problems.get(name, **SMALL[name]), 1)[0].astype(np.float32)
    expected_f, expected_g = problem.fun(x.astype(np.float64))
    f, g = problem.fun(xp.asarray(x))
    assert problem.x0.dtype == f.dtype == g.dtype == xp.float32
    # float32 eps is 1.2e-7; the points differ from their neighbours by a tenth; no sum is longer than 100.
    close(float(f), expected_f, 1e-5)
    close(np.asarray(g), expected_g, 1e-5)


@ALL
def test_batch_is_each_point_alone(name):
    problem = problems.get(name, **SMALL[name])
    x = points(problem, 6)
    f, g = problem.fun(x)
    assert f.shape == (6,)
    assert g.shape == x.shape
    for k in range(6):
        alone_f, alone_g = problem.fun(x[k])
        assert np.ndim(alone_f) == 0
        # The same operations; only vector and scalar versions of sin, cos and exp may differ in the last bit.
        close(f[k], alone_f, 1e-14)
        close(g[k], alone_g, 1e-14)
    nested_f, nested_g = problem.fun(x.reshape(2, 3, problem.n))
    np.testing.assert_array_equal(nested_f, f.reshape(2, 3))
    np.testing.assert_array_equal(nested_g, g.reshape(2, 3, problem.n))


@ALL
def test_large_batches_in_groups(name):
    problem = problems.get(name, **SMALL[name])
    x = np.concatenate([points(problem, 50, seed) for seed in range(60)])
    f, g = problem.fun(x)
    for k in (0, 1, 1499, 2999):
        close(f[k], problem.fun(x[k])[0], 1e-14)
        close(g[k], problem.fun(x[k])[1], 1e-14)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("rosenbrock", {"n": 100_002}),
        ("wood", {"n": 100_004}),
        ("torsion", {"nx": 290, "ny": 310}),
        ("journal-bearing", {"nx": 290, "ny": 310}),
        ("minimal-surface", {"nx": 290, "ny": 310}),
        ("composites", {"nx": 290, "ny": 310}),
        ("combustion", {"nx": 290, "ny": 310}),
        ("ginzburg-landau-1d", {"n": 100_001}),
        ("lennard-jones", {"natoms": 300}),
    ],
)
def test_large_problems_in_pieces(name, sizes):
    """NumPy goes through large arguments in pieces, torch does not: both must agree."""
    torch = pytest.importorskip("torch")
    problem = problems.get(name, **sizes)
    x = points(problem, 1)[0]
    f, g = problem.fun(x)
    whole_f, whole_g = problem.fun(torch.from_numpy(x))
    close(f, whole_f, 1e-12)
    close(g, whole_g, 1e-12)
    twice_f, twice_g = problem.fun(np.stack([problem.x0, x]))
    close(twice_f[1], f, 1e-14)
    close(twice_g[1], g, 1e-14)


def test_argument_is_left_alone_and_may_be_strided():
    problem = problems.get("torsion", nx=5, ny=4)
    wide = np.repeat(points(problem, 1)[0], 2)
    before = wide.copy()
    f, g = problem.fun(wide[::2])
    np.testing.assert_array_equal(wide, before)
    np.testing.assert_array_equal(g, problem.fun(before[::2].copy())[1])
    f_list, _ = problem.fun(before[::2].tolist())
    assert f_list == f


@ALL
def test_no_value_is_read_back_to_the_host(name):
    """On torch's meta device arrays have no values: whatever would wait for one raises."""
    torch = pytest.importorskip("torch")
    problem = problems.get(name, xp=torch, device="meta", **SMALL[name])
    f, g = problem.fun(problem.x0)
    assert (f.device.type, f.shape, g.device.type, g.shape) == ("meta", (), "meta", (problem.n,))


@pytest.mark.cuda
@ALL
def test_torch_on_cuda_and_in_a_graph(name):
    torch = pytest.importorskip("torch")
    problem = problems.get(name, xp=torch, device="cuda", **SMALL[name])
    assert problem.x0.is_cuda
    x = points(problems.get(name, **SMALL[name]), 3)
    expected = problem.fun(x)
    place = torch.zeros((3, problem.n), dtype=torch.float64, device="cuda") + problem.x0
    # No warm-up of `fun`: the tables are on the device since `get`.
    torch.zeros(1, device="cuda").sin()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        f, g = problem.fun(place)
    place.copy_(torch.from_numpy(x))
    graph.replay()
    for k in range(3):
        close(f[k].cpu(), expected[0][k], 1e-12)
    close(g.cpu(), expected[1], 1e-12)


@pytest.mark.cuda
@ALL
def test_cupy_agrees_with_numpy(name):
    cupy = pytest.importorskip("cupy")
    problem = problems.get(name, xp=cupy, **SMALL[name])
    x = points(problems.get(name, **SMALL[name]), 3)
    expected = problem.fun(x)
    f, g = problem.fun(cupy.asarray(x))
    for k in range(3):
        close(f[k].get(), expected[0][k], 1e-12)
    close(g.get(), expected[1], 1e-12)
