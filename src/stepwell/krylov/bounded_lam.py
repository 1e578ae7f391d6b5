"""The discrepancy principle within bounds: the λ at which the residual of the bounded solution equals the noise.

Bounds can only raise the residual, so the λ of the unbounded solution is too large or right. From there λ goes down
until the residual is below the noise, then regula falsi (Illinois) in log λ. All columns search at the same time, each
from its latest solution.
"""

from __future__ import annotations

import numpy as np

from stepwell.arrays import Array, namespace_of, take_columns, to_host
from stepwell.krylov.bounded import BoundedLBFGS, BoundedSystem, Box
from stepwell.krylov.inputs import iteration_limit
from stepwell.krylov.linear_problem import LinearProblem
from stepwell.krylov.reductions import WHOLE
from stepwell.krylov.rounds import solve_in_rounds
from stepwell.krylov.selection import Choice
from stepwell.operators.error_state import own_arithmetic

#: λ is looked for from the one of the unbounded solution down to this part of it.
LEAST = 1e-3
#: First step down, as a factor; each further one is the square of the one before, until the residual is too small.
FIRST_STEP = 0.7
#: The squared residual is to equal the noise to this part of itself.
CLOSE = 1e-3
#: Tolerance of the solutions on the way, and how many of them there may be.
ROUGH_TOL, MAX_TRIALS = 1e-5, 24


@own_arithmetic()
def choose_within(problem: LinearProblem, box: Box, noise: np.ndarray, joint: bool, unbounded: Choice) -> Choice:
    """Choose one λ per column (``joint``: one for all) from the choice without bounds; noise is in the problem's units.

    Where even the least λ looked at leaves more than the noise, λ is that one, and ``ends`` says so.
    """
    count = problem.columns
    norms = to_host(WHOLE.norms(problem.B))
    usable = np.isfinite(norms) & (norms > 0)
    weights = to_host(problem.scale).ravel() ** 2 if joint else np.ones(count)
    groups = np.zeros(count, dtype=np.int64) if joint else np.arange(count)
    number = 1 if joint else count

    def total(squares: np.ndarray) -> np.ndarray:
        """Sum over the columns that choose together."""
        return np.bincount(groups[usable], (weights * squares)[usable], minlength=number)

    target = total(noise**2)
    top = np.zeros(number)
    np.maximum.at(top, groups, np.log(unbounded.lams))
    # The upper end stays: there the noise is more than the data, with bounds or without.
    open_ = np.array(
        [bool(usable[groups == g].any() and (unbounded.ends[groups == g] <= 0).any()) for g in range(number)]
    )
    search = _Falsi(top, np.log(LEAST))
    products, x = unbounded.products.astype(float).copy(), problem.x0
    squares = np.zeros(count)
    for _ in range(MAX_TRIALS):
        if not open_.any():
            break
        columns = np.flatnonzero(open_[groups] & usable)
        x, spent, found = _solve(problem, box, np.exp(search.at[groups]), columns, x)
        products[columns] += spent
        squares[columns] = found
        now = total(squares)
        with np.errstate(divide="ignore"):
            gap = np.log(now) - np.log(target)
        close = np.abs(now - target) <= CLOSE * target
        open_ &= ~(close | search.step(gap, open_ & ~close))
    ends = np.where(search.ended[groups], -1, np.maximum(unbounded.ends, 0))
    return Choice(np.exp(search.at)[groups], products, ends)


def _solve(
    problem: LinearProblem, box: Box, lams: np.ndarray, columns: np.ndarray, x: Array | None
) -> tuple[Array, np.ndarray, np.ndarray]:
    """Solve some columns roughly; return all solutions so far, and products and squared residuals of those columns."""
    system = BoundedSystem(problem.A, problem.L, lams, problem.B, box)
    part = system.take(columns)
    first = None if x is None else take_columns(x, columns)
    limit = iteration_limit(None, problem.size, True)
    stats = solve_in_rounds(part, BoundedLBFGS(), first, ROUGH_TOL, limit)
    left = part.data() - problem.A.forward(stats.x)
    squares = to_host(WHOLE.norms(left)) ** 2
    if columns.size == problem.columns:
        return stats.x, stats.products + 1, squares
    xp = namespace_of(problem.B)
    start = xp.zeros((problem.size, problem.columns), dtype=problem.B.dtype) if x is None else x
    order = np.arange(problem.columns)
    order[columns] = problem.columns + np.arange(columns.size)
    return take_columns(xp.concat([start, stats.x], axis=1), order), stats.products + 1, squares


class _Falsi:
    """Where increasing functions of log λ vanish: steps down from the top, then the Illinois rule.

    ``at`` is where each is to be evaluated next, in the end where it (nearly) vanishes; ``ended``: nowhere.
    """

    def __init__(self, top: np.ndarray, depth: float) -> None:
        self.at, self.bottom = top.copy(), top + depth
        self.high, self.low = top.copy(), np.full(top.shape, -np.inf)
        self.value_high, self.value_low = np.zeros(top.shape), np.zeros(top.shape)
        self.width = np.full(top.shape, -np.log(FIRST_STEP))
        self.side = np.zeros(top.shape, dtype=np.int64)
        self.ended = np.zeros(top.shape, dtype=bool)

    def step(self, gap: np.ndarray, active: np.ndarray) -> np.ndarray:
        """Take values at ``at`` and move on where active; return which have come to the bottom."""
        over = gap > 0
        for mask, edge, value, other in (
            (active & over, self.high, self.value_high, self.value_low),
            (active & ~over, self.low, self.value_low, self.value_high),
        ):
            edge[mask], value[mask] = self.at[mask], gap[mask]
            again = mask & (self.side == np.where(over, 1, -1))
            other[again] *= 0.5  # Illinois: the end that stays weighs less
        self.side = np.where(active, np.where(over, 1, -1), self.side)
        bottom = active & over & (self.at <= self.bottom)
        self.ended |= bottom
        moving = active & ~bottom
        bracketed = moving & np.isfinite(self.low)
        down = moving & ~bracketed
        self.at[down] = np.maximum(self.at[down] - self.width[down], self.bottom[down])
        self.width[down] *= 2
        slope = self.value_high[bracketed] - self.value_low[bracketed]
        share = np.clip(self.value_high[bracketed] / np.where(slope > 0, slope, 1.0), 0.05, 0.95)
        self.at[bracketed] = self.high[bracketed] - share * (self.high[bracketed] - self.low[bracketed])
        return bottom
