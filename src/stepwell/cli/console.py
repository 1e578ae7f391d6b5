"""Consoles and tables of the command line: colour on a terminal, plain text in a pipe or with NO_COLOR."""

from __future__ import annotations

import os
import sys
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.table import Table

#: Width of output that goes to no terminal: wide enough that a line of the list of problems stays a line.
_PIPE_WIDTH = 160


def make_console(*, stderr: bool = False) -> Console:
    """Return a console on standard output or standard error as they are now."""
    stream = sys.stderr if stderr else sys.stdout
    # A terminal that cannot show a letter gets a question mark, not a traceback.
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")
    width = None if stream.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    # Without a colour system rich leaves out bold and dim as well.
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(file=stream, width=width, highlight=False, markup=False, color_system=colours)


def make_table(*columns: str, header: bool = True, ruled: bool = True) -> Table:
    """Return a table without a frame; `ruled` draws a line under the header."""
    table = Table(
        box=box.SIMPLE_HEAD if header and ruled else None,
        show_header=header,
        show_edge=False,
        pad_edge=False,
        header_style="bold",
    )
    for column in columns:
        table.add_column(column)
    return table


def show(*renderables: Any) -> None:
    """Print to standard output; in a pipe without the blanks that pad the cells of a table."""
    console = make_console()
    if console.is_terminal:
        console.print(*renderables, sep="\n")
        return
    with console.capture() as captured:
        console.print(*renderables, sep="\n")
    console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
