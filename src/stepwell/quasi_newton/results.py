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
    GRADIENT_NORM = 3, 0, "converged: |g| <= relative_gtol * max(1, |x|)"
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
_SEARCH_ENDED = (Status.LINE_SEARCH.value, Status.ROUNDING.value)
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


_CHECK_GRADIENT = "f does not fall along -g as the gradient says: it may be wrong (stepwell.check_grad compares)"


def status_message(state: Any) -> str:
    """Return what the status of a state means; of a failed line search, what its info code says and what to look at."""
    return _message(Status.of(state["status"]), int(state["info"]), _doubt(state))


def _doubt(state: Any) -> str:
    """Name what a failed line search may come from: the size of the gradient, or its being wrong."""
    if not math.isfinite(float(state["gradient_norm"])):
        return "overflow"
    # Rounding of f hides a descent of that size; more than its root should be seen along -g.
    seen = float(state["projected_gradient"]) > 1e-4 * max(1.0, abs(float(state["f"])))
    return "gradient" if seen else ""


def _message(status: Status, info: int, doubt: str) -> str:
    if status not in (Status.LINE_SEARCH, Status.ROUNDING):
        return status.message
    if status is Status.LINE_SEARCH and info == 0 and doubt == "overflow":
        return f"{status.message} (info 0: the square of the gradient overflows; scale f, or start elsewhere)"
    words = status.message
    if status is Status.LINE_SEARCH and info in LINE_SEARCH_INFO:
        words += f" (info {info}: {LINE_SEARCH_INFO[info]})"
    return f"{words}; {_CHECK_GRADIENT}" if doubt == "gradient" else words


def single_result(state: Any, **fields: Any) -> Result:
    """Make the result of one problem from its final state and what is particular to its target."""
    from stepwell.quasi_newton.result_types import Result

    reason = Status.of(state["status"])
    info = int(state["info"])
    evaluated = bool(state["evaluations"])
    return Result(
        fun=float(state["f"]) if evaluated else math.nan,
        nit=int(state["iterations"]),
        status=reason.scipy,
        reason=reason,
        message=status_message(state),
        success=reason.success,
        info=info,
        projected_gradient=float(state["projected_gradient"]) if evaluated else math.nan,
        **{name: int(state[name]) for name in ("cauchy_walks", "truncations", "resets", "skipped")},
        **{"nfev": int(state["evaluations"]), "njev": int(state["evaluations"])} | fields,
    )


def batch_result(states: Any, *, calls_a_point: int, **fields: Any) -> BatchResult:
    """Make the result of a batch from its final states and what is particular to its target.

    ``calls_a_point`` is how often the function was called for one value and gradient.
    """
    from stepwell.quasi_newton.result_types import BatchResult

    # Thousands of problems end in few ways: what a way means is looked up once for each.
    codes = states["status"].tolist()
    doubts = [""] * len(codes)
    for problem in np.flatnonzero(np.isin(states["status"], _SEARCH_ENDED)).tolist():
        doubts[problem] = _doubt(states[problem])
    ways = list(zip(codes, states["info"].tolist(), doubts))
    meaning = {way: _message(_BY_CODE[way[0]], *way[1:]) for way in set(ways)}
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
