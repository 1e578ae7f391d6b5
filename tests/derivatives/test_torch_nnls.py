"""NNLS in PyTorch's graphs: every way in which PyTorch differentiates, maps, compiles and exports."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest
from scipy.optimize import OptimizeWarning

import stepwell

torch = pytest.importorskip("torch")
# PyTorch's own, where it first differentiates forwards or compiles.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
random = np.random.default_rng(8)


def tensor(*shape):
    return torch.tensor(random.normal(size=shape))


def drawn(a_shape, b_shape, lam=0.3):
    """Tensors that ask for gradients, of systems away from kinks."""
    for _ in range(100):
        A, b = tensor(*a_shape), tensor(*b_shape)
        result = stepwell.nnls(A, b, lam=lam)
        if torch.where(result.x > 0, result.x, -result.dual).min() > 1e-2:
            return A.requires_grad_(), b.requires_grad_(), torch.tensor(lam, dtype=torch.float64, requires_grad=True)
    raise AssertionError("no such systems")


def solution(A, b, lam=0.0):
    return stepwell.nnls(A, b, lam=lam).x


@pytest.mark.parametrize(
    ("a_shape", "b_shape"), [((6, 4), (6,)), ((4, 6), (4,)), ((6, 4), (3, 6)), ((2, 6, 4), (2, 6))]
)
def test_gradients_of_all_orders(a_shape, b_shape):
    """At the usual step of 1e-6, x being exact to rounding."""
    given = drawn(a_shape, b_shape)
    assert torch.autograd.gradcheck(solution, given, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(solution, given, atol=1e-5)


@pytest.mark.parametrize(("length", "n", "m", "origin"), [(3, 6, 6, 1), (4, 5, 7, 0), (3, 2, 6, 2), (70, 5, 72, 3)])
def test_gradients_of_a_pulse(length, n, m, origin):
    for _ in range(100):
        pulse, b = tensor(length).abs(), tensor(2, m)
        result = stepwell.nnls(stepwell.Convolution(pulse, n, m=m, origin=origin), b, lam=0.4)
        if torch.where(result.x > 0, result.x, -result.dual).min() > 1e-2:
            break

    def solved(pulse, b):
        return stepwell.nnls(stepwell.Convolution(pulse, n, m=m, origin=origin), b, lam=0.4).x

    given = pulse.requires_grad_(), b.requires_grad_()
    assert torch.autograd.gradcheck(solved, given, check_forward_ad=True)
    assert length > 5 or torch.autograd.gradgradcheck(solved, given, atol=1e-5)


def test_the_result_is_the_usual_one():
    """But for the graph: same bits, same fields, nothing else has a graph."""
    A, b, _ = drawn((7, 4), (3, 7))
    result, plain = stepwell.nnls(A, b), stepwell.nnls(A.detach(), b.detach())
    assert result.x.grad_fn is not None
    assert plain.x.grad_fn is None
    assert (result.x == plain.x).all()
    assert result.choice == plain.choice
    assert not any(getattr(result, name).requires_grad for name in ("dual", "residual", "violation", "state"))
    lone = stepwell.nnls(A, b[0])
    assert isinstance(lone.residual, float)
    assert lone.success is True or lone.success
    with torch.no_grad():
        assert not stepwell.nnls(A, b).x.requires_grad
    across = stepwell.nnls(A, b.T, axis=1)
    assert (result.x == across.x.T).all()
    assert across.x.requires_grad
    again = stepwell.nnls(A, b, warm_start=result.x)
    torch.testing.assert_close(again.x, result.x)
    assert again.solves.max() <= result.solves.max()


def test_fields_are_made_when_they_are_asked_for():
    """Each kind of first question has the answer of a call without a graph."""
    A, b, _ = drawn((3, 6, 4), (3, 6))
    plain = stepwell.nnls(A.detach(), b.detach(), lam=0.3)
    names = [field.name for field in dataclasses.fields(plain)]
    for ask in (lambda r: r, copy.copy, dataclasses.replace, lambda r: pickle.loads(pickle.dumps(without_graph(r)))):
        found = ask(stepwell.nnls(A, b, lam=0.3))
        for name in names:
            wanted, value = getattr(plain, name), getattr(found, name)
            if isinstance(wanted, torch.Tensor):
                assert torch.equal(value, wanted), name
            else:
                assert value == wanted, name
    assert repr(without_graph(stepwell.nnls(A, b, lam=0.3))) == repr(plain)
    with pytest.raises(AttributeError, match="'LSQResult' object has no attribute 'X'"):
        stepwell.nnls(A, b, lam=0.3).X  # noqa: B018


def without_graph(result):
    vars(result)["x"] = result.x.detach()
    return result


def test_jacobians_agree_forward_and_backward():
    """The trap: derivatives registered with an operation have zero tangents under ``jacfwd``."""
    A, b, _ = (t.detach() for t in drawn((8, 5), (3, 8), 0.0))
    back, ahead = (way(lambda b: solution(A, b))(b) for way in (torch.func.jacrev, torch.func.jacfwd))
    assert back.abs().max() > 0.1
    torch.testing.assert_close(back, ahead, rtol=1e-12, atol=1e-12)
    usual = torch.autograd.functional.jacobian(lambda b: solution(A, b), b)
    torch.testing.assert_close(back, usual, rtol=1e-12, atol=1e-12)
    _, tangent = torch.func.jvp(lambda b: solution(A, b), (b,), (torch.ones_like(b),))
    torch.testing.assert_close(tangent, back.sum((-1, -2)), rtol=1e-10, atol=1e-12)
    own = torch.func.jacrev(lambda A: solution(A, b))(A)
    torch.testing.assert_close(own, torch.func.jacfwd(lambda A: solution(A, b))(A), rtol=1e-10, atol=1e-12)


def test_the_hessian_of_a_square_is_that_of_the_pieces():
    """x is linear in b on each piece: the Hessian of ‖x‖² is 2JᵀJ."""
    A, b, _ = (t.detach() for t in drawn((8, 5), (8,), 0.0))
    hessian = torch.func.hessian(lambda b: (solution(A, b) ** 2).sum())(b)
    J = torch.func.jacrev(lambda b: solution(A, b))(b)
    torch.testing.assert_close(hessian, 2 * J.T @ J, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("axes", [(None, 0), (0, None), (0, 0)])
@pytest.mark.parametrize("batch", [False, True])
def test_vmap_is_a_loop(axes, batch):
    A = tensor(3, 6, 4) if axes[0] == 0 else tensor(6, 4)
    b = tensor(*([3] if axes[1] == 0 else []), *([2] if batch else []), 6)
    mapped = torch.func.vmap(solution, in_dims=axes)(A, b)
    looped = torch.stack([solution(A[k] if axes[0] == 0 else A, b[k] if axes[1] == 0 else b) for k in range(3)])
    torch.testing.assert_close(mapped, looped, rtol=1e-12, atol=1e-13)
    grads = torch.func.vmap(torch.func.grad(lambda A, b: solution(A, b).sum(), argnums=(0, 1)), in_dims=axes)(A, b)
    for k in range(3):
        own = torch.func.grad(lambda A, b: solution(A, b).sum(), argnums=(0, 1))(
            A[k] if axes[0] == 0 else A, b[k] if axes[1] == 0 else b
        )
        for mapped_one, alone in zip(grads, own):
            torch.testing.assert_close(mapped_one[k], alone, rtol=1e-10, atol=1e-12)


def test_vmap_over_lam_and_over_two_axes():
    A, b, lams = tensor(6, 4), tensor(2, 3, 6), torch.tensor([0.1, 0.5], dtype=torch.float64)
    mapped = torch.func.vmap(solution, in_dims=(None, 0, 0))(A, b, lams)
    torch.testing.assert_close(mapped, torch.stack([solution(A, b[k], lams[k]) for k in range(2)]))
    nested = torch.func.vmap(torch.func.vmap(lambda b: solution(A, b)))(b)
    torch.testing.assert_close(nested, torch.stack([solution(A, rows) for rows in b]), rtol=1e-12, atol=1e-13)
    grads = torch.func.vmap(torch.func.grad(lambda lam, b: solution(A, b, lam).sum()))(lams, b)
    for k in range(2):
        torch.testing.assert_close(grads[k], torch.func.grad(lambda lam, b: solution(A, b, lam).sum())(lams[k], b[k]))


def test_a_shared_matrix_stays_shared_under_vmap(monkeypatch):
    from stepwell.lsq import solving

    seen = []
    usual = solving.solve_linear
    monkeypatch.setattr(
        solving, "solve_linear", lambda A, *rest, **options: seen.append(tuple(A.shape)) or usual(A, *rest, **options)
    )
    A, b = tensor(6, 4), tensor(5, 6)
    torch.func.vmap(lambda b: solution(A, b))(b)
    assert seen == [(6, 4)]


def test_operations_pass_the_checks_of_torch():
    A, b, lam = tensor(6, 4), tensor(3, 6), torch.tensor(0.2, dtype=torch.float64)
    how = ("", False, None, None, None, "auto", "guarded", 1.02)
    stepwell.nnls(A.clone().requires_grad_(), b)  # what registers the operations
    for given, rows in ((A, -1), (tensor(3).abs(), 6)):
        arrays = (given, b, *[None] * 6, lam, *[None] * 4)
        torch.library.opcheck(torch.ops.stepwell.lsq.default, (*arrays, rows, 4, 1, *how))
        step = (given, torch.ones(3, 4, dtype=torch.float64), lam, tensor(3, 4), None, None, rows, 4, 1)
        torch.library.opcheck(torch.ops.stepwell.lsq_step.default, step)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's compiler, about its own
def test_compiled_without_a_break():
    A, b, lam = drawn((7, 4), (3, 7))
    compiled = torch.compile(solution, fullgraph=True, backend="aot_eager")
    eager_x, x = solution(A, b, lam), compiled(A, b, lam)
    torch.testing.assert_close(x, eager_x)
    weights = tensor(3, 4)
    grads, eager = (torch.autograd.grad((weights * one).sum(), (A, b, lam)) for one in (x, eager_x))
    for one, other in zip(grads, eager):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)
    whole = torch.compile(lambda A, b: stepwell.nnls(A, b), fullgraph=True, backend="aot_eager")(A.detach(), b.detach())
    assert whole.success.tolist() == [True] * 3
    pulse = torch.tensor([0.2, 1.0, 0.4], dtype=torch.float64, requires_grad=True)

    def deconvolved(pulse, b):
        return stepwell.nnls(stepwell.Convolution(pulse, 7, origin=1), b, lam=0.1).x

    x = torch.compile(deconvolved, fullgraph=True, backend="aot_eager")(pulse, b)
    (own,) = torch.autograd.grad(x.sum(), pulse)
    torch.testing.assert_close(own, torch.autograd.grad(deconvolved(pulse, b).sum(), pulse)[0])


def test_exported_programs_show_the_operation():
    class Layer(torch.nn.Module):
        def forward(self, A, b):
            return stepwell.nnls(A, b).x

    A, b = tensor(6, 4), tensor(3, 6)
    program = torch.export.export(Layer(), (A, b))
    assert any("stepwell.lsq" in str(node.target) for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(A, b), solution(A, b))


def test_degenerate_systems():
    # No unknown is positive: zeros, and no factor.
    A = torch.eye(3, dtype=torch.float64, requires_grad=True)
    b = -torch.ones(2, 3, dtype=torch.float64)
    b[1] = 1
    (own,) = torch.autograd.grad(solution(A, b)[0].sum(), A)
    assert (own == 0).all()
    # Equal columns: what depends on Ax alone is right, here ‖r‖, whose gradient is −r xᵀ/‖r‖.
    column = tensor(5, 1).abs()
    A = torch.cat([column, column, tensor(5, 1)], 1).requires_grad_()
    b = (column[:, 0] + 0.1 * tensor(5)).requires_grad_()
    x = solution(A, b)
    r = b - A @ x
    own, data = torch.autograd.grad(r.norm(), (A, b))
    torch.testing.assert_close(data, (r / r.norm()).detach(), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(own, -(r[:, None] * x / r.norm()).detach(), rtol=1e-8, atol=1e-10)
    # At a kink, x = 0 and w = 0: the derivative of the piece on which the unknown stays zero.
    A = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    b = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    (data,) = torch.autograd.grad(solution(A, b)[1], b)
    assert data.tolist() == [0.0, 0.0]


def test_one_system_that_is_not_finite_leaves_the_others_alone():
    A, b = tensor(5, 3), tensor(3, 5)
    b[1, 0] = float("nan")
    b.requires_grad_()
    for matrix in (A, A.expand(3, 5, 3).clone().requires_grad_()):
        with pytest.warns(OptimizeWarning, match="derivatives of x hold for solutions, but .*1 of 3: A or b holds NaN"):
            x = solution(matrix, b)
        asked = (b, matrix) if matrix.requires_grad else (b,)
        for own in torch.autograd.grad(x[[0, 2]].sum() + x[1].sum(), asked):
            assert own[[0, 2]].isfinite().all()
            assert own[1].isnan().all()
    with pytest.raises(ValueError, match="b is nan"):
        solution(A.requires_grad_(), b[1])


@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("float32", "float64"), ("float64", "float32")])
def test_precision_is_that_of_the_arguments(dtypes):
    A, b = (torch.tensor(random.normal(size=s), dtype=getattr(torch, d)) for s, d in zip(((6, 4), (3, 6)), dtypes))
    A.requires_grad_()
    b.requires_grad_()
    x = solution(A, b, 0.1)
    assert x.dtype == (torch.float32 if set(dtypes) == {"float32"} else torch.float64)
    x.sum().backward()
    assert A.grad.dtype == A.dtype
    assert b.grad.dtype == b.dtype


def test_errors_name_the_argument():
    A, b = tensor(5, 3).requires_grad_(), tensor(5)
    with pytest.raises(ValueError, match=r"lam has shape \(2,\); allowed: \(\) or \(1,\)"):
        stepwell.nnls(A, b, lam=torch.ones(2))
    with pytest.raises(TypeError, match=r"(?s)b is array.*; allowed: a tensor"):
        stepwell.nnls(A, b.numpy())
    with pytest.raises(ValueError, match=r"b has shape \(4,\)"):
        stepwell.nnls(A, b[:4])
    with pytest.raises(ValueError, match="method is 'gramm'"):
        stepwell.nnls(A, b, method="gramm")
    with pytest.raises(
        ValueError, match=r"progress is .*; allowed: None where the call is compiled, transformed or traced"
    ):
        torch.func.vmap(lambda b: stepwell.nnls(A, b, progress=print).x)(b[None])


def test_progress_is_told():
    told = []
    stepwell.nnls(tensor(5, 3).requires_grad_(), tensor(4, 5), progress=lambda done, of: told.append((done, of)))
    assert told[-1] == (4, 4)


def test_large_systems_hold_the_adjoint_identity():
    A, b = tensor(300, 200).requires_grad_(), tensor(4, 300).requires_grad_()
    dA, db, g = tensor(300, 200), tensor(4, 300), tensor(4, 200)
    _, tangent = torch.func.jvp(solution, (A.detach(), b.detach()), (dA, db))
    own, data = torch.autograd.grad((g * solution(A, b)).sum(), (A, b))
    left, right = (g * tangent).sum(), (own * dA).sum() + (data * db).sum()
    torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)


@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # PyTorch 2.11's own compiler
def test_gradients_on_a_device():
    if not torch.cuda.is_available():
        pytest.skip("torch has no GPU")
    A, b, lam = drawn((6, 4), (3, 6))
    there = [t.detach().cuda().requires_grad_() for t in (A, b)]
    assert torch.autograd.gradcheck(solution, (*there, lam), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(solution, (*there, lam), atol=1e-5)
    pulse = torch.tensor([0.2, 1.0, 0.4], dtype=torch.float64, device="cuda", requires_grad=True)
    deconvolved = lambda pulse, b: stepwell.nnls(stepwell.Convolution(pulse, 6, origin=1), b, lam=0.1).x  # noqa: E731
    assert torch.autograd.gradcheck(deconvolved, (pulse, there[1]))
    J = torch.func.jacrev(lambda b: solution(there[0].detach(), b))(there[1].detach())
    torch.testing.assert_close(J, torch.func.jacfwd(lambda b: solution(there[0].detach(), b))(there[1].detach()))
    x = torch.compile(solution, fullgraph=True, backend="aot_eager")(*there, lam)
    torch.testing.assert_close(x, solution(*there, lam))
