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
