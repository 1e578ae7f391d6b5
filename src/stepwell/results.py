"""Result types of the quasi-Newton solvers, and the statuses whose members carry their message."""

from __future__ import annotations

import enum
from typing import Any

from scipy.optimize import OptimizeResult


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

    @property
    def success(self) -> bool:
        """Whether the run ended because what was asked for was reached."""
        return self.scipy == 0


#: What the info code of a failed line search says (the codes of MCSRCH).
LINE_SEARCH_INFO = {
    0: "the direction does not descend",
    2: "the interval of uncertainty is narrower than xtol",
    3: "maxls evaluations did not suffice",
    4: "the step is at its lower limit stpmin",
    5: "the step is at its upper limit stpmax",
    6: "rounding errors prevent further progress",
}


def status_message(status: Status, info: int) -> str:
    """Return the message of a status; for a failed line search, with what its info code says."""
    if status is Status.LINE_SEARCH and info in LINE_SEARCH_INFO:
        return f"{status.message} (info {info}: {LINE_SEARCH_INFO[info]})"
    return status.message


class Result(OptimizeResult):  # type: ignore[misc]
    """What `minimize` returns: SciPy's `OptimizeResult` with fields of our own.

    SciPy's fields are ``x fun jac nfev njev nit status message success hess_inv``, with SciPy's ``status`` codes:
    0 converged, 1 a limit was reached, 2 no further progress, 99 stopped by the callback. Ours are ``reason`` (a
    `Status`), ``info`` (the line search's code), ``projected_gradient`` (maximum norm), ``seconds`` (a dict: total,
    objective, solver), and the counts ``cauchy_walks truncations resets skipped`` of the rarer branches.
    """


class BatchResult(OptimizeResult):  # type: ignore[misc]
    """What `minimize_batch` returns: the fields of `Result` with one entry per problem."""


def as_statuses(codes: Any) -> list[Status]:
    """Turn engine codes into statuses."""
    return [Status(int(code)) for code in codes]
