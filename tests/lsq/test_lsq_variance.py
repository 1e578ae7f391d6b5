"""Variances and covariances of x, held against dense formulas: those of numbers of any size in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import stepwell

INF = np.inf


def exact_variances(A, lam=0.0):
    """The diagonal of MGM, G = AᵀA, M = (G + λ²I)⁻¹, by elimination in rational numbers."""
    rows = [[Fraction(float(entry)) for entry in row] for row in A]
    n = len(rows[0])
    G = [[sum(row[i] * row[j] for row in rows) for j in range(n)] for i in range(n)]
    square = Fraction(float(lam)) ** 2
    work = [
        [G[i][j] + square * (i == j) for j in range(n)] + [Fraction(int(i == j)) for j in range(n)] for i in range(n)
    ]
    for i in range(n):
        work[i] = [entry / work[i][i] for entry in work[i]]
        for k in range(n):
            if k != i:
                work[k] = [entry - work[k][i] * own for entry, own in zip(work[k], work[i])]
    M = [row[n:] for row in work]
    found = []
    for y in M:
        image = [sum(row[j] * y[j] for j in range(n)) for row in rows]
        found.append(float(sum(entry * entry for entry in image)))
    return np.array(found)


@pytest.mark.parametrize("sizes", [(1.0, 1e-9), (1e120, 1e-120), (1.0, 1e9, 1e-9, 1e-4)], ids=str)
@pytest.mark.parametrize("lam", [0.0, 1e-3])
def test_covariance_with_columns_of_other_sizes(sizes, lam):
    """Columns of lengths 1e18 apart: the inverse of one is no rounding of that of the other."""
    rng = np.random.default_rng(len(sizes))
    A, b = rng.normal(size=(9, len(sizes))) * sizes, rng.normal(size=9)
    if lam and max(sizes) > 1e100:
        lam = 1e-130
    r = stepwell.lsq_linear(A, b, lam=lam, uncertainty="variance", noise=1.0)
    true = exact_variances(A, lam)
    np.testing.assert_allclose(r.variance, true, rtol=1e-9)
    np.testing.assert_allclose(np.diag(r.covariance()), true, rtol=1e-9)


@pytest.mark.parametrize("power", [-270, 0, 270])
@pytest.mark.parametrize(
    "options", [dict(lam=0.5), dict(sum_bounds=(1.0, 1.0)), dict(equality=([[1.0, 2, 3], [1, -1, 1]], [1.0, 0.3]))]
)
def test_covariance_in_other_units(power, options):
    """A in units of 2**power: a variance is in units of 2**(-2 power), to the bit of the exponent."""
    rng = np.random.default_rng(3)
    A, b, unit = rng.normal(size=(7, 3)), rng.normal(size=7), 2.0**power
    plain = stepwell.lsq_linear(A, b, **options, uncertainty="variance", noise=0.1)
    scaled = {name: value * unit if name == "lam" else value for name, value in options.items()}
    # (x stays as it is where b is in the units of A.)
    r = stepwell.lsq_linear(A * unit, b * unit, **scaled, uncertainty="variance", noise=0.1 * unit)
    np.testing.assert_allclose(r.variance, plain.variance, rtol=1e-9)
    np.testing.assert_allclose(r.covariance(), plain.covariance(), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(np.diag(r.covariance()), r.variance, rtol=1e-6)


def test_covariance_along_a_sum_of_single_precision():
    """A sum of floats is held, though it is met to their rounding alone: no variance of the sum."""
    rng = np.random.default_rng(8)
    A, b = rng.normal(size=(12, 5)).astype("f4"), rng.normal(size=12).astype("f4")
    r = stepwell.lsq_linear(A, b, sum_bounds=(1, 1), uncertainty="variance", noise=1.0)
    assert r.x.dtype == np.float32
    assert abs(np.ones(5) @ r.covariance() @ np.ones(5)) < 1e-12
    np.testing.assert_allclose(np.diag(r.covariance()), r.variance, rtol=1e-5)


@pytest.mark.parametrize("n", [3, 30, 80, 150])
@pytest.mark.parametrize("shared", [True, False], ids=["one G", "each its own"])
def test_variance_of_penalized_normal_equations_is_the_scatter(n, shared):
    """B⁻¹GB⁻¹, as of A and b: not B⁻¹, which has the prior's part as well."""
    rng = np.random.default_rng(n)
    A, lam = rng.normal(size=(2, 2 * n, n)), np.array([1.0, 8.0])
    G = np.matmul(A.transpose(0, 2, 1), A)
    G = G[0] if shared else G
    r = stepwell.lsq_gram(G, rng.normal(size=(2, n)), lam=lam, uncertainty="variance", noise=[0.5, 2.0])
    for k in range(2):
        own = G if shared else G[k]
        B = np.linalg.inv(own + lam[k] ** 2 * np.eye(n))
        true = [0.5, 2.0][k] ** 2 * B @ own @ B
        np.testing.assert_allclose(r.variance[k], np.diag(true), rtol=1e-10)
        np.testing.assert_allclose(r.covariance(k), true, rtol=0, atol=1e-10 * true.max())


@pytest.mark.parametrize("systems", [1, 40])
@pytest.mark.parametrize("seed", range(6))
def test_variance_of_nearly_dependent_columns_of_other_sizes(seed, systems):
    """Products of columns have no digits of what is left of a variance where a column nearly repeats another: A has.

    Of K = (A; λI) with columns of length one, a change E of K changes the deviation |AMe| by no more than
    |AM||E||KMe| + |AMKᵀ||E||Me| <= 2|E|κ² to first order; rounding is an E of √(mn) ulp or so.
    """
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(7, 4))
    A[:, 3] = 3 * A[:, 0] + 10.0 ** -rng.integers(4, 14) * rng.normal(size=7)
    A *= 10.0 ** rng.integers(-8, 9, size=4)
    lam = np.linalg.norm(A) * 10.0 ** -float(rng.integers(3, 10))
    r = stepwell.lsq_linear(A, rng.normal(size=(systems, 7)), lam=lam, uncertainty="variance", noise=1.0)
    true = exact_variances(A, lam)
    lengths = np.sqrt((A**2).sum(axis=0) + lam**2)
    condition = np.linalg.cond(np.concatenate([A, lam * np.eye(4)]) / lengths)
    reach = 2 * np.sqrt(11 * 4) * 2.0**-53 * condition**2 / lengths + 1e-8 * np.sqrt(true)
    np.testing.assert_allclose((np.abs(np.sqrt(r.variance) - np.sqrt(true)) / reach).max(), 0, atol=1)
