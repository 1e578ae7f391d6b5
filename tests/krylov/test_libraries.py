"""torch and JAX on the CPU give what NumPy gives, in their own kind."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from krylov_oracle import METHODS, assert_solves, normal_matrix

import stepwell
from stepwell import operators
from stepwell.arrays import kind_of, to_host


def problem():
    random = np.random.default_rng(1)
    A = random.normal(size=(60, 40)) * (random.random((60, 40)) < 0.3)
    B = random.normal(size=(60, 5))
    B[:, 1] = 0
    B[:, 4] = B[:, 3]
    return A, B


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("storage", ["dense", "csr", "coo"])
def test_torch(method, storage):
    torch = pytest.importorskip("torch")
    A, B = problem()
    matrix = torch.from_numpy(A)
    if storage == "csr":
        matrix = operators.in_library_of(sp.csr_matrix(A), matrix)
    elif storage == "coo":
        matrix = matrix.to_sparse_coo()
    result = stepwell.tikhonov(matrix, torch.from_numpy(B), 0.5, method=method, tol=1e-10)
    assert result.success
    assert kind_of(result.x) == "torch"
    assert_solves(to_host(result.x), normal_matrix(A, 0.5), A.T @ B, 1e-10)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("storage", ["dense", "sparse"])
def test_jax(method, storage):
    jax = pytest.importorskip("jax")
    A, B = problem()
    dense = jax.numpy.asarray(A, dtype="float32")
    matrix = dense if storage == "dense" else operators.in_library_of(sp.csr_matrix(A), dense)
    result = stepwell.tikhonov(matrix, jax.numpy.asarray(B, dtype="float32"), 0.5, method=method, tol=1e-4)
    assert result.success
    assert kind_of(result.x) == "jax"
    assert result.x.dtype == "float32"
    assert_solves(to_host(result.x), normal_matrix(A, 0.5), A.T @ B, 1e-4, "float32")


def test_host_libraries_may_be_mixed_and_the_answer_comes_in_the_kind_of_b():
    torch = pytest.importorskip("torch")
    A, B = problem()
    result = stepwell.tikhonov(sp.csr_matrix(A), torch.from_numpy(B), 0.5, method="block", tol=1e-10)
    assert kind_of(result.x) == "torch"
    assert_solves(to_host(result.x), normal_matrix(A, 0.5), A.T @ B, 1e-10)
    back = stepwell.tikhonov(torch.from_numpy(A), B, 0.5, method="block", tol=1e-10)
    assert isinstance(back.x, np.ndarray)


def test_functions_receive_the_callers_kind():
    torch = pytest.importorskip("torch")
    A, B = problem()
    matrix = torch.from_numpy(A)
    seen = set()

    def forward(v):
        seen.add(kind_of(v))
        return matrix @ v

    result = stepwell.tikhonov((forward, lambda v: matrix.T @ v), torch.from_numpy(B), 0.5, method="block", tol=1e-10)
    assert seen == {"torch"}
    assert_solves(to_host(result.x), normal_matrix(A, 0.5), A.T @ B, 1e-10)


@pytest.mark.filterwarnings("ignore:lam of:scipy.optimize.OptimizeWarning")  # noise alone: any λ will do
def test_gradient_and_lam_rules_in_torch():
    torch = pytest.importorskip("torch")
    A, B = problem()
    L = operators.gradient((8, 5), like=torch.from_numpy(A))
    result = stepwell.tikhonov(torch.from_numpy(A), torch.from_numpy(B), "gcv", L, tol=1e-9)
    reference = stepwell.tikhonov(A, B, "gcv", operators.gradient((8, 5)), tol=1e-9)
    np.testing.assert_allclose(result.lam, reference.lam, rtol=1e-5)
    assert stepwell.adjoint_error(L) < 1e-14


@pytest.mark.parametrize("what", ["A", "B", "functions", "preconditioner"])
@pytest.mark.parametrize("method", ["direct", "cgls", "pseudo-block", "block", "prcg", "aprcg"])
def test_the_graph_of_an_answer_is_the_solutions(method, what):
    """Not that of the steps of an iteration, of which a preconditioner is a part."""
    torch = pytest.importorskip("torch")
    A, B = problem()
    matrix, block, extra = torch.from_numpy(A), torch.from_numpy(B), {}
    watched = matrix.clone().requires_grad_()
    operator = watched if what == "A" else matrix
    if what == "functions":
        operator = (lambda v: watched @ v, lambda v: watched.T @ v)
    if what == "B":
        block = block.clone().requires_grad_()
    if what == "preconditioner":
        extra["preconditioner"] = torch.full((A.shape[1],), 2.0, dtype=torch.float64, requires_grad=True)
    result = stepwell.tikhonov(operator, block, 0.5, method=method, tol=1e-10, **extra)
    assert_solves(to_host(result.x), normal_matrix(A, 0.5), A.T @ B, 1e-10)
    assert result.x.requires_grad == (what != "preconditioner")
    if what != "preconditioner":
        asked = block if what == "B" else watched
        given = watched if what != "B" else matrix
        exact = torch.linalg.solve(given.T @ given + 0.25 * torch.eye(A.shape[1], dtype=torch.float64), given.T @ block)
        (own,), (wanted,) = (torch.autograd.grad(x.square().sum(), asked) for x in (result.x, exact))
        torch.testing.assert_close(own, wanted, rtol=1e-6, atol=1e-7)


def test_projected_cg_in_torch(tmp_path):
    torch = pytest.importorskip("torch")
    A, B = problem()
    solver = stepwell.ProjectedCG(torch.from_numpy(A), 0.5, augmented=True)
    for j in (0, 2):
        x = to_host(solver.solve(torch.from_numpy(B[:, j]), tol=1e-10).x)
        assert_solves(x, normal_matrix(A, 0.5), A.T @ B[:, j], 1e-10)
    solver.save(tmp_path / "space.npz")
    again = stepwell.ProjectedCG.load(tmp_path / "space.npz", torch.from_numpy(A))
    assert again.solve(torch.from_numpy(B[:, 0]), tol=1e-9).products == 1
