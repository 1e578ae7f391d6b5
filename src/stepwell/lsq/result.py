"""What least squares return: the answer and its certificate, for one system or a batch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from stepwell.arrays import Array, host_copy, is_lazy
from stepwell.arrays.presenting import Presented
from stepwell.arrays.records import ComputedLater
from stepwell.arrays.reprs import summarise
from stepwell.common.status import SolverStatus

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


class KeptFactor(NamedTuple):
    """Factors of large normal equations on the variables between their bounds, which derivatives solve with.

    On the host R of RᵀR = G, on a device its inverse; rows of the triangle follow one another.
    """

    entries: Array  # (systems, n(n + 1)/2)
    order: Array  # (systems, 1 + n), int32: how many variables, and which; −1: none, as the system was not solved


@dataclasses.dataclass(frozen=True, repr=False)
class LSQResult(Presented, ComputedLater):
    """Solution of min ‖Ax − b‖² + λ²‖Lx‖² within bounds, with its certificate; ``NNLSResult`` is the same class.

    Of one system, `x`, `dual` and `state` are vectors and the rest are numbers; of a batch everything has the shape of
    the systems in b first (vectors along the second axis with ``axis=1`` of ``nnls``). Arrays are of the caller's
    library, device and dtype. Unpacks as ``x, residual``.

    Attributes
    ----------
    x : array
        The solution; at a bound the bound itself. NaN for a system with non-finite input, or without a feasible x;
        infinite where it does not fit its dtype.
    residual : float or array
        ‖b − Ax‖ of this x, weights included, computed from A.
    dual : array
        w = Aᵀ(b − Ax) − λ²LᵀLx + Cᵀμ of this x (A and b with weights, C the equalities and μ their multipliers): not
        positive where x is at its lower bound, not negative at its upper, zero between.
    violation : float or array
        The largest breach of that, over ‖a_j‖‖b‖ where x ≥ 0 and one λ are all there is (‖a_j‖ with λ), and else over
        ‖a_j‖(‖b‖ + Σ‖a_j‖abs(x_j)); with several equalities, or one whose coefficients are not all positive, over that
        and Σ abs(C_ij μ_i).
    state : int8 array
        −1 where x is at its lower bound, 1 at its upper, 0 between, 2 where a variable is masked or has equal bounds.
    positive : bool array
        Where x is positive.
    multipliers : array, optional
        μ of the bound sum, or of the equalities, along the last axis.
    equality_error : float or array
        How far the sum is outside its bounds, or the largest abs(Cx − d). Where no x has the equalities, how far the
        nearest is from them.
    gap : float or array, optional
        Where x ≥ 0 and a sum are all that is asked of x: the gap of Frank and Wolfe, 2 max wᵀ(s − x) over all s that
        are allowed, with w as above without μ. ‖Ax − b‖² + λ²‖Lx‖² is above its minimum by no more. Infinite where the
        sum has no upper bound and x is not exactly optimal.
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
    variance : array, optional
        Variance of x with ``uncertainty="variance"``, of variables between their bounds: σ²(AᵀA)⁻¹ over these (with a
        bound sum, along it; with λ, the scatter alone). Zero at bounds. Neither the choice of the set nor the bias of λ
        is in it.
    sigma : float or array, optional
        σ, the standard deviation of b's entries: `noise`, or √(‖b − Ax‖²/(m − variables between bounds + equalities)).
    insertions, removals : int or array
        Columns taken into and out of the set between bounds.
    solves : int or array
        Least-squares solutions, which `maxiter` limits.
    passes : int or array
        Products with the whole of A.
    status : NNLSStatus or int array
        How each system ended; the numbers of an array are those of :class:`NNLSStatus`.
    escalated : bool or array
        Where ``method="gram"`` met nearly dependent columns and went over to Q and R.
    method : str
        The method used, ``"qr"`` or ``"gram"``.
    choice : str
        Why, in words.
    success : bool or bool array
        Whether each system converged.
    reason : NNLSStatus or list of NNLSStatus
        `status` as members, whose ``message`` says it in words.
    message : str
        The status in words, and of one that has not converged how well equalities are met; of a batch, how many systems
        ended how.
    """

    x: Array
    residual: PerSystem
    dual: Array
    violation: PerSystem
    state: Array
    insertions: PerSystem
    removals: PerSystem
    solves: PerSystem
    passes: PerSystem
    status: PerSystem
    escalated: PerSystem
    method: str
    choice: str
    lam: PerSystem = dataclasses.field(default_factory=float)  # (a default of the class would not wait for `deferred`)
    equality_error: PerSystem = 0.0
    multipliers: Array | None = None
    gap: PerSystem | None = None
    seminorm: PerSystem | None = None
    lam_at_end: PerSystem | None = None
    chi2: PerSystem | None = None
    evaluations: PerSystem | None = None
    variance: Array | None = None
    sigma: PerSystem | None = None

    _problem: Any = dataclasses.field(default=None, repr=False, compare=False)
    _units: Any = dataclasses.field(default=None, repr=False, compare=False)  # those of `_problem`
    _factor: KeptFactor | None = dataclasses.field(default=None, repr=False, compare=False)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.x, self.residual))

    @classmethod
    def deferred(cls, make: Callable[[], Any], **known: Any) -> Any:
        """Return a result with some fields; the others are those of what `make` returns, when one is first asked for.

        Arrays of another library than NumPy take longer to make than a small batch to solve.
        """
        result = object.__new__(cls)
        vars(result).update(known, _make=make)
        return result

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Asked for what is not there alone.
            make = vars(self).pop("_make", None)
            if make is not None:
                vars(self).update(vars(make()) | vars(self))
                return getattr(self, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def __getstate__(self) -> dict[str, Any]:
            return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def __repr__(self) -> str:
        first = {"status": self._status_in_short(), "message": self.message, "method": self.method}
        shown = [field.name for field in dataclasses.fields(self) if field.repr]  # type: ignore[arg-type]
        rest = {name: getattr(self, name) for name in shown if name not in ("status", "method")}
        return summarise(
            type(self).__name__, first | {name: value for name, value in rest.items() if value is not None}
        )

    @property
    def positive(self) -> Array:
        """Where x is positive."""
        return self.x > 0

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
        """The status in words, and how well equalities are met; of a batch, how many systems ended how."""
        if isinstance(self.status, NNLSStatus):
            missed = self.status in (NNLSStatus.LIMIT, NNLSStatus.STALLED, NNLSStatus.DEPENDENT)
            told = (
                f"; equalities are met to {self.equality_error:.1e}" if missed and self.multipliers is not None else ""
            )
            return self.status.message + told
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

    def covariance(self, index: int | tuple[int, ...] = 0) -> np.ndarray:
        """Return the covariance of one system's x in full, as an array of NumPy, by dense linear algebra.

        Parameters
        ----------
        index : int or tuple of int, default 0
            Which system, in the shape in which `status` has them.

        Examples
        --------
        >>> import numpy as np, stepwell
        >>> b = np.array([0.5, -1.0, 0.1])
        >>> r = stepwell.lsq_linear(np.eye(3)[:, :2], b, (0, 1), uncertainty="variance", noise=0.1)
        >>> r.covariance()
        array([[0.01, 0.  ],
               [0.  , 0.  ]])
        """
        from stepwell.lsq.covariance import covariance_of

        if self.sigma is None or self._problem is None:
            raise ValueError("covariance is not known; allowed: of a result with uncertainty='variance'")
        shape = self._problem.lead
        number = int(np.ravel_multi_index(index if isinstance(index, tuple) else (index,), shape)) if shape else 0
        n = self._problem.columns

        def of_system(value: Any) -> float:
            found = host_copy(value) if hasattr(value, "shape") else np.asarray(value)
            return float(found.reshape(-1)[number if found.size > 1 else 0])

        x, state = (
            host_copy(one.T if self._problem.across else one).reshape(-1, n)[number] for one in (self.x, self.state)
        )
        lam, sigma = of_system(self.lam), of_system(self.sigma)

        def of_problem(x: np.ndarray, lam: float, sigma: float) -> np.ndarray:
            return covariance_of(self._problem, number, x, state, lam, sigma)

        return of_problem(x, lam, sigma) if self._units is None else self._units.covariance(of_problem, x, lam, sigma)


#: The result of ``nnls`` under the name that it has had.
NNLSResult = LSQResult
#: Fields that are vectors of unknowns.
VECTORS = ("x", "dual", "state", "variance")


def turned(result: LSQResult) -> LSQResult:
    """Return a result whose systems are columns."""
    vectors = {name: value.T for name in VECTORS if (value := getattr(result, name)) is not None}
    return dataclasses.replace(result, **vectors)
