"""`lasso` beside Clarabel and closed forms: the gap holds, batches, units, libraries, unmatched adjoints, stops."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from lasso_oracle import clarabel_least, objective
from scipy.fft import dct
from scipy.sparse.linalg import aslinearoperator

import stepwell
from stepwell import LassoStatus
from stepwell.krylov.lasso.splitting import Balance, Factor

#: Clarabel's own accuracy, relative to the objective.
ORACLE = 1e-8
M, N = 30, 50
METHODS = ["admm", "fista"]
GROUPS = np.repeat(np.arange(13), 4)[:N]  # the last has two members


def problem(columns=1, seed=0, correlated=0.0, rows=M):
    random = np.random.default_rng(seed)
    A = random.normal(size=(rows, N)) + correlated * random.normal(size=(rows, 1))
    X = np.zeros((N, columns))
    for j in range(columns):
        X[random.choice(N, 5, replace=False), j] = random.normal(size=5)
    return A, A @ X + 0.05 * random.normal(size=(rows, columns))


BOUNDS = {"free": None, "nonnegative": (0, None), "box": (-0.2, 0.3), "upper": (None, 0.25)}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("share", [0.5, 0.05, 0.002])
def test_gap_holds_and_the_minimum_is_clarabels(method, bounds, share):
    A, B = problem(correlated=0.5)
    lam = share * np.abs(A.T @ B).max()
    lower, upper = BOUNDS[bounds] or (None, None)
    least = clarabel_least(A, B[:, 0], lam, lower=lower, upper=upper)
    for tol in (1e-1, 1e-6):
        result = stepwell.lasso(A, B[:, 0], lam, bounds=BOUNDS[bounds], method=method, tol=tol)
        f = objective(A, B[:, 0], result.x, lam)
        assert result.success, result
        assert result.objective[0] == pytest.approx(f, rel=1e-12)
        assert (f - least) / f <= result.gap[0] + ORACLE
        assert result.lower[0] <= least * (1 + ORACLE)
        assert np.all(np.diff(result.history[0]) <= 1e-12)
        if lower is not None:
            assert result.x.min() >= lower
        if upper is not None:
            assert result.x.max() <= upper


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bounds", [None, (0, None)])
def test_groups(method, bounds):
    A, B = problem()
    lam = 0.2 * np.abs(A.T @ B).max()
    least = clarabel_least(A, B[:, 0], lam, groups=GROUPS, lower=None if bounds is None else 0.0)
    result = stepwell.lasso(A, B[:, 0], lam, groups=GROUPS, bounds=bounds, method=method, tol=1e-6)
    f = objective(A, B[:, 0], result.x, lam, groups=GROUPS)
    assert result.success
    assert (f - least) / f <= result.gap[0] + ORACLE
    zero = [g for g in np.unique(GROUPS) if not result.x[g == GROUPS].any()]
    assert zero  # groups are zero as a whole
    assert bounds is None or result.x.min() >= 0


@pytest.mark.parametrize("form", ["matrix", "functions", "operator of A"])
def test_transforms(form):
    A, B = problem()
    W = dct(np.eye(N), axis=0, norm="ortho")
    lam = 0.1 * np.abs(W @ A.T @ B).max()
    least = clarabel_least(A, B[:, 0], lam, W=W)
    transform = W if form == "matrix" else (lambda x: W @ x, lambda c: W.T @ c)
    result = stepwell.lasso(
        aslinearoperator(A) if form == "operator of A" else A, B[:, 0], lam, transform=transform, tol=1e-6
    )
    assert result.method == ("fista" if form == "operator of A" else "admm")
    f = objective(A, B[:, 0], result.x, lam, W=W)
    assert result.success
    assert result.objective[0] == pytest.approx(f, rel=1e-9)
    assert (f - least) / f <= result.gap[0] + ORACLE
    assert result.nonzeros[0] < N
    assert result.lam_max == pytest.approx(np.abs(W @ A.T @ B).max())


@pytest.mark.parametrize("positive", [False, True])
def test_scikit_learn_finds_the_same(positive):
    """Its Lasso has ‖Ax − b‖²/2m + α‖x‖₁: λ = mα. Its gap, of the objective times m, is in units of ‖b‖²."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    A, B = problem()
    lam, b = 0.1 * np.abs(A.T @ B).max(), B[:, 0]
    peer = linear_model.Lasso(lam / len(b), fit_intercept=False, positive=positive, tol=1e-12, max_iter=100_000)
    x = peer.fit(A, b).coef_
    result = stepwell.lasso(A, b, lam, bounds=(0, None) if positive else None, tol=1e-8)
    theirs, found = (objective(A, b, one, lam) for one in (x, result.x))
    assert result.success
    assert found <= theirs * (1 + 1e-8)
    assert theirs <= found + 1e-12 * (b @ b) + 1e-8 * found
    np.testing.assert_allclose(result.x, x, atol=1e-3 * np.abs(x).max())


def test_an_orthonormal_matrix_has_a_closed_form():
    """With AᵀA = I the solution is the soft threshold of Aᵀb."""
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(40, 40)))[0]
    b = np.random.default_rng(2).normal(size=40)
    back = Q.T @ b
    expected = np.sign(back) * np.maximum(np.abs(back) - 0.7, 0)
    for method in METHODS:
        result = stepwell.lasso(Q, b, 0.7, method=method, tol=1e-10)
        np.testing.assert_allclose(result.x, expected, atol=1e-4)
        assert result.success
        assert result.nonzeros[0] == np.count_nonzero(expected)


def test_from_lam_max_on_the_solution_is_zero():
    A, B = problem(columns=2)
    for groups in (None, GROUPS):
        first = stepwell.lasso(A, B, 1.0, groups=groups)
        above = stepwell.lasso(A, B, 1.001 * first.lam_max, groups=groups)
        assert above.success
        assert not above.x.any()
        assert stepwell.lasso(A, B, 0.98 * first.lam_max, groups=groups).nonzeros.min() >= 1


@pytest.mark.parametrize("method", METHODS)
def test_every_column_has_its_own_lam_and_end(method):
    A, B = problem(columns=4)
    lams = np.abs(A.T @ B).max(axis=0) * np.array([0.5, 0.1, 0.02, 0.3])
    together = stepwell.lasso(A, B, lams, method=method)
    assert together.success
    for j in range(4):
        alone = stepwell.lasso(A, B[:, j], lams[j], method=method)
        assert alone.iterations[0] == together.iterations[j]
        np.testing.assert_allclose(alone.x, together.x[:, j], atol=1e-9)
    turned = stepwell.lasso(A, B.T.copy(), lams, method=method, axis=0)
    np.testing.assert_allclose(turned.x, together.x.T, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_tall_matrices_and_warm_starts(method):
    A, B = problem(columns=2, rows=120)
    cold = stepwell.lasso(A, B, 5.0, method=method, tol=1e-6)
    least = [clarabel_least(A, B[:, j], 5.0) for j in range(2)]
    assert np.all((cold.objective - least) / cold.objective <= cold.gap + ORACLE)
    warm = stepwell.lasso(A, B, 5.0, method=method, tol=1e-4, x0=cold.x)
    assert warm.success
    assert warm.iterations.max() <= 1


@pytest.mark.parametrize("form", ["tall", "wide"])
def test_dense_solutions_need_no_other_method(form):
    """With a fixed ρ these take 2,575 and 595 steps, with FISTA 1,282 and 321."""
    place = np.arange(128)
    if form == "tall":  # a blur of few spikes at a small λ
        A, W, share, most = np.exp(-0.5 * ((place[:, None] - place) / 3.0) ** 2) / 7.52, np.eye(128), 0.002, 1000
    else:  # a transform that does not fit
        A = np.random.default_rng(0).normal(size=(64, 128))
        W, share, most = dct(np.eye(128), axis=0, norm="ortho"), 0.03, 400
    x = np.zeros(128)
    x[[20, 60, 61, 100]] = [1, -2, 2, 1.5]
    b = A @ x + 0.01 * np.random.default_rng(1).normal(size=A.shape[0])
    lam = share * np.abs(W @ A.T @ b).max()
    result = stepwell.lasso(A, b, lam, transform=W, tol=1e-6, maxiter=most)
    assert result.method == "admm"
    assert result.success
    least = clarabel_least(A, b, lam, W=W)
    f = objective(A, b, result.x, lam, W=W)
    assert (f - least) / f <= result.gap[0] + ORACLE
    assert result.lower[0] <= least * (1 + ORACLE)


@pytest.mark.parametrize("shape", [(12, 7), (7, 12), (9, 9)])
def test_both_factors_solve_the_shifted_normal_equations(shape):
    random = np.random.default_rng(0)
    A, block = random.normal(size=shape), random.normal(size=(shape[1], 3))
    factor = Factor(A)
    normal = A.T @ A
    assert factor.first == pytest.approx(np.trace(normal) / shape[1])
    for rhos, one in ((np.full(3, factor.first), True), (np.array([0.1, 3.0, 50.0]), False)):
        found = factor.solve(block, rhos[None, :], one)
        expected = [np.linalg.solve(normal + rho * np.eye(shape[1]), v) for rho, v in zip(rhos, block.T)]
        # Condition numbers are below 1e3.
        np.testing.assert_allclose(found.T, expected, rtol=1e-10, atol=1e-12)


def test_the_weight_follows_the_residuals():
    """Relative residuals of 9 to 1: ρ grows by the root; of 1 to 9: it falls by the bound of 3; alike: it stays."""
    z, u = np.ones((4, 3)), np.ones((4, 3))
    x = z * [1.09, 1.01, 1.01]
    before = z * [0.99, 0.91, 0.99]
    balance = Balance(2.0, 3)
    assert balance.factors(15, x, z, before, u) is None
    found = balance.factors(20, x, z, before, u)
    np.testing.assert_allclose(found, [3 / np.sqrt(1.09), 1 / 3, 1], rtol=1e-12)
    np.testing.assert_allclose(balance.rho, 2 * found)
    assert found[2] == 1
    assert not balance.one
    assert balance.factors(45, x, z, before, u) is None  # the next change waits for 30 steps
    assert balance.factors(50, x, z, before, u)[0] > 2


@pytest.mark.parametrize("form", ["sparse", "linear operator", "functions", "float32"])
def test_any_operator(form):
    A, B = problem(columns=2)
    lam = 0.1 * np.abs(A.T @ B).max()
    expected = stepwell.lasso(A, B, lam, tol=1e-6)
    given = {
        "sparse": sp.csr_matrix(A),
        "linear operator": aslinearoperator(A),
        "functions": (lambda x: A @ x, lambda y: A.T @ y),
        "float32": A.astype(np.float32),
    }[form]
    data = B.astype(np.float32) if form == "float32" else B
    result = stepwell.lasso(given, data, lam, tol=1e-4)
    assert result.success
    assert result.x.dtype == data.dtype
    assert np.all(result.lower <= expected.objective * (1 + 1e-5))
    assert np.all(result.objective <= expected.objective * (1 + 1.1e-4))


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_libraries(library):
    module = pytest.importorskip(library)
    if library == "jax":
        module.config.update("jax_enable_x64", True)
    make = module.as_tensor if library == "torch" else module.numpy.asarray
    A, B = problem(columns=2)
    lam = 0.3 * np.abs(A.T @ B).max()
    expected = stepwell.lasso(A, B, lam, tol=1e-3, bounds=(0, None))
    for method in METHODS:
        result = stepwell.lasso(make(A), make(B), lam, tol=1e-3, bounds=(0, None), method=method)
        assert result.success
        assert type(result.x) is type(make(B))
        assert np.all(np.abs(result.objective - expected.objective) <= 2e-3 * expected.objective)
    grouped = stepwell.lasso(make(A), make(B), lam, tol=1e-2, groups=GROUPS)
    assert grouped.success


@pytest.mark.parametrize("power", [-40, 10, 300, -300])
def test_units(power):
    A, B = problem(columns=2)
    lam = 0.1 * np.abs(A.T @ B).max()
    one = stepwell.lasso(A, B, lam)
    unit = 2.0**power
    data = stepwell.lasso(A, unit * B, unit * lam)
    np.testing.assert_array_equal(data.x, unit * one.x)
    with np.errstate(over="ignore"):
        operator = stepwell.lasso(A * unit, B, lam * unit)
    assert operator.success
    np.testing.assert_allclose(operator.x * unit, one.x, atol=1e-3 * np.abs(one.x).max())


def test_an_unmatched_adjoint_is_never_certified():
    A, B = problem(columns=2)
    other = A * (1 + 0.01 * np.random.default_rng(0).normal(size=A.shape))
    result = stepwell.lasso((lambda x: A @ x, lambda y: other.T @ y), B, 1.0, maxiter=50)
    assert result.status == [LassoStatus.UNMATCHED] * 2
    assert not result.lower.any()
    assert np.all(result.gap == 1)
    assert result.adjoint_error > 1e-6


def test_zero_and_lost_columns_and_no_lam():
    A, B = problem(columns=3)
    B[:, 1] = 0.0
    B[2, 2] = np.nan
    for method in METHODS:
        result = stepwell.lasso(A, B, 1.0, method=method)
        assert result.status == [LassoStatus.CONVERGED, LassoStatus.CONVERGED, LassoStatus.NONFINITE]
        assert not result.x[:, 1].any()
        assert np.isfinite(result.x).all()
        none = stepwell.lasso(A, B[:, :0], 1.0, method=method)
        assert none.success
        assert none.x.shape == (N, 0)
        zero = stepwell.lasso(A, B[:, :1], 0.0, method=method, maxiter=20)
        assert not zero.success


@pytest.mark.parametrize("method", METHODS)
def test_callbacks_and_stops(method):
    A, B = problem(columns=2)
    told = []
    result = stepwell.lasso(
        A, B, 0.1, method=method, tol=1e-12, callback=lambda news: told.append(news) or len(told) == 3
    )
    assert result.status == [LassoStatus.STOPPED] * 2
    assert len(told) == 3
    assert told[0].iteration == 0
    assert told[0].running == told[0].columns == 2
    limited = stepwell.lasso(A, B, 0.1, method=method, tol=1e-14, maxiter=7)
    assert limited.status == [LassoStatus.ITERATION_LIMIT] * 2
    assert list(limited.iterations) == [7, 7]


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals go to the main thread")
def test_interrupted_runs_keep_the_best_point():
    A, B = problem()

    def interrupt(news):
        if news.iteration >= 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(stepwell.Interrupted) as caught:
        stepwell.lasso(A, B[:, 0], 0.5, method="fista", tol=1e-12, callback=interrupt)
    result = caught.value.result
    assert result.status is LassoStatus.STOPPED
    assert result.objective[0] == pytest.approx(objective(A, B[:, 0], result.x, 0.5))
    assert result.objective[0] < 0.5 * np.sum(B**2)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"bounds": (0.5, None)}, "zero must lie within"),
        ({"groups": np.zeros(3)}, r"groups has shape \(3,\)"),
        ({"groups": np.full(N, 0.5)}, "whole numbers"),
        ({"groups": GROUPS, "bounds": (-1, 1)}, r"\(0, None\) with groups"),
        ({"transform": 2 * np.eye(N)}, "an orthonormal operator"),
        ({"transform": np.eye(N), "bounds": (0, None)}, "None with a transform"),
        ({"method": "newton"}, "'auto', 'admm', 'fista'"),
        ({"lam": -1.0}, "at least 0"),
    ],
)
def test_wrong_input_is_named(given, text):
    A, B = problem()
    with pytest.raises(ValueError, match=text):
        stepwell.lasso(A, B, **({"lam": 1.0} | given))


def test_admm_wants_a_dense_matrix():
    A, B = problem()
    with pytest.raises(ValueError, match="'fista' where A is no dense array"):
        stepwell.lasso(sp.csr_matrix(A), B, 1.0, method="admm")
