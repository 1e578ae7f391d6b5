"""The short report: what was solved and how it ended in a few lines, with a table of iterations where asked for."""

from __future__ import annotations

from typing import Any

from stepwell.arrays import Array
from stepwell.lab.problems import Problem
from stepwell.lab.solve.history import Iteration
from stepwell.lab.solve.vectors import vector_text
from stepwell.quasi_newton.settings import Settings


class SummaryReport:
    """The text of one run.

    Parameters
    ----------
    problem : Problem
        What is solved.
    bounds : None or (lower, upper)
        As they are used, which may differ from the problem's own.
    settings : Settings
        With what.
    dtype, array, device : str
        The kind of the vectors.
    """

    def __init__(
        self, problem: Problem, bounds: Any, settings: Settings, *, dtype: str, array: str, device: str
    ) -> None:
        self._problem, self._bounds, self._settings = problem, bounds, settings
        self._kind, self._on_host = f"{dtype}, {array} on {device}", device == "cpu"

    def heading(self, start: Iteration | None = None) -> str:
        """Return what is solved, and how."""
        problem, settings = self._problem, self._settings
        sizes = ", ".join(f"{name} {value:g}" for name, value in problem.parameters.items() if name != "n")
        bounds = "bounds" if self._bounds is not None else "no bounds"
        method = "L-BFGS-B" if self._bounds is not None else "L-BFGS"
        cauchy = f", Cauchy point {settings.cauchy}" if self._bounds is not None else ""
        threads = f", {settings.thread_count()} thread{'s' if settings.thread_count() != 1 else ''}"
        return (
            f"{problem.name}: n = {problem.n}{f' ({sizes})' if sizes else ''}, {bounds}, {self._kind}\n"
            f"{method}: m = {settings.m}{cauchy}, line search {settings.line_search.preset}"
            f"{threads if self._on_host else ''}"
        )

    def columns(self) -> str:
        """Return the names of the columns."""
        return f"\n{'iter':>6} {'evals':>6} {'f':>20} {'proj. gradient':>15} {'|g|':>11} {'step':>11}"

    def row(self, iteration: Iteration) -> str:
        """Return the row of one iteration."""
        step = "" if iteration.step is None else f"{iteration.step:.3e}"
        return (
            f"{iteration.nit:>6d} {iteration.nfev:>6d} {iteration.fun:>20.12e} "
            f"{iteration.projected_gradient:>15.3e} {iteration.gradient_norm:>11.3e} {step:>11}"
        ).rstrip()

    def vector(self, name: str, values: Array) -> str:
        """Return a vector of variables or of the gradient."""
        return vector_text(f"{name.lower()} =", values)

    def outcome(self, result: Any, seconds: dict[str, float]) -> list[tuple[str, str]]:
        """Return how the run ended: pairs of a name and what to say."""
        lines = [("status", result.message), ("f", f"{result.fun:.12g}")]
        if self._problem.minimum is not None and self._bounds is None:
            lines.append(("f - minimum", f"{result.fun - self._problem.minimum:.3e}"))
        lines.append(("projected gradient", f"{result.projected_gradient:.3e}"))
        lines.append(("iterations", f"{result.nit}"))
        lines.append(("evaluations", f"{result.nfev}"))
        rare = [
            f"{count} {text}"
            for count, text in (
                (result.cauchy_walks, "Cauchy walks"),
                (result.truncations, "truncated steps"),
                (result.resets, "resets"),
                (result.skipped, "skipped pairs"),
            )
            if count
        ]
        if rare:
            lines.append(("of these", ", ".join(rare)))
        lines.append(("time", _duration(seconds["total"])))
        if "setup" in seconds:
            lines.append(("before the start", _duration(seconds["setup"])))
        lines.append(("in the objective", _duration(seconds["objective"])))
        each = f" ({_duration(seconds['solver'] / result.nit)} an iteration)" if result.nit else ""
        lines.append(("in the solver", f"{_duration(seconds['solver'])}{each}"))
        return lines


def _duration(seconds: float) -> str:
    if seconds >= 100:
        return f"{seconds:.0f} s"
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{1e3 * seconds:.3g} ms"
