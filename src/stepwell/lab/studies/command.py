"""`stepwell study`: published experiments, repeated beside other methods."""

from __future__ import annotations

import itertools
import os
import textwrap
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable

from stepwell.cli.console import make_console, make_table
from stepwell.cli.inputs import (
    check_folder,
    place_parameters,
    place_trouble,
    placed,
    threads_parameter,
    writing_trouble,
)
from stepwell.cli.output import Output, output_options, output_parameters
from stepwell.common.pyplot import has_matplotlib
from stepwell.common.threads import threads_at_most
from stepwell.lab.studies import STUDIES, StudyInterrupted, run, settings_of
from stepwell.lab.studies.frame import Setting, Table

#: What is said of --device in the help of every study.
_PLACES = "With --device cuda the rows of the GPU stand beside those of NumPy on the CPU."
#: Tables of studies are wide; in a pipe nothing need be cut.
_PIPE_WIDTH = 260


class StudyGroup(click.Group):
    """One command a study, made when it is asked for: all take device, size and folder, some take more."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order they are declared."""
        return list(STUDIES)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the studies without importing them."""
        with formatter.section("Studies"):
            formatter.write_dl([(name, title) for name, (title, _) in STUDIES.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of one study; a name that is none is told with the names that are."""
        try:
            settings_of(args[0])
        except ValueError as error:
            raise click.UsageError(str(error), ctx) from None
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Make the command of one study."""
        if name not in STUDIES:
            return None
        title, paper = STUDIES[name]
        options: list[click.Parameter] = [
            *place_parameters(),
            threads_parameter(),
            click.Option(["--full"], is_flag=True, help="The paper's sizes."),
            click.Option(["--toy"], is_flag=True, help="Sizes that take seconds, to see that it works."),
            click.Option(["-o", "--output", "folder"], type=click.Path(file_okay=False, path_type=Path),
                         help="Folder for JSON, CSV, Markdown and PNG."),
            *output_parameters(),
        ]  # fmt: skip
        for setting in settings_of(name):
            options.append(_as_option(setting))

        @placed
        @output_options(declare=False)
        def call(
            array: str,
            device: str,
            threads: int | None,
            full: bool,
            toy: bool,
            folder: Path | None,
            output: Output,
            **settings: Any,
        ) -> None:
            if full and toy:
                raise click.UsageError("--full and --toy were both given; allowed: one of them, or neither")
            size = "full" if full else "toy" if toy else "default"
            _run(name, array, device, threads, size, folder, settings, output)

        return click.Command(
            name, params=options, callback=call, help=f"{title}.\n\nRepeats {paper}. {_PLACES}", short_help=title
        )


def _as_option(setting: Setting) -> click.Option:
    name, default = f"--{setting.name.replace('_', '-')}", setting.default
    if isinstance(default, bool):
        return click.Option([name], is_flag=True, default=default, help=setting.help)
    many = isinstance(default, tuple)
    kind = type(default[0] if many else default)
    return click.Option([name], default=default, multiple=many, type=kind, show_default=True, help=setting.help)


@click.group("study", cls=StudyGroup, subcommand_metavar="NAME [OPTIONS]")
def command() -> None:
    """Repeat a published experiment: the paper's figures beside ours, as tables, CSV, JSON and plots."""


def _fitting(table: Table, console: Console) -> list[RichTable]:
    """Cut a table into parts that the console has room for; each begins with the columns that tell rows apart."""
    texts, count = table.texts(), len(table.filled)

    def fits(shown: RichTable) -> bool:
        # Measured where there is room: what is measured on this console is never wider than it.
        return Measurement.get(console, console.options.update(width=10_000), shown).maximum <= console.width

    whole = _drawn(table, texts, list(range(count)))
    if fits(whole):
        return [whole]
    keys = next((k for k in range(1, count) if len({tuple(row[:k]) for row in texts}) == len(texts)), 1)
    titles = [column.title for column in table.filled]
    parts: list[list[int]] = [list(range(keys))]
    for _, group in itertools.groupby(range(keys, count), key=titles.__getitem__):  # ours and the paper's stay together
        places = list(group)
        if len(parts[-1]) > keys and not fits(_drawn(table, texts, [*parts[-1], *places], narrow=True)):
            parts.append(list(range(keys)))
        parts[-1] += places
    return [_drawn(table, texts, part, narrow=True) for part in parts]


def _drawn(table: Table, texts: list[list[str]], places: list[int], *, narrow: bool = False) -> RichTable:
    """Draw some columns of a table; `narrow` ones have headings no wider than a word or what stands below them."""
    headings = [table.filled[place].heading for place in places]
    if narrow:
        widths = [max(len(row[place]) for row in texts) for place in places]
        headings = [
            textwrap.fill(heading, max(width, *map(len, heading.split())), break_on_hyphens=False)
            for heading, width in zip(headings, widths)
        ]
    shown = make_table(*headings)
    shown.title, shown.title_justify = table.title, "left"
    for column, place in zip(shown.columns, places):
        words = any(isinstance(row[table.filled[place].key], str) for row in table.rows)
        column.justify, column.overflow = "left" if words or place == 0 else "right", "fold"
    for row in texts:
        shown.add_row(*(row[place] for place in places))
    return shown


def _run(
    name: str,
    array: str,
    device: str,
    threads: int | None,
    size: str,
    folder: Path | None,
    settings: dict[str, Any],
    output: Output,
) -> None:
    from stepwell.lab.studies.pages import study_record, where, write_study

    if folder is not None:
        check_folder(folder, "-o")
    try:
        with place_trouble(), output.status("starting") as tell, threads_at_most(threads):
            study = run(name, device=device, array=array, size=size, settings=settings, tell=tell)
            interrupted = False
    except StudyInterrupted as stop:
        study, interrupted = stop.study, True
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    console = make_console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPE_WIDTH
    parts: list[str | RichTable] = [f"{study.title}\nRepeats {study.paper}", f"{where(study)}\n"]
    for table in study.tables:
        if not table.detail and table.rows:
            parts += [part for drawn in _fitting(table, console) for part in (drawn, "")]
    for title, lines in (("Remarks", study.remarks), ("What differs from the paper, and why", study.differs)):
        if lines:
            parts += [f"{title}:", *(f"- {line}" for line in lines)]
    if folder is not None:
        try:
            written = write_study(study, folder)
        except OSError as error:
            if not output.silent:
                _print(console, parts)
            raise click.ClickException(f"cannot write: {error}") from None
        parts.append(f"wrote {len(written)} files: {', '.join(path.name for path in written)} in {folder}")
    if not output.silent:
        _print(console, parts)
    with writing_trouble():
        output.record(
            {"name": name, "array": array, "device": device, "threads": threads, "size": size, **settings},
            study_record(study),
        )
    if folder is not None and not has_matplotlib():
        make_console(stderr=True).print("no pictures: matplotlib is not installed (pip install 'stepwell[plot]')")
    if interrupted:
        output.interrupted()


def _print(console: Console, parts: list[str | RichTable]) -> None:
    """Print lines and tables; in a pipe without blanks at the ends of lines, and a sentence is a line."""
    if console.is_terminal:
        for part in parts:
            console.print(part)
        return
    with console.capture() as captured:
        for part in parts:
            console.print(part, soft_wrap=isinstance(part, str))
    console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
