"""Normal equations, uncertainty and general equalities."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell
from stepwell import NNLSStatus

RNG = np.random.default_rng(21)
A, B = RNG.standard_normal((300, 40, 8)), RNG.standard_normal((300, 40))
G, C = np.einsum("kij,kil->kjl", A, A), np.einsum("kij,ki->kj", A, B)


@pytest.mark.parametrize(
    "options",
    [
        dict(bounds=(-0.1, 0.2)),
        dict(bounds=(0, np.inf), sum_bounds=(1, 1)),
        dict(bounds=(0, 0.5), sum_bounds=(-np.inf, 0.4)),
        dict(bounds=(0, np.inf), mask=RNG.random((300, 8)) < 0.6),
        dict(bounds=(-0.1, 0.2), lam=2.0, L=np.eye(8) - np.eye(8, k=1)),
        dict(bounds=(0, np.inf), lam=0.7, sum_bounds=(1, 1)),
        dict(bounds=(0, 0.5), lam=3.0, sum_bounds=(-np.inf, 0.4), mask=RNG.random((300, 8)) < 0.6),
        dict(),
    ],
    ids=["bounds", "sum", "range", "mask", "penalty", "penalty and sum", "penalty and range", "free"],
)
def test_normal_equations_are_those_of_a_and_b(options):
    r = stepwell.lsq_gram(G, C, **options, bb=(B**2).sum(axis=1), rows=40, uncertainty="variance")
    a = stepwell.lsq_linear(A, B, **options, uncertainty="variance")
    assert (r.status == 0).all()
    np.testing.assert_allclose(r.x, a.x, atol=1e-12)
    np.testing.assert_allclose(r.residual, a.residual, rtol=1e-12)
    np.testing.assert_allclose(r.dual, a.dual, atol=1e-10)
    np.testing.assert_array_equal(r.state, a.state)
    np.testing.assert_allclose(r.sigma, a.sigma, rtol=1e-12)
    np.testing.assert_allclose(r.variance, a.variance, rtol=1e-9, atol=1e-15)
    shared = stepwell.lsq_gram(G[0], C, **{k: v for k, v in options.items() if k != "mask"})
    one = stepwell.lsq_gram(G[0], C[5], **{k: v for k, v in options.items() if k != "mask"})
    np.testing.assert_allclose(shared.x[5], one.x, atol=1e-13)
    assert np.isnan(shared.residual).all()


def test_dependent_columns_of_normal_equations():
    half = np.concatenate([A[:, :, :4], A[:, :, :4]], axis=2)
    r = stepwell.lsq_gram(np.einsum("kij,kil->kjl", half, half), np.einsum("kij,ki->kj", half, B), (0, np.inf))
    plain = stepwell.nnls(A[:, :, :4], B)
    np.testing.assert_allclose(r.x[:, :4] + r.x[:, 4:], plain.x, atol=1e-10)


@pytest.mark.parametrize("size", [1e-90, 1.0, 1e90])
def test_a_column_leaves_beside_one_of_another_size(size):
    """Columns of lengths 1/size and size; the first has to leave: then x is c/G of the other alone."""
    G = np.array([[1 / size**2, 0.6], [0.6, size**2]])
    c = np.array([0.5 / size, size])
    result = stepwell.lsq_gram(G, c, (0, np.inf), warm_start=np.ones((1, 2), dtype=bool))
    assert result.success
    np.testing.assert_allclose(np.ravel(result.x), [0, 1 / size], rtol=1e-12)


def test_errors_of_normal_equations():
    with pytest.raises(ValueError, match=r"G has shape \(3, 2\); allowed: \(n, n\) or"):
        stepwell.lsq_gram(np.ones((3, 2)), np.ones(2))
    with pytest.raises(ValueError, match=r"c has shape \(2,\); allowed: \(3,\) or \(systems, 3\)"):
        stepwell.lsq_gram(np.eye(3), np.ones(2))
    with pytest.raises(ValueError, match="c is nan at index 0"):
        stepwell.lsq_gram(np.eye(2), np.array([np.nan, 1]))


@pytest.mark.parametrize(
    "options", [{}, dict(lam=1.0), dict(sum_bounds=(3.5, 3.5)), dict(lam=1.0, sum_bounds=(3.5, 3.5))]
)
def test_variance_is_the_scatter_of_many_draws(options):
    matrix = RNG.standard_normal((30, 4))
    b = matrix @ [1, 2, 0.5, 0] + 0.1 * RNG.standard_normal((4000, 30))
    r = stepwell.lsq_linear(matrix, b, uncertainty="variance", noise=0.1, **options)
    # Four thousand draws know a standard deviation to 1.1 %: four of those.
    np.testing.assert_allclose(r.x.std(axis=0), np.sqrt(r.variance[0]), rtol=0.045)
    np.testing.assert_allclose(np.cov(r.x.T), r.covariance(7), atol=0.07 * r.variance[0].max())
    np.testing.assert_allclose(np.diag(r.covariance(7)), r.variance[7], rtol=1e-9, atol=1e-18)
    found = stepwell.lsq_linear(matrix, b, uncertainty="variance", **options)
    if "lam" not in options:
        assert found.sigma.mean() == pytest.approx(0.1, rel=0.02)


def test_variance_at_bounds_is_zero():
    r = stepwell.lsq_linear(A, B, (-0.05, 0.05), uncertainty="variance")
    assert (r.variance[r.state != 0] == 0).all()
    assert (r.variance[r.state == 0] > 0).all()
    with pytest.raises(ValueError, match="covariance is not known"):
        stepwell.lsq_linear(A, B).covariance()


def test_general_equalities():
    for k in range(30):
        n, q = int(RNG.integers(5, 12)), k % 3 + 1
        matrix, b, rows = RNG.standard_normal((n + 10, n)), RNG.standard_normal(n + 10), RNG.standard_normal((q, n))
        d = rows @ RNG.uniform(-0.5, 0.5, n)
        r = stepwell.lsq_linear(matrix, b, (-0.6, 0.6), equality=(rows, d))
        assert r.status == NNLSStatus.CONVERGED
        assert r.equality_error < 1e-11
        assert r.residual == pytest.approx(np.linalg.norm(matrix @ r.x - b), rel=1e-8)
        g = matrix.T @ (b - matrix @ r.x) + rows.T @ r.multipliers
        at = np.where(r.x <= -0.6, np.maximum(g, 0), np.where(r.x >= 0.6, np.maximum(-g, 0), np.abs(g)))
        assert at.max() < 1e-8 * np.linalg.norm(matrix) * np.linalg.norm(b)


def test_one_positive_equality_is_exact_and_others_can_be_missed():
    c = RNG.uniform(0.2, 3, 8)
    r = stepwell.lsq_linear(A, B, (0, np.inf), equality=(c, 1.0))
    np.testing.assert_allclose(r.x @ c, 1, atol=1e-14)
    assert r.violation.max() < 1e-13
    no = stepwell.lsq_linear(A[0], B[0], (0, 1), equality=(np.r_[1.0, -1, np.zeros(6)], 5.0))
    assert no.status == NNLSStatus.INFEASIBLE


def test_a_matrix_that_is_not_symmetric_is_refused():
    G, c = np.array([[2.0, 0.5, 0.0], [0.5, 2.0, 0.0], [0.0, 0.0, 1e-6]]), np.ones(3)
    for wrong in (G + np.triu(np.full((3, 3), 1e-3), 1), np.stack([G, np.triu(G)])):
        with pytest.raises(ValueError, match=r"G is not symmetric: .* by 0\.\d+ at index .*; allowed: a symmetric"):
            stepwell.lsq_gram(wrong, np.ones(wrong.shape[:-1]))
    # Beside large columns small ones count as much.
    small = G.copy()
    small[0, 2] = 1e-5
    with pytest.raises(ValueError, match=r"by 1e-05 at index \(0, 2\)"):
        stepwell.lsq_gram(small, c)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rounding_does_not_make_a_matrix_unsymmetric(dtype):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(1000, 6)).astype(dtype)
    # Sums of either triangle in another order: each is off by m ulp at most.
    G = np.array([[np.sum(A[:, i] * A[:, j]) if i < j else np.sum((A[:, i] * A[:, j])[::-1]) for j in range(6)]
                  for i in range(6)], dtype)  # fmt: skip
    assert (G != G.T).any()
    assert stepwell.lsq_gram(G, A.T @ np.ones(1000, dtype)).status == NNLSStatus.CONVERGED


def test_a_matrix_that_is_not_finite_is_a_status_as_before():
    G = np.stack([np.eye(2), np.array([[1.0, np.nan], [0.0, 1.0]]), np.array([[1.0, np.inf], [0.0, 1.0]])])
    assert stepwell.lsq_gram(G, np.ones((3, 2))).status.tolist() == [0, NNLSStatus.NON_FINITE, NNLSStatus.NON_FINITE]


def test_one_system_has_one_lam():
    G, c = np.eye(2), np.ones(2)
    for lam in (0.5, np.array([0.5]), np.array(0.5)):
        r = stepwell.lsq_gram(G, c, lam=lam)
        assert (type(r.lam), r.lam) == (float, 0.5)


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_a_diagonal_below_zero_is_refused(library):
    make = pytest.importorskip("torch").asarray if library == "torch" else np.asarray
    if library == "jax":
        make = pytest.importorskip("jax").numpy.asarray
    G = A[0].T @ A[0]
    with pytest.raises(ValueError, match=r"G is -[\d.]+ at index \(0, 0\); allowed: G_ii >= 0"):
        stepwell.lsq_gram(make(-G), make(A[0].T @ B[0]))
    with pytest.raises(ValueError, match=r"G is -2 at index \(1, 2, 2\)"):
        stepwell.lsq_gram(make(np.stack([np.eye(3), np.diag([1.0, 0.0, -2.0])])), make(np.ones((2, 3))))
    if library == "jax":
        solve = pytest.importorskip("jax").jit(lambda G, c: stepwell.lsq_gram(G, c).x)
        with pytest.raises(Exception, match=r"G is -[\d.]+ at index \(0, 0\); allowed: G_ii >= 0"):
            solve(make(-G), make(A[0].T @ B[0])).block_until_ready()


def test_a_column_of_zeros_has_products_of_zero():
    G, c = np.diag([1.0, 0.0, 1.0]), np.array([1.0, 3.5, 1.0])
    with pytest.raises(ValueError, match=r"c is 3\.5 at index 1, and G_ii there 0; allowed: 0, as column 1 of A is"):
        stepwell.lsq_gram(G, c, (0, 1))
    with pytest.raises(ValueError, match=r"c is 3\.5 at index \(1, 1\), and G_ii there 0"):
        stepwell.lsq_gram(G, np.stack([c * [1, 0, 1], c]), (0, 1))
    wrong = G.copy()
    wrong[0, 1] = wrong[1, 0] = 0.5
    with pytest.raises(ValueError, match=r"G is 0\.5 at index \(1, 0\), and G_ii there 0"):
        stepwell.lsq_gram(wrong, c * [1, 0, 1])
    with pytest.raises(ValueError, match=r"G is 0\.5 at index \(1, 1, 0\), and G_ii there 0"):
        stepwell.lsq_gram(np.stack([G, wrong]), np.stack([c * [1, 0, 1]] * 2))
    r = stepwell.lsq_gram(G, c * [1, 0, 1], (0.25, 1))
    assert r.status == NNLSStatus.CONVERGED
    assert r.x.tolist() == [1.0, 0.25, 1.0]
    # With λ the column is one of λL: c may hold what is to be near, λ² L.T @ L @ x0.
    np.testing.assert_allclose(stepwell.lsq_gram(G, c, lam=2.0).x, [0.2, 0.875, 0.2], rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("below", [1.0, 3e3])
def test_a_column_whose_squares_underflow_is_judged(dtype, below):
    """What of a column is left in c and beside the diagonal says where x must go; its place there is lost."""
    least = np.sqrt(float(np.finfo(dtype).smallest_subnormal))
    matrix = A[0].astype(dtype)
    matrix[:, 2] *= least / below
    b = B[0].astype(dtype)
    with np.errstate(under="ignore"):
        G, c = matrix.T @ matrix, matrix.T @ b
    assert G[2, 2] < np.finfo(dtype).tiny
    assert c[2] != 0
    r = stepwell.lsq_gram(G, c, (-0.6, 0.6))
    assert r.status == NNLSStatus.CONVERGED
    # Alone the column could not change b, so that it goes where its product with the rest of b points to.
    others = np.delete(np.arange(c.size), 2)
    rest = stepwell.lsq_linear(matrix[:, others].astype(float), b.astype(float), (-0.6, 0.6))
    np.testing.assert_allclose(r.x[others], rest.x, atol=1e-4 if dtype == "float32" else 1e-12)
    misses = b - matrix[:, others].astype(float) @ rest.x
    assert r.x[2] == pytest.approx(0.6 * np.sign(matrix[:, 2].astype(float) @ misses))
