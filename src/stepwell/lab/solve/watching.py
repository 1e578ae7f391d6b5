"""What a person sees while `stepwell solve` runs: rows of a table, or a line of progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

import click
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from stepwell.arrays import Array
from stepwell.cli.console import make_console
from stepwell.lab.solve.history import Iteration


class Report(Protocol):
    """Text for the stages of a run."""

    def heading(self, start: Iteration) -> str:
        """What is solved."""

    def columns(self) -> str:
        """Names of the columns."""

    def row(self, iteration: Iteration) -> str:
        """One iteration."""

    def vector(self, name: str, values: Array) -> str:
        """All elements of x or of the gradient."""


class Watcher:
    """Told of the start, each iteration and the end of a run; this one says nothing."""

    def on_start(self, start: Iteration, x: Array, gradient: Array) -> None:
        """Take note of the start."""

    def on_iteration(self, iteration: Iteration, x: Array) -> None:
        """Take note of an accepted iteration."""

    def on_end(self, iterations: list[Iteration], result: Any) -> None:
        """Take note of the end."""

    def __enter__(self) -> Watcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was."""


class TablePrinter(Watcher):
    """Prints rows as VA15's ``iprint`` says.

    Parameters
    ----------
    report : Report
        Makes the text.
    frequency : int
        0: the first and the last iteration; k > 0: iterations 1, 1 + k, 1 + 2k, ... and the last.
    detail : int
        0: rows; 1: also x and the gradient at the start; 2: also x with every row; 3: also the gradient.
    gradient : callable
        Gives the gradient at a point, for detail 3.
    """

    def __init__(self, report: Report, frequency: int, detail: int, gradient: Callable[[Array], Array]) -> None:
        self._report, self._frequency, self._detail, self._gradient = report, frequency, detail, gradient
        self._printed = 0

    def on_start(self, start: Iteration, x: Array, gradient: Array) -> None:
        """Print the heading, and the start where asked for."""
        click.echo(self._report.heading(start))
        if self._detail >= 1:
            click.echo(self._report.vector("X", x))
            click.echo(self._report.vector("G", gradient))
        click.echo(self._report.columns())

    def on_iteration(self, iteration: Iteration, x: Array) -> None:
        """Print the row if it is due."""
        due = iteration.nit == 1 or (self._frequency > 0 and (iteration.nit - 1) % self._frequency == 0)
        if due:
            self._print(iteration, x, self._gradient(x) if self._detail >= 3 else None)

    def on_end(self, iterations: list[Iteration], result: Any) -> None:
        """Print the last row if it was not due by itself."""
        if iterations and iterations[-1].nit > self._printed:
            self._print(iterations[-1], result.x, result.jac)

    def _print(self, iteration: Iteration, x: Array, gradient: Array | None) -> None:
        self._printed = iteration.nit
        click.echo(self._report.row(iteration))
        if self._detail >= 2:
            click.echo(self._report.vector("X", x))
        if self._detail >= 3:
            click.echo(self._report.vector("G", gradient))


class ProgressLine(Watcher):
    """Shows one changing line on standard error once a run has taken a second; it vanishes at the end."""

    PATIENCE = 1.0
    INTERVAL = 0.1

    def __init__(self, title: str) -> None:
        self._title = title
        self._began = self._shown = time.perf_counter()
        self._progress: Progress | None = None

    def on_iteration(self, iteration: Iteration, x: Array) -> None:
        """Refresh the line, at most ten times a second."""
        now = time.perf_counter()
        if now - self._began < self.PATIENCE or now - self._shown < self.INTERVAL:
            return
        self._shown = now
        text = (
            f"{self._title}  iteration {iteration.nit}  f {iteration.fun:.6e}  "
            f"gradient {iteration.projected_gradient:.1e}"
        )
        if self._progress is None:
            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
                console=make_console(stderr=True),
                transient=True,
                auto_refresh=False,
            )
            self._progress.add_task(text, total=None)
            self._progress.start()
        self._progress.update(self._progress.task_ids[0], description=text, refresh=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the line."""
        if self._progress is not None:
            self._progress.stop()
