"""What results with a proven gap share: how their columns ended, in members and in words."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from stepwell.arrays.presenting import Presented
from stepwell.arrays.reprs import summarise
from stepwell.common.status import SolverStatus

#: Of a vector one value, of a block one for each column.
PerColumn: TypeAlias = Any
StatusT = TypeVar("StatusT", bound=SolverStatus)


class ProvenResult(Presented, Generic[StatusT]):
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
    def reason(self) -> StatusT | list[StatusT]:
        """Why each column ended: `status`, under the name that the results of all solvers have for it."""
        found: StatusT | list[StatusT] = self.status
        return found

    @property
    def _statuses(self) -> list[StatusT]:
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
