"""Answers in fractions, which round nothing: an oracle for ill-conditioned systems."""

from __future__ import annotations

from fractions import Fraction

import numpy as np


def exact_solution(A, g):
    """(AᵀA)⁻¹g in fractions, which round nothing."""
    rows = [[Fraction(float(v)) for v in row] for row in A]
    count = A.shape[1]
    table = [[sum(r[i] * r[j] for r in rows) for j in range(count)] + [Fraction(float(g[i]))] for i in range(count)]
    for k in range(count):
        for i in range(count):
            if i != k:
                factor = table[i][k] / table[k][k]
                table[i] = [a - factor * c for a, c in zip(table[i], table[k])]
    return np.array([float(table[i][count] / table[i][i]) for i in range(count)])
