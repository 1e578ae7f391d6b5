"""The small bounded problem on which functions, libraries and gradients are tried, and its solution."""

from __future__ import annotations

import numpy as np
from qn_oracles import Quadratic

from stepwell import minimize

N = 7
FUN = Quadratic(N, np.random.default_rng(0), condition=50.0, quartic=0.2)
LOWER, UPPER = np.full(N, -0.2), np.full(N, 0.4)
REFERENCE = minimize(FUN, np.zeros(N), jac=True, bounds=(LOWER, UPPER), options=dict(gtol=1e-6, ftol=0))


def value(x):
    return FUN(x)[0]


def slope(x):
    return FUN(x)[1]
