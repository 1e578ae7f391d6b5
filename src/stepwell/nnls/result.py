"""What ``nnls`` returns: the answer and its certificate, for one system or a batch."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator
from typing import Any

from stepwell.arrays import Array


class NNLSStatus(enum.IntEnum):
    """How the solution of one system ended; ``.message`` says it in words."""

    CONVERGED = 0
    LIMIT = 1
    STALLED = 2
    DEPENDENT = 3
    NON_FINITE = 4

    @property
    def message(self) -> str:
        """The status in words."""
        return _MESSAGES[self]


_MESSAGES = {
    NNLSStatus.CONVERGED: "converged: the optimality conditions hold, checked with A itself",
    NNLSStatus.LIMIT: "the limit max_iter on least-squares solutions was reached; x is the feasible point so far",
    NNLSStatus.STALLED: "rounding errors leave no step that lowers the residual; x is the best point found",
    NNLSStatus.DEPENDENT: "the columns left depend on the positive ones to rounding; x is the best point found",
    NNLSStatus.NON_FINITE: "A or b holds NaN or infinity, or x does not fit its dtype; the system was not solved",
}


@dataclasses.dataclass(frozen=True)
class NNLSResult:
    """Solution of min ‖Ax − b‖² + λ²‖x‖², x ≥ 0, with its certificate.

    Of one system, `x`, `dual` and `active` are vectors and the rest are numbers; of a batch everything has the
    systems along its first axis. Arrays are of the caller's library, device and dtype. Unpacks as ``x, residual``.

    Attributes
    ----------
    x : array
        The solution; NaN for a system with non-finite input, infinite where it does not fit its dtype.
    residual : float or array
        ‖b − Ax‖ of this x, computed from A.
    dual : array
        w = Aᵀ(b − Ax) − λ²x of this x, computed from A: not positive where x is 0, zero where x is positive.
    violation : float or array
        The largest w_j/(‖a_j‖‖b‖) where x is 0 and |w_j|/(‖a_j‖‖b‖) where it is positive (‖a_j‖ with the damping).
    active : bool array
        Where x is positive.
    insertions, removals : int or array
        Columns taken into and out of the positive set.
    solves : int or array
        Least-squares solutions, which `max_iter` limits.
    passes : int or array
        Products with the whole of A.
    status : NNLSStatus or int array
        How each system ended.
    escalated : bool or array
        Where ``method="gram"`` met nearly dependent columns and went over to Q and R.
    costs : dict of int or array
        Column accesses and flops of the insertions (``update_...``) and removals (``downdate_...``).
    method, choice : str
        The method used, and why in words.
    """

    x: Array
    residual: Any
    dual: Array
    violation: Any
    active: Array
    insertions: Any
    removals: Any
    solves: Any
    passes: Any
    status: Any
    escalated: Any
    costs: dict[str, Any]
    method: str
    choice: str

    def __iter__(self) -> Iterator[Any]:
        return iter((self.x, self.residual))

    @property
    def success(self) -> Any:
        """Whether each system converged."""
        return self.status == NNLSStatus.CONVERGED

    @property
    def message(self) -> str:
        """The status in words; of a batch, how many systems ended how."""
        if isinstance(self.status, NNLSStatus):
            return self.status.message
        counts = [(status, int((self.status == int(status)).sum())) for status in NNLSStatus]
        return "; ".join(f"{count} of {len(self.status)}: {status.message}" for status, count in counts if count)
