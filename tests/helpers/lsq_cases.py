"""Random constrained least-squares problems, and the optimality conditions that answers are held against."""

from __future__ import annotations

import numpy as np

#: Kinds of problems that `bounded_problem` makes.
KINDS = ("plain", "tall", "wide", "whole", "equal", "low rank", "scaled", "zero", "on bounds")


def bounded_problem(kind, rng):
    """A, b, lower, upper: with free, half-bounded, boxed and fixed variables."""
    m, n = int(rng.integers(1, 25)), int(rng.integers(1, 16))
    m = n + int(rng.integers(0, 20)) if kind == "tall" else m
    n = m + int(rng.integers(0, 10)) if kind == "wide" else n
    A, b = rng.standard_normal((m, n)), rng.standard_normal(m)
    lower = rng.normal(-0.3, 0.5, n)
    upper = lower + rng.exponential(0.6, n)
    if kind == "whole":
        A, b = np.round(9 * A), np.round(9 * b) + 1
        lower, upper = np.round(3 * lower), np.round(3 * lower) + rng.integers(1, 4, n)
    if kind == "equal":
        A[:, rng.integers(n)] = A[:, rng.integers(n)]
        A[:, rng.integers(n)] = 0
    if kind == "low rank":
        rank = max(1, min(m, n) // 2)
        A = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    if kind == "scaled":
        A *= 10.0 ** rng.integers(-6, 7, n)
        norms = np.linalg.norm(A, axis=0)
        lower, upper = lower / norms, upper / norms
    form = rng.integers(0, 6, n)
    lower = np.where((form == 0) | (form == 1), -np.inf, lower)
    upper = np.where((form == 0) | (form == 2), np.inf, upper)
    upper = np.where((form == 3) & (rng.random(n) < 0.2), lower, upper)
    if kind == "zero":
        lower, upper = np.zeros(n), np.where(form < 3, np.inf, 1.0)
    if kind == "on bounds":
        lower, upper = np.zeros(n), np.ones(n)
        b = A @ rng.integers(0, 2, n).astype(float)
    return A, b, lower, upper


def breach(A, b, x, lower, upper, *, lam=0.0, L=None, weights=None, mask=None, sums=None, multiplier=0.0):
    """The largest breach of the optimality conditions, scaled as results scale it; and how far x is outside."""
    n = len(x)
    if weights is not None:
        A, b = A * weights[:, None], np.where(weights > 0, b, 0) * weights
    K = (np.eye(n) if L is None else L) * lam
    g = A.T @ (b - A @ x) - K.T @ (K @ x)
    norms = np.sqrt((A**2).sum(axis=0) + (K**2).sum(axis=0))
    lower, upper = lower.copy(), upper.copy()
    if mask is not None:
        lower[~mask] = upper[~mask] = 0
    size = np.linalg.norm(b) + norms @ np.abs(x)
    outside = max(0.0, (lower - x).max(initial=0.0), (x - upper).max(initial=0.0))
    turned = 0.0
    if sums is not None:
        total, room = x.sum(), 1e-10 * (1 + np.abs(x).sum())
        outside = max(outside, (sums[0] - total) / (1 + abs(total)), (total - sums[1]) / (1 + abs(total)))
        # The multiplier pushes up at the lower end, down at the upper, and not at all between.
        turned = max(multiplier if total > sums[0] + room else 0.0, -multiplier if total < sums[1] - room else 0.0)
        g = g + multiplier
        norms = np.hypot(norms, np.abs(A).max(initial=0.0))
        size += abs(multiplier)
    w = g / np.where(norms > 0, norms, 1)
    between = np.where(x <= lower, np.maximum(w, 0), np.where(x >= upper, np.maximum(-w, 0), np.abs(w)))
    worst = np.where(lower == upper, 0, between).max(initial=0.0)
    return max(worst, turned / max(norms.max(initial=0.0), 1e-300)) / max(size, 1e-300), outside


def decays(systems, rng, noise=5e-3, shape=(56, 40)):
    """T2 decays of two components, and their basis."""
    m, n = shape
    A = np.exp(-7e-3 * np.arange(1, m + 1)[:, None] / np.geomspace(0.01, 2, n))
    c = rng.integers(n // 8, n - n // 8, (systems, 2))
    return A, 0.7 * A.T[c[:, 0]] + 0.3 * A.T[c[:, 1]] + noise * rng.standard_normal((systems, m))
