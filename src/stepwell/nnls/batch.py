"""A checked batch of non-negative least squares, as its targets receive it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from stepwell import _core
from stepwell.arrays import Array
from stepwell.checks import require_finite

#: Systems of a chain of warm starts.
CHAIN = int(_core.NNLS_CHAIN)
#: What the core calls the ways to update a factor.
UPDATE_CODES: dict[str, int] = dict(_core.NNLS_UPDATES)
#: The counts of a system, as the core's job names them.
COUNTS = ("status", "insertions", "removals", "solves", "passes", "escalated")
COSTS = ("update_accesses", "update_flops", "downdate_accesses", "downdate_flops")


@dataclasses.dataclass(frozen=True)
class Batch:
    """A checked batch: one matrix or as many as right-hand sides, and how to solve it. Arrays of one library."""

    matrix: Array  # (m, n) or (systems, m, n); pulses (length,) or (systems, length) of a convolution
    b: Array  # (systems, m)
    single: bool  # solve in float32; arrays of the host may have another dtype still
    convolution: bool
    rows: int
    columns: int
    origin: int
    method: str
    choice: str
    update: str
    guarded: bool
    form_gram: bool
    damping: float
    tolerance: float  # the caller's, or 0
    rounding: float
    max_iter: int
    warm_x: Array | None
    warm_set: Array | None
    chain: bool
    threads: int | None
    lone: bool
    whole: int  # systems of the batch that this is a block of
    progress: Callable[[int, int], object] | None

    @property
    def systems(self) -> int:
        """Number of right-hand sides."""
        return int(self.b.shape[0])

    @property
    def shared(self) -> bool:
        """Whether one matrix serves all right-hand sides."""
        return bool(self.matrix.ndim == (1 if self.convolution else 2))

    def refuse_non_finite(self, matrix: Array, b: Array) -> None:
        """Raise for a lone system or a shared matrix that is not finite; systems of a batch get a status instead."""
        if self.shared:
            require_finite("A", matrix)
        if self.lone:
            require_finite("b", b[0])
