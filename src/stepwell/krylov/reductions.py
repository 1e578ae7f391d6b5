"""Inner products, norms and the like of blocks whose long axis may be spread over ranks: their one home.

A block of columns is long and narrow. What a method decides by are a few numbers summed over its long axis. Here, and
nowhere else in this package, such sums are taken; where the long axis is spread over ranks each rank sums its piece,
and the sums of all are added in the order of the ranks. All ranks have the same numbers then, and decide the same.

A message carries, besides the sums, what a rank wants all others to know: an error, or the wish of a callback to stop.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stepwell import _core
from stepwell.arrays import (
    Array,
    column_dots,
    column_largest,
    column_norms,
    copy_to_device_of,
    matrix_product,
    namespace_of,
    to_host,
)
from stepwell.common.threads import default_threads
from stepwell.distributed import Ranks, read_comm
from stepwell.distributed.ranks import STOP
from stepwell.operators import Operator
from stepwell.operators.block_products import inner_products

#: Random numbers are drawn for so many entries of a spread vector at a time, seeded by where these begin.
RANDOM_ROWS = 4096

#: Norms whose squares every dtype holds.
SAFE = (1e-15, 1e15)

Pair = tuple[Array, Array]


@dataclass(frozen=True)
class Extent:
    """A long axis: entries on this rank, entries before them on other ranks, and entries of all ranks together."""

    local: int
    begin: int
    whole: int


class Sums:
    """Sums over the long axis of blocks, over all ranks where there are any.

    Parameters
    ----------
    comm : optional
        As `stepwell.distributed.read_comm` takes it; None: the blocks are whole.

    Attributes
    ----------
    stopped : bool
        Whether any rank has asked all to stop.
    """

    def __init__(self, comm: Any = None) -> None:
        self.ranks = None if read_comm(comm) is None else Ranks(comm)
        self.begin()

    def begin(self) -> None:
        """Begin another solve: nobody has asked to stop, and no message was sent."""
        self.stopped = False
        self._sent_before = (0, 0) if self.ranks is None else (self.ranks.exchanges, self.ranks.bytes_sent)

    @property
    def sent(self) -> tuple[int, int]:
        """Messages of this solve, and bytes that this rank sent with them."""
        if self.ranks is None:
            return 0, 0
        messages, size = self._sent_before
        return self.ranks.exchanges - messages, self.ranks.bytes_sent - size

    @property
    def spread(self) -> bool:
        """Whether the long axes lie over ranks."""
        return self.ranks is not None

    # ---- sums ----

    def dots(self, left: Array, right: Array) -> Array:
        """Inner products of equal columns of two blocks."""
        return self.total(column_dots(left, right))[0]

    def several_dots(self, *pairs: Pair) -> list[Array]:
        """Inner products of equal columns of several pairs of blocks, in one message."""
        return self.total(*(column_dots(left, right) for left, right in pairs))

    def norms(self, block: Array) -> Array:
        """Euclidean norm of every column, on the block's device."""
        if self.ranks is None:
            return column_norms(block)
        return namespace_of(block).sqrt(self.dots(block, block))

    def safe_norms(self, block: Array) -> np.ndarray:
        """Euclidean norm of every column, on the host; also of columns whose squares are no numbers."""
        norms = to_host(self.norms(block))
        if ((norms > SAFE[0]) & (norms < SAFE[1])).all() or (not block.shape[0] and not self.spread):
            return norms
        largest = self.largest(block)
        sizes = np.where(np.isfinite(largest) & (largest > 0), largest, 1.0)
        return to_host(self.norms(block / copy_to_device_of(sizes, block))) * sizes

    def dots_and_norms(self, left: Array, right: Array) -> tuple[Array, Array]:
        """Inner products of equal columns, and the norms of the first block's columns, in one message."""
        if self.ranks is None:
            return column_dots(left, right), column_norms(left)
        products, squares = self.several_dots((left, right), (left, left))
        return products, namespace_of(left).sqrt(squares)

    def gram(self, left: Array, right: Array) -> Array:
        """All inner products of the columns of two blocks, ``left.T @ right``."""
        return self.total(inner_products(left, right))[0]

    def several_grams(self, *pairs: Pair) -> list[Array]:
        """All inner products of the columns of several pairs of blocks, in one message."""
        return self.total(*(inner_products(left, right) for left, right in pairs))

    def rows_times(self, rows: Array, column: Array) -> Array:
        """Inner products of all rows with a column: ``rows @ column``."""
        return self.total(rows_times(rows, column))[0]

    def panels_times(self, panels: Sequence[Array], column: Array) -> list[Array]:
        """Inner products of the rows of several panels with a column, in one message."""
        return self.total(*(rows_times(rows, column) for rows in panels))

    def panels_times_and_norm(self, panels: Sequence[Array], column: Array) -> tuple[list[Array], float]:
        """Inner products of the rows of several panels with a column, and its norm, in one message."""
        found, norms = self.panels_times_and_norms(panels, column, column)
        return found, norms[0]

    def panels_times_and_norms(
        self, panels: Sequence[Array], column: Array, *columns: Array
    ) -> tuple[list[Array], list[float]]:
        """Inner products of the rows of several panels with a column, and norms of some columns, in one message."""
        if self.ranks is None:
            return self.panels_times(panels, column), [float(to_host(column_norms(one))[0]) for one in columns]
        squares = [column_dots(one, one) for one in columns]
        found = self.total(*(rows_times(rows, column) for rows in panels), *squares)
        return found[: len(panels)], [float(to_host(square)[0]) ** 0.5 for square in found[len(panels) :]]

    def total(self, *parts: Array) -> list[Array]:
        """Return the sums over all ranks of arrays that are sums over this rank's piece, in one message."""
        if self.ranks is None:
            return list(parts)
        if self.ranks.size == 1:
            self._exchange(_NOTHING)
            return list(parts)
        mine = [to_host(part) for part in parts]
        rows = self._exchange(np.concatenate([np.zeros(0), *(part.ravel() for part in mine)]))
        whole = rows[0].copy()
        for row in rows[1:]:
            whole += row
        ends = np.cumsum([part.size for part in mine]).tolist()
        pieces = (whole[end - part.size : end].reshape(part.shape) for end, part in zip(ends, mine))
        return [copy_to_device_of(piece, part) for piece, part in zip(pieces, parts)]

    # ---- largest entries, and whether all are finite ----

    def largest(self, block: Array) -> np.ndarray:
        """Largest absolute value of every column, NaN where there is one."""
        return self.most(_largest(block))

    def most(self, values: np.ndarray) -> np.ndarray:
        """Return the largest of each number over all ranks, NaN where there is one."""
        if self.ranks is None:
            return values
        most: np.ndarray = np.max(np.stack(self._exchange(values)), axis=0)
        return most

    def finite(self, block: Array) -> np.ndarray:
        """Whether all entries of each column are finite."""
        xp = namespace_of(block)
        lost = to_host(xp.all(xp.isfinite(block), axis=0)) == 0
        finite: np.ndarray = self.most(lost.astype(np.float64)) == 0
        return finite

    def of_all(self, *numbers: float) -> np.ndarray:
        """Return numbers of every rank, a row for each."""
        row = np.array(numbers, dtype=np.float64)
        return row[None] if self.ranks is None else np.stack(self._exchange(row))

    # ---- set-up, errors, wishes ----

    def extents(self, *lengths: int) -> list[Extent]:
        """Return how long axes are of which each rank has a piece, in the order of the ranks."""
        if self.ranks is None:
            return [Extent(length, 0, length) for length in lengths]
        table = np.stack(self._exchange(np.array(lengths, dtype=np.float64))).astype(np.int64)
        before = table[: self.ranks.rank].sum(axis=0).tolist()
        return [Extent(n, begin, whole) for n, begin, whole in zip(lengths, before, table.sum(axis=0).tolist())]

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Keep what is raised inside for the next message, which raises it on all ranks; alone, let it pass."""
        if self.ranks is None:
            yield
            return
        with self.ranks.holding():
            yield

    def check(self) -> None:
        """Raise on all ranks what any of them holds."""
        if self.ranks is not None:
            self._exchange(np.empty(0))

    def agree_all(self, values: Mapping[str, Any]) -> None:
        """Raise on all ranks unless all have the same values of these arguments; the error names one that differs."""
        if self.ranks is not None:
            self.ranks.agree_all(values)

    def ask_to_stop(self) -> None:
        """Ask all ranks, with the next message, to stop."""
        assert self.ranks is not None
        self.ranks.ask(STOP)

    def _exchange(self, row: np.ndarray) -> list[np.ndarray]:
        assert self.ranks is not None
        rows = self.ranks.exchange(row)
        self.stopped |= self.ranks.told == STOP
        return rows

    # ---- functions of the caller's ----

    def held(self, function: Callable[[Array], Array], rows: int | None) -> Callable[[Array], Array]:
        """Return a function of blocks whose errors are kept for the next message; it then gives zeros.

        What it gives is never the block itself, which a method may look for: ranks that failed would do otherwise.
        """

        def apply(block: Array) -> Array:
            with self.holding():
                image = function(block)
                return image if image is not block else namespace_of(block).asarray(block, copy=True)
            shape = (int(block.shape[0]) if rows is None else rows, int(block.shape[1]))
            return copy_to_device_of(np.zeros(shape), block)

        return apply if self.spread else function

    def held_operator(self, operator: Operator) -> Operator:
        """Return an operator on this rank's pieces whose errors are kept for the next message."""
        if not self.spread:
            return operator
        rows, columns = operator.shape
        return Operator(
            self.held(operator.forward, rows),
            self.held(operator.adjoint, columns),
            operator.shape,
            operator.home,
            memory=operator.memory,
            name=operator.name,
        )

    # ---- random vectors ----

    def random_rows(self, kind: str, extent: Extent, columns: int) -> np.ndarray:
        """Return this rank's piece of a random block, normal numbers or signs, that no partition changes."""
        if self.ranks is None:
            return _drawn(kind, 0, (extent.local, columns))
        first = extent.begin // RANDOM_ROWS
        last = -(-(extent.begin + extent.local) // RANDOM_ROWS)
        blocks = [_drawn(kind, [1, block], (RANDOM_ROWS, columns)) for block in range(first, last)]
        drawn = np.concatenate([np.zeros((0, columns)), *blocks])
        skipped = extent.begin - first * RANDOM_ROWS
        return drawn[skipped : skipped + extent.local]


#: For blocks that are whole.
WHOLE = Sums()
_NOTHING = np.empty(0)


def rows_times(rows: Array, column: Array) -> Array:
    """Inner products of all rows with a column, of what this rank has: ``rows @ column``."""
    if not isinstance(rows, np.ndarray):
        return matrix_product(rows, column)
    out = np.empty(rows.shape[0], dtype=rows.dtype)
    _core.rows_dots(rows, np.ascontiguousarray(column[:, 0], dtype=rows.dtype), out, default_threads())
    return out[:, None]


def _largest(block: Array) -> np.ndarray:
    if not block.shape[0] or not block.shape[1]:
        return np.zeros(int(block.shape[1]))
    return to_host(column_largest(block))


def _drawn(kind: str, seed: Any, shape: tuple[int, int]) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.standard_normal(shape) if kind == "normal" else random.choice([-1.0, 1.0], size=shape)
