"""Whether any x is within bounds and has the sum and the equalities."""

from __future__ import annotations

import numpy as np
import scipy.optimize

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
        room = 1e-9 * size if not (problem.C > 0).all() or problem.single else 1e-14 * size
        if least > high[0] + room or most < low[0] - room:
            return -1
        return 1 if least <= high[0] - room and most >= low[0] + room else 0
    return by_program(problem, i)


def by_program(problem: Problem, i: int) -> int:
    """The least that Cx misses its ends by, as a linear program in units of the system."""
    lower, upper, low, high = problem.lower[i], problem.upper[i], problem.low[i], problem.high[i]
    C = problem.C
    # Units of x and of rows in which numbers are near 1.
    near = np.minimum(
        np.where(np.isfinite(lower), np.abs(lower), np.inf), np.where(np.isfinite(upper), np.abs(upper), np.inf)
    )
    finite = near[np.isfinite(near) & (near > 0)]
    unit = float(np.median(finite)) if finite.size else 0.0
    ends = np.concatenate([low[np.isfinite(low)], high[np.isfinite(high)]])
    top = np.abs(ends).max(initial=0) / max(np.abs(C).max(), 1e-300)
    unit = max(unit, float(top)) or 1.0
    rows = np.abs(C).max(axis=1) * unit
    rows = np.where(rows > 0, rows, 1)
    scaled = (C * unit / rows[:, None]).astype(float)
    below, above = (low / rows).astype(float), (high / rows).astype(float)
    k, n = scaled.shape
    has_low, has_high = np.isfinite(below), np.isfinite(above)
    left = np.vstack(
        [
            np.column_stack([scaled[has_high], -np.ones(has_high.sum())]),
            np.column_stack([-scaled[has_low], -np.ones(has_low.sum())]),
        ]
    )
    right = np.concatenate([above[has_high], -below[has_low]])
    bounds = [
        (a if np.isfinite(a) else None, z if np.isfinite(z) else None)
        for a, z in zip((lower / unit).astype(float), (upper / unit).astype(float))
    ]
    found = scipy.optimize.linprog(
        np.r_[np.zeros(n), 1.0], A_ub=left, b_ub=right, bounds=[*bounds, (0, None)], method="highs"
    )
    if found.x is None:
        return 0
    return 1 if found.x[-1] <= 1e-10 else -1 if found.x[-1] > 1e-5 else 0
