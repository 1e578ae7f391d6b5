"""Least squares within bounds in PyTorch's graphs: every argument that has a derivative, every way to ask for it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.optimize
from exact_arithmetic import exact_solution
from scipy.optimize import OptimizeWarning

import stepwell

torch = pytest.importorskip("torch")
# PyTorch's own, where it first differentiates forwards or compiles.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:.*{own}:DeprecationWarning")
    for own in ("torch.jit.script", "should not be instantiated")
]
random = np.random.default_rng(12)
gradcheck, gradgradcheck = torch.autograd.gradcheck, torch.autograd.gradgradcheck


def tensor(*shape):
    return torch.tensor(random.normal(size=shape), requires_grad=True)


def number(value):
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


def below():
    return torch.full((5,), -0.21, dtype=torch.float64, requires_grad=True)


def above():
    return torch.tensor([0.4, 0.3, 0.5, 0.45, 0.35], dtype=torch.float64, requires_grad=True)


def positive(*shape):
    return torch.tensor(np.abs(random.normal(size=shape)) + 0.1, requires_grad=True)


MASK = np.array([True, True, False, True, True])
ROWS = np.array([[1.0, -1.0, 0.5, 0.2, 0.0], [0.0, 1.0, 1.0, -0.5, 0.3]])
lsq, gram = stepwell.lsq_linear, stepwell.lsq_gram

# What is asked for, its arguments, and whether second derivatives are looked at as well.
CASES = {
    "bounds": (
        lambda A, b, l, u: lsq(A, b, (l, u)),
        lambda: (tensor(7, 5), tensor(7), below(), above()),
        True,
    ),
    "bounds of each": (
        lambda A, b, u: lsq(A, b, (None, u)),
        lambda: (tensor(2, 7, 5), tensor(2, 7), positive(2, 5)),
        0,
    ),
    "penalty and weights": (
        lambda A, b, l, u, lam, L, w: lsq(A, b, (l, u), lam=lam, L=L, weights=w),
        lambda: (tensor(7, 5), tensor(7), below(), above(), number(0.3), tensor(4, 5), positive(7)),
        False,
    ),
    "weights and penalties of each": (
        lambda A, b, lam, L, w: lsq(A, b, (0, 1), lam=lam, L=L, weights=w),
        lambda: (tensor(7, 5), tensor(2, 7), number([0.2, 0.6]), tensor(3, 5), positive(2, 7)),
        False,
    ),
    "λ of each": (
        lambda A, b, lam: lsq(A, b, (0, 1), lam=lam),
        lambda: (tensor(7, 5), tensor(2, 7), number([0.2, 0.6])),
        True,
    ),
    "a sum": (
        lambda A, b, l, u, s: lsq(A, b, (l, u), sum_bounds=(s, s)),
        lambda: (tensor(7, 5), tensor(7), below(), above(), number(0.3)),
        True,
    ),
    "sums within ranges": (
        lambda A, b, low, high: lsq(A, b, (-1, 1), sum_bounds=(low, high), lam=0.1),
        lambda: (tensor(7, 5), tensor(2, 7), number([-0.1, -5.0]), number([0.1, 5.0])),
        False,
    ),
    "a mask": (lambda A, b, u: lsq(A, b, (0, u), mask=MASK), lambda: (tensor(7, 5), tensor(2, 7), above()), False),
    "a dictionary": (
        lambda A, b: lsq(A, b, (-0.3, 0.4), which=np.array([1, 0, 1])),
        lambda: (tensor(2, 7, 5), tensor(3, 7)),
        False,
    ),
    "equalities": (
        lambda A, b, d: lsq(A, b, (-2, 2), equality=(ROWS, d)),
        lambda: (tensor(7, 5), tensor(2, 7), tensor(2)),
        False,
    ),
    "a pulse": (
        lambda p, b, u: lsq(stepwell.Convolution(p, 5, m=7, origin=1), b, (0, u), lam=0.2),
        lambda: (positive(3), tensor(2, 7), above()),
        False,
    ),
    "a weighted pulse": (
        lambda p, b, w: lsq(stepwell.Convolution(p, 5, m=7, origin=1), b, (0, 0.5), weights=w),
        lambda: (positive(3), tensor(2, 7), positive(7)),
        False,
    ),
    "an image": (lambda A, b: lsq(A, b, (-0.3, 0.4)), lambda: (tensor(7, 5), tensor(2, 2, 7)), False),
    "a column": (lambda A, b: lsq(A, b, (-0.3, 0.4)), lambda: (tensor(7, 5), tensor(7, 1)), False),
    "normal equations": (
        lambda S, c, l, u, lam, L: gram(S.mT @ S, c, (l, u), lam=lam, L=L),
        lambda: (tensor(7, 5), tensor(2, 5), below(), above(), number(0.3), tensor(4, 5)),
        False,
    ),
    "normal equations and a sum": (
        lambda S, c, s: gram(S.mT @ S, c, (-1, 1), sum_bounds=(s, s)),
        lambda: (tensor(6, 5), tensor(2, 5), number(0.4)),
        True,
    ),
    "nnls": (
        lambda A, b, lam, w: stepwell.nnls(A, b, lam=lam, weights=w, mask=MASK),
        lambda: (tensor(7, 5), tensor(2, 7), number([0.2, 0.6]), positive(7)),
        False,
    ),
}


def away_from_kinks(result, distance=2e-2):
    """Whether free unknowns are far from bounds, as duals of held ones are from zero, and multipliers too."""
    x, dual = result.x.detach(), result.dual
    if not hasattr(result, "state"):
        return torch.where(x > 0, x, -dual + (dual == 0)).min() > distance
    held = (result.state == 1) | (result.state == -1)
    pushed = torch.ones(1) if result.multipliers is None else torch.as_tensor(result.multipliers).abs()
    return bool((dual[held].abs() > distance).all() and ((pushed < 1e-9) | (pushed > distance)).all())


def drawn(name):
    solve, make, _ = CASES[name]
    for _ in range(200):
        given = make()
        with torch.no_grad():
            result = solve(*given)
        if torch.as_tensor(result.success).all() and away_from_kinks(result):
            return given
    raise AssertionError("no such systems")


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    """At the usual step of 1e-6; with equalities x itself is exact to 1e-12 alone, which a step divides."""
    solve, _, twice = CASES[name]
    given, atol = drawn(name), 1e-4 if name == "equalities" else 1e-5

    def solution(*arguments):
        return solve(*arguments).x

    assert gradcheck(solution, given, atol=atol, check_forward_ad=True, check_batched_grad=name == "bounds")
    assert not twice or gradgradcheck(solution, given, atol=1e-5)


def test_against_another_solver():
    """Differences of SLSQP's solutions, with the sum bound and some unknowns at their bounds."""
    A, b = (tensor(*shape).detach().numpy() for shape in ((9, 5), (9,)))
    lower, upper, total = np.full(5, -0.2), np.array([0.1, 0.4, 0.5, 0.3, 0.6]), 0.7

    def solution(A, b, lower, upper, total):
        whole = {"type": "eq", "fun": lambda x: x.sum() - total, "jac": lambda x: np.ones(5)}
        found = scipy.optimize.minimize(
            lambda x: 0.5 * np.sum((A @ x - b) ** 2),
            np.full(5, total / 5),
            jac=lambda x: A.T @ (A @ x - b),
            bounds=list(zip(lower, upper)),
            constraints=whole,
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 500},
        )
        return found.x

    arguments = [A, b, lower, upper, total]
    given = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in arguments]
    result = lsq(given[0], given[1], (given[2], given[3]), sum_bounds=(given[4], given[4]))
    assert 0 < (result.state == 0).sum() < 5
    np.testing.assert_allclose(result.x.detach(), solution(*arguments), atol=1e-6)
    g = torch.tensor(random.normal(size=5))
    for k, own in enumerate(torch.autograd.grad(result.x, given, g)):
        change, h = random.normal(size=np.shape(arguments[k])), 1e-3
        ends = [list(arguments), list(arguments)]
        ends[0][k], ends[1][k] = arguments[k] + h * change, arguments[k] - h * change
        difference = g.numpy() @ (solution(*ends[0]) - solution(*ends[1])) / (2 * h)
        np.testing.assert_allclose((own.numpy() * change).sum(), difference, atol=2e-3 * (1 + abs(difference)))


def test_the_result_is_the_usual_one():
    """But for the graph: same bits, same fields, nothing else has a graph."""
    A, b = tensor(7, 5), tensor(2, 3, 7)
    result = lsq(A, b, (-0.2, 0.4), sum_bounds=(0, 1), lam="chi2")
    plain = lsq(A.detach(), b.detach(), (-0.2, 0.4), sum_bounds=(0, 1), lam="chi2")
    assert result.x.requires_grad
    assert (result.x == plain.x).all()
    for name in ("dual", "residual", "state", "multipliers", "lam", "chi2", "status"):
        assert (getattr(result, name) == getattr(plain, name)).all()
        assert not getattr(result, name).requires_grad
    with torch.no_grad():
        assert not lsq(A, b, (-0.2, 0.4)).x.requires_grad
    assert not lsq(A.detach(), b.detach(), (-0.2, 0.4)).x.requires_grad
    lone = lsq(A, b[0, 0], (-0.2, 0.4), uncertainty="variance", noise=0.1)
    assert isinstance(lone.residual, float)
    assert lone.covariance().shape == (5, 5)
    across = stepwell.nnls(A, b[0].T, axis=1, weights=torch.ones(7, dtype=torch.float64))
    assert (stepwell.nnls(A.detach(), b[0].detach(), weights=np.ones(7)).x == across.x.T).all()
    assert across.positive.shape == (5, 3)


def solution(A, b, lower, upper, total):
    return lsq(A, b, (lower, upper), sum_bounds=(-0.1, total), lam=0.1).x


def test_transformations():
    A, b, lower, upper, total = (t.detach() for t in (tensor(7, 5), tensor(3, 7), below(), above(), number(0.3)))
    rest = (lower, upper, total)
    mapped = torch.func.vmap(lambda b: solution(A, b, *rest))(b)
    torch.testing.assert_close(mapped, solution(A, b, *rest), rtol=1e-12, atol=1e-13)
    back, ahead = (way(lambda b: solution(A, b, *rest))(b) for way in (torch.func.jacrev, torch.func.jacfwd))
    torch.testing.assert_close(back, ahead, rtol=1e-12, atol=1e-12)
    assert back.abs().max() > 0.05
    # x is linear in b on each piece: the Hessian of ‖x‖² is 2JᵀJ.
    hessian = torch.func.hessian(lambda b: (solution(A, b, *rest) ** 2).sum())(b[0])
    J = torch.func.jacrev(lambda b: solution(A, b, *rest))(b[0])
    torch.testing.assert_close(hessian, 2 * J.T @ J, rtol=1e-10, atol=1e-11)
    gradient = torch.func.grad(lambda A, b, total: solution(A, b, lower, upper, total).sum(), argnums=(0, 1, 2))
    matrices, totals = A + 0.1 * torch.tensor(random.normal(size=(3, 7, 5))), total + torch.tensor([0.0, 0.05, 0.1])
    found = torch.func.vmap(gradient)(matrices, b, totals)
    for k in range(3):
        for one, alone in zip(found, gradient(matrices[k], b[k], totals[k])):
            torch.testing.assert_close(one[k], alone, rtol=1e-10, atol=1e-12)
    penalties = torch.tensor(random.normal(size=(3, 4, 5)))  # mapped over L: a loop
    mapped = torch.func.vmap(lambda b, L: lsq(A, b, (0, 1), lam=0.3, L=L).x)(b, penalties)
    looped = torch.stack([lsq(A, b[k], (0, 1), lam=0.3, L=penalties[k]).x for k in range(3)])
    torch.testing.assert_close(mapped, looped, rtol=1e-12, atol=1e-13)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's compiler, about its own
def test_a_first_call_may_be_compiled():
    """Nothing of another call is at hand in a fresh process: neither kinds of arrays nor their namespaces."""
    program = """
import warnings, torch, stepwell
warnings.filterwarnings("error", message="Dynamo detected")
A, b = torch.eye(6, dtype=torch.float64), torch.ones(4, 6, dtype=torch.float64, requires_grad=True)
solve = torch.compile(lambda A, b: stepwell.lsq_linear(A, b, (0, 0.5)).x, backend="eager", fullgraph=True)
assert (solve(A, b) == 0.5).all()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_compiled_exported_and_checked():
    given = (tensor(7, 5), tensor(3, 7), below(), above(), number(0.3))
    compiled = torch.compile(solution, fullgraph=True, backend="aot_eager")
    x, eager = compiled(*given), solution(*given)
    torch.testing.assert_close(x, eager)
    weights = tensor(3, 5).detach()
    grads = (torch.autograd.grad((weights * one).sum(), given) for one in (x, eager))
    for one, other in zip(*grads):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)

    class Layer(torch.nn.Module):
        def forward(self, A, b):
            return gram(A.T @ A, b @ A, (0, 1)).x

    plain = tuple(t.detach() for t in given[:2])
    program = torch.export.export(Layer(), plain)
    assert any("stepwell.lsq" in str(node.target) for node in program.graph.nodes)
    torch.testing.assert_close(program.module()(*plain), Layer()(*plain))
    A, b, lower, upper, total = (t.detach() for t in given)
    lam, how = number(0.1).detach(), ("", False, None, None, None, "auto", "guarded", 1.02)
    arrays = (A, b, lower, upper, total, total, None, None, lam, None, None, None, None)
    torch.library.opcheck(torch.ops.stepwell.lsq.default, (*arrays, -1, 0, 0, *how))
    C, t = torch.ones(3, 1, 5, dtype=torch.float64), torch.zeros(3, 1, dtype=torch.float64)
    for rows in ((C, t), (None, None)):
        step = (A, torch.ones(3, 5, dtype=torch.float64), lam, torch.ones(3, 5, dtype=torch.float64), *rows, -1, 0, 0)
        torch.library.opcheck(torch.ops.stepwell.lsq_step.default, step)


def test_degenerate_systems():
    # Equal bounds: all of the derivative goes to the lower one. A masked unknown has none.
    A, lower = torch.eye(3, dtype=torch.float64), number([0.5, 0.5, 0.5])
    upper = number([0.5, 2.0, 2.0])
    x = lsq(A, torch.ones(3, dtype=torch.float64), (lower, upper), mask=np.array([True, True, False])).x
    assert x.tolist() == [0.5, 1.0, 0.0]
    low, high = torch.autograd.grad(x.sum(), (lower, upper))
    assert low.tolist() == [1.0, 0.0, 0.0]
    assert high.tolist() == [0.0, 0.0, 0.0]
    # Everything is at a bound and the sum is theirs: derivatives are finite.
    total, b = number(1.0), tensor(2)
    x = lsq(torch.eye(2, dtype=torch.float64), b, (0.5, 0.5), sum_bounds=(total, total)).x
    assert torch.autograd.grad(x.sum(), b)[0].tolist() == [0.0, 0.0]
    # One system that is not finite, or has no solution, leaves the others alone.
    b = torch.ones(3, 3, dtype=torch.float64)
    b[1, 0] = float("nan")
    b.requires_grad_()
    with pytest.warns(OptimizeWarning, match="derivatives of x hold for solutions, but .*1 of 3: A or b holds NaN"):
        x = lsq(A, b, (0, 2)).x
    (own,) = torch.autograd.grad(x.sum(), b)
    assert own[1].isnan().all()
    assert (own[[0, 2]] == 1).all()
    b = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    with pytest.warns(OptimizeWarning, match="1 of 2: no x is within the bounds"):
        x = lsq(A, b, (0, 2), sum_bounds=(torch.tensor([1.0, 9.0]).double(),) * 2).x
    (own,) = torch.autograd.grad(x[0, 0], b)
    np.testing.assert_allclose(own[0], [2 / 3, -1 / 3, -1 / 3])
    # A row of weight zero is absent, whatever b has there.
    b = number([[1.0, float("nan"), 2.0], [1.0, 1.0, 1.0]])
    weights = number([1.0, 0.0, 1.0])
    x = lsq(A, b, (0, 5), weights=weights, lam=0.5).x
    (own,) = torch.autograd.grad(x.sum(), b)
    np.testing.assert_allclose(own, [[0.8, 0, 0.8]] * 2)


def test_ill_conditioned_columns_are_not_squared():
    """With condition 1e7, against exact arithmetic on the free columns, as of nnls; a Gram matrix has 1e-2 left."""
    columns, _ = np.linalg.qr(random.normal(size=(12, 6)))
    turned, _ = np.linalg.qr(random.normal(size=(6, 6)))
    A = columns * np.geomspace(1, 1e-7, 6) @ turned
    g = A.T @ random.normal(size=12)
    b = torch.tensor(A @ random.normal(size=6), requires_grad=True)
    (own,) = torch.autograd.grad(lsq(torch.tensor(A), b, (-50.0, 50.0)).x, b, torch.tensor(g))
    want = A @ exact_solution(A, g)
    assert np.linalg.norm(own.numpy() - want) / np.linalg.norm(want) < 100 * 1e7 * np.finfo(float).eps


def test_errors_name_the_argument():
    A, b = tensor(5, 3), tensor(5)
    for call, kind, said in (
        (lambda: lsq(A, b[:4], (0, 1)), ValueError, r"b has shape \(4,\)"),
        (lambda: lsq(A, b, (0, torch.ones(2))), ValueError, r"bounds has shape \(2,\)"),
        (lambda: lsq(A, b, 3), TypeError, "bounds is 3; allowed: a pair"),
        (lambda: lsq(A.detach().numpy(), b, (0, 1)), TypeError, "allowed: a tensor"),
        (lambda: lsq(A, b, (0, 1), method="gramm"), ValueError, "method is 'gramm'"),
        (lambda: torch.func.vmap(lambda b: lsq(A, b, (0, 1), progress=print).x)(b[None]), ValueError, "progress is"),
    ):
        with pytest.raises(kind, match=said):
            call()


@pytest.mark.parametrize("lead", [(), (2,)])
def test_large_normal_equations_solve_with_the_factor_of_the_solution(lead):
    """Held against a solve with the free columns by LAPACK; to rounding times a condition of some hundreds."""
    n = 140
    random = np.random.default_rng(5)
    M = random.normal(size=(*lead, 3 * n, n))
    G, c = (
        torch.tensor(np.swapaxes(M, -1, -2) @ M, requires_grad=True),
        torch.tensor(random.normal(size=(*lead, n)), requires_grad=True),
    )
    result = stepwell.lsq_gram(G, c, (0.0, 0.004))
    assert {-1, 0, 1} <= set(result.state.reshape(-1).tolist())
    w = torch.linspace(0.5, 1.5, n, dtype=torch.float64)
    to_g, to_c = torch.autograd.grad((w * result.x).sum(), (G, c))
    for index in np.ndindex(*lead):
        free = result.state[index] == 0
        u, x = torch.zeros(n, dtype=torch.float64), result.x[index].detach()
        u[free] = torch.linalg.solve(G[index].detach()[free][:, free], w[free])
        torch.testing.assert_close(to_c[index], u, rtol=1e-10, atol=1e-10 * float(u.abs().max()))
        wanted = -(u[:, None] * x + x[:, None] * u) / 2
        torch.testing.assert_close(to_g[index], wanted, rtol=1e-9, atol=1e-10 * float(wanted.abs().max()))
    loss = lambda G, c: (w * stepwell.lsq_gram(G, c, (0.0, 0.004)).x).sum()  # noqa: E731
    again = torch.autograd.grad(loss(G, c), (G, c), create_graph=True)  # a graph of its own: without the factor
    torch.testing.assert_close(again, (to_g, to_c), rtol=1e-9, atol=1e-10 * float(to_g.abs().max()))
