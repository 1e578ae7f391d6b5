"""The books of one run of a method: which columns are still at work, how each came along and how it ended."""

from __future__ import annotations

import numpy as np

from stepwell.arrays import Array, namespace_of, take_columns, to_host
from stepwell.krylov.results import Status
from stepwell.krylov.rounds import Correction, Round
from stepwell.krylov.systems import column_norms

#: Steps without a new smallest residual after which a column counts as stalled: far from rounding errors, where
#: conjugate gradients may pause for long, and near them.
PATIENCE, PATIENCE_NEAR_ROUNDING = 200, 10
#: Relative residuals below so many machine epsilons are near rounding errors.
NEAR_ROUNDING = 1e4


class Ledger:
    """Columns at work, their histories, and the finished columns' solutions.

    ``columns`` holds the numbers of the columns at work, in the order in which the method keeps them.
    """

    def __init__(self, task: Round) -> None:
        self.task = task
        count = int(task.residual.shape[1])
        self.columns = np.arange(count)
        self.iterations = np.zeros(count, dtype=np.int64)
        self.products = np.zeros(count)
        self._history: list[list[float]] = [[] for _ in range(count)]
        self._claims: list[Status | None] = [None] * count
        self._best = to_host(column_norms(task.residual)) / task.norms
        self._near = NEAR_ROUNDING * float(namespace_of(task.residual).finfo(task.residual.dtype).eps)
        self._age = np.zeros(count, dtype=np.int64)
        self._finished: list[Array] = []
        self._places: list[np.ndarray] = []
        for column in np.flatnonzero(self._best <= task.tol):
            self._claims[column] = Status.CONVERGED
        if task.max_iter <= 0:
            self.end_all(Status.ITERATION_LIMIT)

    def step(self, products: float) -> None:
        """Book one step of all columns at work, that took so many products together."""
        self.iterations[self.columns] += 1
        self.products[self.columns] += products / self.columns.size

    def look(self, steps: int, norms: np.ndarray) -> None:
        """Book the residual norms of the latest steps, a row per step, and end the columns that are through."""
        relative = norms / self.task.norms[self.columns]
        for place, column in enumerate(self.columns):
            now = relative[-1, place]
            self._history[column] += relative[:, place].tolist()
            self._age[column] = 0 if now < self._best[column] else self._age[column] + len(relative)
            self._best[column] = min(self._best[column], now)
            if not np.isfinite(now):
                self.end(place, Status.NONFINITE)
            elif now <= self.task.tol:
                self.end(place, Status.CONVERGED)
            elif self._age[column] >= (PATIENCE_NEAR_ROUNDING if self._best[column] < self._near else PATIENCE):
                self.end(place, Status.STAGNATED)
        active = [p for p, c in enumerate(self.columns) if self._claims[c] is None]
        worst = float(np.max(relative[-1, active], initial=0.0))
        if self.task.watch(steps, len(active), worst):
            self.end_all(Status.STOPPED)
        elif steps >= self.task.max_iter:
            self.end_all(Status.ITERATION_LIMIT)

    def end(self, place: int, status: Status) -> None:
        """End the column at a place, unless it has ended already."""
        column = self.columns[place]
        self._claims[column] = self._claims[column] or status

    def end_all(self, status: Status) -> None:
        """End all columns that are still at work."""
        for place in range(self.columns.size):
            self.end(place, status)

    def ended_so(self, status: Status) -> np.ndarray:
        """Per column at work, whether it has just ended with this status."""
        return np.array([self._claims[column] is status for column in self.columns], dtype=bool)

    @property
    def any_ended(self) -> bool:
        """Whether some of the columns at work have ended."""
        return any(self._claims[column] is not None for column in self.columns)

    def release(self, x: Array) -> np.ndarray:
        """Take over the solutions of the ended columns and return the places of those that stay at work."""
        ended = np.array([self._claims[column] is not None for column in self.columns], dtype=bool)
        leave, stay = np.flatnonzero(ended), np.flatnonzero(~ended)
        self._finished.append(x if not stay.size else take_columns(x, leave))
        self._places.append(self.columns[leave])
        self.columns = self.columns[stay]
        return stay

    def close(self) -> Correction:
        """Return all columns in their first order."""
        claims = [claim or Status.STAGNATED for claim in self._claims]
        x = self._finished[0]
        if len(self._finished) > 1:
            joined = namespace_of(x).concat(self._finished, axis=1)
            x = take_columns(joined, np.argsort(np.concatenate(self._places)))
        return Correction(x, self.iterations, self.products, self._history, claims)
