"""The result types of the quasi-Newton solvers."""

from __future__ import annotations

from scipy.optimize import OptimizeResult


class Result(OptimizeResult):  # type: ignore[misc]
    """What `minimize` returns: SciPy's `OptimizeResult` with fields of our own.

    SciPy's fields are ``x fun jac nfev njev nit status message success hess_inv``, with SciPy's ``status`` codes:
    0 converged, 1 a limit was reached, 2 no further progress, 99 stopped by the callback. Ours are ``reason`` (a
    `Status`), ``info`` (the line search's code), ``projected_gradient`` (maximum norm), ``seconds`` (a dict: total,
    objective, solver; on a GPU also setup), ``mode`` (on a GPU: how turns ran), and the counts
    ``cauchy_walks truncations resets skipped`` of the rarer branches.
    """


class BatchResult(OptimizeResult):  # type: ignore[misc]
    """What `minimize_batch` returns: the fields of `Result` with one entry per problem."""
