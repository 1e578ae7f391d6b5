"""What the commands that map images share: options, packages asked for in time, a bar, an interrupt that keeps all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from stepwell.apps.files.packages import require_package
from stepwell.cli.inputs import file_trouble, place_options
from stepwell.cli.output import Output, output_options
from stepwell.cli.progress_bar import ProgressBar
from stepwell.common.files import read_text

#: Bytes in a unit of --memory.
MEBIBYTE = 2**20
#: Bytes that the account of a run may have.
LARGEST_ACCOUNT = 2**28


def check_packages(files: dict[str, Path | None]) -> None:
    """Refuse, before any work and with the command that installs it, what needs a package that is not there."""
    for flag, path in files.items():
        if path is not None:
            try:
                require_package(path)
            except ModuleNotFoundError as error:
                raise click.BadParameter(str(error), param_hint=flag) from None


def imaging_options(picture: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command what those that map images share: restarts, a picture, where it solves, memory, and a voice."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        command = output_options()(command)
        memory = click.option("--memory", type=click.IntRange(min=1), default=128, show_default=True,
                              help="MiB that one step may take, about.")  # fmt: skip
        plots = click.option("--plots/--no-plots", default=True, show_default=True, help=f"Write {picture}.")
        restart = click.option("--restart", is_flag=True, help="Discard what an unfinished run has left.")
        overwrite = click.option("--overwrite", is_flag=True,
                                 help="Write over what a finished run with other settings has left.")  # fmt: skip
        decorated: Callable[..., Any] = restart(overwrite(plots(place_options(memory(command)))))
        return decorated

    return decorate


def read_sizes(ctx: click.Context, option: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Read sizes such as 64x64x2, a callback of click options."""
    if value is None:
        return None
    parts = value.lower().split("x")
    if not all(re.fullmatch(r"\d{1,6}", part) and int(part) for part in parts):
        raise click.BadParameter(f"{value!r} is not WIDTHxHEIGHT...; allowed: whole numbers with x between")
    return tuple(map(int, parts))


@contextmanager
def slab_bar(voice: Output, title: str, what: str = "slabs") -> Iterator[Callable[[int, int], None]]:
    """Show a bar to a person; an interrupt says what is kept and how to go on, with status 130."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    try:
        with ProgressBar(*columns, console=voice.console(), transient=True, disable=not voice.moving) as bar:
            task = bar.add_task(title, total=None)

            def tell(count: int, total: int) -> None:
                bar.update(task, completed=count, total=total)
                voice.detail(f"{title}: {count} of {total} {what}")

            yield tell
    except KeyboardInterrupt:
        click.echo(f"the {what} that are done are kept; give the same command again to go on", err=True)
        voice.interrupted()


@contextmanager
def image_trouble(path: Path | str) -> Iterator[None]:
    """Say in one line what is wrong with an image or what lies beside it: status 1."""
    with file_trouble(path):
        try:
            yield
        except KeyError as error:  # h5py's, of a file that is damaged
            raise ValueError(str(error)) from error


def read_account(path: Path) -> dict[str, Any]:
    """Read the account that a run has left beside its maps."""
    with file_trouble(path):
        account: dict[str, Any] = json.loads(read_text(path, LARGEST_ACCOUNT))
        return account


def record_run(voice: Output, summary: dict[str, Any], **place: Any) -> None:
    """Write the JSON of the command from the account that a run has left beside its maps, and where it solved."""
    result = {name: value for name, value in summary.items() if name not in ("stepwell", "settings", "seconds")}
    voice.record(summary["settings"] | place, result, seconds={"total": summary["seconds"]})
