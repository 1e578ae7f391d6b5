"""Whether any x is within bounds and has the sum and the equalities."""

from __future__ import annotations

import numpy as np
import scipy.optimize

from fuzzing.common import exact
from fuzzing.lsq.problem import Problem


def feasible(problem: Problem, i: int) -> int:
    """1: there is one; -1: there is none; 0: it is a matter of rounding."""
    lower, upper, low, high = problem.lower[i], problem.upper[i], problem.low[i], problem.high[i]
    if (lower > upper).any() or (low > high).any():
        return -1
    if len(problem.C) == 0:
        return 1
    if len(problem.C) == 1:
        c = problem.C[0]
        with np.errstate(invalid="ignore"):
            ends = np.where(c == 0, 0, c * lower), np.where(c == 0, 0, c * upper)
        least, most = np.minimum(*ends).sum(), np.maximum(*ends).sum()
        reach = np.where(np.isfinite(ends[0]), np.abs(ends[0]), 0) + np.where(np.isfinite(ends[1]), np.abs(ends[1]), 0)
        size = reach.sum() + min(abs(low[0]), abs(high[0]))
        room = 1e-5 * size if problem.single else 1e-14 * size if (problem.C > 0).all() else 1e-9 * size
        if least > high[0] + room or most < low[0] - room:
            return -1
        return 1 if least <= high[0] - room and most >= low[0] + room else 0
    return by_program(problem, i)


def by_program(problem: Problem, i: int) -> int:
    """The least that Cx misses its ends by, as a linear program in units of the system."""
    lower, upper, low, high = problem.lower[i], problem.upper[i], problem.low[i], problem.high[i]
    C = problem.C
    near = np.minimum(*(np.where(np.isfinite(end) & (end != 0), np.abs(end), np.inf) for end in (lower, upper)))
    finite = near[np.isfinite(near)]
    ends = np.concatenate([low[np.isfinite(low)], high[np.isfinite(high)]])
    # Units of x and of rows in which numbers are near 1: those of the ends, or of the nearest bounds.
    unit = float(np.abs(ends).max(initial=0) / max(np.abs(C).max(), 1e-300)) or float(finite.min(initial=np.inf))
    unit = unit if 0 < unit < np.inf else 1.0
    rows = np.abs(C).max(axis=1) * unit
    rows = np.where(rows > 0, rows, 1)
    scaled = (C * unit / rows[:, None]).astype(float)
    below, above = (low / rows).astype(float), (high / rows).astype(float)
    has_low, has_high = np.isfinite(below), np.isfinite(above)
    left = [np.column_stack([sign * scaled[has], -np.ones(has.sum())]) for sign, has in ((1, has_high), (-1, has_low))]
    right = np.concatenate([above[has_high], -below[has_low]])
    bounds = [
        (a if abs(a) < 1e9 else None, z if abs(z) < 1e9 else None)
        for a, z in zip((lower / unit).astype(float), (upper / unit).astype(float))
    ]
    cost = np.r_[np.zeros(len(lower)), 1.0]
    found = scipy.optimize.linprog(cost, np.vstack(left), right, bounds=[*bounds, (0, None)], method="highs")
    if found.x is None:
        return 0
    x = np.minimum(np.maximum(exact(found.x[:-1]) * unit, lower), upper)
    missed = np.maximum(np.maximum(low - C @ x, C @ x - high), 0)
    terms = np.abs(C) @ np.abs(x)
    if (missed <= 1e-9 * terms).all():  # (of an x that hides the ends in its rounding nothing is sure)
        return int((terms <= 1e5 * np.abs(ends).max(initial=0)).all() or not ends.any())
    return -1 if found.x[-1] > (1e-3 if problem.single else 1e-5) else 0
