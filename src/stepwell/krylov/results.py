"""What a solve for many right-hand sides returns, and what it tells while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from stepwell.arrays import Array

#: In `LinearResult.lam_at_end`: λ lies within the range, but the L-curve has no corner.
NO_CORNER = 2


class Status(Enum):
    """Why the iteration ended for one column; the value is the message."""

    CONVERGED = "the true relative residual is within the tolerance"
    ITERATION_LIMIT = "the iteration limit was reached before the tolerance"
    STAGNATED = "rounding errors keep the true residual above the tolerance; x is the best point reached"
    BREAKDOWN = "the operator is not positive definite along a search direction; x is the last point before it"
    NONFINITE = "the right-hand side or an operator product is not finite; x is the last finite point"
    OUT_OF_RANGE = "products with the operator, or the solution, leave the range of the dtype; scale A, L, lam or b"
    STOPPED = "the callback asked to stop"

    @property
    def message(self) -> str:
        """The reason in words."""
        return self.value


@dataclass(frozen=True)
class Progress:
    """What a callback is told: once before the first product (iteration 0), then after every iteration.

    Attributes
    ----------
    iteration : int
        Iterations done in the current run of the method.
    active : int
        Columns that have not reached the tolerance.
    columns : int
        All columns.
    residual : float
        The largest relative residual among the active columns (1.0 before the start).
    products : float
        Products with AᵀA + λ²LᵀL (or H) so far, over all columns.
    memory : int
        Bytes that the solver expects to hold beside the caller's own arrays.
    """

    iteration: int
    active: int
    columns: int
    residual: float
    products: float
    memory: int


@dataclass
class LinearResult:
    """The solutions for all columns, with an honest account of each.

    Attributes
    ----------
    x : array
        The solutions, one column per right-hand side (a vector for a vector), in the caller's kind of array.
    status : list of Status
        Why each column ended.
    residual : ndarray
        True relative residual of each column, recomputed from the operator at the end:
        ``‖Aᵀ(b − A x) − λ² LᵀL x‖ / ‖Aᵀ b‖`` (for ``cg``: ``‖b − H x‖ / ‖b‖``).
    iterations : ndarray
        Iterations in which each column took part.
    products : ndarray
        Applications of ``AᵀA + λ²LᵀL`` (or H) to one vector, per column: those of the iteration, of a warm start and
        of the recomputed residual. Block methods share theirs evenly among the columns at work, so the sum is exact.
    history : list of ndarray
        Relative residual of each column after each iteration, as the iteration itself estimates it.
    method : str
        The method that ran.
    choice : str
        Why that method ran.
    lam : ndarray or None
        λ of each column (None for ``cg``).
    calls : int
        Sequential operator calls: products of whole blocks count once.
    seconds : float
        Wall-clock time of the whole call.
    memory : int
        Bytes the solver expected to hold beside the caller's own arrays, as told before the first product.
    lam_at_end : ndarray or None
        Where a rule chose λ: -1 in columns whose λ lies at the lower end of the range that was searched, 1 at the upper
        end, 0 between; 2 where it lies between them, but the L-curve has no corner and only bends most there. None
        without a rule.
    """

    x: Array
    status: list[Status]
    residual: np.ndarray
    iterations: np.ndarray
    products: np.ndarray
    history: list[np.ndarray] = field(repr=False)
    method: str
    choice: str
    lam: np.ndarray | None
    calls: int
    seconds: float
    memory: int
    lam_at_end: np.ndarray | None = None

    @property
    def success(self) -> bool:
        """Whether every column converged."""
        return all(status is Status.CONVERGED for status in self.status)

    @property
    def message(self) -> str:
        """One line for a person: how many columns ended how, and the worst residual."""
        counts = {status: self.status.count(status) for status in Status if status in self.status}
        endings = "; ".join(f"{count} of {len(self.status)}: {status.message}" for status, count in counts.items())
        finite = self.residual[np.isfinite(self.residual)]
        worst = f"; worst true residual {finite.max():.2e}" if finite.size else ""
        ends = ends_in_words(self.lam_at_end)
        noted = f"; {ends}" if ends else ""
        return f"{self.method}: {endings}{worst}{noted}" if endings else f"{self.method}: no columns"


def ends_in_words(ends: np.ndarray | None) -> str:
    """Say of how many columns λ lies at an end of the range searched, or at no corner; nothing where there is none."""
    if ends is None or not np.any(ends):
        return ""
    counts = {name: int(np.sum(ends == sign)) for sign, name in ((-1, "lower"), (1, "upper"))}
    found = ", ".join(f"{count} at the {name} end" for name, count in counts.items() if count)
    outer, bent = sum(counts.values()), int(np.sum(ends == NO_CORNER))
    texts = [f"lies at an end of the range searched ({found})", "is where an L-curve without a corner bends most"]
    return "; ".join(f"lam of {n} of {ends.size} columns {text}" for n, text in zip((outer, bent), texts) if n)
