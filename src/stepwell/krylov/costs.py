"""What the methods cost on the host, for ``method="auto"``: steps, products and reductions, counted and weighed.

Counts are expected ones, from the sizes, the tolerance and ‖Aᵀb‖/(λ‖b‖) of one column; weights are nanoseconds of one
core. Both were fitted to the same runs (``python benchmarks/tikhonov_auto.py``, docs/performance.md). The number of
threads does not enter: a problem has the same method, and so the same bits, on any number of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Nanoseconds on one core: a step of either method (Python), an entry of a sparse A for a block and for each of its
#: columns, an entry of a dense A likewise, a number of a column in a step of ``pseudo-block``, in a pass of ``block``
#: (of which a step has six, and two for each block that is kept), a product of two such numbers in a reduction of
#: ``block``, a kept block (Python), a product of two numbers in a dense factor, and ``direct`` at all.
STEP, KEPT_BLOCK, DIRECT = 290e3, 32e3, 13e6
SPARSE_ENTRY, SPARSE_ENTRY_A_COLUMN = 0.92, 0.22
DENSE_ENTRY, DENSE_ENTRY_A_COLUMN = 1.1, 0.115
PSEUDO_NUMBER, BLOCK_NUMBER, BLOCK_PRODUCT, FACTOR_PRODUCT = 16.5, 2.0, 0.14, 0.102
#: Passes over a block, and reductions of its columns with each other, in a step of ``block``; and for each kept one.
PASSES, REDUCTIONS, OF_KEPT = 6, 5.5, 2
#: Steps at first grow with a power of 1/tol, as data of images do, whatever λ; then as conjugate gradients do by their
#: bound, with √cond log(1/tol); the sharpness of the change between the two, and to the end after some n steps.
FIRST_STEPS, FIRST_POWER, STEPS_BY_BOUND, SHARPNESS, ALL_STEPS = 0.87, 0.455, 0.275, 1.2, 2.0
#: Steps of a block of k columns: a power of k fewer, and some n/k at the most.
BLOCK_POWER, ALL_BLOCK_STEPS, BLOCK_SHARPNESS = 0.17, 1.05, 0.88


@dataclass(frozen=True)
class Work:
    """What a choice goes by.

    Attributes
    ----------
    size, equations : int
        Unknowns and equations of a column.
    sparse_entries, dense_entries : int
        Numbers that one product with A and L reads, in sparse and in dense matrices; as much again for the adjoints.
    columns : int
        Right-hand sides that share one matrix.
    ratio : float
        ‖Aᵀb‖/(λ‖b‖) of a column: about the square root of the condition number that the data see.
    tol : float
    maxiter : int
    memory, width : int
        As ``block`` has them.
    number : int
        Bytes of a number.
    dual : bool
        Whether ``direct`` factors the matrix of the equations.
    """

    size: int
    equations: int
    sparse_entries: int
    dense_entries: int
    columns: int
    ratio: float
    tol: float
    maxiter: int
    memory: int
    width: int
    number: int = 8
    dual: bool = False

    @property
    def steps(self) -> float:
        """Expected steps of one column alone.

        Examples
        --------
        >>> work = Work(4096, 4275, 420_000, 0, 6, 10.0, 1e-4, 8192, 2**26, 256)
        >>> round(work.steps), round(work.block_steps)
        (19, 14)
        """
        first = FIRST_STEPS * self.tol**-FIRST_POWER
        bound = STEPS_BY_BOUND * math.sqrt(1 + self.ratio**2) * max(1.0, -math.log(self.tol))
        most = ALL_STEPS * min(self.size, self.equations)
        return max(1.0, min(self.maxiter, _smaller_of(SHARPNESS, first, bound, most)))

    @property
    def block_steps(self) -> float:
        """Expected steps of a block."""
        wide = self._in_a_block
        fewer, most = self.steps * wide**-BLOCK_POWER, ALL_BLOCK_STEPS * min(self.size, self.equations) / wide
        return max(1.0, _smaller_of(BLOCK_SHARPNESS, fewer, most))

    @property
    def pseudo_block(self) -> float:
        """Seconds of ``pseudo-block``, and of ``cgls`` on one column."""
        numbers = (self.size + self.equations) * self.columns
        return 1e-9 * self.steps * (STEP + self._product(self.columns) + PSEUDO_NUMBER * numbers)

    @property
    def block(self) -> float:
        """Seconds of ``block``."""
        wide, steps, kept = self._in_a_block, self.block_steps, self.kept_blocks
        step = STEP + self._product(wide) + KEPT_BLOCK * kept
        step += BLOCK_NUMBER * (PASSES + OF_KEPT * kept) * self.size * wide
        step += BLOCK_PRODUCT * (REDUCTIONS + OF_KEPT * kept) * self.size * wide**2
        return 1e-9 * steps * step * math.ceil(self.columns / self.width)

    @property
    def direct(self) -> float:
        """Seconds of ``direct``."""
        inner = min(self.size, self.equations) if self.dual else self.size
        written_out = self._product(inner) / 2
        factor = FACTOR_PRODUCT * (inner**3 / 3 + 2 * inner**2 * self.columns)
        through = self._product(self.columns) * (2 if self.dual else 1)
        return 1e-9 * (DIRECT + written_out + factor + through)

    @property
    def kept_blocks(self) -> float:
        """Earlier blocks that ``block`` keeps, on average over its steps."""
        steps = self.block_steps
        room = max(1, self.memory // (2 * self.number * max(1, self.size) * self._in_a_block))
        return steps / 2 if steps <= room else room * (1 - room / (2 * steps))

    @property
    def _in_a_block(self) -> float:
        return self.columns / math.ceil(self.columns / self.width)

    def _product(self, columns: float) -> float:
        """Nanoseconds of one application of AᵀA + λ²LᵀL to so many columns."""
        sparse = SPARSE_ENTRY + SPARSE_ENTRY_A_COLUMN * columns
        dense = DENSE_ENTRY + DENSE_ENTRY_A_COLUMN * columns
        return 2 * (sparse * self.sparse_entries + dense * self.dense_entries)


def _smaller_of(sharpness: float, *values: float) -> float:
    """Return the smallest of some numbers, with smooth changes between them."""
    return float(sum(value**-sharpness for value in values) ** (-1 / sharpness))
