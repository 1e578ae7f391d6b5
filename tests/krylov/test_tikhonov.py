"""Tikhonov by every method against the dense normal equations and SciPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from krylov_oracle import ITERATIVE, METHODS, assert_solves, normal_matrix
from scipy.sparse.linalg import LinearOperator, aslinearoperator, lsmr, lsqr
from small_problems import random_system

import stepwell
from stepwell.krylov import LinearStatus as Status
from stepwell.krylov.projection import FEW_STEPS


def problem(rows: int, columns: int, count: int, dtype: str = "float64") -> tuple[np.ndarray, np.ndarray]:
    return random_system(rows, columns, count, 7, dtype)


def true_residual(A: np.ndarray, B: np.ndarray, lam: float, L: np.ndarray | None, X: np.ndarray) -> np.ndarray:
    R = A.T @ B
    return np.linalg.norm(R - normal_matrix(A, lam, L) @ X, axis=0) / np.linalg.norm(R, axis=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(60, 40), (30, 40)], ids=["tall", "wide"])
@pytest.mark.parametrize("penalty", ["identity", "difference"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_agrees_with_dense_normal_equations(method, shape, penalty, dtype):
    A, B = problem(*shape, 5, dtype)
    L = None if penalty == "identity" else np.diff(np.eye(shape[1]), axis=0)
    lam = 2.0
    tol = 1e-11 if dtype == "float64" else 3e-5
    result = stepwell.tikhonov(A, B, lam, None if L is None else L.astype(dtype), method=method, tol=tol)
    assert result.success
    assert result.x.dtype == dtype
    assert_solves(result.x, normal_matrix(A, lam, L), A.T.astype(float) @ B, tol, dtype)
    np.testing.assert_array_less(result.residual, tol * (1 + 1e-12))
    if dtype == "float64":
        assert np.all(true_residual(A, B, lam, L, result.x) <= 1.001 * tol)


@pytest.mark.parametrize("method", METHODS)
def test_agrees_with_scipy_damp(method):
    A, B = problem(50, 30, 3)
    lam = 0.7
    X = stepwell.tikhonov(A, B, lam, method=method, tol=1e-12).x
    least = np.linalg.eigvalsh(normal_matrix(A, lam))[0]
    for j in range(3):
        # Each is off by ‖H⁻¹‖ times its residual: ours below 1e-12 ‖Aᵀb‖, theirs below 1e-14 ‖A‖ ‖b‖.
        bound = (1e-12 * np.linalg.norm(A.T @ B[:, j]) + 1e-13 * np.linalg.norm(A) * np.linalg.norm(B[:, j])) / least
        x = lsqr(A, B[:, j], damp=lam, atol=1e-14, btol=1e-14, conlim=0, iter_lim=1000)[0]
        assert np.linalg.norm(X[:, j] - x) <= bound
        x = lsmr(A, B[:, j], damp=lam, atol=1e-14, btol=1e-14, conlim=0, maxiter=1000)[0]
        assert np.linalg.norm(X[:, j] - x) <= bound


@pytest.mark.parametrize("method", METHODS)
def test_zero_equal_and_dependent_columns(method):
    A, B = problem(60, 40, 6)
    B[:, 1] = 0
    B[:, 3] = B[:, 2]
    B[:, 5] = 2 * B[:, 0] - B[:, 4]
    result = stepwell.tikhonov(A, B, 0.5, method=method, tol=1e-11)
    assert result.success
    assert_solves(result.x, normal_matrix(A, 0.5), A.T @ B, 1e-11)
    assert np.all(result.x[:, 1] == 0)
    assert result.products[1] == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_nan_column_is_that_columns_own_trouble(method):
    A, B = problem(60, 40, 4)
    B[3, 1] = np.nan
    B[5, 2] = np.inf
    result = stepwell.tikhonov(A, B, 0.5, method=method, tol=1e-10)
    assert [s is Status.NONFINITE for s in result.status] == [False, True, True, False]
    good = [0, 3]
    assert_solves(result.x[:, good], normal_matrix(A, 0.5), A.T @ B[:, good], 1e-10)
    assert np.isfinite(result.x).all()
    assert np.isnan(result.residual[[1, 2]]).all()


@pytest.mark.parametrize("method", METHODS)
def test_a_warm_start_solves_the_same_problem(method):
    """The start must shift λLx too: penalising the update instead of x is a known mistake of others."""
    A, B = problem(60, 40, 3)
    L = np.diff(np.eye(40), axis=0)
    x0 = np.random.default_rng(3).normal(size=(40, 3)) * 10
    for penalty in (None, L):
        result = stepwell.tikhonov(A, B, 3.0, penalty, method=method, tol=1e-11, x0=x0)
        assert_solves(result.x, normal_matrix(A, 3.0, penalty), A.T @ B, 1e-11)


@pytest.mark.parametrize("method", METHODS)
def test_the_result_does_not_depend_on_the_scale_of_b(method):
    A, B = problem(60, 40, 2)
    scales = np.array([1e-200, 1e200])
    plain = stepwell.tikhonov(A, B, 0.5, method=method, tol=1e-11)
    scaled = stepwell.tikhonov(A, B * scales, 0.5, method=method, tol=1e-11)
    assert scaled.success
    np.testing.assert_allclose(scaled.x / scales, plain.x, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_each_column_may_have_its_own_lam(method):
    A, B = problem(60, 40, 4)
    lams = np.array([0.1, 3.0, 0.1, 30.0])
    result = stepwell.tikhonov(A, B, lams, method=method, tol=1e-11)
    for j, lam in enumerate(lams):
        assert_solves(result.x[:, j], normal_matrix(A, lam), A.T @ B[:, j], 1e-11)
    np.testing.assert_array_equal(result.lam, lams)


def test_vectors_come_back_as_vectors_and_no_columns_as_none():
    A, B = problem(60, 40, 1)
    assert stepwell.tikhonov(A, B[:, 0], 0.5).x.shape == (40,)
    assert stepwell.tikhonov(A, B, 0.5).x.shape == (40, 1)
    for method in ("auto", *METHODS):
        empty = stepwell.tikhonov(A, B[:, :0], 0.5, method=method)
        assert empty.x.shape == (40, 0)
        assert empty.success


@pytest.mark.parametrize("method", ["pseudo-block", "block", "aprcg"])
def test_every_kind_of_operator(method):
    A, B = problem(60, 40, 3)
    stored = sp.csr_matrix(A)
    kinds = [
        stored,
        stored.tocsc(),
        stored.tocoo(),
        sp.csr_array(A),
        aslinearoperator(A),
        LinearOperator(A.shape, matvec=lambda v: A @ v, rmatvec=lambda v: A.T @ v, dtype=A.dtype),
        (lambda v: A @ v, lambda v: A.T @ v),
        stepwell.operators.from_functions(lambda V: A @ V, lambda V: A.T @ V, A.shape, blocks=True),
        A.tolist(),
    ]
    for operator in kinds[:-1]:
        x = stepwell.tikhonov(operator, B, 0.5, method=method, tol=1e-11).x
        assert_solves(x, normal_matrix(A, 0.5), A.T @ B, 1e-11)
    with pytest.raises(TypeError, match="A is a list; allowed: a dense or sparse matrix"):
        stepwell.tikhonov(kinds[-1], B, 0.5)


def test_products_are_counted_as_the_functions_are_called():
    """Count at the user's functions what the result claims: one product is one forward and one adjoint call."""
    A, B = problem(60, 40, 4)
    calls = {"forward": 0, "adjoint": 0}

    def forward(v):
        calls["forward"] += 1
        return A @ v

    def adjoint(v):
        calls["adjoint"] += 1
        return A.T @ v

    operator = stepwell.operators.from_functions(forward, adjoint, A.shape)
    for method in ITERATIVE:
        calls.update(forward=0, adjoint=0)
        result = stepwell.tikhonov(operator, B, 0.5, method=method, tol=1e-6)
        assert result.products.sum() == pytest.approx(calls["forward"], abs=1e-9)
        # And Aᵀb for each column; where a column runs alone, A confirms its last residual instead, unless that was
        # updated for many steps.
        recomputed = {"cgls": 0, "prcg": result.iterations > FEW_STEPS, "aprcg": result.iterations > FEW_STEPS}
        assert calls["adjoint"] == calls["forward"] + np.sum(recomputed.get(method, np.ones(4)))
        assert result.iterations.max() >= 1


def test_matvec_counts_that_mathematics_fixes():
    """H with d distinct eigenvalues: CG needs d steps; block CG with k columns d steps of at most rank k."""
    A = np.diag(np.repeat([1.0, 2.0, 5.0], 8))
    B = np.random.default_rng(0).normal(size=(24, 2))
    one = stepwell.tikhonov(A, B[:, 0], 0.1, method="cgls", tol=1e-10)
    assert one.iterations == 3
    assert one.products == 4  # and one for the true residual
    block = stepwell.tikhonov(A, B, 0.1, method="block", tol=1e-10)
    assert block.products.sum() == 2 * 3 + 2
    assert block.calls == 4
    equal = stepwell.tikhonov(A, B[:, [0, 0, 0]], 0.1, method="block", tol=1e-10)
    assert equal.products.sum() == 3 + 3  # three equal columns search in one direction at a time


def test_pseudo_block_iterates_are_those_of_single_columns():
    # Well conditioned, so that both end long before 40 steps: beyond as many steps as unknowns conjugate gradients
    # live on rounding errors alone, and the order of sums decides how many it takes.
    A, B = problem(60, 40, 4)
    lam, tol = 5.0, 1e-8
    together = stepwell.tikhonov(A, B, lam, method="pseudo-block", tol=tol)
    alone = stepwell.tikhonov(A, B, lam, method="cgls", tol=tol)
    assert together.iterations.max() < 40
    H = normal_matrix(A, lam)
    # The same iterates but for the order of sums: each of k steps leaves rounding errors of n ε of the first residual
    # in the residual, which what follows enlarges by the condition at most.
    rounding = together.iterations.max() * 40 * np.linalg.cond(H) * np.finfo(float).eps
    np.testing.assert_array_equal(together.iterations, alone.iterations)
    for ours, single in zip(together.history, alone.history):
        assert np.abs(np.array(ours) - np.array(single)).max() <= rounding
        assert np.abs(np.array(ours) - tol).min() > rounding  # else the number of steps would be left to chance
    assert_solves(together.x, H, A.T @ B, tol)
    assert_solves(alone.x, H, A.T @ B, tol)
    assert together.calls == alone.iterations.max() + 1


def test_limits_callbacks_and_histories():
    A, B = problem(60, 40, 3)
    for method in ITERATIVE:
        result = stepwell.tikhonov(A, B, 0.01, method=method, tol=1e-13, maxiter=2)
        assert all(s is Status.ITERATION_LIMIT for s in result.status)
        assert result.iterations.max() <= 2
        assert all(len(h) == n for h, n in zip(result.history, result.iterations))
        assert np.isfinite(result.x).all()
        told = []
        stopped = stepwell.tikhonov(
            A,
            B,
            0.01,
            method=method,
            tol=1e-13,
            callback=lambda p, told=told: told.append(p) or p.iteration >= 3,
        )
        assert Status.STOPPED in stopped.status
        assert told[0].iteration == 0
        assert told[0].memory == stopped.memory > 0


def test_stagnation_is_told_and_gives_the_best_point():
    A, B = problem(60, 40, 2)
    for method in METHODS:
        result = stepwell.tikhonov(A, B, 0.5, method=method, tol=1e-18, maxiter=1000)
        assert all(s is Status.STAGNATED for s in result.status)
        assert np.all(result.residual < 1e-13)
        assert "rounding" in result.message


@pytest.mark.parametrize("method", ["block", "pseudo-block"])
def test_the_default_tolerance_is_reached_in_float32_where_rounding_leaves_room(method):
    """The last round meets residuals that rounding errors of x bring back, about unit roundoff times the condition."""
    for seed in range(12):
        random = np.random.default_rng(seed)
        A = random.random((500, 200)).astype(np.float32)
        lam = float(np.linalg.norm(A, 2)) / 60  # condition 3,600 at most
        B = (A @ random.normal(size=(200, 16)) + 0.1 * random.normal(size=(500, 16))).astype(np.float32)
        result = stepwell.tikhonov(A, B, lam, method=method)
        assert result.success, result.message
        assert np.all(result.residual <= 1e-6)


def test_a_singular_matrix_is_a_breakdown_of_the_direct_method_only():
    A = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    b = np.array([1.0, 3.0, 5.0])
    direct = stepwell.tikhonov(A, b, 0.0, method="direct")
    assert direct.status is Status.BREAKDOWN
    for method in ITERATIVE:
        result = stepwell.tikhonov(A, b, 0.0, method=method, tol=1e-10)
        assert result.success
        np.testing.assert_allclose(result.x, [2.0, 0.0], atol=1e-9)  # the shortest minimiser


def test_auto_chooses_and_says_why():
    A, B = problem(60, 40, 3)
    assert stepwell.tikhonov(A, B, 0.5).method == "direct"
    functions = (lambda v: A @ v, lambda v: A.T @ v)
    block = stepwell.tikhonov(functions, B, 0.5)
    assert block.method == "block"
    assert "3 columns" in block.choice
    assert stepwell.tikhonov(functions, B[:, 0], 0.5).method == "cgls"
    assert stepwell.tikhonov(functions, B, [0.1, 0.2, 0.3]).method == "pseudo-block"


def test_preconditioners():
    random = np.random.default_rng(0)
    A = random.normal(size=(300, 150)) * np.geomspace(1, 1e3, 150)
    B = random.normal(size=(300, 3))
    H = A.T @ A + np.eye(150)
    inverse = 1 / np.diag(H)
    for method in ITERATIVE:
        plain = stepwell.tikhonov(A, B, 1.0, method=method, tol=1e-8)
        for given in (inverse, np.diag(inverse), lambda block: inverse[:, None] * block):
            helped = stepwell.tikhonov(A, B, 1.0, method=method, tol=1e-8, preconditioner=given)
            assert helped.success
            assert_solves(helped.x, H, A.T @ B, 1e-8)
        assert helped.products.sum() < 0.8 * plain.products.sum()


def test_block_width_and_memory_change_products_not_answers():
    A, B = problem(120, 80, 12)
    counts = []
    for width, memory in ((12, 2**28), (4, 2**28), (12, 0)):
        result = stepwell.tikhonov(A, B, 0.5, method="block", tol=1e-10, width=width, memory=memory)
        assert_solves(result.x, normal_matrix(A, 0.5), A.T @ B, 1e-10)
        counts.append(result.products.sum())
    assert counts[0] <= counts[1]
    assert counts[0] <= counts[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lam": -1.0}, "lam"),
        ({"lam": np.nan}, "lam"),
        ({"lam": [1.0, 2.0]}, r"lam has shape \(2,\); allowed: one real number or one per column \(3\)"),
        ({"lam": "best"}, "gcv"),
        ({"lam": "discrepancy"}, "noise"),
        ({"method": "magic"}, "method"),
        ({"tol": 0.0}, "tol"),
        ({"maxiter": -1}, "maxiter"),
        ({"L": np.eye(3)}, r"L has shape \(3, 3\); allowed: 40 columns"),
        ({"x0": np.zeros(40)}, r"x0 has shape \(40,\); allowed: \(40, 3\)"),
        ({"x0": np.full((40, 3), np.nan)}, r"x0 is nan at index \(0, 0\); allowed: finite"),
        ({"B": np.zeros((61, 3))}, r"B has shape \(61, 3\); allowed: 60 rows, as A of shape \(60, 40\) has"),
        ({"B": np.zeros((60, 3, 2))}, r"B has shape \(60, 3, 2\); allowed: \(m,\)"),
        ({"A": np.zeros(60)}, r"A has shape \(60,\); allowed: two dimensions"),
        ({"preconditioner": np.ones(3)}, "preconditioner"),
        ({"width": 0}, "width"),
        ({"memory": -1}, "memory"),
        ({"memory": 10, "method": "prcg"}, "memory"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    A, B = problem(60, 40, 3)
    with pytest.raises(ValueError, match=message):
        stepwell.tikhonov(arguments.pop("A", A), arguments.pop("B", B), arguments.pop("lam", 0.5), **arguments)


def test_complex_data_are_refused():
    A, B = problem(60, 40, 3)
    with pytest.raises(TypeError, match="A has dtype complex128; allowed: real"):
        stepwell.tikhonov(A.astype(complex), B, 0.5)
    with pytest.raises(TypeError, match="B has dtype complex128; allowed: real"):
        stepwell.tikhonov(A, B.astype(complex), 0.5)


def test_minimize_and_tikhonov_agree():
    A, B = problem(60, 40, 1)
    lam = 2.0
    H = normal_matrix(A, lam)

    def objective(x):
        residual = A @ x - B[:, 0]
        return residual @ residual + lam**2 * (x @ x), 2 * (A.T @ residual + lam**2 * x)

    found = stepwell.minimize(objective, np.zeros(40), jac=True, options={"gtol": 1e-9, "ftol": 0.0, "maxiter": 5000})
    x = stepwell.tikhonov(A, B[:, 0], lam, tol=1e-12).x
    # With gradient g the error is at most ‖(2H)⁻¹‖ ‖g‖; f itself can be told apart to about √ε only.
    assert np.linalg.norm(found.x - x) <= 1e-5 * np.linalg.norm(x) * np.sqrt(np.linalg.cond(H))


@pytest.mark.parametrize("method", ITERATIVE)
def test_a_callback_hears_of_all_columns_and_stops_them_all(method):
    A, B = problem(60, 40, 4)
    told = []
    result = stepwell.tikhonov(A, B, 0.5, method=method, tol=1e-8, callback=lambda news: told.append(news))
    assert result.success
    assert {news.columns for news in told} == {4}
    assert [news.iteration for news in told].count(0) == 1
    assert told[0].running == 4
    if method not in ("prcg", "aprcg"):  # there a column may be solved without an iteration, of which nobody hears
        assert told[-1].running == 0
    assert all(a.running >= b.running and a.products <= b.products for a, b in itertools.pairwise(told))
    calls = []
    stopped = stepwell.tikhonov(
        A, B, 0.5, method=method, tol=1e-8, callback=lambda news: calls.append(news) or news.iteration == 2
    )
    assert len(calls) == 3  # the last answer was true: nobody asks again
    assert all(status is Status.STOPPED for status in stopped.status)


def test_one_right_hand_side_has_one_status_and_one_lam():
    A = np.random.default_rng(0).normal(size=(12, 5))
    b = A @ np.ones(5) + 0.1
    for r in (stepwell.tikhonov(A, b, 0.5), stepwell.tikhonov(A, b, "gcv"), stepwell.ProjectedCG(A, 0.5).solve(b)):
        assert r.status is r.reason is Status.CONVERGED
        assert type(r.lam) is float
        assert r.success
        assert r.message.count("1 of 1") == 1
    assert stepwell.tikhonov(A, b, "gcv").lam_at_end in (-1, 0, 1)
    block = stepwell.tikhonov(A, b[:, None], 0.5)
    assert block.status == block.reason == [Status.CONVERGED]
    assert block.lam.tolist() == [0.5]
    # As the results of small systems have it.
    for r in (stepwell.nnls(A, b, lam=0.5), stepwell.lsq_linear(A, b, lam=0.5), stepwell.lsq_gram(A.T @ A, A.T @ b)):
        assert r.status is r.reason is stepwell.NNLSStatus.CONVERGED
        assert type(r.lam) is float
