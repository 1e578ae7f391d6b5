"""Why a quasi-Newton run ended, in codes and in words."""

from __future__ import annotations

import math
from typing import Any

from stepwell.common.status import SolverStatus


class Status(SolverStatus):
    """Why a run ended (or ``RUNNING``). Each member has a ``message`` and says whether it is a ``success``.

    Examples
    --------
    >>> Status.GRADIENT.success, Status.GRADIENT.scipy
    (True, 0)
    >>> print(Status.MAX_ITERATIONS.message)
    the limit on iterations (maxiter) was reached
    """

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
    return message_of(Status.of(state["status"]), int(state["info"]), doubt_about(state))


def doubt_about(state: Any) -> str:
    """Name what a failed line search may come from: the size of the gradient, or its being wrong.

    Not of one that ended by rounding: where f is large or steep, rounding hides a descent of any size.
    """
    if not math.isfinite(float(state["gradient_norm"])):
        return "overflow"
    # Rounding of f hides a descent of that size; more than its root should be seen along -g.
    seen = float(state["projected_gradient"]) > 1e-4 * max(1.0, abs(float(state["f"])))
    return "gradient" if seen else ""


def message_of(status: Status, info: int, doubt: str) -> str:
    """Return the words for a status, the code of its line search and what `doubt_about` says of it."""
    if status is not Status.LINE_SEARCH:
        return status.message
    if info == 0 and doubt == "overflow":
        return f"{status.message} (info 0: the square of the gradient overflows; scale f, or start elsewhere)"
    words = status.message
    if info in LINE_SEARCH_INFO:
        words += f" (info {info}: {LINE_SEARCH_INFO[info]})"
    return f"{words}; {_CHECK_GRADIENT}" if doubt == "gradient" else words
