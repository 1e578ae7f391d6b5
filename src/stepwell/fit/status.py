"""How a fit ended."""

from __future__ import annotations

from stepwell.common.status import SolverStatus


class FitStatus(int, SolverStatus):
    """How one fit ended; ``.message`` says it in words, ``.success`` whether it converged.

    Members are the integers that a batch's ``status`` array holds; where SciPy's ``least_squares`` has a number for
    the same end, it is that one. Positive numbers are successes.

    Examples
    --------
    >>> FitStatus.of(2), FitStatus.LIMIT == 0, FitStatus.STALLED.success
    (<FitStatus.FTOL: 2>, True, False)
    """

    LIMIT = 0, 1, "the limit maxiter or max_nfev was reached; x is the best point so far"
    GTOL = 1, 0, "converged: no column that may move makes an angle with the residual whose cosine is above gtol"
    FTOL = 2, 0, "converged: the model within the bounds promises less than ftol of the cost"
    XTOL = 3, 0, "the last step was shorter than xtol"
    ZERO_RESIDUAL = 5, 0, "converged: the residual is the rounding of the model or of the data"
    CALLBACK = -2, 99, "the callback, or Ctrl-C, asked to stop; x is the best point so far"
    ROUNDING = -3, 2, "rounding leaves no step that lowers the cost; `distance` says how near the minimum is"
    STALLED = (
        -4,
        2,
        "no step lowers the cost although the model promises more: the function is not smooth, or jac is wrong "
        "(stepwell.check_jac compares it with differences)",
    )
    NON_FINITE_START = (
        -5,
        2,
        "the function, its derivatives or their squares are not finite at the start; nothing was fitted",
    )
    NON_FINITE = -6, 2, "the function is not finite at every step tried; x is the last point where it is"
    NO_POINTS = -7, 2, "no point is left: all are masked or missing"
    CROSSED_BOUNDS = -8, 2, "a lower bound is above its upper bound; nothing was fitted"

    def __str__(self) -> str:
        return int.__repr__(self)

    def __format__(self, spec: str) -> str:
        return int.__format__(self, spec)
