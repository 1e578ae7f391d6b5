"""Tikhonov within bounds: SciPy on stacked rows, the projected gradient, λ, array libraries, bad input."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import OptimizeWarning, lsq_linear, nnls
from scipy.sparse.linalg import LinearOperator
from small_problems import random_system

import stepwell
from stepwell.apps import tomography
from stepwell.operators import gradient

Status = stepwell.LinearStatus


def problem(rows=60, columns=40, count=3, seed=0):
    return random_system(rows, columns, count, seed)


def stacked(A, lam, L=None):
    return np.vstack([A, lam * (np.eye(A.shape[1]) if L is None else L)])


def certificate(A, B, lam, X, lower=0.0, upper=np.inf, L=None):
    """The norm of the projected gradient over that of AᵀB, column by column, written out."""
    penalty = X if L is None else L.T @ (L @ X)
    descent = A.T @ (B - A @ X) - np.square(lam) * penalty
    descent = np.where((lower >= X) & (descent < 0), 0.0, descent)
    descent = np.where((upper <= X) & (descent > 0), 0.0, descent)
    return np.linalg.norm(descent, axis=0) / np.linalg.norm(A.T @ B, axis=0)


def allowed_error(A, B, lam, tol, L=None):
    """A strongly convex function: the error is at most the projected gradient over the smallest eigenvalue.

    (With xᵀ(g + s) = 0 and all signs right at the solution, (x − y)ᵀH(x − y) <= ‖ν‖‖x − y‖ holds for the projected
    gradient ν at y; a factor of 2 for the rounding of everything.)
    """
    H = stacked(A, lam, L).T @ stacked(A, lam, L)
    return 2 * tol * np.linalg.norm(A.T @ B, axis=0) / np.linalg.eigvalsh(H)[0]


@pytest.mark.parametrize("L", [None, "differences"])
@pytest.mark.parametrize("lam", [0.3, 3.0])
def test_nonnegative_is_scipys_nnls_of_stacked_rows(lam, L):
    A, B = problem()
    L = None if L is None else np.eye(40) - np.eye(40, k=1)
    result = stepwell.tikhonov(A, B, lam, L, bounds=(0, None), tol=1e-10)
    assert result.success
    assert result.method == "bounded"
    assert result.x.min() == 0.0
    assert np.all(certificate(A, B, lam, result.x, L=L) <= 1.01e-10)
    np.testing.assert_allclose(result.residual, certificate(A, B, lam, result.x, L=L), atol=1e-13)
    for column, b in enumerate(B.T):
        expected, _ = nnls(stacked(A, lam, L), np.concatenate([b, np.zeros(40)]))
        error = np.linalg.norm(result.x[:, column] - expected)
        assert error <= allowed_error(A, B, lam, 1e-10, L)[column] + 1e-12


def test_boxes_are_scipys_lsq_linear_and_bounds_are_met_exactly():
    A, B = problem(seed=1)
    random = np.random.default_rng(2)
    lower = np.where(random.random(40) < 0.3, -np.inf, -0.1 * random.random(40))
    upper = np.where(random.random(40) < 0.3, np.inf, 0.1 * random.random(40))
    result = stepwell.tikhonov(A, B, 0.5, bounds=(lower, upper), tol=1e-9)
    assert result.success
    assert np.all((result.x >= lower[:, None]) & (result.x <= upper[:, None]))
    at_bounds = (result.x == lower[:, None]) | (result.x == upper[:, None])
    for column, b in enumerate(B.T):
        rows = np.concatenate([b, np.zeros(40)])
        expected = lsq_linear(stacked(A, 0.5), rows, (lower, upper), method="bvls", tol=1e-14)
        error = np.linalg.norm(result.x[:, column] - expected.x)
        assert error <= allowed_error(A, B, 0.5, 1e-9)[column] + 1e-10
        assert at_bounds[:, column].sum() >= (expected.active_mask != 0).sum() > 5
    each = stepwell.tikhonov(A, B, 0.5, bounds=(np.tile(lower[:, None], 3), np.tile(upper[:, None], 3)), tol=1e-9)
    np.testing.assert_array_equal(each.x, result.x)


def test_columns_have_their_own_lam_and_rows_may_be_right_hand_sides():
    A, B = problem(seed=3)
    lams = np.array([0.1, 1.0, 10.0])
    result = stepwell.tikhonov(A, B, lams, bounds=(0, None), tol=1e-9)
    assert np.all(certificate(A, B, lams, result.x) <= 1.01e-9)
    turned = stepwell.tikhonov(A, B.T, lams, bounds=(0, None), tol=1e-9, axis=0)
    np.testing.assert_array_equal(turned.x, result.x.T)
    alone = [stepwell.tikhonov(A, b, lam, bounds=(0, None), tol=1e-9).x for b, lam in zip(B.T, lams)]
    assert np.all(np.abs(np.stack(alone, 1) - result.x) <= allowed_error(A, B, 0.1, 1e-9).max())


def test_tolerances_below_what_the_objective_can_tell_apart():
    """Rounds begin anew from the true gradient: f itself is known to ε only, and its gradient then to √ε."""
    A, B = problem(seed=4)
    result = stepwell.tikhonov(A, B, 0.5, bounds=(0, 0.05), tol=1e-13)
    assert result.success
    assert np.all(certificate(A, B, 0.5, result.x, 0.0, 0.05) <= 2e-13)


def test_without_effect_the_answer_is_the_one_without_bounds():
    A, B = problem(seed=5)
    free = stepwell.tikhonov(A, B, 0.5, tol=1e-11)
    bounded = stepwell.tikhonov(A, B, 0.5, bounds=(-1e6, 1e6), tol=1e-11)
    assert np.all(np.linalg.norm(free.x - bounded.x, axis=0) <= allowed_error(A, B, 0.5, 1e-11))
    none = stepwell.tikhonov(A, B, 0.5, bounds=(None, np.inf), tol=1e-11)
    assert np.all(np.linalg.norm(free.x - none.x, axis=0) <= allowed_error(A, B, 0.5, 1e-11))


def test_zero_is_the_answer_where_nothing_pulls_into_the_box():
    A = np.abs(problem()[0])
    B = -np.ones((60, 2))
    B[:, 1] = 0.0
    result = stepwell.tikhonov(A, B, 0.5, bounds=(0, None))
    assert result.success
    assert not result.x.any()
    assert list(result.iterations) == [0, 0]


def test_starts_are_brought_into_the_box_and_spare_products():
    A, B = problem(seed=6)
    cold = stepwell.tikhonov(A, B, 0.5, bounds=(0, None), tol=1e-8)
    warm = stepwell.tikhonov(A, B, 0.5, bounds=(0, None), tol=1e-8, x0=cold.x)
    assert list(warm.iterations) == [0, 0, 0]
    outside = stepwell.tikhonov(A, B, 0.5, bounds=(0, None), tol=1e-8, x0=-np.ones((40, 3)))
    assert np.all(certificate(A, B, 0.5, outside.x) <= 1.01e-8)


def test_a_diagonal_preconditioner_spares_products():
    random = np.random.default_rng(0)
    A = random.normal(size=(150, 80)) * np.geomspace(1, 100, 80)
    B = random.normal(size=(150, 2)) + A @ np.maximum(random.normal(size=(80, 2)), 0)
    diagonal = 1 / np.diag(A.T @ A + np.eye(80))
    plain = stepwell.tikhonov(A, B, 1.0, bounds=(0, None), tol=1e-8)
    helped = stepwell.tikhonov(A, B, 1.0, bounds=(0, None), tol=1e-8, preconditioner=diagonal)
    assert helped.success
    assert helped.products.sum() < 0.6 * plain.products.sum()
    assert np.all(certificate(A, B, 1.0, helped.x) <= 1.01e-8)


def test_operators_of_every_kind_and_honest_counts():
    A, B = problem(seed=7)
    calls = {"forward": 0}

    def forward(vector):
        calls["forward"] += 1
        return A @ vector

    kinds = [
        sp.csr_matrix(A),
        LinearOperator(A.shape, matvec=forward, rmatvec=lambda v: A.T @ v, dtype=A.dtype),
        (forward, lambda v: A.T @ v),
    ]
    for kind in kinds:
        calls["forward"] = 0
        result = stepwell.tikhonov(kind, B, 0.5, bounds=(0, None), tol=1e-8)
        assert np.all(certificate(A, B, 0.5, result.x) <= 1.01e-8)
        if calls["forward"]:
            assert result.products.sum() == pytest.approx(calls["forward"])


def test_any_size_of_the_operator_and_the_data():
    A, B = problem(seed=8)
    plain = stepwell.tikhonov(A, B, 0.5, bounds=(0, 0.1), tol=1e-9).x
    for size, data in ((1e-200, 1.0), (1e150, 1e-30), (1.0, 1e200)):
        high = 0.1 * data / size
        result = stepwell.tikhonov(size * A, data * B, 0.5 * size, bounds=(0, high), tol=1e-9)
        assert result.success
        assert result.x.max() == high  # the bound itself
        np.testing.assert_allclose(result.x * (size / data), plain, atol=2 * allowed_error(A, B, 0.5, 1e-9).max())


def test_trouble_is_a_status_of_its_column():
    A, B = problem(seed=9)
    B[3, 1] = np.nan
    result = stepwell.tikhonov(A, B, 0.5, bounds=(0, None), tol=1e-8)
    assert [status.name for status in result.status] == ["CONVERGED", "NONFINITE", "CONVERGED"]
    assert np.isfinite(result.x[:, [0, 2]]).all()
    limited = stepwell.tikhonov(A, B[:, :1], 0.5, bounds=(0, None), tol=1e-12, maxiter=3)
    assert limited.status == [Status.ITERATION_LIMIT]
    assert limited.iterations == 3
    assert limited.x.min() >= 0
    told = []
    stopped = stepwell.tikhonov(
        A, B[:, :1], 0.5, bounds=(0, None), tol=1e-12, callback=lambda news: told.append(news) or news.iteration >= 4
    )
    assert stopped.status == [Status.STOPPED]
    assert told[0].iteration == 0
    assert told[-1].iteration == 4
    deep = stepwell.tikhonov(A, B[:, :1], 0.5, bounds=(0, None), tol=1e-19)
    assert deep.status == [Status.STAGNATED]
    assert certificate(A, B[:, :1], 0.5, deep.x)[0] < 1e-13


def test_the_residual_equals_the_noise_by_the_discrepancy_principle():
    size = 24
    A = tomography.parallel_beam(size, angles=np.arange(0, 180, 9.0))
    truth = tomography.shepp_logan_3d(size)[10:13].reshape(3, -1).T
    B = tomography.add_noise(A @ truth, 0.05)
    noise = 1.5 * np.linalg.norm(B - A @ truth, axis=0)
    result = stepwell.tikhonov(A, B, "discrepancy", bounds=(0, None), noise=noise / len(B) ** 0.5, tol=1e-6)
    assert result.success
    np.testing.assert_allclose(np.linalg.norm(B - A @ result.x, axis=0), noise, rtol=2e-3)
    assert list(result.lam_at_end) == [0, 0, 0]
    free = stepwell.tikhonov(A, B, "discrepancy", noise=noise / len(B) ** 0.5, tol=1e-6)
    assert np.all(result.lam <= 1.001 * free.lam)  # bounds can only raise the residual
    joint = stepwell.tikhonov(A, B, "discrepancy", bounds=(0, None), noise=noise / len(B) ** 0.5, joint=True, tol=1e-6)
    assert np.linalg.norm(B - A @ joint.x) == pytest.approx(np.linalg.norm(noise), rel=2e-3)
    with pytest.warns(OptimizeWarning, match="lower end"):
        never = stepwell.tikhonov(
            A, B[:, :1], "discrepancy", bounds=(0, None), noise=1e-3 * noise[:1] / len(B) ** 0.5, tol=1e-3
        )
    assert list(never.lam_at_end) == [-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bounds": 0}, r"bounds is 0; allowed: a pair \(lower, upper\)"),
        ({"bounds": (0, 1, 2)}, "bounds"),
        ({"bounds": (1, None)}, "the lower bound is 1.0 .*; allowed: numbers of at most 0"),
        ({"bounds": (-2, -1)}, "the upper bound is -1.0 .*; allowed: numbers of at least 0"),
        ({"bounds": (0, -1)}, r"bounds: lower > upper at index 0 \(0 > -1\); allowed: lower <= upper"),
        ({"bounds": (np.zeros(3), None)}, r"the lower bound has shape \(3,\); allowed: \(\) or \(40,\) or \(40, 3\)"),
        ({"bounds": (np.nan, None)}, "the lower bound is nan"),
        ({"bounds": (0, None), "method": "block"}, "method is 'block'; allowed: 'auto' with bounds"),
        ({"bounds": (0, None), "lam": "gcv"}, "lam is 'gcv'; allowed: numbers and 'discrepancy' with bounds"),
        ({"bounds": (0, None), "lam": "lcurve"}, "lam is 'lcurve'; allowed: numbers and 'discrepancy' with bounds"),
        ({"bounds": (0, None), "preconditioner": lambda x: x}, "preconditioner is .*; allowed: with bounds, the diag"),
        ({"bounds": (0, None), "preconditioner": -np.ones(40)}, "preconditioner is -1.0 at index 0"),
        ({"method": "bounded"}, "method is 'bounded'"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    A, B = problem()
    with pytest.raises(ValueError, match=message):
        stepwell.tikhonov(A, B, arguments.pop("lam", 0.5), **arguments)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_other_libraries_give_their_own_kind(library):
    if library == "torch":
        torch = pytest.importorskip("torch")
        convert = torch.asarray
    else:
        jax = pytest.importorskip("jax")
        convert = lambda array: jax.numpy.asarray(array, dtype="float32")  # noqa: E731
    A, B = problem(seed=10, count=1)  # one shape: JAX compiles for each
    result = stepwell.tikhonov(convert(A), convert(B), 0.5, bounds=(0, None), tol=1e-4)
    assert type(result.x) is type(convert(B))
    assert np.all(certificate(A, B, 0.5, np.asarray(result.x, dtype=float)) <= 1.2e-4)


def test_single_precision():
    A, B = problem(seed=11)
    result = stepwell.tikhonov(A.astype("f"), B.astype("f"), 0.5, bounds=(0, 0.1), tol=1e-4)
    assert result.x.dtype == np.float32
    assert result.success
    assert np.all(certificate(A, B, 0.5, result.x.astype(float), 0.0, np.float32(0.1)) <= 1.2e-4)


def test_the_memory_that_is_stated():
    size = 64
    A = tomography.parallel_beam(size, angles=np.arange(0, 180, 6.0))
    B = np.ascontiguousarray(A @ tomography.shepp_logan_3d(size).reshape(size, -1).T[:, 20:44])
    for L in (None, gradient((size, size))):
        solve = lambda L=L: stepwell.tikhonov(A, B, 1.0, L, bounds=(0, None), tol=1e-2)  # noqa: E731
        solve()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        result = solve()
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        assert 0.6 * result.memory <= peak <= result.memory


@pytest.mark.cuda
@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_on_a_gpu(library):
    xp = pytest.importorskip(library)
    A, B = problem(seed=12)
    put = (lambda array: xp.asarray(array, device="cuda")) if library == "torch" else xp.asarray
    result = stepwell.tikhonov(put(A), put(B), 0.5, bounds=(0, None), tol=1e-9)
    X = result.x.cpu().numpy() if library == "torch" else result.x.get()
    assert np.all(certificate(A, B, 0.5, X) <= 1.01e-9)
    host = stepwell.tikhonov(A, B, 0.5, bounds=(0, None), tol=1e-9).x
    assert np.all(np.linalg.norm(X - host, axis=0) <= 2 * allowed_error(A, B, 0.5, 1e-9))
