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
    INFEASIBLE = 5, 2, "no x is within the bounds and has the sum or the equalities; the system was not solved"

    def __str__(self) -> str:
        return int.__repr__(self)

    def __format__(self, spec: str) -> str:
        return int.__format__(self, spec)


class Outcome:
    """What results of one system and of a batch say of how they ended."""

    x: Array
    residual: PerSystem
    status: PerSystem
    method: str

    def __iter__(self) -> Iterator[Any]:
        return iter((self.x, self.residual))

    def __repr__(self) -> str:
        first = {"status": self._status_in_short(), "message": self.message, "method": self.method}
        shown = [field.name for field in dataclasses.fields(self) if field.repr]  # type: ignore[arg-type]
        rest = {name: getattr(self, name) for name in shown if name not in ("status", "method")}
        return summarise(
            type(self).__name__, first | {name: value for name, value in rest.items() if value is not None}
        )

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


@dataclasses.dataclass(frozen=True, repr=False)
class NNLSResult(Outcome):
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
        The largest w_j/(‖a_j‖‖b‖) where x is 0 and |w_j|/(‖a_j‖‖b‖) where it is positive (‖a_j‖ with λ).
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
    lam : float or array
        The λ that was given, or found for each system.
    seminorm : float or array, optional
        ‖Lx‖, where L, weights, a mask, `which` or a λ per system were given.
    lam_at_end : int or array, optional
        Where λ was chosen: −1 or 1 where it is at an end of its range (0, and a λ so large that x no longer changes),
        2 for an L-curve without a corner, else 0.
    chi2 : float or array, optional
        ‖Ax − b‖² over what it is with λ = 0, for the rules ``"chi2"`` and ``"discrepancy"``.
    evaluations : int or array, optional
        How many λ a rule tried.
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
    lam: PerSystem = 0.0
    seminorm: PerSystem | None = None
    lam_at_end: PerSystem | None = None
    chi2: PerSystem | None = None
    evaluations: PerSystem | None = None


@dataclasses.dataclass(frozen=True, repr=False)
class LSQResult(Outcome):
    """Solution of min ‖Ax − b‖² + λ²‖Lx‖² within bounds, with its certificate.

    Of one system, `x`, `dual` and `state` are vectors and the rest are numbers; of a batch everything has the shape of
    the systems in b first. Arrays are of the caller's library, device and dtype. Unpacks as ``x, residual``.

    Attributes
    ----------
    x : array
        The solution; at a bound the bound itself. NaN for a system with non-finite input, or without a feasible x.
    residual : float or array
        ‖b − Ax‖ of this x, weights included, computed from A.
    dual : array
        w = Aᵀ(b − Ax) − λ²LᵀLx + Cᵀμ of this x (A and b with weights, C the equalities and μ their multipliers): not
        positive where x is at its lower bound, not negative at its upper, zero between.
    violation : float or array
        The largest breach of that, over ‖a_j‖(‖b‖ + Σ‖a_j‖|x_j|).
    state : int8 array
        −1 where x is at its lower bound, 1 at its upper, 0 between, 2 where a variable is masked or has equal bounds.
    multipliers : array, optional
        μ of the bound sum, or of the equalities, along the last axis.
    equality_error : float or array
        How far the sum is outside its bounds, or the largest |Cx − d|.
    lam : float or array
        λ, as given or found.
    seminorm : float or array, optional
        ‖Lx‖, where there is a λ.
    lam_at_end : int or array, optional
        Where λ was chosen: −1 or 1 where it is at an end of its range (0, and a λ so large that x no longer changes),
        2 for an L-curve without a corner, else 0.
    chi2 : float or array, optional
        ‖Ax − b‖² over what it is with λ = 0, for the rules ``"chi2"`` and ``"discrepancy"``.
    evaluations : int or array, optional
        How many λ a rule tried.
    insertions, removals, solves, passes, status, escalated, costs, method, choice
        As in :class:`NNLSResult`; a status is a number of :class:`NNLSStatus`.
    """

    x: Array
    residual: PerSystem
    dual: Array
    violation: PerSystem
    state: Array
    equality_error: PerSystem
    lam: PerSystem
    insertions: PerSystem
    removals: PerSystem
    solves: PerSystem
    passes: PerSystem
    status: PerSystem
    escalated: PerSystem
    costs: dict[str, PerSystem]
    method: str
    choice: str
    multipliers: Array | None = None
    seminorm: PerSystem | None = None
    lam_at_end: PerSystem | None = None
    chi2: PerSystem | None = None
    evaluations: PerSystem | None = None


AnyResult: TypeAlias = NNLSResult | LSQResult
