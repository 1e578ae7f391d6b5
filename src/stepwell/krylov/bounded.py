"""Least squares with a penalty within bounds, lower <= X <= upper, for many columns at once: L-BFGS-B on the quadratic.

Every column is a problem of a batch that :func:`stepwell.minimize_batch` works on; all points that it asks for in a
turn go through the operator together, one product each. Beside conjugate gradients on faces (MPRGP and the like), which
start anew whenever the set of variables at bounds changes, L-BFGS-B keeps its history and takes fewer products
(``benchmarks/bounded_tikhonov.py``).

What is minimised in a round is the change of the objective, −rᵀd + ‖d‖²/2 in the norm of AᵀA + λ²LᵀL, as a function of
the change d from the round's start, where r is the residual of the normal equations there. So its rounding errors
shrink with what is left to gain, and rounds reach tolerances that the objective itself cannot tell apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stepwell.arrays import (
    Array,
    as_contiguous,
    copy_to_device_of,
    namespace_of,
    take_columns,
    to_host,
)
from stepwell.arrays.bounds import split_bounds
from stepwell.arrays.checks import read_array, require_each, require_one_home
from stepwell.common.checks import require, require_shape
from stepwell.krylov.column_progress import ColumnProgress
from stepwell.krylov.linear_problem import LinearProblem
from stepwell.krylov.results import LinearStatus
from stepwell.krylov.rounds import Correction, Method, Round
from stepwell.krylov.systems import Carried, State, TikhonovSystem
from stepwell.operators import Operator

#: Pairs of history of each column: with ten there are a tenth fewer products, but the sweeps over them take longer than
#: a product with a sparse matrix does.
PAIRS = 5


@dataclass(frozen=True)
class Box:
    """Bounds of all variables and columns, in the solver's units: blocks that broadcast, None where there is none."""

    lower: Array | None
    upper: Array | None

    def take(self, columns: np.ndarray) -> Box:
        """Return the bounds of some columns."""
        return Box(*(_of_columns(side, columns) for side in (self.lower, self.upper)))

    def nearest(self, x: Array) -> Array:
        """Return the nearest points within the bounds."""
        xp = namespace_of(x)
        if self.lower is not None:
            x = xp.where(x < self.lower, self.lower, x)
        return x if self.upper is None else xp.where(x > self.upper, self.upper, x)

    def projected(self, descent: Array, x: Array) -> Array:
        """Return what of a direction of descent does not push a variable at a bound out of the box."""
        xp = namespace_of(x)
        zero = xp.zeros_like(descent)
        if self.lower is not None:
            descent = xp.where((x <= self.lower) & (descent < 0), zero, descent)
        return descent if self.upper is None else xp.where((x >= self.upper) & (descent > 0), zero, descent)


class BoundedSystem(TikhonovSystem):
    """The problem of `TikhonovSystem` within bounds: what counts as its residual is the projected gradient."""

    def __init__(
        self,
        A: Operator,
        L: Operator | None,
        lam: np.ndarray,
        B: Array,
        box: Box,
        counts: dict[str, int] | None = None,
    ) -> None:
        super().__init__(A, L, lam, B, counts)
        self.box = box

    def state(
        self, x: Array | None, rhs: Array, carried: Carried | None = None, tol: float = 0.0
    ) -> tuple[State, Array]:
        """[B − AX; −LX], and the projected gradient there."""
        state, descent = super().state(x, rhs, carried, tol)
        point = namespace_of(rhs).zeros_like(rhs) if x is None else x
        return state, self.box.projected(descent, point)

    def take(self, columns: np.ndarray) -> BoundedSystem:
        """Return the system of some columns."""
        B = take_columns(self.B, columns)
        return BoundedSystem(self.A, self.L, self.lam[columns], B, self.box.take(columns), self.counts)

    def times(self, factors: np.ndarray) -> BoundedSystem:
        """Return the system of columns, and their bounds, times powers of two."""
        there = copy_to_device_of(factors, self.B)
        sides = (None if side is None else side * there for side in (self.box.lower, self.box.upper))
        return BoundedSystem(self.A, self.L, self.lam, self.B * there, Box(*sides), self.counts)


class BoundedLBFGS(Method):
    """The method ``"bounded"``.

    Parameters
    ----------
    diagonal : array (n,), optional
        Approximate inverse of the diagonal of AᵀA + λ²LᵀL, on the host.
    """

    def __init__(self, diagonal: np.ndarray | None = None) -> None:
        self.diagonal = diagonal

    def __call__(self, task: Round) -> Correction:
        """Run until every column's projected gradient is below its threshold."""
        from stepwell.quasi_newton.api import minimize_batch

        xp = namespace_of(task.residual)
        relative = to_host(task.system.sums.norms(task.residual)) / task.norms
        progress = ColumnProgress(replace(task, relative=relative))
        start = xp.zeros_like(task.residual) if task.x is None else task.x
        if progress.any_ended:
            progress.release(start)
        if progress.columns.size:
            objective = _Objective(task, start, progress)
            h0 = None if self.diagonal is None else copy_to_device_of(self.diagonal, start)
            minimize_batch(
                objective,
                as_contiguous(xp.zeros_like(start.T)),
                jac=True,
                bounds=objective.bounds(),
                callback=objective.look,
                options={
                    "maxcor": PAIRS,
                    "gtol": 0.0,
                    "ftol": 0.0,
                    "maxiter": task.maxiter + 1,
                    "maxfun": 2 * task.maxiter + 2,  # ColumnProgress ends it before
                    "h0": h0,
                    "graph": False,
                },
            )
        correction = progress.close()
        correction.replaces = True
        return correction


class _Objective:
    """Values and gradients of the changes d, a row each, for the columns at work.

    A column that is through is told so by a gradient of zero, which ends its run.
    """

    def __init__(self, task: Round, start: Array, progress: ColumnProgress) -> None:
        assert isinstance(task.system, BoundedSystem)
        self.system, self.state, self.start, self.progress = task.system, task.state, start, progress
        self.moved = task.x is not None
        self.descent = task.system.gradient(task.state) if self.moved else task.system.rhs()
        self.count = int(start.shape[1])
        self.steps = 0
        self._keep(progress.columns)

    def bounds(self) -> tuple[Any, Any]:
        """Bounds of d as `minimize_batch` takes them."""
        xp = namespace_of(self.start)
        sides = []
        for side, infinite in ((self.system.box.lower, -np.inf), (self.system.box.upper, np.inf)):
            if side is None:
                sides.append(infinite)
            elif not self.moved and tuple(side.shape) == (1, 1):
                sides.append(float(side[0, 0]))
            else:
                sides.append(as_contiguous(xp.broadcast_to(side - self.start, self.start.shape).T))
        if not all(isinstance(side, float) for side in sides):  # both of one kind
            sides = [
                as_contiguous(xp.full_like(self.start.T, side)) if isinstance(side, float) else side for side in sides
            ]
        return sides[0], sides[1]

    def __call__(self, points: Array) -> tuple[Array, Array]:
        """Evaluate all rows that are at work; the others are at rest."""
        xp = namespace_of(points)
        rows = self.progress.columns
        if not rows.size:
            return xp.zeros_like(points[:, 0]), xp.zeros_like(points)
        chosen = points if rows.size == self.count else xp.take(points, copy_to_device_of(rows, points), axis=0)
        change = as_contiguous(chosen.T)
        image = self.part.image(change)
        values = 0.5 * self.part.curvature(change, image) - self.part.sums.dots(self.part_descent, change)
        descent = self.part.gradient(self.part.advance(self.part_state, xp.ones_like(values), image))
        reached = self._points(change)
        pull = self.part.box.projected(descent, reached)
        self.steps += 1
        self.progress.step(float(rows.size))
        self.progress.look(self.steps, to_host(self.part.sums.norms(pull))[None, :])
        gradients = -descent
        if self.progress.any_ended:
            lost = self.progress.ended_so(LinearStatus.NONFINITE)
            if lost.any():  # hand back where the round began
                reached = xp.where(copy_to_device_of(lost, reached), self.part_start, reached)
            stay = self.progress.release(reached)
            at_work = np.isin(np.arange(rows.size), stay)
            moving = copy_to_device_of(at_work, gradients)
            gradients = xp.where(moving, gradients, xp.zeros_like(gradients))
            values = xp.where(xp.isfinite(values), values, xp.zeros_like(values))
            self._keep(self.progress.columns)
        return self._in_all(values[:, None], rows)[:, 0], self._in_all(gradients.T, rows)

    def look(self, intermediate_result: Any) -> None:
        """End the columns whose runs have ended by themselves: nothing lowers the objective any more."""
        rows = self.progress.columns
        running = np.asarray(to_host(intermediate_result.running), dtype=bool)
        ended = ~running[rows]
        if ended.any():
            self.progress.end(ended, LinearStatus.STAGNATED)
            xp = namespace_of(self.start)
            accepted = xp.take(intermediate_result.x, copy_to_device_of(rows, self.start), axis=0)
            self.progress.release(self._points(as_contiguous(accepted.T)))
            self._keep(self.progress.columns)
        if not self.progress.columns.size:
            raise StopIteration

    def _keep(self, rows: np.ndarray) -> None:
        """Take the parts of the columns that are at work."""
        whole = rows.size == self.count

        def some(block: Array) -> Array:
            return block if whole or block is None else take_columns(block, rows)

        self.part = self.system if whole else self.system.take(rows)
        self.part_state = tuple(map(some, self.state))
        self.part_descent, self.part_start = some(self.descent), some(self.start)

    def _points(self, change: Array) -> Array:
        """Return start + change; where the change is all the way to a bound, the bound itself."""
        xp, box, start = namespace_of(change), self.part.box, self.part_start
        points = start + change if self.moved else change
        for side in (box.lower, box.upper):
            if side is not None and self.moved:
                points = xp.where(change == side - start, side, points)
        return box.nearest(points)

    def _in_all(self, block: Array, rows: np.ndarray) -> Array:
        """Put the rows of columns at work in their places, zeros elsewhere."""
        if rows.size == self.count:
            return block
        xp = namespace_of(block)
        places = np.full(self.count, rows.size)
        places[rows] = np.arange(rows.size)
        padded = xp.concat([block, xp.zeros_like(block[:1, :])], axis=0)
        return xp.take(padded, copy_to_device_of(places, block), axis=0)


def exactly_scaled(problem: LinearProblem) -> LinearProblem:
    """Return the problem with the columns of B divided by powers of two, so that bounds come back as they were."""
    if not problem.scaled:
        return problem
    sizes = to_host(problem.scale)
    powers = np.exp2(np.round(np.log2(sizes)))
    ratio = copy_to_device_of(sizes / powers, problem.B)
    x0 = None if problem.x0 is None else problem.x0 * ratio
    return replace(problem, B=problem.B * ratio, x0=x0, scale=copy_to_device_of(powers, problem.B))


def read_box(bounds: Any, problem: LinearProblem) -> Box:
    """Read bounds in the caller's units and return them in those of the problem."""
    ends = split_bounds(bounds, "ends")
    assert ends is not None
    lower, upper = (_side(side, name, problem) for side, name in zip(ends, ("lower", "upper")))
    if lower is not None and upper is not None:
        low, high = np.broadcast_arrays(to_host(lower), to_host(upper))
        if np.any(low > high):
            first = np.unravel_index(int(np.argmax(low > high)), low.shape)
            place = first[0] if low.shape[1] == 1 else tuple(map(int, first[:: -1 if problem.rows else 1]))
            raise ValueError(
                f"bounds: lower > upper at index {place} ({low[first]:g} > {high[first]:g}); allowed: lower <= upper"
            )
    for side, name, sign in ((lower, "lower", 1), (upper, "upper", -1)):
        if side is not None:
            words = "numbers of at most 0" if sign > 0 else "numbers of at least 0"
            require_each(
                sign * side <= 0, f"bounds: the {name} bound", side, f"{words}: zero must lie within the bounds"
            )
    factor = problem.unit / problem.scale
    return Box(*(side if side is None else side * factor if _nonzero(side) else side for side in (lower, upper)))


def _side(side: Any, name: str, problem: LinearProblem) -> Array | None:
    """Read one bound as a block that broadcasts against the unknowns, None where it bounds nothing."""
    argument = f"bounds: the {name} bound"
    array = read_array(argument, side)
    size, count = problem.size, problem.columns
    turned = problem.rows and len(array.shape) == 2
    wanted = [(), (size,), (count, size) if problem.rows else (size, count)]
    if count == 1 and len(problem.given.shape) == 1:
        wanted = wanted[:2]
    require_shape(tuple(array.shape) in wanted, argument, array, " or ".join(map(str, wanted)))
    if array.shape and not isinstance(array, np.ndarray):
        require_one_home(argument, array, "B", problem.B)
    host = to_host(array).astype(np.float64)
    require_each(~np.isnan(host), argument, host, "numbers other than NaN")
    if np.all(np.isinf(host) & ((host < 0) == (name == "lower"))):
        return None
    require(not np.any(np.isinf(host) & ((host > 0) == (name == "lower"))), argument, side, "bounds that leave a point")
    block = (host.T if turned else host).reshape((1, 1) if not host.shape else (size, -1))
    return copy_to_device_of(block, problem.B)


def _nonzero(side: Array) -> bool:
    return bool(np.any(to_host(side)))


def _of_columns(side: Array | None, columns: np.ndarray) -> Array | None:
    return side if side is None or side.shape[1] == 1 else take_columns(side, columns)
