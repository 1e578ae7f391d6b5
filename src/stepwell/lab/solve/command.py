"""`stepwell solve`: minimise a test problem and report."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import numpy as np
from scipy.optimize import OptimizeWarning

from stepwell.cli.console import make_table, show
from stepwell.cli.inputs import (
    check_file,
    check_plot,
    place_options,
    read_checkpoint_interval,
    read_interval,
    read_parameters,
    usage_errors,
    writing_trouble,
)
from stepwell.cli.output import Output, output_options
from stepwell.common.files import Unreadable, replacing
from stepwell.lab.problems import Problem
from stepwell.lab.problems.inputs import build_problem, complete_problem
from stepwell.lab.solve.convergence import plot_convergence
from stepwell.lab.solve.history import History
from stepwell.lab.solve.record import run_record
from stepwell.lab.solve.summary import SummaryReport
from stepwell.lab.solve.va15 import VA15Report
from stepwell.lab.solve.vectors import on_host
from stepwell.lab.solve.watching import ProgressLine, TablePrinter, Watcher
from stepwell.quasi_newton.api import minimize
from stepwell.quasi_newton.driver import Interrupted
from stepwell.quasi_newton.settings import CAUCHY_POLICIES, HISTORY_DTYPES, LineSearch, Settings

#: How VA15 stops (D'Amore et al. 2013): |g| <= eps max(1, |x|), or 2000 iterations of at most 20 evaluations.
_VA15_STOPPING: dict[str, Any] = {"relative_gtol": 1e-5, "gtol": 0.0, "ftol": 0.0, "maxiter": 2000, "maxfun": 40000}
_STOPPING = ("gtol", "ftol", "patience", "relative_gtol", "maxiter", "maxfun", "target", "time_limit")
_SEARCH = {"ls_ftol": "ftol", "ls_gtol": "gtol", "ls_xtol": "xtol", "stpmin": "stpmin", "stpmax": "stpmax"}


@click.command(name="solve")
@click.argument("problem", shell_complete=complete_problem)
@click.option("-n", type=int, help="Number of variables; on a grid, the nearest square grid.")
@click.option("--nx", type=int, help="Grid points in x.")
@click.option("--ny", type=int, help="Grid points in y.")
@click.option(
    "--param",
    "parameters",
    multiple=True,
    callback=read_parameters,
    metavar="NAME=VALUE",
    help="A parameter of the problem, such as c=5; repeatable.",
)
@click.option(
    "--bounds",
    callback=read_interval,
    metavar="LOW,HIGH",
    help="Bounds on every variable in place of the problem's; 0, is x >= 0.",
)
@click.option("--no-bounds", is_flag=True, help="Leave out the problem's bounds.")
@click.option("-m", type=int, default=10, show_default=True, help="Pairs of history.")
@click.option("--history", type=click.Choice(HISTORY_DTYPES), help="Dtype of the pairs; a narrower one saves memory.")
@click.option("--cauchy", type=click.Choice(CAUCHY_POLICIES), help="How the Cauchy point is found.")
@click.option(
    "--line-search",
    type=click.Choice(("lbfgsb", "va15")),
    default="lbfgsb",
    show_default=True,
    help="Preset of the search; va15 also stops and reports as VA15 does.",
)
@click.option("--ls-ftol", type=float, help="Line search: sufficient decrease.")
@click.option("--ls-gtol", type=float, help="Line search: curvature.")
@click.option("--ls-xtol", type=float, help="Line search: relative width at which it gives up.")
@click.option("--stpmin", type=float, help="Line search: least step.")
@click.option("--stpmax", type=float, help="Line search: greatest step.")
@click.option("--maxls", type=int, help="Line search: most evaluations.")
@click.option("--gtol", type=float, help="Stop when the projected gradient's largest element is this small.")
@click.option("--ftol", type=float, help="Stop when f decreases by less, relative to max(|f|, 1).")
@click.option("--patience", type=int, help="Iterations running for which ftol must hold, where it is in doubt.")
@click.option("--relative-gtol", "--eps", "relative_gtol", type=float, help="Stop when |g| <= this times max(1, |x|).")
@click.option("--maxiter", type=int, help="Most iterations.")
@click.option("--maxfun", type=int, help="Most evaluations.")
@click.option("--target", type=float, help="Stop when f is this low.")
@click.option("--time-limit", type=float, help="Stop after this many seconds.")
@click.option(
    "--dtype",
    type=click.Choice(("float64", "float32")),
    default="float64",
    show_default=True,
    help="Type of the vectors.",
)
@place_options
@click.option(
    "--iprint",
    type=(int, click.IntRange(0, 3)),
    metavar="FREQ DETAIL",
    help="Rows to print. FREQ < 0: no output at all; 0: first and last iteration; k: every k-th. DETAIL 0: "
    "rows; 1: also x and g at the start; 2: also x with each row; 3: also g.  [default for va15: 1 0]",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Draw the convergence: a png, pdf or svg file. Needs matplotlib.",
)
@click.option(
    "--solution",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE.npy",
    help="Save the solution as a NumPy file.",
)
@click.option(
    "--checkpoint",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Write the run to this file as it goes on; where it is there already, go on from it.",
)
@click.option(
    "--checkpoint-every",
    callback=read_checkpoint_interval,
    default="60 s",
    show_default=True,
    metavar="K|TIME",
    help="How often: every K iterations, or a time such as '30 s', '5 min', '1 h'.",
)
@output_options()
def command(problem: str, output: Output, **given: Any) -> None:  # fmt: skip
    """Minimise the test problem PROBLEM and report.

    `stepwell problems` lists the names. The exit status is 0 if the run converged, 1 if it did not (standard error
    says why), 2 if the command line is wrong. Ctrl-C ends a run early: what was asked for is made from the point so
    far, and the status is 130.
    """
    _check_files(given)
    if output.quiet:
        given["iprint"] = (-1, 0)
    elif output.verbose and given["iprint"] is None:
        given["iprint"] = (1, 0)
    if given["bounds"] is not None and given["no_bounds"]:
        raise click.UsageError("--bounds and --no-bounds exclude each other")
    settings = _read_settings(given)
    kind = {name: given[name] for name in ("dtype", "array", "device")}
    built = build_problem(problem, {k: given[k] for k in ("n", "nx", "ny")}, given["parameters"], **kind)
    bounds = None if given["no_bounds"] else given["bounds"] if given["bounds"] is not None else built.bounds
    _Run(built, bounds, settings, kind, given, output).perform()


def _check_files(given: dict[str, Any]) -> None:
    """Refuse, before any work, a file that could not be written after it."""
    check_plot(given["plot"])
    check_file(given["solution"], "--solution", ("npy",))
    check_file(given["checkpoint"], "--checkpoint")


def _read_settings(given: dict[str, Any]) -> Settings:
    constants = {name: given[option] for option, name in _SEARCH.items()} | {"maxls": given["maxls"]}
    stopping = dict(_VA15_STOPPING) if given["line_search"] == "va15" else {}
    stopping |= {name: given[name] for name in (*_STOPPING, "cauchy", "threads", "history") if given[name] is not None}
    with usage_errors():
        settings = Settings(m=given["m"], line_search=LineSearch(given["line_search"], **constants), **stopping)
    return settings


class _Run:
    """One run: its inputs, what is shown while it lasts, and what is left after it."""

    def __init__(
        self,
        problem: Problem,
        bounds: Any,
        settings: Settings,
        kind: dict[str, str],
        given: dict[str, Any],
        output: Output,
    ) -> None:
        self.output = output
        self.problem, self.bounds, self.settings, self.kind, self.given = problem, bounds, settings, kind, given
        self.as_va15 = settings.line_search.preset == "va15"
        self.iprint: tuple[int, int] | None = given["iprint"] or ((1, 0) if self.as_va15 else None)
        # Standard output holds either the JSON or the report.
        self.silent = output.json_file == "-" or (self.iprint is not None and self.iprint[0] < 0)
        self.on_gpu = kind["device"] != "cpu"
        shown = (self.iprint is not None and not self.silent) or sys.stderr.isatty()
        # On a GPU a callback makes the host wait for every turn: there is none where nobody looks at iterations.
        self.watched = not self.on_gpu or shown or output.json_file is not None or given["plot"] is not None
        search = settings.line_search.constants()
        self.va15 = VA15Report(problem.name, problem.n, settings.m, search["xtol"])
        self.summary = SummaryReport(problem, bounds, settings, **kind)

    def perform(self) -> None:
        """Solve, report, and leave with the exit status."""
        if self.iprint is None and not self.silent:
            click.echo(self.summary.heading())
        interrupted = False
        with self._watcher() as watcher, _speaking_warnings(), np.errstate(all="ignore"):
            history = History(self.problem.fun, self.bounds, watcher.on_start, watcher.on_iteration)
            try:
                result = minimize(
                    history.fun,
                    self.problem.x0,
                    jac=True,
                    bounds=self.bounds,
                    callback=history.callback if self.watched else None,
                    options=self._options(),
                    checkpoint=self.given["checkpoint"],
                    checkpoint_every=self.given["checkpoint_every"],
                )
            except Interrupted as stop:
                result, interrupted = stop.result, True
            except Unreadable as error:  # the checkpoint
                raise click.ClickException(str(error)) from error
            except (ValueError, TypeError, ImportError, MemoryError) as error:
                raise click.UsageError(str(error)) from error
            watcher.on_end(history.iterations, result)
        seconds = history.seconds(result)
        if not self.silent:
            self._report(result, seconds)
        with writing_trouble():
            self._save(history, result, seconds)
        if interrupted:
            self.output.interrupted()
        if not result.success:
            click.echo(f"stepwell solve: not converged: {result.message}", err=True)
            sys.exit(1)

    def _options(self) -> Any:
        names = (*_STOPPING, "cauchy", "threads", "history", "line_search")
        chosen = {"maxcor": self.settings.m, "time_objective": self.on_gpu}
        return chosen | {name: getattr(self.settings, name) for name in names}

    def _watcher(self) -> Watcher:
        if self.iprint is not None and not self.silent:
            report = self.va15 if self.as_va15 else self.summary
            return TablePrinter(report, *self.iprint, gradient=lambda x: self.problem.fun(x)[1])
        return ProgressLine(self.problem.name) if self.output.moving else Watcher()

    def _report(self, result: Any, seconds: dict[str, float]) -> None:
        if self.as_va15:
            click.echo(self.va15.closing(result, seconds))
            return
        table = make_table("", "", header=False)
        table.columns[0].style = "bold"
        for name, text in self.summary.outcome(result, seconds):
            style = ("green" if result.success else "red") if name == "status" else ""
            table.add_row(name, text, style=style)
        click.echo()
        show(table)

    def _save(self, history: History, result: Any, seconds: dict[str, float]) -> None:
        if self.given["solution"] is not None:
            with replacing(self.given["solution"]) as file:  # given a name, save would add an ending to X.NPY
                np.save(file, on_host(result.x))
        bounded = self.bounds is not None
        record = run_record(self.problem, bounded, self.settings, self.kind, result, seconds, history.iterations)
        self.output.record(record.pop("settings"), record.pop("result"), **record)
        if self.given["plot"] is not None:
            plot_convergence(
                history.iterations,
                self.given["plot"],
                title=f"{self.problem.name}, n = {self.problem.n:,}, m = {self.settings.m}",
                subtitle=f"{result.message}; {result.nit} iterations, {result.nfev} evaluations, "
                f"{seconds['total']:.3g} s",
                minimum=self.problem.minimum if self.bounds is None else None,
                gtol=self.settings.gtol,
            )


@contextmanager
def _speaking_warnings() -> Iterator[None]:
    """Show the solver's warnings as lines for a person on standard error."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", OptimizeWarning)

        def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
            click.echo(f"stepwell solve: {message}", err=True)

        warnings.showwarning = show
        yield
