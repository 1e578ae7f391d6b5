"""A checked batch of small least-squares problems, as its targets receive it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from stepwell import _core
from stepwell.arrays import Array
from stepwell.arrays.checks import require_finite
from stepwell.lsq.constraints import Constraints

#: Systems of a chain of warm starts.
CHAIN = int(_core.NNLS_CHAIN)
#: What the core calls the ways to update a factor.
UPDATE_CODES: dict[str, int] = dict(_core.NNLS_UPDATES)
#: The counts of a system, as the core's job names them.
COUNTS = ("status", "insertions", "removals", "solves", "passes", "escalated")
#: What general problems have beside, as the core's job names it.
MORE = ("multiplier", "equality_error", "gap")
#: And those of them with a λ, or whose scatter is asked for.
LAM, LAM_COUNTS = ("used_lam", "fit", "seminorm", "unpenalized"), ("at_end", "evaluations", "passive")

#: Memory that kept factors may take.
FACTOR_BYTES = 1 << 30


@dataclasses.dataclass(frozen=True)
class Batch:
    """A checked batch: one matrix or as many as right-hand sides, and how to solve it. Arrays of one library."""

    #: (m, n), (systems, m, n) or, with `which`, (matrices, m, n); of a convolution (length,) or (systems, length)
    matrix: Array
    b: Array  # (systems, m)
    single: bool  # solve in float32; arrays of the host may have another dtype still
    convolution: bool
    rows: int
    columns: int
    origin: int
    method: str
    choice: str
    form_gram: bool
    options: Any  # the core's NnlsOptions
    warm_x: Array | None
    warm_set: Array | None
    threads: int | None
    lone: bool
    lead: tuple[int, ...]  # the shape in which the systems come back
    column: bool  # b and x have one more axis of length one
    across: bool  # the caller's systems are columns
    constraints: Constraints | None
    systems_in_batch: int  # of which these may be a block
    progress: Callable[[int, int], object] | None
    equations: int = 0  # rows of A, for degrees of freedom
    names: tuple[str, str] = ("A", "b")  # what the caller calls his matrices and right-hand sides

    def with_arrays(self, matrix: Array, b: Array) -> Batch:
        """Return the same for other arrays of these shapes. (`dataclasses.replace` takes ten times as long.)"""
        other = object.__new__(Batch)
        vars(other).update(vars(self), matrix=matrix, b=b)
        return other

    def part(self, places: Array) -> Batch:
        """Return some of the systems, by their numbers, along one axis."""
        rows = {"b": self.b[places], "matrix": self.matrix if self.shared else self.matrix[places]}
        for name in ("warm_x", "warm_set"):
            start = getattr(self, name)
            rows[name] = start if start is None or len(start) == 1 else start[places]
        constraints = None if self.constraints is None else self.constraints.part(places)
        return dataclasses.replace(
            self, **rows, constraints=constraints, lead=(int(places.shape[0]),), lone=False, column=False, progress=None
        )

    @property
    def systems(self) -> int:
        """Number of right-hand sides."""
        return int(self.b.shape[0])

    @property
    def shared(self) -> bool:
        """True if systems share matrices."""
        return self.has_which or bool(self.matrix.ndim == (1 if self.convolution else 2))

    @property
    def chain(self) -> bool:
        """Whether each system starts from the set of the one before."""
        return bool(self.options.chain)

    @property
    def has_which(self) -> bool:
        """Whether systems name their matrix."""
        return self.constraints is not None and self.constraints.which is not None

    @property
    def matrices(self) -> int:
        """How many matrices systems can name."""
        return int(self.matrix.shape[0]) if self.has_which else 0

    @property
    def in_blocks(self) -> bool:
        """Whether these are normal equations so large that columns enter and leave many at once."""
        constraints = self.constraints
        if constraints is None or constraints.gram is None or self.columns < _core.NNLS_LARGE_TABLE:
            return False
        return constraints.sum_low is None and not constraints.penalized and constraints.weights is None

    @property
    def keeps_factor(self) -> bool:
        """Whether the factors of large normal equations are wanted, and are there."""
        constraints, n = self.constraints, self.columns
        wanted = constraints is not None and constraints.keep_factor
        return wanted and self.in_blocks and 4 * self.systems * n * (n + 1) <= FACTOR_BYTES

    @property
    def reports_lam(self) -> bool:
        """Whether somebody reads what LAM names; else λ is zero."""
        constraints = self.constraints
        return constraints is not None and (constraints.penalized or constraints.variance or self.chain)

    @property
    def reports_in_factor(self) -> bool:
        """Whether somebody reads which variables are in the factor: a chain does, and x ≥ 0 has no other states."""
        return self.chain or self.constraints is None

    def dense_matrix(self, number: int) -> Array:
        """Return one of the matrices in full."""
        if self.convolution:
            from stepwell.lsq.convolution import Convolution

            pulse = self.matrix if self.matrix.ndim == 1 else self.matrix[number]
            return Convolution(pulse, self.columns, m=self.rows, origin=self.origin).dense()
        return self.matrix if self.matrix.ndim == 2 else self.matrix[number]

    def refuse_non_finite(self, matrix: Array, b: Array) -> None:
        """Raise for a lone system or a shared matrix that is not finite; systems of a batch get a status instead."""
        if self.shared:
            require_finite(self.names[0], matrix)
        if self.lone:
            require_finite(self.names[1], b[0])
