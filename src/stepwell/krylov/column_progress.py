"""How the columns of one run of a method come along: which are still at work, their residuals, how each ended."""

from __future__ import annotations

import numpy as np

from stepwell.arrays import Array, columns_of_two, columns_or_zero, namespace_of, shapes_are_compiled, take_columns
from stepwell.krylov.results import LinearStatus
from stepwell.krylov.rounds import Correction, Round

#: Steps without a new smallest residual after which a column counts as stalled, far from rounding errors, where
#: conjugate gradients may pause for long.
PATIENCE = 200
#: Near rounding errors: steps in which the residual was not halved, at least, and in units of the steps that a halving
#: took on average. What rounding errors leave along earlier directions falls a little in every step; a round that
#: starts anew removes it.
PATIENCE_NEAR_ROUNDING, PATIENT_HALVINGS = 10, 10
#: Relative residuals below so many machine epsilons are near rounding errors.
NEAR_ROUNDING = 1e4


class ColumnProgress:
    """Columns at work, their histories, and the finished columns' solutions.

    ``columns`` holds the numbers of the columns at work, in the order in which the method keeps them.
    """

    def __init__(self, task: Round) -> None:
        self.task = task
        count = int(task.residual.shape[1])
        self.columns = np.arange(count)
        self.iterations = np.zeros(count, dtype=np.int64)
        self.products = np.zeros(count)
        self._records: list[tuple[np.ndarray, np.ndarray]] = []  # columns at work, their residuals per step
        self._claims: np.ndarray = np.full(count, None, dtype=object)
        self._ended = np.zeros(count, dtype=bool)
        self._best = task.relative.copy()
        self._near = NEAR_ROUNDING * float(namespace_of(task.residual).finfo(task.residual.dtype).eps)
        self._age = np.zeros(count, dtype=np.int64)
        self._finished: list[Array] = []
        self._places: list[np.ndarray] = []
        self.end(self._best <= task.aim, LinearStatus.CONVERGED)
        if task.idle is not None:
            self.end(task.idle, LinearStatus.CONVERGED)
        if task.maxiter <= 0:
            self.end_all(LinearStatus.ITERATION_LIMIT)

    def step(self, products: float) -> None:
        """Count one step of all columns at work, that took so many products together."""
        self.iterations[self.columns] += 1
        self.products[self.columns] += products / self.columns.size

    def look(self, steps: int, norms: np.ndarray) -> None:
        """Record the residual norms of the latest steps, a row per step, and end the columns that are through."""
        relative = norms / self.task.norms[self.columns]
        self._records.append((self.columns, relative))
        now, best, age = relative[-1], self._best[self.columns], self._age[self.columns]
        near = best < self._near
        better = now < np.where(near, 0.5, 1.0) * best
        best, age = np.where(better, now, best), np.where(better, 0, age + len(relative))
        self._best[self.columns], self._age[self.columns] = best, age
        self.end(~np.isfinite(now), LinearStatus.NONFINITE)
        self.end(now <= self.task.aim[self.columns], LinearStatus.CONVERGED)
        steps_to_best = self.task.spent[self.columns] + self.iterations[self.columns] - age
        halvings = -np.log2(best, out=np.ones_like(best), where=near & (best > 0))
        patience = np.maximum(PATIENCE_NEAR_ROUNDING, PATIENT_HALVINGS * steps_to_best / halvings)
        self.end(age >= np.where(near, patience, PATIENCE), LinearStatus.STAGNATED)
        active = ~self._ended[self.columns]
        worst = float(np.max(now[active], initial=0.0))
        if self.task.watch(steps, int(active.sum()), worst):
            self.end_all(LinearStatus.STOPPED)
        elif steps >= self.task.maxiter:
            self.end_all(LinearStatus.ITERATION_LIMIT)

    def end(self, which: np.ndarray, status: LinearStatus) -> None:
        """End some of the columns at work (a mask over them), unless they have ended already."""
        columns = self.columns[which]
        columns = columns[~self._ended[columns]]
        self._claims[columns] = status
        self._ended[columns] = True

    def end_all(self, status: LinearStatus) -> None:
        """End all columns that are still at work."""
        self.end(np.ones(self.columns.size, dtype=bool), status)

    def end_each(self, which: np.ndarray, status: LinearStatus) -> None:
        """End some of the columns (a mask over those of the blocks), unless they have ended already."""
        self.end(which, status)

    def ended_so(self, status: LinearStatus) -> np.ndarray:
        """Per column of the blocks, whether it has ended with this status."""
        return np.array([claim is status for claim in self._claims[self.columns]], dtype=bool)

    @property
    def any_ended(self) -> bool:
        """Whether some of the columns at work have ended."""
        return bool(self._ended[self.columns].any())

    def release(self, x: Array) -> np.ndarray:
        """Take over the solutions of the ended columns and return the places of those that stay in the blocks."""
        ended = self._ended[self.columns]
        leave, stay = np.flatnonzero(ended), np.flatnonzero(~ended)
        self._finished.append(x if not stay.size else take_columns(x, leave))
        self._places.append(self.columns[leave])
        self.columns = self.columns[stay]
        return stay

    def kept(self, stay: np.ndarray, *blocks: Array) -> list[Array]:
        """Return blocks with the columns that stay in them."""
        return [take_columns(block, stay) for block in blocks]

    def kept_gram(self, stay: np.ndarray, gram: np.ndarray) -> np.ndarray:
        """Return the inner products of such columns, of those of all columns."""
        kept: np.ndarray = gram[np.ix_(stay, stay)]
        return kept

    @property
    def at_once(self) -> bool:
        """Whether all columns have ended in the same step."""
        return len(self._places) == 1

    def _solutions(self) -> Array:
        """The solutions of all columns, in their first order."""
        x = self._finished[0]
        if len(self._finished) > 1:
            joined = namespace_of(x).concat(self._finished, axis=1)
            x = take_columns(joined, np.argsort(np.concatenate(self._places)))
        return x

    def close(self) -> Correction:
        """Return all columns in their first order."""
        x = self._solutions()
        history: list[list[float]] = [[] for _ in self._claims]
        for columns, relative in self._records:
            for column, values in zip(columns.tolist(), relative.T.tolist()):
                history[column] += values
        return Correction(x, self.iterations, self.products, history, self._claims.tolist())


class WideColumnProgress(ColumnProgress):
    """The progress of columns that stay in the blocks when they have ended, which so keep their shape.

    That is for a library that compiles a program for every shape: it takes longer than the products of the columns that
    have ended. What the method makes of those is not looked at any more.
    """

    def __init__(self, task: Round) -> None:
        self._all = np.arange(int(task.residual.shape[1]))
        super().__init__(task)

    def look(self, steps: int, norms: np.ndarray) -> None:
        """Record the residual norms of the latest steps, a row per step, and end the columns that are through."""
        super().look(steps, norms[:, self.columns])

    def ended_so(self, status: LinearStatus) -> np.ndarray:
        """Per column of the blocks, whether it has ended with this status."""
        return np.array([claim is status for claim in self._claims], dtype=bool)

    def end_each(self, which: np.ndarray, status: LinearStatus) -> None:
        """End some of the columns (a mask over those of the blocks)."""
        self.end(which[self.columns], status)

    def release(self, x: Array) -> np.ndarray:
        """Take over the solutions of the ended columns; the blocks stay as they are while any column is at work."""
        leave = self._ended & ~np.isin(self._all, np.concatenate([np.zeros(0, int), *self._places]))
        self._finished = [columns_of_two(leave, x, self._finished[0]) if self._finished else x]
        self._places.append(np.flatnonzero(leave))
        self.columns = np.flatnonzero(~self._ended)
        return self._all if self.columns.size else self.columns

    def kept(self, stay: np.ndarray, *blocks: Array) -> list[Array]:
        """Return blocks in which the columns that have ended are zero."""
        return columns_or_zero(~self._ended, list(blocks))

    def kept_gram(self, stay: np.ndarray, gram: np.ndarray) -> np.ndarray:
        """Return inner products of blocks in which the columns that have ended are zero."""
        return np.where(self._ended | self._ended[:, None], 0.0, gram)

    def _solutions(self) -> Array:
        return self._finished[0]


def progress_for(task: Round) -> ColumnProgress:
    """Return the progress of a run that starts, as the library of its blocks wants them."""
    return WideColumnProgress(task) if shapes_are_compiled(task.residual) else ColumnProgress(task)
