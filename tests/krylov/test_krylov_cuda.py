"""CuPy and torch on a CUDA device give what NumPy gives, and nothing leaves the device."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import scipy.sparse as sp
from device_arrays import on_device, on_host
from krylov_oracle import METHODS, assert_solves, normal_matrix

import stepwell
from stepwell import operators
from stepwell.arrays import copy_to_device_of, is_cuda, kind_of, to_host

pytestmark = pytest.mark.cuda


def template(library: str, dtype: str = "float64"):
    if library == "cupy":
        cupy = pytest.importorskip("cupy")
        return cupy.empty(0, dtype=dtype)
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    return torch.empty(0, dtype=getattr(torch, dtype), device="cuda")


def problem(dtype: str = "float64"):
    random = np.random.default_rng(1)
    A = (random.normal(size=(120, 80)) * (random.random((120, 80)) < 0.3)).astype(dtype)
    B = random.normal(size=(120, 7)).astype(dtype)
    B[:, 1] = 0
    B[:, 4] = B[:, 3]
    return A, B


@pytest.mark.parametrize("library", ["cupy", "torch"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize(("dtype", "tol"), [("float64", 1e-10), ("float32", 1e-4)])
def test_agrees_with_the_dense_solution(library, method, storage, dtype, tol):
    like = template(library, dtype)
    A, B = problem(dtype)
    matrix = operators.in_library_of(sp.csr_matrix(A), like) if storage == "sparse" else copy_to_device_of(A, like)
    result = stepwell.tikhonov(matrix, copy_to_device_of(B, like), 0.5, method=method, tol=tol)
    assert result.success
    assert kind_of(result.x) == library
    assert is_cuda(result.x)
    assert str(result.x.dtype).endswith(dtype)
    assert_solves(to_host(result.x), normal_matrix(A, 0.5), A.T.astype(float) @ B, tol, dtype)


@contextlib.contextmanager
def rounding_to_tf32(library: str):
    """Let a library round factors of float32 products where nobody tells it otherwise; JAX does so by itself."""
    if library == "torch":
        torch = pytest.importorskip("torch")
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        yield
        assert torch.get_float32_matmul_precision() == "high"
        torch.set_float32_matmul_precision(before)
    elif library == "cupy":
        core = pytest.importorskip("cupy")._core
        before = core.get_compute_type(np.float32)
        core.set_compute_type(np.float32, core._routines_linalg.COMPUTE_TYPE_TF32)
        yield
        core.set_compute_type(np.float32, before)
    else:
        yield


@pytest.mark.parametrize("method", METHODS)
def test_single_precision_is_not_rounded_further(library, method):
    """Residuals of 1e-5 in float32, which factors of eleven bits do not reach; x as near as on the CPU."""
    random = np.random.default_rng(3)
    A = random.normal(size=(300, 200)).astype(np.float32)
    B = random.normal(size=(300, 6)).astype(np.float32)
    exact = np.linalg.solve(normal_matrix(A, 5.0), A.T.astype(float) @ B)
    here = stepwell.tikhonov(A, B, 5.0, method=method, tol=1e-5)
    with rounding_to_tf32(library):
        there = stepwell.tikhonov(on_device(library, A), on_device(library, B), 5.0, method=method, tol=1e-5)
    errors = [np.linalg.norm(on_host(x) - exact) / np.linalg.norm(exact) for x in (here.x, there.x)]
    assert here.success
    assert there.success
    assert is_cuda(there.x)
    # Both end below the tolerance, which bounds the error by the condition; then they differ by where they stopped.
    assert max(errors) <= 1e-5 * np.linalg.cond(normal_matrix(A, 5.0))
    assert errors[1] <= 10 * errors[0] + 1e-6


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_same_iterations_as_on_the_host(library):
    like = template(library)
    A, B = problem()
    here = stepwell.tikhonov(sp.csr_matrix(A), B, 0.5, method="block", tol=1e-8)
    there = stepwell.tikhonov(
        operators.in_library_of(sp.csr_matrix(A), like), copy_to_device_of(B, like), 0.5, method="block", tol=1e-8
    )
    assert np.all(np.abs(here.iterations - there.iterations) <= 1)
    assert there.products.sum() == pytest.approx(here.products.sum(), rel=0.1)


@pytest.mark.filterwarnings("ignore:lam of:scipy.optimize.OptimizeWarning")  # noise alone: any λ will do
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_penalties_rules_and_projection(library):
    like = template(library)
    A, B = problem()
    matrix, block = operators.in_library_of(sp.csr_matrix(A), like), copy_to_device_of(B, like)
    L = operators.gradient((8, 10), like=like)
    ours = stepwell.tikhonov(matrix, block, "gcv", L, tol=1e-8)
    host = stepwell.tikhonov(A, B, "gcv", operators.gradient((8, 10)), tol=1e-8)
    np.testing.assert_allclose(ours.lam, host.lam, rtol=1e-4)
    assert stepwell.adjoint_error(matrix) < 1e-14
    solver = stepwell.ProjectedCG(matrix, 0.5, augmented=True)
    for j in (0, 2, 3):
        x = to_host(solver.solve(block[:, j], tol=1e-10).x)
        assert_solves(x, normal_matrix(A, 0.5), A.T @ B[:, j], 1e-10)


@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_mixed_devices_are_refused(library):
    like = template(library)
    A, B = problem()
    with pytest.raises(TypeError, match="allowed: one library and one device"):
        stepwell.tikhonov(A, copy_to_device_of(B, like), 0.5)
    with pytest.raises(TypeError, match="allowed: one library and one device"):
        stepwell.tikhonov(copy_to_device_of(A, like), B, 0.5)
    with pytest.raises(TypeError, match="L is a numpy array on cpu"):
        stepwell.tikhonov(copy_to_device_of(A, like), copy_to_device_of(B, like), 0.5, operators.gradient((8, 10)))
