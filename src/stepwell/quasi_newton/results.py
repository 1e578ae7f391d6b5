"""Results of the quasi-Newton solvers, and the statuses whose members carry their message.

The types are SciPy's, whose import takes longer than anything else at the start: it waits until a result is made.
"""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

    from stepwell.quasi_newton.result_types import BatchResult, Result


class Status(enum.Enum):
    """Why a run ended (or ``RUNNING``). Each member has a ``message`` and says whether it is a ``success``.

    Examples
    --------
    >>> Status.GRADIENT.success, Status.GRADIENT.scipy
    (True, 0)
    >>> print(Status.MAX_ITERATIONS.message)
    the limit on iterations (maxiter) was reached
    """

    message: str
    scipy: int

    RUNNING = 0, 2, "the run has not ended"
    GRADIENT = 1, 0, "converged: projected gradient <= gtol"
    DECREASE = 2, 0, "converged: relative decrease of f <= ftol"
    GRADIENT_NORM = 3, 0, "converged: |g| <= eps * max(1, |x|)"
    TARGET = 4, 0, "f reached the target value"
    MAX_ITERATIONS = 5, 1, "the limit on iterations (maxiter) was reached"
    MAX_EVALUATIONS = 6, 1, "the limit on evaluations (maxfun) was reached"
    TIME_LIMIT = 7, 1, "the time limit was reached"
    LINE_SEARCH = 8, 2, "the line search found no acceptable step even along the steepest descent"
    ROUNDING = (
        9,
        2,
        "rounding errors prevent further progress: no step lowers f any more; the tolerances may be too small",
    )
    NONFINITE_START = 10, 2, "f or its gradient is not finite at x0"
    NONFINITE = 11, 2, "f or its gradient is not finite at every step tried; this is the last good point"
    CALLBACK = 12, 99, "the callback asked to stop"

    def __new__(cls, code: int, scipy: int, message: str) -> Status:
        """Make a member whose value is the engine's code."""
        member = object.__new__(cls)
        member._value_ = code
        member.scipy = scipy
        member.message = message
        return member

    @classmethod
    def of(cls, code: int) -> Status:
        """Return the member with the engine's code."""
        return _BY_CODE[int(code)]

    @property
    def success(self) -> bool:
        """Whether the run ended because what was asked for was reached."""
        return self.scipy == 0


_BY_CODE = {status.value: status for status in Status}
_SCIPY_BY_CODE = np.array([_BY_CODE[code].scipy for code in range(len(_BY_CODE))])

#: What the info code of a failed line search says (the codes of MCSRCH).
LINE_SEARCH_INFO = {
    0: "the direction does not descend",
    2: "the interval of uncertainty is narrower than xtol",
    3: "maxls evaluations did not suffice",
    4: "the step is at its lower limit stpmin",
    5: "the step is at its upper limit stpmax",
    6: "rounding errors prevent further progress",
}


def status_message(status: Status, info: int, gradient_norm: float = 0.0) -> str:
    """Return the message of a status; for a failed line search, with what its info code says."""
    if status is Status.LINE_SEARCH and info == 0 and not math.isfinite(gradient_norm):
        return f"{status.message} (info 0: the square of the gradient overflows; scale f, or start elsewhere)"
    if status is Status.LINE_SEARCH and info in LINE_SEARCH_INFO:
        return f"{status.message} (info {info}: {LINE_SEARCH_INFO[info]})"
    return status.message


def single_result(state: Any, **fields: Any) -> Result:
    """Make the result of one problem from its final state and what is particular to its target."""
    from stepwell.quasi_newton.result_types import Result

    reason = Status.of(state["status"])
    info = int(state["info"])
    evaluated = bool(state["evaluations"])
    return Result(
        fun=float(state["f"]) if evaluated else math.nan,
        nit=int(state["iterations"]),
        nfev=int(state["evaluations"]),
        njev=int(state["evaluations"]),
        status=reason.scipy,
        reason=reason,
        message=status_message(reason, info, float(state["gradient_norm"])),
        success=reason.success,
        info=info,
        projected_gradient=float(state["projected_gradient"]) if evaluated else math.nan,
        **{name: int(state[name]) for name in ("cauchy_walks", "truncations", "resets", "skipped")},
        **fields,
    )


def batch_result(states: Any, *, calls_a_point: int, **fields: Any) -> BatchResult:
    """Make the result of a batch from its final states and what is particular to its target.

    ``calls_a_point`` is how often the function was called for one value and gradient.
    """
    from stepwell.quasi_newton.result_types import BatchResult

    # Thousands of problems end in few ways: what a way means is looked up once for each.
    codes = states["status"].tolist()
    norms = np.where(np.isfinite(states["gradient_norm"]), 0.0, np.inf)
    ways = list(zip(codes, states["info"].tolist(), norms.tolist()))
    meaning = {way: status_message(_BY_CODE[way[0]], *way[1:]) for way in set(ways)}
    status = _SCIPY_BY_CODE[states["status"]]
    return BatchResult(
        nit=states["iterations"].copy(),
        nfev=states["evaluations"] * calls_a_point,
        status=status,
        reason=[_BY_CODE[code] for code in codes],
        message=[meaning[way] for way in ways],
        success=status == 0,
        info=states["info"].copy(),
        projected_gradient=states["projected_gradient"].copy(),
        **fields,
    )


def intermediate_result(state: Any, x: Any) -> OptimizeResult:
    """Make what a callback gets after an iteration."""
    from scipy.optimize import OptimizeResult

    return OptimizeResult(
        x=x,
        fun=float(state["f"]),
        nit=int(state["iterations"]),
        nfev=int(state["evaluations"]),
        step=float(state["step"]),
        projected_gradient=float(state["projected_gradient"]),
        gradient_norm=float(state["gradient_norm"]),
    )


def intermediate_batch(states: Any, x: Any) -> OptimizeResult:
    """Make what the callback of a batch gets after a turn."""
    from scipy.optimize import OptimizeResult

    return OptimizeResult(
        x=x,
        fun=states["f"].copy(),
        nit=states["iterations"].copy(),
        nfev=states["evaluations"].copy(),
        running=states["status"] == Status.RUNNING.value,
    )
