"""Thousands of tiny integer, dependent and badly scaled systems: no wrong answer, no hang."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from nnls_cases import violation

import stepwell
from stepwell.lsq.solving import solve_by_update


def least_residual(A, b):
    """The smallest residual over all sets of positive unknowns, by brute force."""
    least = np.linalg.norm(b)
    for size in range(1, A.shape[1] + 1):
        for chosen in itertools.combinations(range(A.shape[1]), size):
            z = np.linalg.lstsq(A[:, chosen], b, rcond=None)[0]
            if z.min() >= -1e-9:
                least = min(least, np.linalg.norm(A[:, chosen] @ np.maximum(z, 0) - b))
    return least


def tiny(rng, kind):
    m, n = rng.integers(1, 9), rng.integers(1, 7)
    A = rng.integers(-3, 4, (m, n)).astype(float)
    if kind == "duplicates":
        A[:, rng.integers(n)] = A[:, rng.integers(n)]
    if kind == "nearly-rank-one":
        A = rng.normal(size=(m, 1)) @ rng.normal(size=(1, n)) + 1e-9 * rng.normal(size=(m, n))
    if kind == "scaled":
        A = rng.normal(size=(m, n)) * 10.0 ** rng.uniform(-150, 150)
    return A, rng.integers(-3, 4, m).astype(float)


@pytest.mark.parametrize("kind", ["integers", "duplicates", "nearly-rank-one", "scaled"])
@pytest.mark.parametrize(
    ("method", "count"),
    [("auto", 250), ("gram", 250), *(pytest.param(one, 1500, marks=pytest.mark.slow) for one in ("auto", "gram"))],
)
def test_tiny_systems(kind, method, count):
    rng = np.random.default_rng(["integers", "duplicates", "nearly-rank-one", "scaled"].index(kind))
    for _ in range(count):
        A, b = tiny(rng, kind)
        x = stepwell.nnls(A, b, method=method).x
        assert np.all(np.isfinite(x))
        assert x.min() >= 0
        scale = np.abs(A).max() or 1.0
        A, x = A / scale, x * scale
        # Of nearly dependent columns the unknowns are huge, and b - Ax is rounded on their scale.
        room = 1 + np.linalg.norm(A) * np.linalg.norm(x) / max(np.linalg.norm(b), 1e-300)
        assert violation(A, b, x) <= 1e-12 * room
        if kind != "nearly-rank-one" and method == "auto":
            assert np.linalg.norm(A @ x - b) <= least_residual(A, b) + 1e-9 * np.linalg.norm(b)


def test_middling_dependent_systems_with_every_update():
    rng = np.random.default_rng(20)
    for k in range(150):
        m, n = rng.integers(1, 30), rng.integers(1, 40)
        A = [
            rng.integers(-2, 3, (m, n)).astype(float),
            rng.normal(size=(m, 3)) @ rng.normal(size=(3, n)),
            np.exp(-np.arange(1, m + 1)[:, None] / np.logspace(-1, 2, n)[None]),
        ][k % 3]
        b = rng.normal(size=m)
        for update in ("cgs2", "mgs", "rotations", "csne"):
            x = solve_by_update(A, b, update).x
            room = 1 + (np.linalg.norm(A, axis=0) * x).sum() / np.linalg.norm(b)
            assert violation(A, b, x) <= 1e-12 * room
