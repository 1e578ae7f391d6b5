"""From the solver's books to the caller's result: what is proved, in the caller's units; what callbacks are told."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from stepwell.krylov.proven import ending_of_run
from stepwell.krylov.reductions import Sums
from stepwell.krylov.tv.given import Given
from stepwell.krylov.tv.metric import PAIRS, ROUNDING
from stepwell.krylov.tv.results import TVProgress, TVResult
from stepwell.krylov.tv.solving import OF_TOL, Solver
from stepwell.krylov.tv.task import column_sums


def proved(solver: Solver, tol: float) -> tuple[np.ndarray, float]:
    """Return lower bounds, zero where the adjoint is none, and how far it is from one."""
    worst = float(max(solver.base.adjoint_error, solver.books.mismatch.max(initial=0.0)))
    allowed = max(OF_TOL * tol, ROUNDING * solver.epsilon)
    matched = (solver.base.adjoint_error <= allowed) & (solver.books.mismatch <= allowed)
    return np.where(matched, solver.books.lower, 0.0), worst


def products_of(solver: Solver) -> np.ndarray:
    """Return the products of every column, those of the set-up shared evenly."""
    grid = solver.task.grid
    return np.array(grid.of_columns(solver.books.products)) + solver.shared / max(1, grid.count)


def result_of(solver: Solver, given: Given, tol: float, ends: np.ndarray | None, start: float) -> TVResult:
    """Return the result, every objective recomputed from A."""
    task, grid, books = solver.task, solver.task.grid, solver.books
    solver.finish()
    lower, error = proved(solver, tol)
    books.lower = np.minimum(lower, books.f)
    unmatched = (lower == 0) & (error > max(OF_TOL * tol, ROUNDING * solver.epsilon))
    status = [ending_of_run(one, bad) for one, bad in zip(solver.status, unmatched.tolist())]
    scale = given.problem_scale
    f = books.f
    gap = books.gaps(np.arange(grid.batch))
    residual = solver.state.data - task.B
    norm = np.sqrt(grid.of_problems(column_sums(residual, residual)))
    slack = np.sqrt(2 * np.maximum(f - books.lower, 0.0))
    bracket = np.stack([np.maximum(norm - slack, 0.0), norm + slack], axis=1) * scale[:, None]

    def columns(values: np.ndarray) -> np.ndarray:
        return np.array(grid.of_columns(values))

    lams = columns(task.lam) * given.scale * given.unit
    return TVResult(
        x=given.user_columns(solver.state.x),
        status=given.of_columns(status * grid.count if grid.across else status),
        gap=columns(gap),
        objective=columns(f * scale**2),
        lower=columns(books.lower * scale**2),
        residual_range=np.repeat(bracket, grid.count, axis=0) if grid.across else bracket,
        lam=given.of_columns(lams),
        lam_at_end=None if ends is None else given.of_columns(columns(ends)),
        iterations=columns(books.iterations),
        products=products_of(solver),
        sweeps=columns(books.swept),
        history=[np.array(one) for one in solver.history] * (grid.count if grid.across else 1),
        dual=given.user_field(solver.rho * solver.state.splitting.u),
        adjoint_error=error,
        calls=int(np.ceil(solver.calls)),
        seconds=time.perf_counter() - start,
        memory=memory_of(given),
    )


def memory_of(given: Given) -> int:
    """Bytes of the blocks that a run holds at once: images, fields, recent steps, data."""
    task, grid = given.task, given.task.grid
    number = 4 if "float32" in str(task.B.dtype) else 8
    fields = 5 * len(grid.dims)
    pairs = 0 if task.identity else 6 * PAIRS
    images = 14 + (2 if task.bounded else 0)
    data = 5 * int(task.B.shape[0]) * grid.count
    return task.A.memory + number * (grid.pixels * grid.count * (fields + pairs + images) + data)


class Teller:
    """Tells the caller of every step; a true answer, or StopIteration, stops the run, on all ranks.

    Ranks that have no callback take part in the message that says whether others want to stop.
    """

    def __init__(self, callback: Callable[[TVProgress], object] | None, given: Given, columns: int, team: Sums) -> None:
        self.callback, self.columns, self.team, self.stopped = callback, columns, team, False
        self.each = given.task.grid.count if given.task.grid.across else 1
        self.memory = memory_of(given)

    def __call__(self, iteration: int, running: int, gap: float, products: float) -> bool:
        """Tell of a step; return whether anybody wants to stop."""
        told = TVProgress(
            iteration, running * self.each, self.columns, 1.0 if not iteration else gap, products, self.memory
        )
        wish = self.stopped
        with self.team.holding():
            try:
                wish |= self.callback is not None and bool(self.callback(told))
            except StopIteration:
                wish = True
        self.stopped = bool(self.team.of_all(wish).any())
        return self.stopped
