"""`stepwell study`: published experiments, repeated beside other methods."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as RichTable

from stepwell.cli.console import make_console, make_table
from stepwell.cli.inputs import check_folder, choose_device, read_device
from stepwell.studies import STUDIES, run, settings_of
from stepwell.studies.frame import Setting, Table

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

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Make the command of one study."""
        if name not in STUDIES:
            return None
        title, paper = STUDIES[name]
        options: list[click.Parameter] = [
            click.Option(["--device"], default="cpu", show_default=True, callback=read_device,
                         help="cpu, cuda or cuda:K; with a GPU its rows stand beside the CPU's."),
            click.Option(["--full", "size"], flag_value="full", help="The paper's sizes."),
            click.Option(["--toy", "size"], flag_value="toy", help="Sizes that take seconds, to see that it works."),
            click.Option(["-o", "--output", "folder"], type=click.Path(file_okay=False, path_type=Path),
                         help="Folder for JSON, CSV, Markdown and PNG."),
        ]  # fmt: skip
        for setting in settings_of(name):
            options.append(_as_option(setting))

        def call(device: str, size: str | None, folder: Path | None, **settings: Any) -> None:
            _run(name, device, size or "default", folder, settings)

        return click.Command(
            name, params=options, callback=call, help=f"{title}.\n\nRepeats {paper}.", short_help=title
        )


def _as_option(setting: Setting) -> click.Option:
    name, default = f"--{setting.name.replace('_', '-')}", setting.default
    if isinstance(default, bool):
        return click.Option([name], is_flag=True, default=default, help=setting.help)
    many = isinstance(default, tuple)
    kind = type(default[0] if many else default)
    return click.Option([name], default=default, multiple=many, type=kind, show_default=True, help=setting.help)


@click.group("study", cls=StudyGroup)
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
    parts: list[list[int]] = [list(range(keys))]
    for place in range(keys, count):
        if len(parts[-1]) > keys and not fits(_drawn(table, texts, [*parts[-1], place], narrow=True)):
            parts.append(list(range(keys)))
        parts[-1].append(place)
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
    for column in shown.columns[1:]:
        column.justify = "right"
    for row in texts:
        shown.add_row(*(row[place] for place in places))
    return shown


def _run(name: str, device: str, size: str, folder: Path | None, settings: dict[str, Any]) -> None:
    from stepwell.report.study import plotting, where, write_study

    device = choose_device(device, "torch")
    if folder is not None:
        check_folder(folder, "-o")
    try:
        with make_console(stderr=True).status("starting") as status:
            study = run(name, device=device, size=size, settings=settings, tell=lambda text: status.update(text))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    console = make_console()
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    console.print(f"{study.title}\nRepeats {study.paper}")
    console.print(f"{where(study)}\n")
    for table in study.tables:
        if table.detail or not table.rows:
            continue
        for part in _fitting(table, console):
            console.print(part)
            console.print()
    for title, lines in (("Remarks", study.remarks), ("What differs from the paper, and why", study.differs)):
        if lines:
            console.print(f"{title}:")
            for line in lines:
                console.print(f"- {line}")
    if folder is not None:
        try:
            written = write_study(study, folder)
        except OSError as error:
            raise click.ClickException(f"cannot write: {error}") from None
        console.print(f"wrote {len(written)} files: {', '.join(path.name for path in written)} in {folder}")
        if not plotting():
            make_console(stderr=True).print("no pictures: matplotlib is not installed (pip install 'stepwell[plot]')")
