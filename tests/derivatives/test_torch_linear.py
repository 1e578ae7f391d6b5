"""``tikhonov`` and ``cg`` in PyTorch's graphs."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import OptimizeWarning
from scipy.sparse.linalg import aslinearoperator

import stepwell

torch = pytest.importorskip("torch")
# PyTorch's own, where it first differentiates forwards or compiles.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
random = np.random.default_rng(2)
TOL = 1e-12  # of solutions, so that differences with a step of 1e-6 are right to 1e-6


def tensor(*shape, asks=True):
    return torch.tensor(random.normal(size=shape), requires_grad=asks)


def number(*values):
    return torch.tensor(values if len(values) > 1 else values[0], dtype=torch.float64, requires_grad=True)


def solution(A, B, lam, L=None, **options):
    return stepwell.tikhonov(A, B, lam, L, tol=TOL, **options).x


@pytest.mark.parametrize("penalty", [False, True])
@pytest.mark.parametrize("lams", [(0.7,), (0.5, 0.9)])
def test_gradients_of_all_orders(penalty, lams):
    given = [tensor(5, 3), tensor(5, 2), number(*lams)] + ([tensor(2, 3)] if penalty else [])
    assert torch.autograd.gradcheck(solution, given, check_forward_ad=True, atol=1e-5)
    assert torch.autograd.gradgradcheck(solution, given, atol=1e-5)


def test_vectors_rows_and_rules():
    A, B = tensor(7, 5), tensor(7, 2)
    assert torch.autograd.gradcheck(lambda A, b: solution(A, b, 0.4), (A, tensor(7)), atol=1e-5)
    across = solution(A, B.T, 0.4, axis=0)
    torch.testing.assert_close(across.T, solution(A, B, 0.4))
    assert across.requires_grad
    # λ that a rule has chosen is a constant of the graph.
    least = B - A @ torch.linalg.lstsq(A, B).solution
    noise = (0.5 * (least.norm(dim=0) + B.norm(dim=0))).detach().numpy() / 7**0.5
    rule = stepwell.tikhonov(A, B, "discrepancy", tol=TOL, noise=noise)
    fixed = solution(A, B, torch.tensor(rule.lam))
    torch.testing.assert_close(rule.x, fixed)
    for one, other in zip(torch.autograd.grad(rule.x.sum(), (A, B)), torch.autograd.grad(fixed.sum(), (A, B))):
        torch.testing.assert_close(one, other)


def test_the_result_is_the_usual_one():
    A, B = tensor(7, 5), tensor(7, 2)
    result, plain = stepwell.tikhonov(A, B, 0.3), stepwell.tikhonov(A.detach(), B.detach(), 0.3)
    assert (result.x == plain.x).all()
    assert result.choice == plain.choice
    assert result.success
    with torch.no_grad():
        assert not stepwell.tikhonov(A, B, 0.3).x.requires_grad


def test_transformations():
    A, B = tensor(7, 5, asks=False), tensor(7, 2, asks=False)
    back, ahead = (way(lambda B: solution(A, B, 0.7))(B) for way in (torch.func.jacrev, torch.func.jacfwd))
    torch.testing.assert_close(back, ahead, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(back, torch.autograd.functional.jacobian(lambda B: solution(A, B, 0.7), B))
    lams = torch.tensor([0.1, 0.4, 2.0], dtype=torch.float64)
    mapped = torch.func.vmap(lambda lam: solution(A, B, lam))(lams)
    torch.testing.assert_close(mapped, torch.stack([solution(A, B, float(lam)) for lam in lams]))
    blocks = tensor(4, 7, 2, asks=False)
    for lam in (0.7, torch.tensor([0.5, 0.9], dtype=torch.float64)):
        mapped = torch.func.vmap(lambda B, lam=lam: solution(A, B, lam))(blocks)
        torch.testing.assert_close(mapped, torch.stack([solution(A, block, lam) for block in blocks]))
    matrices = tensor(3, 7, 5, asks=False)
    grads = torch.func.vmap(torch.func.grad(lambda A: solution(A, B, 0.7).sum()))(matrices)
    own = torch.func.grad(lambda A: solution(A, B, 0.7).sum())(matrices[1])
    torch.testing.assert_close(grads[1], own, rtol=1e-8, atol=1e-9)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's compiler, about its own
def test_compiled_and_checked():
    A, B, lam = tensor(7, 5), tensor(7, 2), number(0.7)
    x = torch.compile(solution, fullgraph=True, backend="aot_eager")(A, B, lam)
    eager = solution(A, B, lam)
    torch.testing.assert_close(x, eager)
    for one, other in zip(*(torch.autograd.grad(v.square().sum(), (A, B, lam)) for v in (x, eager))):
        torch.testing.assert_close(one, other)
    given = (A.detach(), B.detach(), lam.detach()[None], None, "auto", 1e-10, None)
    torch.library.opcheck(torch.ops.stepwell.tikhonov.default, given)
    H = A.detach().T @ A.detach()
    torch.library.opcheck(torch.ops.stepwell.cg.default, (H, tensor(5, 2, asks=False), "auto", 1e-10, None))


def operators(theta):
    D = torch.cat([torch.diag(theta.exp()), 0.1 * theta[None].repeat(2, 1)])
    return D, (lambda x: D @ x), (lambda y: D.T @ y)


@pytest.mark.parametrize("form", ["functions", "operator", "sparse", "convolution", "penalty"])
def test_what_operators_have_captured_gets_its_gradient(form):
    """Parameters that are no leaves too; the formula that dense matrices use is the oracle."""
    given = tensor(5)

    def solved(given, B, dense):
        theta = 2 * torch.tanh(given)
        D, forward, adjoint = operators(theta)
        if form == "convolution":
            A = stepwell.Convolution(theta, 7, m=7, origin=2)
            return solution(A.dense() if dense else A, B, 0.3)
        if form == "penalty":
            A = torch.eye(7, 5, dtype=torch.float64)
            return solution(A, B, 0.3, D if dense else stepwell.operators.from_functions(forward, adjoint, (7, 5)))
        if dense:
            return solution(D, B, 0.3)
        A = {
            "functions": (forward, adjoint),
            "operator": stepwell.operators.from_functions(forward, adjoint, (7, 5)),
            "sparse": (lambda x: D @ x, lambda y: D.T @ y),
        }[form]
        return solution(A, B, 0.3)

    B, weights = tensor(7, 2), None
    found = [solved(given, B, dense) for dense in (False, True)]
    weights = torch.tensor(random.normal(size=tuple(found[0].shape)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-8, atol=1e-9)
    own, oracle = (torch.autograd.grad((weights * x).sum(), (given, B)) for x in found)
    for one, other in zip(own, oracle):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array, aslinearoperator])
@pytest.mark.parametrize("penalty", [np.asarray, scipy.sparse.csr_array])
def test_matrices_of_numpy_and_scipy_are_constants(form, penalty):
    """A tensor with a graph beside matrices of another library: the formula by torch is the oracle."""
    random = np.random.default_rng(8)
    A, L = random.normal(size=(8, 5)), np.diff(np.eye(5), axis=0)
    b = torch.tensor(random.normal(size=8), requires_grad=True)
    lam = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    H = torch.tensor(A.T @ A) + lam**2 * torch.tensor(L.T @ L)
    exact = torch.linalg.solve(H, torch.tensor(A.T) @ b)
    found = stepwell.tikhonov(form(A), b, lam, penalty(L), tol=1e-14).x
    torch.testing.assert_close(found, exact, rtol=1e-11, atol=1e-11)
    for ours, theirs in zip(*(torch.autograd.grad((x**2).sum(), (b, lam)) for x in (found, exact)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_second_derivatives_of_operators_are_refused_not_wrong():
    given = tensor(5)
    _, forward, adjoint = operators(given)
    x = solution((forward, adjoint), tensor(7, 2), 0.3)
    (own,) = torch.autograd.grad(x.sum(), given, create_graph=True)
    with pytest.raises(RuntimeError, match="has first derivatives alone"):
        own.sum().backward()


def test_functions_without_parameters_stay_without_a_graph():
    _, forward, adjoint = operators(tensor(5, asks=False))
    assert not solution((forward, adjoint), tensor(7, 2, asks=False), 0.3).requires_grad


def positive(M):
    return M @ M.T + torch.eye(5, dtype=torch.float64)


def test_gradients_of_cg():
    def solved(M, B):
        return stepwell.cg(positive(M), B, tol=TOL).x

    def by_function(M, B):
        H = positive(M)
        return stepwell.cg(lambda v: H @ v, B, tol=TOL).x

    given = tensor(5, 5), tensor(5, 2)
    assert torch.autograd.gradcheck(solved, given, check_forward_ad=True, atol=1e-5)
    assert torch.autograd.gradgradcheck(solved, given, atol=1e-5)
    assert torch.autograd.gradcheck(by_function, given, atol=1e-5)


def test_unsolved_systems_are_said():
    A = tensor(30, 20)
    with pytest.warns(OptimizeWarning, match="derivatives of x hold for solutions, but"):
        stepwell.tikhonov(A, tensor(30), 1e-3, method="cgls", maxiter=1)


@pytest.mark.cuda
def test_gradients_on_a_device():
    if not torch.cuda.is_available():
        pytest.skip("torch has no GPU")
    given = [t.detach().cuda().requires_grad_() for t in (tensor(7, 5), tensor(7, 2))]
    assert torch.autograd.gradcheck(lambda A, B: solution(A, B, 0.7), given, check_forward_ad=True, atol=1e-5)


def test_bounds_go_with_functions_that_capture_nothing():
    _, forward, adjoint = operators(tensor(5, asks=False))
    B = tensor(7, 2, asks=False)
    found = stepwell.tikhonov((forward, adjoint), B, 0.3, bounds=(0, None))
    assert found.x.min() >= 0
    with pytest.raises(ValueError, match=r"bounds is .*; allowed: None where derivatives are asked for"):
        stepwell.tikhonov(tensor(7, 5), B, 0.3, bounds=(0, None))
