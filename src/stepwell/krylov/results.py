"""What a solve for many right-hand sides returns, and what it tells while it runs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stepwell.arrays import Array
from stepwell.arrays.presenting import Presented
from stepwell.arrays.reprs import summarise
from stepwell.common.status import SolverStatus

#: The methods that run (``"auto"`` chooses one of them; ``"bounded"`` runs where there are bounds).
MethodName: TypeAlias = Literal["cgls", "pseudo-block", "block", "prcg", "aprcg", "direct", "bounded"]

#: Of a vector one value, of a block one for each column. Which of the two it is depends on the shape of B, which types
#: do not tell: checkers read Any.
PerColumn: TypeAlias = Any

#: In `LinearResult.lam_at_end`: λ lies within the range, but the L-curve has no corner.
NO_CORNER = 2


class LinearStatus(SolverStatus):
    """Why the iteration ended for one column; ``.message`` says it in words, ``.success`` whether it converged.

    Examples
    --------
    >>> LinearStatus.CONVERGED.success, LinearStatus.STOPPED.success
    (True, False)
    """

    CONVERGED = 0, 0, "the true relative residual is within the tolerance"
    ITERATION_LIMIT = 1, 1, "the iteration limit was reached before the tolerance"
    STAGNATED = 2, 2, "rounding errors keep the true residual above the tolerance; x is the best point reached"
    BREAKDOWN = 3, 2, "the operator is not positive definite along a search direction; x is the last point before it"
    NONFINITE = 4, 2, "the right-hand side or an operator product is not finite; x is the last finite point"
    OUT_OF_RANGE = (
        5,
        2,
        "products with the operator, or the solution, leave the range of the dtype; scale A, L, lam or b",
    )
    STOPPED = 6, 99, "the callback, or Ctrl-C, asked to stop"


@dataclass(frozen=True)
class Progress:
    """What a callback is told: once before the first product (iteration 0), then after every iteration.

    Attributes
    ----------
    iteration : int
        Iterations done in the current run of the method.
    running : int
        Columns that have not reached the tolerance.
    columns : int
        All columns.
    residual : float
        The largest relative residual among the running columns (1.0 before the start).
    products : float
        Products with AᵀA + λ²LᵀL (or H) so far, over all columns.
    memory : int
        Bytes that the solver expects to hold beside the caller's own arrays.
    """

    iteration: int
    running: int
    columns: int
    residual: float
    products: float
    memory: int


@dataclass(repr=False)
class LinearResult(Presented):
    """The solutions for all columns, with an honest account of each.

    Attributes
    ----------
    x : array
        The solutions, one column per right-hand side (a row with ``axis=0``; a vector for a vector), in the caller's
        kind of array.
    status : LinearStatus or list of LinearStatus
        Why each right-hand side ended; of a vector one member, of a block a list.
    residual : float or ndarray of float64
        True relative residual of each column (of a vector one number, as of the next two), recomputed from the operator
        at the end:
        ``‖Aᵀ(b − A x) − λ² LᵀL x‖ / ‖Aᵀ b‖`` (for ``cg``: ``‖b − H x‖ / ‖b‖``). With bounds that of the projected
        gradient: entries at a bound that point out of the box count as zero.
    iterations : int or ndarray of int64
        Iterations in which each column took part.
    products : float or ndarray of float64
        Applications of ``AᵀA + λ²LᵀL`` (or H) to one vector, per column: those of the iteration, of a warm start and
        of the recomputed residual. Block methods share theirs evenly among the columns at work, so the sum is exact.
    history : list of ndarray
        Relative residual of each column after each iteration, as the iteration itself estimates it.
    method : str
        The method that ran.
    choice : str
        Why that method ran.
    lam : float, ndarray or None
        λ of each column, which enters squared; of a vector one number (None for ``cg``).
    calls : int
        Sequential operator calls: products of whole blocks count once.
    seconds : float
        Wall-clock time of the whole call.
    memory : int
        Bytes the solver expected to hold beside the caller's own arrays, as told before the first product.
    lam_at_end : int, ndarray or None
        Where a rule chose λ: -1 in columns whose λ lies at the lower end of the range that was searched, 1 at the upper
        end, 0 between; 2 where it lies between them, but the L-curve has no corner and only bends most there. None
        without a rule.
    exchanges, bytes_sent : int
        Messages between ranks that the solver took part in, and what this rank sent with them; those of operators are
        the caller's own. 0 without ``comm``.
    success : bool
        Whether every right-hand side converged.
    reason : LinearStatus or list of LinearStatus
        The same as `status`, under the name that the results of all solvers have for it.
    message : str
        How many right-hand sides ended how, and the worst residual.
    """

    x: Array
    status: PerColumn
    residual: PerColumn
    iterations: PerColumn
    products: PerColumn
    history: list[NDArray[np.float64]]
    method: MethodName
    choice: str
    lam: PerColumn | None
    calls: int
    seconds: float
    memory: int
    lam_at_end: PerColumn | None = None
    exchanges: int = 0
    bytes_sent: int = 0

    @classmethod
    def of_traced(cls, x: Array, lam: Any) -> LinearResult:
        """Return a result that knows x and λ alone: the rest is not known while a program is traced or compiled."""
        none, whole = np.empty(0), np.empty(0, dtype=np.int64)
        return cls(x, [], none, whole, none, [], "direct", "not known while a program is traced", lam, 0, 0.0, 0)

    def __repr__(self) -> str:
        first = {"status": self.status, "message": self.message}
        rest = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "status"}
        return summarise("LinearResult", first | rest)

    @property
    def success(self) -> bool:
        """Whether every column converged."""
        return all(status.success for status in self._statuses)

    @property
    def reason(self) -> LinearStatus | list[LinearStatus]:
        """Why each column ended: `status`, under the name that the results of all solvers have for it."""
        found: LinearStatus | list[LinearStatus] = self.status
        return found

    @property
    def _statuses(self) -> list[LinearStatus]:
        return [self.status] if isinstance(self.status, LinearStatus) else self.status

    @property
    def message(self) -> str:
        """One line for a person: how many columns ended how, and the worst residual."""
        ends = self._statuses
        counts = {status: ends.count(status) for status in LinearStatus if status in ends}
        endings = "; ".join(f"{count} of {len(ends)}: {status.message}" for status, count in counts.items())
        residual = np.atleast_1d(self.residual)
        finite = residual[np.isfinite(residual)]
        worst = f"; worst true residual {finite.max():.2e}" if finite.size else ""
        of_lam = ends_in_words(self.lam_at_end)
        noted = f"; {of_lam}" if of_lam else ""
        return f"{self.method}: {endings}{worst}{noted}" if endings else f"{self.method}: no columns"


def ends_in_words(ends: int | np.ndarray | None) -> str:
    """Say of how many columns λ lies at an end of the range searched, or at no corner; nothing where there is none."""
    if ends is None or not np.any(ends):
        return ""
    ends = np.atleast_1d(ends)
    counts = {name: int(np.sum(ends == sign)) for sign, name in ((-1, "lower"), (1, "upper"))}
    found = ", ".join(f"{count} at the {name} end" for name, count in counts.items() if count)
    outer, bent = sum(counts.values()), int(np.sum(ends == NO_CORNER))
    texts = [f"lies at an end of the range searched ({found})", "is where an L-curve without a corner bends most"]
    return "; ".join(f"lam of {n} of {ends.size} columns {text}" for n, text in zip((outer, bent), texts) if n)
