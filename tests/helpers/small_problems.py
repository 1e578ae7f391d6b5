"""Small problems that tests of several folders solve; larger ones with names are in `stepwell.problems`.

Systems of least squares, with what certifies their solutions, are in nnls_cases.py and lsq_cases.py.
"""

from __future__ import annotations

import numpy as np


def bowl_about(centre=0.0, weight=1.0):
    """Σ weight (x − centre)² and its gradient: of a vector, or of each row of a batch, in any array library."""

    def fun(x):
        step = x - centre
        return (weight * step * step).sum(-1), 2 * weight * step

    return fun


bowl = bowl_about()


def random_system(rows, columns, count, seed, dtype="float64"):
    """A matrix and `count` right-hand sides of normal numbers."""
    random = np.random.default_rng(seed)
    return random.normal(size=(rows, columns)).astype(dtype), random.normal(size=(rows, count)).astype(dtype)
