"""Polynomials fitted by least squares: as good as their condition lets them be, whatever solves them.

The oracle solves the normal equations in rational numbers. What rounding of A and b alone may change x by is Wedin's
bound (Björck 1996, eq. 1.4.28): with κ = σ₁/σₙ of the scaled columns, ε κ (2 + κ ‖r‖/(‖A‖‖x‖)), times a factor of the
size.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import stepwell


def exact_solution(A, b):
    """Solve AᵀA x = Aᵀb without rounding, by elimination."""
    rows = [[Fraction(float(value)) for value in row] for row in A]
    right = [Fraction(float(value)) for value in b]
    n = len(rows[0])
    columns = list(zip(*rows))
    table = [
        [sum(p * q for p, q in zip(columns[i], columns[j])) for j in range(n)]
        + [sum(p * q for p, q in zip(columns[i], right))]
        for i in range(n)
    ]
    for k in range(n):
        for i in range(k + 1, n):
            factor = table[i][k] / table[k][k]
            table[i] = [p - factor * q for p, q in zip(table[i], table[k])]
    x = [Fraction(0)] * n
    for i in reversed(range(n)):
        x[i] = (table[i][n] - sum(table[i][j] * x[j] for j in range(i + 1, n))) / table[i][i]
    return np.array([float(value) for value in x])


def rounding_bound(A, b, x):
    norms = np.linalg.norm(A, axis=0)
    singular = np.linalg.svd(A / norms, compute_uv=False)
    condition = singular[0] / singular[-1]
    size = singular[0] * np.linalg.norm(norms * x)
    return np.finfo(float).eps * condition * (2 + condition * np.linalg.norm(b - A @ x) / size), norms


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("method", ["auto", "qr", "gram"])
def test_polynomials(method, shared):
    random = np.random.default_rng(2)
    for n in (4, 6, 8, 9):
        A = np.vander(np.sort(random.random(n + 5)), n)
        b = random.normal(size=(12, n + 5)) if shared else random.normal(size=n + 5)
        found = stepwell.lsq_linear(A, b, method=method)
        assert np.all(found.success)
        for own, right in zip(np.atleast_2d(found.x), np.atleast_2d(b)):
            x = exact_solution(A, right)
            bound, norms = rounding_bound(A, right, x)
            assert np.linalg.norm(norms * (own - x)) <= 20 * n * bound * np.linalg.norm(norms * x)


def truncated_fit(A, b, least):
    """|Ax - b| of the best x along the singular vectors of scaled columns whose singular value is at least this."""
    left, values, _ = np.linalg.svd(A / np.linalg.norm(A, axis=0), full_matrices=False)
    left = left[:, values >= least * values[0]]
    return np.linalg.norm(b - left @ (left.T @ b))


def smooth_matrices(m, n):
    t, place = np.linspace(0, 1, m)[:, None], np.linspace(0, 1, n)
    return {
        "powers": t ** np.arange(n),
        "bells": np.exp(-(((t - place) / 0.2) ** 2)),
        "decays": np.exp(-t * np.logspace(-1, 2, n)),
    }


@pytest.mark.parametrize("kind", ["double", "qr", "single", "normal equations"])
@pytest.mark.parametrize("size", [(131, 120), (60, 50), (40, 32), (24, 14)], ids=str)
@pytest.mark.parametrize("name", smooth_matrices(2, 2))
def test_free_columns_of_less_rank_than_there_are(name, size, kind):
    """As good as the singular values that the arithmetic can see.

    Columns enter while a part tau of them is outside the others. So the image of a truncated solution, whose x is at
    most |b| / s, is missed by sqrt(n) tau |b| / s: a hundredth of |b| with s a hundred sqrt(n) times tau.
    """
    m, n = size
    A, b = smooth_matrices(m, n)[name], np.random.default_rng(n).normal(size=(3, m))
    if kind == "single":
        found = stepwell.lsq_linear(A.astype(np.float32), b.astype(np.float32))
    elif kind == "normal equations":
        found = stepwell.lsq_gram(A.T @ A, b @ A)
    else:
        found = stepwell.lsq_linear(A, b, method="qr" if kind == "qr" else "auto")
    part = {"single": 2e-6, "normal equations": np.sqrt(4 * n * np.finfo(float).eps)}.get(kind, 2.2e-14)
    for x, right in zip(np.asarray(found.x, dtype=float), b):
        assert np.linalg.norm(right - A @ x) <= (
            truncated_fit(A, right, 100 * np.sqrt(n) * part) + 0.02 * np.linalg.norm(right)
        )


def test_bounds_beside_free_columns_of_less_rank():
    """No worse than the best with the free columns alone, along singular values that the arithmetic can see."""
    for m, n in ((131, 120), (60, 50), (40, 32)):
        for A in smooth_matrices(m, n).values():
            free = n // 2
            b = np.random.default_rng(n).normal(size=m)
            found = stepwell.lsq_linear(A, b, bounds=(np.where(np.arange(n) < free, -np.inf, 0), np.inf))
            limit = truncated_fit(A[:, :free], b, 100 * np.sqrt(n) * 2.2e-14) + 0.02 * np.linalg.norm(b)
            assert found.residual <= limit
            assert found.status is not stepwell.NNLSStatus.LIMIT
            assert np.all(found.x[free:] >= 0)
