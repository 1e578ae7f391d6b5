"""What `stepwell voronoi` and `stepwell stipple` share: options, checks, and the run with its progress bar."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from stepwell.apps.images.work import forget_finished, identity, plain, refuse_other_settings
from stepwell.apps.voronoi import Tessellation, centroidal
from stepwell.apps.voronoi.centroidal import METHODS
from stepwell.apps.voronoi.domain import LONGEST_SIDE
from stepwell.apps.voronoi.picture import Picture, read_npy, read_picture
from stepwell.apps.voronoi.products import STATISTICS, SUFFIXES, folder_files, is_folder, may_be_in_folder
from stepwell.arrays.checks import require_each
from stepwell.cli.console import make_console
from stepwell.cli.inputs import (
    FiniteRange,
    check_file,
    check_folder,
    file_trouble,
    open_place,
    place_options,
    refuse_input_as_output,
    usage_errors,
)
from stepwell.cli.output import first_interrupt
from stepwell.cli.progress_bar import ProgressBar
from stepwell.common.pyplot import has_matplotlib

#: Pixels per site that the automatic resolution provides on average, and its limits.
_PIXELS_PER_SITE = 64
_LEAST, _MOST = 512, 4096
#: Millimetres of a drawing at most: its coordinates have seven digits, two of them after the point.
_LARGEST = 99_999
#: How a run ended that Ctrl-C stopped.
INTERRUPTED = "interrupted; these are the sites so far"


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a tessellation and its files to a command."""
    options = [
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the random start."),
        click.option("--method", type=click.Choice(METHODS), default="lbfgsb", show_default=True,
                     help="L-BFGS-B, or Lloyd's iteration."),
        click.option("--maxiter", type=click.IntRange(min=0), default=500, show_default=True, help="Most iterations."),
        click.option("-o", "--output", "outputs", multiple=True, type=click.Path(path_type=Path), metavar="FILE|FOLDER",
                     help=f"A file, its kind by its ending ({' '.join(SUFFIXES)}), or a folder for all; repeatable."),
        click.option("--overwrite", is_flag=True,
                     help="Write over what a finished run with other settings has left in a folder."),
        click.option("--size", type=FiniteRange(1, _LARGEST), default=200.0, show_default=True,
                     help="Millimetres of a drawing's longer side."),
        click.option("--pixels", type=click.IntRange(16, 20000), default=2000, show_default=True,
                     help="Pixels of a PNG's longer side."),
    ]  # fmt: skip
    return reduce(lambda decorated, option: option(decorated), reversed(options), place_options(command))


def read_resolution(ctx: click.Context, option: click.Parameter, value: str | None) -> int | tuple[int, int] | None:
    """Read ``PIXELS``, the longer side, or ``WIDTHxHEIGHT``, which is returned as (rows, columns)."""
    if value is None:
        return None
    sides = re.fullmatch(r"(\d+)(?:x(\d+))?", value.strip().lower())
    if not sides or any(side is not None and not 2 <= int(side) <= LONGEST_SIDE for side in sides.groups()):
        raise click.BadParameter(
            f"{value!r} is not PIXELS or WIDTHxHEIGHT; allowed: 2 to {LONGEST_SIDE} pixels, such as 2048"
        )
    if sides[2] is None:
        return int(sides[1])
    return int(sides[2]), int(sides[1])


def read_longest(ctx: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Read ``PIXELS`` of the longer side; the picture has its own shape."""
    sides = read_resolution(ctx, option, value)
    if isinstance(sides, tuple):
        raise click.BadParameter(f"{value!r}: the picture has its own shape; give the longer side alone")
    return sides


def automatic_resolution(count: int, aspect: float) -> int:
    """Return pixels along the longer side that suffice for so many sites; `aspect` is the shorter side over it."""
    needed = np.sqrt(_PIXELS_PER_SITE * count / aspect)
    return int(np.clip(64 * np.ceil(needed / 64), _LEAST, _MOST))


@contextmanager
def _reading(path: str, hint: str) -> Iterator[None]:
    """Say in one line why a file cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise click.BadParameter(f"there is no file {path!r}", param_hint=hint) from None
    except (ValueError, ImportError) as error:
        raise click.BadParameter(str(error), param_hint=hint) from None
    except OSError as error:
        raise click.BadParameter(f"{path}: cannot be read: {error}", param_hint=hint) from None


def open_picture(path: str, hint: str) -> Picture:
    """Read a picture, or say in one line why that cannot be."""
    with _reading(path, hint):
        picture = read_picture(path)
    return picture


def open_density(
    path: str, count: int, resolution: int | tuple[int, int] | None, *, invert: bool, gamma: float
) -> np.ndarray:
    """Read the density of a tessellation: the darkness of a picture, or the numbers of an .npy file as they are."""
    hint = "--density"
    if isinstance(resolution, tuple):
        raise click.BadParameter("WIDTHxHEIGHT and --density exclude each other: the picture has its own shape",
                                 param_hint="--resolution")  # fmt: skip
    if path.lower().endswith(".npy"):
        density = _open_numbers(path, hint)
        if invert:
            raise click.BadParameter("an .npy file holds the density itself; --invert is for pictures",
                                     param_hint="--invert")  # fmt: skip
        if resolution is not None and resolution != max(density.shape):
            raise click.BadParameter(f"{path} has {max(density.shape)} pixels along its longer side and is used as it "
                                     "is; leave out --resolution", param_hint="--resolution")  # fmt: skip
        density = density**gamma
    else:
        picture = open_picture(path, hint)
        longest = resolution or automatic_resolution(count, min(picture.shape) / max(picture.shape))
        density = picture.resized(longest).darkness(invert=invert, gamma=gamma)
    if not np.any(density > 0):
        numbers = path.lower().endswith(".npy")
        what = "" if numbers else "; it is the darkness of a picture, and with --invert the brightness"
        raise click.BadParameter(f"{path}: the density is zero everywhere{what}", param_hint=hint)
    return density


def _open_numbers(path: str, hint: str) -> np.ndarray:
    with _reading(path, hint):
        density = read_npy(path)
        require_each(density >= 0, path, density, "finite numbers of at least 0")
    return np.asarray(density, dtype=np.float64)


def check_outputs(
    outputs: tuple[Path, ...], json_file: str | None, given: str | None, *, drawn: str, order: str
) -> None:
    """Refuse, before any work, files that could not be written after it, or that are the file given to be read."""
    if not outputs and json_file is None:
        raise click.UsageError("give -o with a file or a folder, or --json")
    for path in outputs:
        if is_folder(path):
            if path.exists() and not path.is_dir():
                raise click.BadParameter(f"{str(path)!r} is a file without an ending; a folder is needed",
                                         param_hint="-o")  # fmt: skip
            check_folder(path, "-o")
            refuse_input_as_output(given, [path / name for name, _ in folder_files(drawn, order)], "-o")
            continue
        if path.suffix.lower() not in SUFFIXES:
            allowed = " ".join(SUFFIXES)
            raise click.BadParameter(f"{str(path)!r} has an unknown ending; allowed: {allowed}, or a folder",
                                     param_hint="-o")  # fmt: skip
        if path.suffix.lower() == ".png" and not has_matplotlib():
            raise click.BadParameter(f"{str(path)!r} needs matplotlib: pip install 'stepwell[plot]'", param_hint="-o")
        check_file(path, "-o")
        refuse_input_as_output(given, [path], "-o")
    refuse_input_as_output(given, [json_file], "--json")


def settle_folders(
    outputs: tuple[Path, ...], settings: dict[str, Any], overwrite: bool, given: str | None
) -> dict[str, Any]:
    """Refuse folders that hold a finished run with other settings, or empty them; return the settings for JSON."""
    kept = plain(settings | {"input": None if given is None else identity(given)})
    for path in filter(is_folder, outputs):
        with file_trouble(path):
            if refuse_other_settings(path / STATISTICS, kept, overwrite):
                own = None if given is None else os.path.realpath(given)
                forget_finished(
                    path / STATISTICS, *(name for name in may_be_in_folder() if os.path.realpath(path / name) != own)
                )
    return dict(kept)


def tessellate(
    count: int,
    density: np.ndarray,
    *,
    method: str,
    seed: int,
    maxiter: int,
    array: str,
    device: str,
    threads: int | None,
    moving: bool = True,
) -> Tessellation:
    """Run the tessellation with a progress bar on standard error."""
    dark = int(np.count_nonzero(density))
    if count > dark:
        rows, columns = density.shape
        raise click.BadParameter(
            f"{count} sites are more than the {dark} pixels of positive density on a grid of {columns} x {rows}; "
            "ask for fewer, or for a finer grid",
            param_hint="-n",
        )
    on_host = device == "cpu"
    given = open_place(array, "float64", device).put(density)
    console = make_console(stderr=True)
    bar = ProgressBar(
        TextColumn("tessellating"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("iterations"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not (moving and console.is_terminal),
    )
    # A device would wait for the host after every iteration to tell: there the bar only moves, and Ctrl-C aborts.
    task = bar.add_task("", total=maxiter if on_host else None)
    with bar, first_interrupt(heed=on_host) as interrupted:

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)
            if interrupted():
                raise StopIteration

        with usage_errors():
            made = centroidal(
                count,
                given,
                method=method,
                seed=seed,
                maxiter=maxiter,
                threads=threads,
                progress=progress if on_host else None,
            )
    return replace(made, message=INTERRUPTED) if interrupted() else made
