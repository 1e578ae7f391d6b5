"""λ from the noise: the rule without a search, and the discrepancy principle.

``"noise"``: λ = σ ‖A‖_F / √n, the noise of a datum times the rms norm of a column of A. ``"discrepancy"``: the λ at
which ‖Ax − b‖ = σ√m. The residual rises with λ; a secant in (ln λ, ln residual) finds it, each solution starting from
the one before.
"""

from __future__ import annotations

import numpy as np

from stepwell.krylov.proven import ProvenStatus
from stepwell.krylov.tv.solving import Solver, Watch
from stepwell.krylov.tv.task import column_sums

#: Tolerance of solutions until the residual is within `NEAR` of the noise; it is to be within `CLOSE`.
ROUGH_TOL, NEAR, CLOSE = 1e-2, 0.1, 0.01
#: Slope of ln residual over ln λ before two points are known, and between what slopes are believed.
FIRST_SLOPE, SLOPES = 0.35, (0.1, 1.0)
#: λ changes at most by this factor at once, and stays within this factor of the first.
MAX_STEP, RANGE = 10.0, 1e4
MAX_TRIALS = 14


def from_noise(solver: Solver, noise: np.ndarray) -> np.ndarray:
    """Return λ = σ ‖A‖_F / √n of every problem."""
    found: np.ndarray = noise * np.sqrt(solver.base.column_square)
    return found


def search(
    solver: Solver, noise: np.ndarray, scale: np.ndarray, joint: bool, tol: float, maxiter: int,
    watch: Watch | None = None,
) -> np.ndarray:  # fmt: skip
    """Search λ by the discrepancy principle and leave the solver at the solutions.

    Data of problems were divided by ``scale``, in whose units a joint λ is one. Returns, per problem, -1 or 1
    where λ is at the lower or upper end of the range searched, else 0.
    """
    count = noise.size
    data = solver.task.grid.of_problems(np.full(solver.task.grid.count, float(solver.task.B.shape[0])))
    target = noise**2 * data
    first = from_noise(solver, noise)
    if joint:
        scale = scale / np.max(solver.team.of_all(np.max(scale, initial=0.0)))  # their squares are numbers
        first = joint_mean(first * scale, solver) / scale
    usable = np.isfinite(first) & (first > 0)
    centre = np.log(np.where(usable, first, 1.0))
    at, ends = centre.copy(), np.zeros(count, dtype=np.int64)
    before: tuple[np.ndarray, np.ndarray] | None = None
    open_, off = np.ones(count, dtype=bool), np.full(count, np.inf)
    for trial in range(MAX_TRIALS):
        solver.change_lam(np.exp(at) if usable.all() else np.where(usable, np.exp(at), 0.0))
        rows = np.flatnonzero(open_)
        fine = (np.abs(off[rows]) < NEAR) | (trial == MAX_TRIALS - 1)
        solver.run(rows, np.where(fine, tol, np.maximum(ROUGH_TOL, tol)), maxiter, watch)
        residual = solver.state.data - solver.task.B
        squares = solver.task.grid.of_problems(column_sums(residual, residual))
        with np.errstate(divide="ignore", invalid="ignore"):
            off = 0.5 * np.log(_shares(squares, target, scale if joint else None, solver))
        tight = np.zeros(count, dtype=bool)
        tight[rows] = fine
        lost = np.array([one in (ProvenStatus.NONFINITE, ProvenStatus.STOPPED) for one in solver.status], dtype=bool)
        open_ &= ~lost & usable & np.isfinite(off)
        open_ &= ~((np.abs(off) < CLOSE) & tight) & ~((ends != 0) & tight)
        going = bool(solver.team.of_all(float(open_.any())).any())
        if joint and going:
            open_ = ~lost & usable
        if not going:
            break
        slope = np.full(count, FIRST_SLOPE)
        if before is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                seen = (off - before[1]) / (at - before[0])
            slope = np.where(np.isfinite(seen), np.clip(seen, *SLOPES), slope)
        step = np.clip(-off / slope, -np.log(MAX_STEP), np.log(MAX_STEP))
        step = np.where(np.abs(off) < CLOSE, 0.0, step)  # right already: only solved more tightly
        before = (at.copy(), off.copy())
        wanted = np.where(open_, at + step, at)
        at = np.clip(wanted, centre - np.log(RANGE), centre + np.log(RANGE))
        ends = np.where(wanted > at, 1, np.where(wanted < at, -1, 0))
        off = np.where(ends != 0, 0.0, off)  # the next solution there is the last
    return ends


def joint_mean(values: np.ndarray, solver: Solver) -> float:
    """Return the root of the mean square over all columns, of all ranks."""
    square, count = solver.team.of_all(np.sum(values**2), values.size).sum(axis=0)
    return float(np.sqrt(square / max(1.0, count)))


def _shares(squares: np.ndarray, target: np.ndarray, joint: np.ndarray | None, solver: Solver) -> np.ndarray:
    """Return ‖Ax − b‖² over what it is to be, of every problem; or of all together, by the units of their data."""
    if joint is None:
        found: np.ndarray = squares / target
        return found
    sound = np.isfinite(squares)
    mine = (np.sum(np.where(sound, part, 0.0) * joint**2) for part in (squares, target))
    total, wanted = solver.team.of_all(*mine).sum(axis=0)
    return np.full(squares.size, total / wanted)
