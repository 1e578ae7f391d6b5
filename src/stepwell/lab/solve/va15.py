"""The report of the VA15 driver, line for line as D'Amore, Arcucci, Mele, Scotti and Murli (2013) print it."""

from __future__ import annotations

from typing import Any

from stepwell.arrays import Array
from stepwell.lab.solve.history import Iteration
from stepwell.lab.solve.vectors import vector_text
from stepwell.quasi_newton.status import LINE_SEARCH_INFO, Status

#: Statuses under which VA15 returns its error code -1: the line search failed, info says how.
_FAILURES = (Status.LINE_SEARCH, Status.ROUNDING)
_ASTERISKS = "*" * 57


class VA15Report:
    """The text of one run.

    Parameters
    ----------
    name : str
        The function to minimise.
    n, m : int
        Numbers of variables and of corrections.
    xtol : float
        The line search's relative width at which it gives up.

    Examples
    --------
    >>> report = VA15Report("rosenbrock", 1000000, 7, 2.220446049250313e-16)
    >>> print(report.row(Iteration(1, 4, 8968026.0, 133899.0, 6.2e2, 1.275337e-4)))
    1      4        8.968026e+06  1.338990e+05   1.275337e-04
    """

    def __init__(self, name: str, n: int, m: int, xtol: float) -> None:
        self._name, self._n, self._m, self._xtol = name, n, m, xtol

    def heading(self, start: Iteration) -> str:
        """Return what stands above the rows: the problem, f and the gradient's norm at the start, the columns."""
        return "\n".join(
            (
                f"Function to minimize: {self._name[:1].upper()}{self._name[1:]}",
                f"Xtol: {self._xtol:.6e}",
                f"Number of variables n = {self._n};",
                f"Number of corrections m = {self._m};",
                f"f = {start.fun:.6e};",
                f"gnorm = {start.gradient_norm:.6e}",
            )
        )

    def columns(self) -> str:
        """Return the line of asterisks and the names of the columns."""
        return f"{_ASTERISKS}\n{'I':<7}{'NFN':<9}{'FUNC':<14}{'GNORM':<15}STEPLENGTH"

    def row(self, iteration: Iteration) -> str:
        """Return the row of one iteration."""
        step = 0.0 if iteration.step is None else iteration.step
        return (
            f"{iteration.nit:<7d}{iteration.nfev:<9d}{iteration.fun:<14.6e}{iteration.gradient_norm:<15.6e}{step:.6e}"
        )

    def vector(self, name: str, values: Array) -> str:
        """Return a vector of variables or of the gradient."""
        return vector_text(f"Vector {name} =", values)

    def closing(self, result: Any, seconds: dict[str, float]) -> str:
        """Return how the run ended, its counts and its times in milliseconds."""
        evaluations = int(result.nfev)
        objective, solver = 1e3 * seconds["objective"], 1e3 * seconds["solver"]
        return "\n".join(
            (
                "",
                _ending(result),
                "",
                f"Number of function and gradient evaluations for L-BFGS: {evaluations}",
                f"Total time for the function and gradient evaluations: {objective:.6f} ms",
                f"Average time for the function and gradient evaluations: {objective / evaluations:.6f} ms",
                # One call of the solver follows each evaluation.
                f"Number of l-bfgs calls: {evaluations}",
                f"Total time for the execution of l-bfgs: {solver:.6f} ms",
                f"Average time for the executions of l-bfgs: {solver / evaluations:.6f} ms",
                f"Total time for the minimization: {objective + solver:.6f} ms",
            )
        )


def _ending(result: Any) -> str:
    if result.success:
        return "The minimization terminated without detecting errors."
    if result.reason in _FAILURES:
        return f"The line search failed, info = {result.info}: {LINE_SEARCH_INFO.get(result.info, result.message)}."
    return f"The minimization stopped before convergence: {result.message}."
