"""What ``nnls`` returns: the answer and its certificate, for one system or a batch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, TypeAlias

from stepwell.arrays import Array, host_copy, is_lazy
from stepwell.reprs import summarise
from stepwell.status import SolverStatus

#: Of one system a number; of a batch an array of the caller's library with one number a system. Which of the two it is
#: depends on the shape of b, which types do not tell: checkers read Any.
PerSystem: TypeAlias = Any

#: The message of a result whose fields are arrays of dask.
NOT_COMPUTED = "not computed yet: dask.compute(result) does, or a field's compute()"


class NNLSStatus(int, SolverStatus):
    """How the solution of one system ended; ``.message`` says it in words, ``.success`` whether it converged.

    Members are the integers that a batch's ``status`` array holds.

    Examples
    --------
    >>> NNLSStatus.of(1), NNLSStatus.LIMIT == 1, NNLSStatus.LIMIT.success
    (<NNLSStatus.LIMIT: 1>, True, False)
    """

    CONVERGED = 0, 0, "converged: the optimality conditions hold, checked with A itself"
    LIMIT = 1, 1, "the limit maxiter on least-squares solutions was reached; x is the feasible point so far"
    STALLED = 2, 2, "rounding errors leave no step that lowers the residual; x is the best point found"
    DEPENDENT = 3, 2, "the columns left depend on the positive ones to rounding; x is the best point found"
    NON_FINITE = 4, 2, "A or b holds NaN or infinity, or x does not fit its dtype; the system was not solved"

    def __str__(self) -> str:
        return int.__repr__(self)

    def __format__(self, spec: str) -> str:
        return int.__format__(self, spec)


@dataclasses.dataclass(frozen=True, repr=False)
class NNLSResult:
    """Solution of min ‖Ax − b‖² + λ²‖x‖², x ≥ 0, with its certificate.

    Of one system, `x`, `dual` and `active` are vectors and the rest are numbers; of a batch everything has the
    systems along its first axis (`x`, `dual` and `active` along the second with ``axis=1``). Arrays are of the caller's
    library, device and dtype. Unpacks as ``x, residual``.

    Attributes
    ----------
    x : array
        The solution; NaN for a system with non-finite input, infinite where it does not fit its dtype.
    residual : float or array
        ‖b − Ax‖ of this x, computed from A.
    dual : array
        w = Aᵀ(b − Ax) − λ²x of this x, computed from A: not positive where x is 0, zero where x is positive.
    violation : float or array
        The largest w_j/(‖a_j‖‖b‖) where x is 0 and abs(w_j)/(‖a_j‖‖b‖) where it is positive (‖a_j‖ with λ).
    active : bool array
        Where x is positive.
    insertions, removals : int or array
        Columns taken into and out of the positive set.
    solves : int or array
        Least-squares solutions, which `maxiter` limits.
    passes : int or array
        Products with the whole of A.
    status : NNLSStatus or int array
        How each system ended; the numbers of an array are those of :class:`NNLSStatus`.
    escalated : bool or array
        Where ``method="gram"`` met nearly dependent columns and went over to Q and R.
    costs : dict of int or array
        Column accesses and flops of the insertions (``update_...``) and removals (``downdate_...``).
    method : str
        The method used, ``"qr"`` or ``"gram"``.
    choice : str
        Why, in words.
    success : bool or bool array
        Whether each system converged.
    reason : NNLSStatus or list of NNLSStatus
        `status` as members, whose ``message`` says it in words.
    message : str
        The status in words; of a batch, how many systems ended how.
    """

    x: Array
    residual: PerSystem
    dual: Array
    violation: PerSystem
    active: Array
    insertions: PerSystem
    removals: PerSystem
    solves: PerSystem
    passes: PerSystem
    status: PerSystem
    escalated: PerSystem
    costs: dict[str, PerSystem]
    method: str
    choice: str

    def __iter__(self) -> Iterator[Any]:
        return iter((self.x, self.residual))

    def __repr__(self) -> str:
        first = {"status": self._status_in_short(), "message": self.message, "method": self.method}
        return summarise("NNLSResult", first | {field.name: getattr(self, field.name) for field in _SHOWN})

    @property
    def success(self) -> PerSystem:
        """Whether each system converged."""
        return self.status == NNLSStatus.CONVERGED

    @property
    def reason(self) -> NNLSStatus | list[NNLSStatus]:
        """The status as a member; of a batch a list of them."""
        if isinstance(self.status, NNLSStatus):
            return self.status
        return [NNLSStatus.of(code) for code in host_copy(self.status).reshape(-1).tolist()]

    @property
    def message(self) -> str:
        """The status in words; of a batch, how many systems ended how."""
        if isinstance(self.status, NNLSStatus):
            return self.status.message
        if is_lazy(self.status):
            return NOT_COMPUTED
        counts, systems = self._counts(), math.prod(self.status.shape)
        return "; ".join(f"{count} of {systems}: {status.message}" for status, count in counts.items())

    def _counts(self) -> dict[NNLSStatus, int]:
        counts = {status: int((self.status == int(status)).sum()) for status in NNLSStatus}
        return {status: count for status, count in counts.items() if count}

    def _status_in_short(self) -> NNLSStatus | str:
        if isinstance(self.status, NNLSStatus):
            return self.status
        if is_lazy(self.status):
            return "not computed"
        return ", ".join(f"{count} x NNLSStatus.{status.name}" for status, count in self._counts().items())


_SHOWN = [field for field in dataclasses.fields(NNLSResult) if field.name not in ("status", "method")]
