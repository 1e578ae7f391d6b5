"""Matrices and right-hand sides of the kinds that solvers meet, and of those that they do not expect."""

from __future__ import annotations

import numpy as np

from fuzzing.common import pick

#: Around the sizes at which the code takes another way.
SIZES = (
    1,
    1,
    2,
    2,
    3,
    3,
    4,
    5,
    6,
    7,
    8,
    8,
    9,
    10,
    12,
    14,
    15,
    16,
    17,
    20,
    24,
    31,
    32,
    33,
    40,
    48,
    63,
    64,
    65,
    128,
    129,
)
MATRICES = (
    "normal",
    "positive",
    "whole",
    "low rank",
    "decays",
    "hilbert",
    "sparse",
    "orthogonal",
    "correlated",
    "unit",
)
FLAWS = (
    "zero column",
    "equal columns",
    "near columns",
    "zero row",
    "equal rows",
    "column scales",
    "row scales",
    "opposite columns",
)


def shape(rng: np.random.Generator) -> tuple[int, int]:
    n = int(pick(rng, *SIZES))
    kind = rng.integers(6)
    m = (n, max(1, n // 2), 1, n + int(rng.integers(1, 6)), 2 * n + 3, int(rng.integers(1, 40)))[kind]
    return int(m), n


def matrix(rng: np.random.Generator, m: int, n: int) -> tuple[np.ndarray, str]:
    """One matrix with entries about 1, and its kind."""
    kind = pick(rng, "normal", "normal", "positive", *MATRICES)
    if kind == "positive":
        A = rng.random((m, n))
    elif kind == "whole":
        A = rng.integers(-3, 4, (m, n)).astype(float)
    elif kind == "low rank":
        rank = int(rng.integers(1, max(2, min(m, n))))
        A = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    elif kind == "decays":
        A = np.exp(-np.arange(1, m + 1)[:, None] / np.geomspace(0.3, 3 * m, n))
    elif kind == "hilbert":
        A = 1 / (np.arange(m)[:, None] + np.arange(n) + 1.0)
    elif kind == "sparse":
        A = rng.standard_normal((m, n)) * (rng.random((m, n)) < 0.3)
    elif kind == "orthogonal":
        A = np.linalg.qr(rng.standard_normal((max(m, n), max(m, n))))[0][:m, :n]
    elif kind == "correlated":
        A = 1 + pick(rng, 1e-1, 1e-3, 1e-6) * rng.standard_normal((m, n))
    elif kind == "unit":
        A = np.eye(m, n)
    else:
        A = rng.standard_normal((m, n))
    return np.ascontiguousarray(A), kind


def spoil(rng: np.random.Generator, A: np.ndarray, how: str) -> None:
    """Give a stack of matrices (…, m, n) a flaw, in place."""
    m, n = A.shape[-2:]
    i, j = rng.integers(m, size=2)
    p, q = rng.integers(n, size=2)
    if how == "zero column":
        A[..., rng.random(n) < 0.2] = 0
        A[..., p] = 0
    elif how == "equal columns":
        A[..., p] = A[..., q]
    elif how == "opposite columns":
        A[..., p] = -A[..., q]
    elif how == "near columns":
        A[..., p] = A[..., q] * (1 + pick(rng, 1e-15, 1e-12, 1e-8, 1e-4) * rng.standard_normal(m))
    elif how == "zero row":
        A[..., i, :] = 0
    elif how == "equal rows":
        A[..., i, :] = A[..., j, :]
    elif how == "column scales":
        A *= 10.0 ** rng.uniform(-8, 8, n)
    elif how == "row scales":
        A *= 10.0 ** rng.uniform(-4, 4, (m, 1))


def right_sides(rng: np.random.Generator, A: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, str, float]:
    """b of every system for matrices (S, m, n) and an x of each, their kind, and the noise in it."""
    systems, m, _ = A.shape
    clean = np.matmul(A, x[..., None])[..., 0]
    size = float(np.abs(clean).max()) or float(np.abs(A).max()) or 1.0
    kind = pick(rng, "noisy", "noisy", "noisy", "fitted", "random", "zero", "some zero", "nearly zero", "against")
    noise = 0.0
    if kind in ("noisy", "some zero"):
        noise = float(pick(rng, 1e-6, 1e-3, 0.1, 1.0)) * size
        b = clean + noise * rng.standard_normal((systems, m))
        if kind == "some zero":
            b[rng.random(systems) < 0.4] = 0
            b[rng.integers(systems)] = 0
    elif kind == "random":
        b = size * rng.standard_normal((systems, m))
        noise = size
    elif kind == "zero":
        b = np.zeros((systems, m))
    elif kind == "nearly zero":
        b = clean * 10.0 ** rng.uniform(-30, -3)
    elif kind == "against":
        b = -np.abs(clean) - size * rng.random((systems, m))
    else:
        b = clean
    return b, kind, noise
