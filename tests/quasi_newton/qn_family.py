"""A family of small problems, each of which a batch must solve as it is solved alone."""

from __future__ import annotations

import numpy as np


class Family:
    """Problems of one kind that need different numbers of iterations."""

    def __init__(self, count, n, seed=0):
        rng = np.random.default_rng(seed)
        self.centre = rng.normal(size=(count, n))
        self.scale = 10.0 ** rng.uniform(-2, 2, size=(count, n))

    def __call__(self, x, k=slice(None)):
        move = x - self.centre[k]
        f = 0.25 * (self.scale[k] * move**4).sum(-1) + 0.5 * (move**2).sum(-1)
        return f, self.scale[k] * move**3 + move
