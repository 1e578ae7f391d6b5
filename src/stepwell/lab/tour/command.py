"""`stepwell tour`: every system at work in about a minute, and a page that tells it."""

from __future__ import annotations

import dataclasses
import os
import sys
import webbrowser
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from stepwell.cli.console import make_console, make_table
from stepwell.cli.inputs import check_file, open_place, place_options, writing_trouble
from stepwell.cli.output import Output, output_options
from stepwell.cli.progress_bar import ProgressBar
from stepwell.common.files import write_text
from stepwell.common.threads import threads_at_most
from stepwell.lab.tour import CHAPTERS, Chapter, Stop, Tour, take_tour, tour_page
from stepwell.lab.tour.chapter import duration
from stepwell.lab.tour.page import HEAD, summary_rows
from stepwell.lab.tour.run import Watcher


@click.command(name="tour")
@click.option(
    "-o",
    "--output",
    "report",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    default=Path("stepwell-tour.html"),
    show_default=True,
    metavar="FILE",
    help="The report to write.",
)
@click.option("--quick", is_flag=True, help="Toy sizes, in seconds: to see that everything runs.")
@click.option(
    "--open/--no-open",
    "open_it",
    default=None,
    help="Open the report in a browser.  [default: on a terminal, where there is a browser]",
)
@place_options
@output_options()
def command(
    report: Path, quick: bool, open_it: bool | None, array: str, device: str, threads: int | None, output: Output
) -> None:
    """Run a small version of every solver, beside SciPy, and write a report.

    About a minute on two cores. Stepwell's arrays are those of --array on --device; SciPy's stay with NumPy on the CPU.
    The report is one HTML file with all plots and pictures inside. The exit status is 0
    if every chapter ran and every answer is right, 1 if not (the others are in the report all the same), 2 if the
    command line is wrong. Ctrl-C ends the tour early: the report has the chapters so far, and the status is 130.
    """
    check_file(report, "-o")
    place = open_place(array, "float64", device)
    with _Display(make_console(stderr=True), quiet=output.quiet) as display, threads_at_most(threads):
        tour = take_tour(quick=quick, place=place, watcher=display, chapters=CHAPTERS)
    output.say(_summary(tour))
    try:
        write_text(report, tour_page(tour))
    except OSError as error:
        raise click.ClickException(f"the report could not be written: {error}") from None
    path = report.resolve()
    output.say(f"\nthe report: {path}")
    with writing_trouble():
        settings = {"quick": quick, "array": array, "device": device, "threads": threads, "output": str(path)}
        output.record(settings, _record(tour))
    if tour.interrupted:
        output.interrupted()
    if open_it or (open_it is None and not output.silent and _has_browser()):
        _open(path, asked=bool(open_it))
    if not tour.success:
        failed = ", ".join(stop.chapter.title for stop in tour.stops if not stop.success)
        click.echo(f"stepwell tour: failed: {failed}", err=True)
        sys.exit(1)


def _has_browser() -> bool:
    """Whether somebody sits at a terminal beside a browser with windows; one in the terminal would take it over."""
    if not sys.stdout.isatty():
        return False
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def _open(path: Path, *, asked: bool) -> None:
    if not webbrowser.open(path.as_uri()) and asked:
        click.echo("stepwell tour: no browser could be started; open the file yourself", err=True)


class _Display(Watcher):
    """A line a chapter, alive on a terminal; elsewhere a line when each chapter ends."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console, self._quiet = console, quiet
        self._tasks: dict[str, TaskID] = {}
        self._progress = ProgressBar(
            TextColumn("{task.fields[mark]}"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=18),
            TimeElapsedColumn(),
            TextColumn("{task.fields[what]}", style="dim"),
            console=console,
            transient=False,
            disable=quiet or not console.is_terminal,
        )

    def __enter__(self) -> _Display:
        for chapter in CHAPTERS:
            self._tasks[chapter.key] = self._progress.add_task(chapter.title, start=False, total=1.0, mark=" ", what="")
        self._progress.start()
        return self

    def __exit__(self, *trouble: Any) -> None:
        self._progress.stop()

    def on_begin(self, chapter: Chapter) -> None:
        """Start the chapter's clock."""
        self._progress.start_task(self._tasks[chapter.key])
        self._progress.update(self._tasks[chapter.key], mark=">")

    def on_progress(self, chapter: Chapter, what: str, share: float) -> None:
        """Move the chapter's bar."""
        self._progress.update(self._tasks[chapter.key], completed=share, what=what)

    def on_end(self, stop: Stop) -> None:
        """Fill the chapter's bar, or say what went wrong."""
        mark, what = ("✓", "") if stop.success else ("✗", stop.error or "an answer is wrong")
        self._progress.update(self._tasks[stop.chapter.key], completed=1.0, mark=mark, what=what)
        if not self._console.is_terminal and not self._quiet:
            self._console.print(f"{stop.chapter.title}: {what or 'done'}, {duration(stop.seconds)}", soft_wrap=True)


def _record(tour: Tour) -> dict[str, Any]:
    lines = [
        {"chapter": stop.chapter.key, "ratio": one.ratio, **dataclasses.asdict(one)}
        for stop in tour.stops
        for one in stop.comparisons
    ]
    failed = {stop.chapter.key: stop.error for stop in tour.stops if stop.account is None}
    return {"success": tour.success, "seconds": tour.seconds, "comparisons": lines, "failed": failed}


def _summary(tour: Tour) -> Table:
    table = make_table(*HEAD)
    for place, column in enumerate(table.columns):
        column.overflow, column.justify = "fold", "right" if place in (1, 3) else "left"
    for cells, good in summary_rows(tour):
        table.add_row(*cells, style=None if good else "red")
    return table
