"""Simulated curves with their truth: decays, IVIM voxels, spots."""

from __future__ import annotations

import numpy as np


def decay(t, a1, a2, k1, k2):
    return a1 * np.exp(-k1 * t) + a2 * np.exp(-k2 * t)


class Decays:
    """a1 exp(-k1 t) + a2 exp(-k2 t), 32 points, noise of 0.01."""

    model = staticmethod(decay)

    def __init__(self, count, seed=0, noise=0.01):
        rng = np.random.default_rng(seed)
        self.t = np.linspace(0, 3.1, 32)
        slow = np.exp(rng.uniform(np.log(0.3), np.log(1.5), count))
        self.truth = np.column_stack([rng.uniform(0.3, 1, (count, 2)), slow, slow * rng.uniform(3, 10, count)])
        self.y = decay(self.t, *self.truth.T[:, :, None]) + noise * rng.standard_normal((count, 32))
        self.p0 = np.array([0.5, 0.5, 0.5, 5.0])
        self.bounds = (np.array([0, 0, 0.01, 0.01]), np.array([5, 5, 50, 50.0]))


def ivim(b, s0, f, fast, slow):
    return s0 * (f * np.exp(-b * fast) + (1 - f) * np.exp(-b * slow))


class Voxels:
    """IVIM at 16 b-values, SNR 30: some voxels end at a bound."""

    model = staticmethod(ivim)

    def __init__(self, count, seed=0, noise=1 / 30):
        rng = np.random.default_rng(seed)
        self.t = np.array([0, 10, 20, 30, 50, 75, 100, 150, 200, 300, 400, 500, 600, 700, 800, 1000]) / 1000
        low, high = [0.9, 0.05, 5, 0.5], [1.1, 0.3, 50, 2]
        self.truth = rng.uniform(low, high, (count, 4))
        self.y = ivim(self.t, *self.truth.T[:, :, None]) + noise * rng.standard_normal((count, 16))
        self.p0 = np.array([1.0, 0.1, 20.0, 1.0])
        self.bounds = (np.array([0.5, 0, 3, 0]), np.array([1.5, 0.7, 300, 5.0]))


def spot(xy, a, cx, cy, s, b):
    x, y = xy
    return a * np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (2 * s**2)) + b


class Spots:
    """5 x 5 pixels, 5 parameters, SNR 10."""

    model = staticmethod(spot)

    def __init__(self, count, seed=0):
        rng = np.random.default_rng(seed)
        y, x = np.mgrid[:5, :5]
        self.t = np.stack([x.ravel(), y.ravel()]).astype(float)
        centre = 2 + rng.uniform(-0.3, 0.3, (count, 2))
        height, width = rng.uniform(450, 550, count), rng.uniform(0.9, 1.1, count)
        self.truth = np.column_stack([height, centre, width, np.full(count, 10.0)])
        self.y = spot(self.t, *self.truth.T[:, :, None]) + 50 * rng.standard_normal((count, 25))
        self.p0 = np.array([500, 2, 2, 1.1, 10.0])
        self.bounds = (np.array([0, -1, -1, 0.3, -np.inf]), np.array([np.inf, 5, 5, 4, np.inf]))
