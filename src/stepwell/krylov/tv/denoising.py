"""The iteration where A is the identity: sweeps of ADMM alone, and a bound that needs no repair.

    dual: max over |p_i| <= λ of  min over x within bounds of ½‖x − b‖² + <p, ∇x>   (Huber: − ε/(2λ) ‖p‖² too)

Any p within its balls is feasible, and the minimiser is b − ∇ᵀp, clipped.
"""

from __future__ import annotations

import numpy as np

from stepwell.arrays import Array, namespace_of
from stepwell.krylov.tv.differences import along, divergence, sizes
from stepwell.krylov.tv.metric import build_model
from stepwell.krylov.tv.solving import Solver
from stepwell.krylov.tv.state import Marks, State
from stepwell.krylov.tv.sweeps import Start, model_dtype
from stepwell.krylov.tv.task import Task, image_sums


class Denoiser(Solver):
    """The solver of a task whose A is the identity; no product, and no gradient, is needed."""

    def _prepare(self) -> None:
        """Do nothing: bounds need nothing but p."""

    def _applied(self, rows: np.ndarray, x: Array, task: Task, calls: np.ndarray) -> Array:
        return task.grid.columns(x)

    def _differentiate(self, rows: np.ndarray, state: State, calls: np.ndarray) -> None:
        """Look for a better lower bound."""
        found = lower_bounds(self.task.take(rows), self.rho * state.splitting.u)
        self.books.lower[rows] = np.maximum(self.books.lower[rows], found)

    def _step(self, rows: np.ndarray, state: State, marks: Marks, calls: np.ndarray) -> None:
        books, task = self.books, self.task.take(rows)
        xp = namespace_of(state.x)
        dtype = model_dtype(task, books.single[rows])
        model = build_model(self.base, books.cs[rows], self.shift, None, None, state.x, dtype)
        gradient = task.cosines.forward(state.x - task.grid.images(task.B))
        start = Start(state.x, task.cosines.forward(state.x), gradient, books.single[rows])
        trial = self._swept(rows, task, model, start, state)
        f = task.objective(trial, task.grid.columns(trial) - task.B)
        accepted = f <= books.f[rows] * (1 + self.noise)  # not where f is NaN
        books.iterations[rows] += 1
        self._limit_single(rows, accepted)
        books.f[rows] = np.where(accepted, f, books.f[rows])
        state.x = trial if accepted.all() else xp.where(along(accepted, trial) > 0, trial, state.x)
        state.data = self._applied(rows, state.x, task, calls)


def lower_bounds(task: Task, p: Array) -> np.ndarray:
    """Return a lower bound of the least objective of every problem from any field p."""
    xp = namespace_of(p)
    lam, widths = along(task.lam, p, 1), None if task.widths is None else task.widths.like(p)
    radius = lam if widths is None else lam * widths.values
    size = sizes(p if widths is None else widths.counting(p), task.anisotropic)
    inside = xp.where(size > radius, radius / xp.where(size > 0, size, xp.ones_like(size)), xp.ones_like(size))
    p = p * (inside if widths is None else inside * widths.usable)
    pull = divergence(p, task.grid.weights)
    b = task.grid.images(task.B)
    x = task.nearest(b - pull)
    rest = x - b
    found = image_sums(rest * rest) / 2 + image_sums(x * pull)
    if task.eps:
        squares = image_sums(p * p if widths is None else widths.relative(p * p), leading=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = found - np.where(task.lam > 0, task.eps / task.lam, 0.0) / 2 * squares
    return np.where(np.isfinite(found), np.maximum(found, 0.0), 0.0)  # f is never negative
