"""Earlier blocks of directions that new ones are made conjugate to, within a budget of bytes."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from stepwell.arrays import (
    Array,
    block_step,
    is_cuda,
    namespace_of,
    next_candidates,
    on_device_of,
    shapes_are_compiled,
    with_columns,
    without_kept,
)
from stepwell.krylov.reductions import WHOLE, Sums
from stepwell.operators.block_products import combined, plus_combined

#: Columns of a panel, about; on a GPU more of short ones, in so many bytes: they are read in less time than it takes to
#: start another program.
PANEL, PANEL_BYTES = 128, 2**23


class Kept(Protocol):
    """What a block method asks of its memory."""

    def add(self, directions: Array, products: Array, inverse: Array) -> None:
        """Take in directions P, their products Q = HP and (PᵀHP)⁻¹; the oldest go where the budget ends."""

    def conjugate(self, block: Array) -> Array:
        """Remove from a block what is not conjugate to the kept directions."""


def kept_for(block: Array, budget: int, sums: Sums, rows: int | None) -> Kept:
    """Return a memory for directions like the columns of a block, as its library wants it."""
    if shapes_are_compiled(block):
        return KeptPanels(budget, sums, rows)
    return KeptBlocks(budget, is_cuda(block) or sums.spread, sums, rows)


def block_bytes(block: Array, rows: int | None) -> int:
    """Bytes of a block, of so many rows on all ranks together (None: of those that it has)."""
    count = int(block.shape[0]) if rows is None else rows
    return count * int(block.shape[1]) * int(getattr(block.dtype, "itemsize", 8))


class KeptBlocks:
    """Earlier directions P, their products Q = HP and (PᵀHP)⁻¹, newest last, within a budget of bytes.

    Joined, they lie side by side in one block, Q multiplied by the inverse once and for all, so that two large matrix
    products do the work of many small ones. That pays on a GPU, where a small product takes as long as a large one, and
    over ranks, where each takes a message; on a host the copies cost more than they save.

    ``rows`` are the entries of a column on all ranks together, to which the budget belongs; by default those it has.
    """

    def __init__(self, budget: int, joined: bool, sums: Sums = WHOLE, rows: int | None = None) -> None:
        self.budget = budget
        self.joined = joined
        self.sums, self.rows = sums, rows
        self._blocks: list[tuple[Array, Array, Array | None]] = []

    def add(self, directions: Array, products: Array, inverse: Array) -> None:
        """Take in directions P, their products Q = HP and (PᵀHP)⁻¹; the oldest go where the budget ends."""
        new: tuple[Array, Array, Array | None] = (directions, products, inverse)
        if self.joined:
            new = self._join(directions, combined(products, inverse))
        self._blocks.append(new)
        while len(self._blocks) > 1 and self.bytes_held > self.budget:
            self._blocks.pop(0)

    @property
    def bytes_held(self) -> int:
        """Bytes of the directions and their products."""
        return sum(2 * block_bytes(directions, self.rows) for directions, _, _ in self._blocks)

    def conjugate(self, block: Array) -> Array:
        """Remove from a block what is not conjugate to the kept directions."""
        for directions, products, inverse in self._blocks:
            share = self.sums.gram(products, block)
            block = plus_combined(block, directions, share if inverse is None else combined(inverse, share), -1)
        return block

    def _join(self, *new: Array) -> tuple[Array, Array, None]:
        """Put new directions and duals beside the old ones, of which the oldest go where the budget ends."""
        if not self._blocks:
            return new[0], new[1], None
        old = self._blocks.pop()
        kept = self.budget // max(1, 2 * block_bytes(new[0][:, :1], self.rows)) - int(new[0].shape[1])
        oldest = max(0, int(old[0].shape[1]) - max(0, kept))
        concat = namespace_of(new[0]).concat
        directions, duals = (concat([before[:, oldest:], now], axis=1) for before, now in zip(old, new))
        return directions, duals, None


class KeptPanels:
    """Earlier directions P and duals Q(PᵀHP)⁻¹ side by side in panels of one shape, zero where nothing is kept yet.

    Blocks of directions all have the same width. A full memory writes the newest block over the oldest. So there are as
    few shapes as there can be, for a library that compiles a program for each.
    """

    def __init__(self, budget: int, sums: Sums = WHOLE, rows: int | None = None) -> None:
        self.budget, self.sums, self.rows = budget, sums, rows
        self._panels: list[tuple[Array, Array]] = []
        self._added = 0

    def add(self, directions: Array, products: Array, inverse: Array) -> None:
        """Take in directions P, their products Q = HP and (PᵀHP)⁻¹; the oldest go where the budget ends."""
        panel, first = self._next_place(directions)
        old, news = self._panels[panel], (directions, combined(products, inverse))
        self._panels[panel] = (with_columns(old[0], first, news[0]), with_columns(old[1], first, news[1]))

    def step(
        self, x: Array, residual: Array, directions: Array, products: Array, inverse: np.ndarray, step: np.ndarray
    ) -> tuple[Array, Array, Array]:
        """Return x and the residual after the step of a block whose directions are taken in, and the residual's norms.

        The same as `add` and the step, as one program of a library that compiles them; not over ranks.
        """
        panel, first = self._next_place(directions)
        small = np.concatenate([inverse, step], axis=1)
        x, residual, norms, self._panels[panel] = block_step(
            x, residual, directions, products, small, self._panels[panel], first
        )
        return x, residual, norms

    def next_candidates(self, block: Array, norms: Array) -> tuple[Array, Array]:
        """What `conjugate` makes of a block, C, and the norms above CᵀC, in a program for each panel; after a step."""
        return next_candidates(block, self._panels, norms)

    def _next_place(self, directions: Array) -> tuple[int, int]:
        """The panel that takes the next directions, made if need be, and their first column in it."""
        width, size = max(1, int(directions.shape[1])), max(1, 2 * block_bytes(directions, self.rows))
        blocks, in_panel = max(1, self.budget // size), -(-PANEL // width)
        if is_cuda(directions):  # (No more directions than unknowns are independent.)
            in_panel = max(in_panel, min(PANEL_BYTES // size, -(-int(directions.shape[0]) // width)))
        in_panel = min(blocks, in_panel)
        panel, place = divmod(self._added % (blocks // in_panel * in_panel), in_panel)
        if panel == len(self._panels):
            shape, zeros = (int(directions.shape[0]), in_panel * width), namespace_of(directions).zeros
            new = [zeros(shape, dtype=directions.dtype, **on_device_of(directions)) for _ in range(2)]
            self._panels.append((new[0], new[1]))
        self._added += 1
        return panel, place * width

    def conjugate(self, block: Array) -> Array:
        """Remove from a block what is not conjugate to the kept directions."""
        if shapes_are_compiled(block) and not self.sums.spread:
            return without_kept(block, self._panels)
        shares = self.sums.several_grams(*((duals, block) for _, duals in self._panels)) if self._panels else []
        for (directions, _), share in zip(self._panels, shares):
            block = plus_combined(block, directions, share, -1)
        return block
