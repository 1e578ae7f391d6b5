"""What solvers with a proven gap share: how a column may end, what a callback is told, and the head of results."""

from __future__ import annotations

import math
from dataclasses import Field, dataclass, fields
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stepwell.arrays.presenting import Presented
from stepwell.arrays.reprs import summarise
from stepwell.common.status import SolverStatus

#: Of a vector one value, of a block one for each column.
PerColumn: TypeAlias = Any


class ProvenStatus(SolverStatus):
    """Why the iteration of `tv` or `lasso` ended for one column; `TVStatus` and `LassoStatus` are names of this class.

    Examples
    --------
    >>> ProvenStatus.CONVERGED.success, ProvenStatus.UNMATCHED.success
    (True, False)
    """

    CONVERGED = 0, 0, "the objective is proved to be within tol of the least"
    ITERATION_LIMIT = 1, 1, "the iteration limit was reached before the proof; gap says what is proved"
    STAGNATED = 2, 2, "rounding errors, or lam = 0, keep the proven gap above tol; x is the best point reached"
    UNMATCHED = 3, 2, "the adjoint of A is not its adjoint, so nothing can be proved; see adjoint_error"
    NONFINITE = 4, 2, "the right-hand side or an operator product is not finite; x is the last finite point"
    STOPPED = 5, 99, "the callback, or Ctrl-C, asked to stop"


def ending(f: float, gap: float, tol: float, stagnated: bool, limit: bool) -> ProvenStatus | None:
    """Return how a column with this objective and proven gap has ended, or None where it goes on."""
    if not math.isfinite(f):
        return ProvenStatus.NONFINITE
    if gap <= tol:
        return ProvenStatus.CONVERGED
    if stagnated:
        return ProvenStatus.STAGNATED
    return ProvenStatus.ITERATION_LIMIT if limit else None


def ending_of_run(ended: ProvenStatus | None, unmatched: bool) -> ProvenStatus:
    """Return what a result says of a column: stopped if it had not ended; without an adjoint nothing is proved."""
    if unmatched and ended in (ProvenStatus.CONVERGED, ProvenStatus.STAGNATED, ProvenStatus.ITERATION_LIMIT):
        return ProvenStatus.UNMATCHED
    return ended or ProvenStatus.STOPPED


@dataclass(frozen=True)
class ProvenProgress:
    """What a callback of `lasso` is told: once before the first step (iteration 0), then after every check of the gap.

    Attributes
    ----------
    iteration : int
        Steps done.
    running : int
        Columns whose gap is not within the tolerance.
    columns : int
        All columns.
    gap : float
        The largest proven relative gap among the running columns.
    products : float
        Applications of A and its adjoint to one vector so far, over all columns.
    """

    iteration: int
    running: int
    columns: int
    gap: float
    products: float


class ProvenResult(Presented):
    """A dataclass of columns that has the `status` of each, and how far it is proved to be from the least."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    status: PerColumn
    gap: NDArray[np.float64]

    def __repr__(self) -> str:
        first = {"status": self.status, "message": self.message}
        rest = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "status"}
        return summarise(type(self).__name__, first | rest)

    @property
    def success(self) -> bool:
        """Whether the tolerance is proved for every column."""
        return all(status.success for status in self._statuses)

    @property
    def reason(self) -> ProvenStatus | list[ProvenStatus]:
        """Why each column ended: `status`, under the name that the results of all solvers have for it."""
        found: ProvenStatus | list[ProvenStatus] = self.status
        return found

    @property
    def _statuses(self) -> list[ProvenStatus]:
        found = self.reason
        return found if isinstance(found, list) else [found]

    @property
    def message(self) -> str:
        """One line for a person: how many columns ended how, and the worst gap."""
        ends = self._statuses
        counts = {status: ends.count(status) for status in sorted(set(ends), key=lambda status: status.value)}
        endings = "; ".join(f"{count} of {len(ends)}: {status.message}" for status, count in counts.items())
        finite = self.gap[np.isfinite(self.gap)]
        worst = f"; worst proven gap {finite.max():.2e}" if finite.size else ""
        return f"{endings}{worst}" if endings else "no columns"
