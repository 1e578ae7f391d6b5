"""General equalities: met where they can be, refused with a proof; against a quadratic program and KKT conditions."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell
from stepwell import NNLSStatus
from stepwell.lsq import equalities, equality_ends
from stepwell.lsq.faces import solve_on_faces

INF = np.inf


def drawn(seed):
    """A system with an x that has its equalities: at bounds, fixed variables, redundant rows, sums, weights, λ."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 25)), int(rng.integers(1, 25))
    k = min(n, int(rng.integers(1, 5)))
    A = rng.normal(size=(m, n))
    if rng.random() < 0.3:
        A = A * 10.0 ** rng.uniform(-3, 3, size=n)
    lower = np.zeros(n) if rng.random() < 0.5 else np.where(rng.random(n) < 0.7, -rng.random(n), -INF)
    upper = np.where(rng.random(n) < 0.5, rng.random(n), INF)
    low, high = np.where(np.isfinite(lower), lower, -1.0), np.where(np.isfinite(upper), upper, 1.0)
    x = low + (high - low) * rng.random(n)
    x = np.where(rng.random(n) < 0.6 * rng.integers(2), low, np.where(rng.random(n) < 0.2, high, x))
    fixed = rng.random(n) < 0.3 * (rng.random() < 0.3)
    lower, upper = np.where(fixed, x, np.minimum(lower, x)), np.where(fixed, x, np.maximum(upper, x))
    C = rng.normal(size=(k, n))
    kind = rng.integers(4)
    if kind == 1:
        C = rng.integers(-1, 2, size=(k, n)).astype(float)
    elif kind == 2 and k > 1:
        C[-1] = 2 * C[0]  # redundant
    elif kind == 3:
        C *= 10.0 ** rng.uniform(-3, 3, size=(k, 1))
    options = {"bounds": (lower, upper), "equality": (C, C @ x)}
    if rng.random() < 0.3:
        options["lam"] = 10.0 ** rng.uniform(-3, 2)
        if rng.random() < 0.5:
            options["L"] = rng.normal(size=(int(rng.integers(1, n + 1)), n))
    if rng.random() < 0.3:
        options["weights"] = 10.0 ** rng.uniform(-1, 3, size=m)
    if rng.random() < 0.2:
        room = rng.random(2) * rng.integers(0, 2, 2)
        options["sum_bounds"] = (x.sum() - room[0], x.sum() + room[1])
    return A, A @ x + np.abs(A).max() * rng.normal(size=m), options


def stacked(A, b, options):
    """The rows of the least-squares problem, with weights and penalty."""
    weights = options.get("weights", np.ones(len(b)))
    lam, L = options.get("lam", 0.0), options.get("L", np.eye(A.shape[1]))
    return np.vstack([A * weights[:, None], lam * L]), np.concatenate([b * weights, np.zeros(len(L))])


def check(A, b, options, r):
    """The conditions that prove x to be the solution, formed here from the problem and the multipliers alone."""
    M, f = stacked(A, b, options)
    (lower, upper), (C, d), x = options["bounds"], options["equality"], r.x
    assert r.status is NNLSStatus.CONVERGED
    assert np.all((lower <= x) & (x <= upper))
    # To rounding of the terms, or of the largest entry of x.
    size = np.abs(d) + np.abs(C) @ np.abs(x) + 1e-3 * np.abs(C).max(axis=1) * np.abs(x).max()
    assert np.all(np.abs(C @ x - d) <= 1e-12 * size)
    assert r.equality_error >= np.abs(C @ x - d).max()
    mu = np.asarray(r.multipliers)
    rows = C
    if "sum_bounds" in options:
        rows = np.vstack([np.ones(x.size), C])
        low, high = options["sum_bounds"]
        assert low - 1e-12 * np.abs(x).sum() <= x.sum() <= high + 1e-12 * np.abs(x).sum()
    w = M.T @ (f - M @ x) + rows.T @ mu
    np.testing.assert_allclose(r.dual, w, atol=1e-9 * np.abs(M.T @ f).max() + 1e-12 * np.abs(rows.T @ mu).max())
    lengths = np.linalg.norm(M, axis=0)
    scale = lengths * (np.linalg.norm(f) + lengths @ np.abs(x)) + np.abs(rows).T @ np.abs(mu)
    breach = np.where(x <= lower, np.maximum(w, 0), np.where(x >= upper, np.maximum(-w, 0), np.abs(w)))
    assert np.all(np.where(lower == upper, 0, breach) <= 2e-10 * scale)
    assert r.violation <= 1e-10


def by_clarabel(A, b, options):
    """The same as a quadratic program; x, or None where it says that there is none."""
    clarabel = pytest.importorskip("clarabel")
    from scipy import sparse

    M, f = stacked(A, b, options)
    (lower, upper), (C, d), n = options["bounds"], options["equality"], A.shape[1]
    unit = np.abs(M).max()
    M, f = M / unit, f / unit
    rows, right = [np.eye(n), -np.eye(n)], [upper, -lower]
    if "sum_bounds" in options:
        rows += [np.ones((1, n)), -np.ones((1, n))]
        right += [np.array([options["sum_bounds"][1]]), np.array([-options["sum_bounds"][0]])]
    rows, right = np.vstack(rows), np.concatenate(right)
    rows, right = rows[np.isfinite(right)], right[np.isfinite(right)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    cones = [clarabel.ZeroConeT(len(C)), clarabel.NonnegativeConeT(len(right))]
    constraints, ends = sparse.csc_matrix(np.vstack([C, rows])), np.concatenate([d, right])
    P = sparse.csc_matrix(np.triu(2 * M.T @ M))
    found = clarabel.DefaultSolver(P, -2 * M.T @ f, constraints, ends, cones, settings).solve()
    if "PrimalInfeasible" in str(found.status):
        return None
    return np.array(found.x) if str(found.status) == "Solved" else "not known"


@pytest.mark.parametrize("block", [pytest.param(one, marks=[pytest.mark.slow] * (one > 2)) for one in range(8)])
def test_equalities_that_can_be_met(block):
    for seed in range(50 * block, 50 * block + 50):
        A, b, options = drawn(seed)
        r = stepwell.lsq_linear(A, b, **options)
        check(A, b, options, r)
        x = by_clarabel(A, b, options)
        if x is not None and not isinstance(x, str):
            M, f = stacked(A, b, options)
            # Its x may be outside by the tolerance that it was given, which makes its value less.
            assert np.linalg.norm(M @ r.x - f) <= np.linalg.norm(M @ x - f) + 1e-6 * np.linalg.norm(f), seed


@pytest.mark.parametrize("block", [pytest.param(one, marks=[pytest.mark.slow] * (one > 1)) for one in range(4)])
def test_the_active_set_method_alone(block, monkeypatch):
    """What one round leaves unfinished is finished from a point that has the equalities and nothing else."""
    monkeypatch.setattr(equalities, "MAX_ROUNDS", 1)
    monkeypatch.setattr(equality_ends, "_corrected", lambda *arguments: None)
    for seed in range(1000 + 50 * block, 1000 + 50 * block + 50):
        A, b, options = drawn(seed)
        check(A, b, options, stepwell.lsq_linear(A, b, **options))


@pytest.mark.parametrize("seed", range(60))
def test_infeasible_has_a_proof(seed):
    """y with yᵀ(d − Cx) > 0 for all x within the bounds exists where a linear program says so."""
    from scipy.optimize import linprog

    A, b, options = drawn(seed)
    (lower, upper), (C, d) = options["bounds"], options["equality"]
    rng = np.random.default_rng(seed)
    options["equality"] = C, d + 0.5 * rng.normal(size=d.size) * np.abs(C).sum(axis=1)
    rows, ends = [], []
    if "sum_bounds" in options:
        rows, ends = [np.ones(lower.size), -np.ones(lower.size)], np.array(options["sum_bounds"])[::-1] * [1, -1]
    program = linprog(
        np.zeros(lower.size),
        rows or None,
        ends if rows else None,
        *options["equality"],
        np.column_stack([lower, upper]),
    )
    r = stepwell.lsq_linear(A, b, **options)
    if program.status == 2:
        assert r.status is NNLSStatus.INFEASIBLE
        assert np.isnan(r.x).all()
        assert np.isnan(r.residual)
        assert r.equality_error > 0 or np.isnan(r.equality_error)
    else:
        assert program.status == 0
        check(A, b, options, r)


def test_what_a_batch_says_does_not_depend_on_its_company():
    """Systems that can be met and one that cannot, with bounds, weights and matrices of their own, in an image."""
    rng = np.random.default_rng(3)
    A, b = rng.normal(size=(6, 12, 7)), rng.normal(size=(6, 12))
    C, x = rng.normal(size=(2, 7)), rng.random((6, 7))
    lower, upper = np.zeros((6, 7)), np.where(rng.random((6, 7)) < 0.5, 1.0, INF)
    d = x @ C.T
    upper[4], d[4] = 1.0, 100.0
    weights = 10.0 ** rng.uniform(-1, 2, size=(6, 12))
    alone = [
        stepwell.lsq_linear(A[s], b[s], (lower[s], upper[s]), equality=(C, d[s]), weights=weights[s], lam=0.1)
        for s in range(6)
    ]
    box = lower.reshape(2, 3, 7), upper.reshape(2, 3, 7)
    image = stepwell.lsq_linear(
        A.reshape(2, 3, 12, 7), b.reshape(2, 3, 12), box, equality=(C, d.reshape(2, 3, 2)), lam=0.1,
        weights=weights.reshape(2, 3, 12),
    )  # fmt: skip
    named = stepwell.lsq_linear(
        A, b, (lower, upper), equality=(C, d), weights=weights, lam=0.1, which=np.arange(6), mask=np.ones(7, bool)
    )
    assert [one.status for one in alone] == [0, 0, 0, 0, NNLSStatus.INFEASIBLE, 0]
    assert image.status.shape == image.violation.shape == image.solves.shape == (2, 3)
    for r in (image, named):
        assert r.status.dtype == np.int32
        assert r.state.dtype == np.int8
        assert r.status.reshape(-1).tolist() == [one.status for one in alone]
        np.testing.assert_allclose(r.x.reshape(6, 7), [one.x for one in alone], atol=1e-9)
        np.testing.assert_allclose(r.residual.reshape(-1), [one.residual for one in alone], rtol=1e-9)


def test_single_precision_meets_them_as_well_as_it_can():
    A, b, options = drawn(11)
    (lower, upper), (C, d) = options["bounds"], options["equality"]
    r = stepwell.lsq_linear(A.astype("f4"), b.astype("f4"), (lower, upper), equality=(C, d))
    assert r.x.dtype == np.float32
    assert r.status is NNLSStatus.CONVERGED
    assert np.all(np.abs(C @ r.x - d) <= 1e-6 * (np.abs(d) + np.abs(C) @ np.abs(r.x)))


def test_variance_of_what_the_active_set_method_found(monkeypatch):
    rng = np.random.default_rng(5)
    A, b, C = rng.normal(size=(15, 6)), rng.normal(size=15), rng.normal(size=(2, 6))
    given = dict(bounds=(0, INF), equality=(C, C @ rng.random(6)), uncertainty="variance", noise=0.1)
    plain = stepwell.lsq_linear(A, b, **given)
    monkeypatch.setattr(equalities, "MAX_ROUNDS", 1)
    other = stepwell.lsq_linear(A, b, **given)
    np.testing.assert_allclose(other.x, plain.x, atol=1e-10)
    np.testing.assert_allclose(other.variance, plain.variance, rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(np.diag(other.covariance()), other.variance, rtol=1e-6, atol=1e-12)


def test_a_limit_is_a_limit():
    A, b, options = drawn(3)
    r = stepwell.lsq_linear(A, b, **options, maxiter=1)
    assert r.status in (NNLSStatus.LIMIT, NNLSStatus.CONVERGED)
    if r.status is NNLSStatus.LIMIT:
        assert f"equalities are met to {r.equality_error:.1e}" in r.message


def test_a_vertex_where_more_constraints_meet_than_there_are_variables():
    """All of x is at bounds or held by equalities: there is nothing to minimise, and multipliers are not unique."""
    C = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 0.0], [0.0, 1.0, -1.0], [2.0, 0.0, 1.0]])
    for x in (np.zeros(3), np.full(3, 0.25)):
        r = stepwell.lsq_linear(np.eye(3), np.array([1.0, -2.0, 3.0]), (0, 1), equality=(C, C @ x))
        assert r.status is NNLSStatus.CONVERGED
        np.testing.assert_allclose(r.x, x, atol=1e-14)


def test_equalities_without_coefficients():
    C = np.array([[1.0, -1.0], [0.0, 0.0]])
    assert stepwell.lsq_linear(np.eye(2), np.ones(2), equality=(C, [0.0, 0.0])).status is NNLSStatus.CONVERGED
    assert stepwell.lsq_linear(np.eye(2), np.ones(2), equality=(C, [0.0, 1.0])).status is NNLSStatus.INFEASIBLE


def test_faces_end():
    """A limit of turns is an end as well."""
    rng = np.random.default_rng(0)
    M, E = rng.normal(size=(20, 10)), rng.normal(size=(2, 10))
    start = rng.random(10)
    project = lambda A, b, ends: stepwell.lsq_linear(A, b, ends).x  # noqa: E731
    found = solve_on_faces(M, M @ -np.ones(10), E, E @ start, np.zeros(10), np.full(10, INF), start, project, 2)
    assert found.turns == 2
    np.testing.assert_allclose(E @ found.x, E @ start, atol=1e-13)
    assert (found.x >= 0).all()


def test_a_column_comes_back_as_one():
    A, b, options = drawn(5)
    flat, column = stepwell.lsq_linear(A, b, **options), stepwell.lsq_linear(A, b[:, None], **options)
    for name in ("x", "dual", "state"):
        np.testing.assert_array_equal(getattr(column, name), getattr(flat, name)[:, None])
    assert column.status is flat.status
