"""What problems carry from step to step: arrays, and the books of numbers on the host."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from stepwell.arrays import Array, copy_to_device_of, namespace_of, take_columns
from stepwell.krylov.tv.metric import PAIRS
from stepwell.krylov.tv.sweeps import Splitting, take_some

#: A gap has come forward where it has fallen to this part of itself.
PROGRESS = 0.9


@dataclass
class State:
    """What problems carry from step to step; arrays have a row (data: a column) for each of them.

    ``data`` is Ax; ``gradient`` is Aᵀ(Ax − b), of an earlier x where it is ``stale``; ``last`` are x and the gradient
    in the cosine basis; ``steps`` and ``images`` are recent steps and AᵀA times them, there too; ``ahead`` is x there
    where a step has just transformed it.
    """

    x: Array
    data: Array
    splitting: Splitting
    stale: np.ndarray
    gradient: Array | None = None
    last: tuple[Array, Array] | None = None
    steps: Array | None = None
    images: Array | None = None
    ahead: Array | None = None

    def take(self, rows: np.ndarray) -> State:
        """Return the states of some problems; of all of them, which may share their data, this one."""
        if rows.size == self.stale.size:
            return self
        return State(
            take_some(self.x, rows),
            take_columns(self.data, rows),
            self.splitting.take(rows),
            self.stale[rows],
            take_some(self.gradient, rows),
            None if self.last is None else (take_some(self.last[0], rows), take_some(self.last[1], rows)),
            take_some(self.steps, rows),
            take_some(self.images, rows),
        )


@dataclass
class Books:
    """Numbers of every problem, on the host."""

    cs: np.ndarray
    sweeps: np.ndarray
    f: np.ndarray
    lower: np.ndarray
    iterations: np.ndarray
    products: np.ndarray
    swept: np.ndarray
    mismatch: np.ndarray
    single: np.ndarray

    @classmethod
    def begin(cls, count: int, sweeps: int) -> Books:
        """Return the books before the first step."""
        zero = np.zeros(count)
        whole = np.zeros(count, dtype=np.int64)
        return cls(
            np.ones(count), np.full(count, sweeps), zero + np.inf, zero.copy(), whole.copy(), zero.copy(),
            whole.copy(), zero.copy(), np.ones(count, dtype=bool),
        )  # fmt: skip

    def gaps(self, rows: np.ndarray) -> np.ndarray:
        """Proven relative gaps; infinite where f is not known."""
        f, lower = self.f[rows], self.lower[rows]
        known = np.isfinite(f)
        with np.errstate(invalid="ignore", divide="ignore"):
            found: np.ndarray = np.where(
                known, np.where(f > 0, np.maximum(f - lower, 0.0) / np.where(f > 0, f, 1), 0.0), np.inf
            )
        return found


class Marks:
    """Since how many steps the gap of each problem has not fallen."""

    def __init__(self, count: int) -> None:
        self.best = np.full(count, np.inf)
        self.age = np.zeros(count, dtype=np.int64)

    def look(self, rows: np.ndarray, books: Books, history: list[list[float]]) -> None:
        """Book the gaps after a step."""
        absolute = books.f[rows] - books.lower[rows]
        better = absolute < PROGRESS * self.best[rows]
        self.best[rows] = np.where(better, absolute, self.best[rows])
        self.age[rows] = np.where(better, 0, self.age[rows] + 1)
        for row, relative in zip(rows.tolist(), books.gaps(rows).tolist()):
            history[row].append(relative)


def pushed(kept: Array | None, new: Array, moved: Array) -> Array:
    """Append a row to those kept of the problems that have moved; at most `PAIRS` stay."""
    xp = namespace_of(new)
    if kept is None:
        return xp.where(moved, new, xp.zeros_like(new))
    if isinstance(kept, np.ndarray) and kept.shape[1] == PAIRS and moved.all():
        for row in range(PAIRS - 1):  # where they lie: memory is what this costs
            kept[:, row] = kept[:, row + 1]
        kept[:, -1:] = new
        return kept
    with_new = xp.concat([kept[:, 1 - PAIRS :], new], axis=1) if PAIRS > 1 else new
    if kept.shape[1] < with_new.shape[1]:
        kept = xp.concat([xp.zeros_like(new), kept], axis=1)
    return xp.where(moved, with_new, kept)


def joined(states: list[State], order: np.ndarray) -> State:
    """Join states along their problems, and put these in order."""
    xp = namespace_of(states[0].x)

    def join(parts: list[Any], axis: int) -> Any:
        if any(part is None for part in parts):
            return None
        return xp.take(xp.concat(parts, axis=axis), copy_to_device_of(order, parts[0]), axis=axis)

    splitting = Splitting(
        *(
            join([getattr(state.splitting, one.name) for state in states], 1 if one.name in "zu" else 0)
            for one in fields(Splitting)
        )
    )
    pairs = [state.steps.shape[1] if state.steps is not None else 0 for state in states]
    widest = max(pairs)

    def padded(name: str) -> Any:
        blocks = []
        for state, count in zip(states, pairs):
            block = getattr(state, name)
            if count < widest:
                empty = xp.reshape(xp.zeros_like(state.x), (state.x.shape[0], 1, -1))
                block = xp.concat([empty] * (widest - count) + ([block] if count else []), axis=1)
            blocks.append(block)
        return join(blocks, 0) if widest else None

    last = None
    if all(state.last is not None for state in states):
        last = tuple(join([state.last[i] for state in states], 0) for i in range(2))  # type: ignore[index]
    return State(
        join([state.x for state in states], 0),
        join([state.data for state in states], 1),
        splitting,
        np.concatenate([state.stale for state in states])[order],
        join([state.gradient for state in states], 0),
        last,  # type: ignore[arg-type]
        padded("steps"),
        padded("images"),
    )
