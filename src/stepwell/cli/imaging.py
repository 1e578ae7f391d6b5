"""What the commands that map images share: packages asked for in time, a bar of slabs, an interrupt that keeps all."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from stepwell.apps.images.sources import require_package
from stepwell.cli.console import make_console
from stepwell.cli.inputs import check_file, file_trouble, open_place
from stepwell.files import write_text

#: Bytes in a unit of --memory.
MEBIBYTE = 2**20


def check_packages(files: dict[str, Path | None], *, plots: bool) -> None:
    """Refuse, before any work and with the command that installs it, what needs a package that is not there."""
    for flag, path in files.items():
        if path is not None:
            try:
                require_package(path)
            except ModuleNotFoundError as error:
                raise click.BadParameter(str(error), param_hint=flag) from None
    if plots and importlib.util.find_spec("matplotlib") is None:
        raise click.BadParameter("needs matplotlib: pip install 'stepwell[plot]'; or --no-plots", param_hint="--plots")


def device_array(device: str) -> Any:
    """Return an array of PyTorch on the device that was asked for, None for the host."""
    if device == "cpu":
        return None
    if importlib.util.find_spec("torch") is None:
        raise click.BadParameter(f"{device} needs PyTorch: pip install torch", param_hint="--device")
    return open_place("torch", "float64", device).like


def read_sizes(ctx: click.Context, option: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Read sizes such as 64x64x2, a callback of click options."""
    if value is None:
        return None
    parts = value.lower().split("x")
    if not all(re.fullmatch(r"\d{1,6}", part) and int(part) for part in parts):
        raise click.BadParameter(f"{value!r} is not WIDTHxHEIGHT...; allowed: whole numbers with x between")
    return tuple(map(int, parts))


@contextmanager
def slab_bar(title: str, again: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on standard error; an interrupt says how to go on, with status 130."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    done = 0
    try:
        with Progress(*columns, console=make_console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=None)

            def tell(count: int, total: int) -> None:
                nonlocal done
                done = count
                bar.update(task, completed=count, total=total)

            yield tell
    except KeyboardInterrupt:
        click.echo(f"stopped after {done} slabs, which are kept; {again}", err=True)
        raise click.exceptions.Exit(130) from None


@contextmanager
def image_trouble(path: Path | str) -> Iterator[None]:
    """Say in one line what is wrong with an image or what lies beside it: status 1."""
    with file_trouble(path):
        try:
            yield
        except KeyError as error:  # h5py's, of a file that is damaged
            raise ValueError(str(error)) from error


def check_json(path: str | None) -> None:
    """Refuse a file that could not be written; ``-`` is standard output."""
    check_file(path, "--json")


def write_json(path: str | None, record: dict[str, Any]) -> None:
    """Write a record to a file, or for ``-`` to standard output."""
    if path is None:
        return
    text = json.dumps(record, indent=1)
    if path == "-":
        click.echo(text)
    else:
        write_text(path, text + "\n")
