"""Kept search directions, with what the matrix makes of them, within a budget of bytes.

Directions lie in rows, each in one piece, in panels that are made once and then filled: taking one in copies nothing
else (but on JAX, whose arrays are never written to). On the host products with them run on the package's own threads:
a BLAS leaves its threads waiting in a loop, and they take the cores from the sparse product that follows.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np

from stepwell import _core
from stepwell.arrays import (
    Array,
    copy_to_device_of,
    empty_block,
    host_copy,
    namespace_of,
    plus_product,
    shapes_are_compiled,
    to_host,
    with_row,
)
from stepwell.common.checks import require
from stepwell.common.threads import default_threads
from stepwell.krylov.reductions import WHOLE, Sums

#: Rows of a panel.
PANEL = 128
#: Most directions that are dropped at a time when the budget is full.
DROPPED = 32
#: Where a removal leaves less than this of a column's length, it is repeated, so often at the most.
LITTLE, MAX_REMOVALS = 0.5, 3
#: What may be left of another direction in a new one, relative to its own energy norm and in machine epsilons (1e-13 in
#: float64): in the first solve, where errors feed on each other, and after a projection, whose own rounding errors
#: are larger, and do not. Conjugacy is held to 1e-10 either way. Single precision has no such room: there 500 machine
#: epsilons grew to directions that were the same, and 2e4 are nearly everything.
NEGLIGIBLE, NEGLIGIBLE_PROJECTED, NEGLIGIBLE_SINGLE = 500.0, 2e4, 16.0


def plus_rows(column: Array, rows: Array, share: Array, sign: int = 1) -> Array:
    """Return ``column + sign * rows.T @ share``; on the host rows whose share is zero are not read."""
    if not isinstance(rows, np.ndarray):
        return plus_product(column, rows.T, share, sign)
    out = np.empty(rows.shape[1], dtype=rows.dtype)
    share = _flat(share, rows)
    _core.rows_combine(rows, share if sign > 0 else -share, _flat(column, rows), out, default_threads())
    return out[:, None]


def plus_rows_and_overlaps(column: Array, rows: Array, share: Array, other: Array) -> tuple[Array, Array | None]:
    """Return ``column + rows.T @ share`` and ``rows @ other``, the latter only where it takes no pass of its own.

    Both are of what this rank has.
    """
    if not isinstance(rows, np.ndarray):
        return plus_product(column, rows.T, share), None
    out, overlaps = np.empty(rows.shape[1], dtype=rows.dtype), np.empty(rows.shape[0], dtype=rows.dtype)
    _core.rows_combine_and_dots(
        rows, _flat(share, rows), _flat(column, rows), out, _flat(other, rows), overlaps, default_threads()
    )
    return out[:, None], overlaps[:, None]


def _flat(column: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(column[:, 0], dtype=rows.dtype)


def space_bytes(size: int, data_size: int, number: int, memory: int) -> int:
    """Bytes of a full space within a budget: the directions, and what is copied of them while the least are dropped.

    No more directions than unknowns are conjugate: where the budget holds those, none is dropped.
    """
    per_direction = (2 * size + data_size) * number
    capacity = memory // per_direction if per_direction else 0
    all_of_them = -(-size // PANEL) * PANEL
    if capacity > size:
        return min(capacity, all_of_them) * per_direction
    return (capacity + min(capacity - min(DROPPED, capacity // 2), 2 * PANEL)) * per_direction


def copied(array: Array) -> Array:
    """Return a copy in memory of its own."""
    return namespace_of(array).asarray(array, copy=True)


@dataclass
class Panel:
    """Rows of directions P, of their products Q = HP and, for least squares, of their images AP."""

    directions: Array
    products: Array
    images: Array | None
    count: int

    @property
    def full(self) -> bool:
        """Whether there is no room for another direction."""
        return self.count >= int(self.directions.shape[0])

    def filled(self) -> Panel:
        """Return the rows in use (views where the library has them)."""
        if self.full:
            return self
        images = None if self.images is None else self.images[: self.count]
        return Panel(self.directions[: self.count], self.products[: self.count], images, self.count)

    def row(self, i: int) -> Panel:
        """Return one direction by itself (views where the library has them)."""
        images = None if self.images is None else self.images[i : i + 1]
        return Panel(self.directions[i : i + 1], self.products[i : i + 1], images, 1)

    def add(self, unit: float, direction: Array, product: Array, image: Array | None) -> None:
        """Write one more direction, given in columns that are multiplied by a number."""
        at = self.count
        self.directions = with_row(self.directions, at, direction[:, 0], unit)
        self.products = with_row(self.products, at, product[:, 0], unit)
        if self.images is not None:
            assert image is not None
            self.images = with_row(self.images, at, image[:, 0], unit)
        self.count += 1

    def copy(self) -> Panel:
        """Return a panel of its own memory."""
        return Panel(
            copied(self.directions),
            copied(self.products),
            None if self.images is None else copied(self.images),
            self.count,
        )

    def taken(self, rows: np.ndarray) -> Panel:
        """Return a full panel of some of the rows."""
        take = namespace_of(self.directions).take
        places = copy_to_device_of(rows, self.directions)
        images = None if self.images is None else take(self.images, places, axis=0)
        return Panel(take(self.directions, places, axis=0), take(self.products, places, axis=0), images, rows.size)

    def joined(self, other: Panel) -> Panel:
        """Return one full panel of the rows of two."""
        concat = namespace_of(self.directions).concat
        images = None if self.images is None else concat([self.images, other.images], axis=0)
        return Panel(
            concat([self.directions, other.directions], axis=0),
            concat([self.products, other.products], axis=0),
            images,
            self.count + other.count,
        )


class DirectionSpace:
    """Directions P, their products Q = HP with PᵀQ = I and, where there is a data space, images AP.

    Each direction carries a score, its share in the energy norm of the latest solutions, by which the least useful
    are dropped when the budget is full.

    Parameters
    ----------
    size, data_size : int
        Entries of a direction and of its image (0: no images are kept).
    number : int
        Bytes of a number.
    memory : int
        Bytes that all of them may take, on all ranks together.
    sums : Sums
        How sums over the entries of a direction are taken.
    whole : tuple of int, optional
        Entries of a direction and of its image on all ranks together; by default those of this one.
    """

    def __init__(
        self,
        size: int,
        data_size: int,
        number: int,
        memory: int,
        sums: Sums = WHOLE,
        whole: tuple[int, int] | None = None,
    ) -> None:
        self.size, self.data_size, self.number, self.sums = size, data_size, number, sums
        self.per_direction = (2 * size + data_size) * number
        all_size, all_data = (size, data_size) if whole is None else whole
        needed = (2 * all_size + all_data) * number
        self.capacity = memory // needed
        self.keeps_images = all_data > 0
        text = f"{2 * needed} bytes or more, for two directions of {all_size} unknowns"
        require(self.capacity >= 2, "memory", memory, text)
        self._panels: list[Panel] = []
        self._scores = np.empty(0)
        self._longest = 0.0  # of the kept directions, which have unit energy

    def copy(self) -> DirectionSpace:
        """Return a space with the same directions; full panels are shared, as they are never written to."""
        other = copy.copy(self)
        other._panels = [panel if panel.full else panel.copy() for panel in self._panels]
        return other

    @property
    def count(self) -> int:
        """Number of directions."""
        return sum(panel.count for panel in self._panels)

    @property
    def bytes_held(self) -> int:
        """Bytes of the directions, their products and images."""
        return self.count * self.per_direction

    def panels(self) -> list[Panel]:
        """Panels that together hold all directions, the oldest first."""
        return [panel.filled() for panel in self._panels]

    def working_panels(self) -> list[Panel]:
        """The same for products: as they are, with rows of zeros, where a library compiles programs for shapes."""
        return [panel if shapes_are_compiled(panel.directions) else panel.filled() for panel in self._panels]

    def conjugate(
        self, column: Array, overlaps: Array | None = None, length: float | None = None, *, projected: bool = False
    ) -> tuple[Array | None, float]:
        """Remove from a column what is not conjugate to the kept directions.

        A residual that was projected on a Krylov space is conjugate to all but its last directions (Chan and Wan
        1997), so on a host only what is not rounding error is removed, and again only where little remains;
        elsewhere everything, and twice, as looking would mean to wait.

        Parameters
        ----------
        column : array
        overlaps : array, optional
            Qᵀ times the column, where it is known.
        length : float, optional
            The column's norm, where it is known.
        projected : bool
            Whether the column comes from a projection on directions of earlier solves.

        Returns
        -------
        column : array or None
            None where nothing but rounding error remains: the column lies within the space.
        cancelled : float
            A direction of less than this energy norm needs :meth:`conjugate_again`.
        """
        panels, sums = self.working_panels(), self.sums
        if not panels:
            return column, 0.0
        epsilon = float(namespace_of(column).finfo(column.dtype).eps)
        if not isinstance(column, np.ndarray):
            before = self.length(column) if length is None else length
            for _ in range(2):
                for panel in panels:
                    column = plus_rows(column, panel.directions, sums.rows_times(panel.products, column), -1)
            after = float(to_host(sums.norms(column))[0])
            return (None if after < epsilon**0.5 * before else column), 0.0
        in_double = NEGLIGIBLE_PROJECTED if projected else NEGLIGIBLE
        bound = (NEGLIGIBLE_SINGLE if column.dtype == np.float32 else in_double) * epsilon
        if overlaps is None or length is None:
            products = [] if overlaps is not None else [panel.products for panel in panels]
            known, length = sums.panels_times_and_norm(products, column)
            overlaps = np.concatenate(known) if overlaps is None else overlaps
        first_length = before = length
        for _ in range(MAX_REMOVALS):
            if overlaps is None:
                overlaps = np.concatenate(sums.panels_times([panel.products for panel in panels], column))
            small = np.abs(overlaps) * self._longest <= bound * before
            shares, left = np.where(small, 0, overlaps), overlaps[small]
            first = 0
            for panel in panels:
                column = plus_rows(column, panel.directions, shares[first : first + panel.count], -1)
                first += panel.count
            after = float(sums.norms(column)[0])
            if after > LITTLE * before:
                break
            before, overlaps = after, None
        if after < epsilon**0.5 * first_length:
            return None, 0.0
        return column, max(float(np.sum(shares * shares)), float(np.sum(left * left)) / (5 * bound) ** 2) ** 0.5

    def look_ahead(self, column: Array, residual: Array) -> tuple[Array | None, float, float]:
        """Return what :meth:`conjugate` asks of a column, and the norm of a residual, in one message over ranks."""
        host = isinstance(column, np.ndarray)
        products = [panel.products for panel in self.working_panels()] if host else []
        others = [] if column is residual else [residual]
        overlaps, norms = self.sums.panels_times_and_norms(products, column, column, *others)
        return np.concatenate(overlaps) if overlaps else None, norms[0], norms[-1]

    def length(self, column: Array) -> float:
        """Return the norm of a column."""
        return float(to_host(self.sums.norms(column))[0])

    def energies(self, direction: Array, product: Array, residual: Array) -> tuple[float, float, Array | None]:
        """Return PᵀHP and Pᵀr of one direction and, on the host, PᵀP, in one message."""
        pairs = [(direction, product), (direction, residual)]
        pairs += [(direction, direction)] if isinstance(direction, np.ndarray) else []  # see `add`
        energy, slope, *square = self.sums.several_dots(*pairs)
        return float(to_host(energy)[0]), float(to_host(slope)[0]), square[0] if square else None

    def conjugate_again(
        self, direction: Array, product: Array, image: Array | None
    ) -> tuple[Array, Array, Array | None]:
        """Remove what a first removal left in, from a direction, its product and image alike: no product is needed.

        What is left is small, and removed from all panels at once: one message.
        """
        panels = self.working_panels()
        for panel, share in zip(panels, self.sums.panels_times([panel.products for panel in panels], direction)):
            direction = plus_rows(direction, panel.directions, share, -1)
            product = plus_rows(product, panel.products, share, -1)
            if image is not None and panel.images is not None:
                image = plus_rows(image, panel.images, share, -1)
        return direction, product, image

    def add(self, unit: float, direction: Array, product: Array, image: Array | None, square: Array | None) -> None:
        """Take in one direction, times the number that gives it unit energy; on the host its PᵀP is given."""
        count = self.count
        if count >= self.capacity:
            # Directions without a score yet belong to the solve in progress: the last to go.
            scores = np.concatenate([self._scores, np.full(max(0, count - self._scores.size), np.inf)])
            self._keep(scores, self.capacity - min(DROPPED, self.capacity // 2))
            count = self.count
        if not self._panels or self._panels[-1].full:
            rows = min(PANEL, self.capacity - count)
            images = empty_block(rows, self.data_size, direction) if self.keeps_images else None
            blocks = (empty_block(rows, self.size, direction), empty_block(rows, self.size, direction))
            self._panels.append(Panel(*blocks, images, 0))
        self._panels[-1].add(unit, direction, product, image)
        if square is not None:
            self._longest = max(self._longest, unit * float(square[0]) ** 0.5)

    def score(self, coefficients: np.ndarray | None) -> None:
        """Weigh each direction by its share in a solution; earlier solutions count half as much each time.

        None, where directions were dropped during the solve: those that it left have no weight.
        """
        known = np.where(np.isinf(self._scores), 0.0, self._scores)
        if coefficients is None:
            self._scores = known
            return
        total = float(np.sum(coefficients**2))
        old = np.zeros(coefficients.size)
        old[: known.size] = known
        self._scores = 0.5 * old + (coefficients**2 / total if total > 0 else 0.0)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return copies on the host, in their dtype: rows of directions, products and images, and scores."""
        panels = self.panels()

        def joined(parts: list[Array], width: int) -> np.ndarray:
            return np.concatenate([host_copy(part) for part in parts]) if parts else np.empty((0, width))

        images = [panel.images for panel in panels if panel.images is not None]
        return {
            "directions": joined([panel.directions for panel in panels], self.size),
            "products": joined([panel.products for panel in panels], self.size),
            "images": joined(images, self.data_size),
            "scores": self._scores.copy(),
            # Sums are taken panel by panel: with the same panels a solver goes on with the same bits.
            "panels": np.array([(panel.count, panel.directions.shape[0]) for panel in self._panels], np.int64),
            "longest": np.array(self._longest),
        }

    def restore(
        self,
        directions: Array,
        products: Array,
        images: Array | None,
        scores: np.ndarray,
        panels: np.ndarray,
        longest: float,
    ) -> None:
        """Take over saved directions, in panels as they were: rows in use and rows of each."""
        self._panels, self._scores, self._longest = [], scores, longest
        first = 0
        for count, rows in panels.tolist():
            last = first + count
            parts = (directions[first:last], products[first:last], None if images is None else images[first:last])
            self._panels.append(Panel(*parts, count) if count == rows else _with_room(*parts, rows))
            first = last
        count = int(directions.shape[0])
        if count > self.capacity:
            self._keep(np.concatenate([scores, np.zeros(count - scores.size)]), self.capacity)

    def _keep(self, scores: np.ndarray, limit: int) -> None:
        """Drop all but so many directions, those of the largest scores."""
        best = np.sort(np.argsort(scores, kind="stable")[-limit:])
        kept: list[Panel] = []
        first = 0
        old, self._panels = self._panels, []
        while old:  # each is freed before the next is looked at
            panel = old.pop(0).filled()
            rows = best[(best >= first) & (best < first + panel.count)] - first
            first += panel.count
            if not rows.size:
                continue
            rest = panel.taken(rows)
            if kept and kept[-1].count + rest.count <= PANEL:
                kept[-1] = kept[-1].joined(rest)
            else:
                kept.append(rest)
        self._panels, self._scores = kept, scores[best]


def _with_room(directions: Array, products: Array, images: Array | None, rows: int) -> Panel:
    """Return a panel of so many rows, the first of which are these."""
    xp = namespace_of(directions)

    def longer(block: Array) -> Array:
        room = empty_block(rows - int(block.shape[0]), int(block.shape[1]), block)
        return xp.concat([block, room], axis=0)

    count = int(directions.shape[0])
    return Panel(longer(directions), longer(products), None if images is None else longer(images), count)
