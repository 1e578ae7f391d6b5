"""What the commands that map images share: options, packages asked for in time, a bar, an interrupt that keeps all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from stepwell.apps.files.packages import require_package
from stepwell.apps.images.mapping import FORMATS
from stepwell.apps.images.sources import open_image
from stepwell.apps.images.work import write_npy
from stepwell.arrays import Array, of_numpy
from stepwell.cli.inputs import file_trouble, open_place, place_options, usage_errors, writing_trouble
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
    """Give a command what those that map images share: restarts, a picture, where it solves, memory, and output."""

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
def slab_bar(output: Output, title: str, what: str = "slabs") -> Iterator[Callable[[int, int], None]]:
    """Show a bar to a person; an interrupt says what is kept and how to go on, with status 130."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    try:
        with ProgressBar(*columns, console=output.console(), transient=True, disable=not output.moving) as bar:
            task = bar.add_task(title, total=None)

            def tell(count: int, total: int) -> None:
                bar.update(task, completed=count, total=total)
                output.detail(f"{title}: {count} of {total} {what}")

            yield tell
    except KeyboardInterrupt:
        click.echo(f"the {what} that are done are kept; give the same command again to go on", err=True)
        output.interrupted()


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


def conclude(
    output: Output,
    run: Any,
    account: Path,
    *,
    draw: Callable[[], list[Any]] | None,
    errors: Callable[[], Mapping[str, Any]] | None,
    report: Callable[[dict[str, Any], list[Any]], tuple[Any, ...]],
    place: Mapping[str, Any],
) -> None:
    """Say what a run has done: its notes, pictures, the JSON of the command and a report.

    Parameters
    ----------
    run, account
        The result; what it has left beside its maps.
    draw : callable, optional
        Draws the pictures and returns their names, where something converged.
    errors : callable, optional
        Returns errors against a truth.
    report : callable
        ``report(summary, drawn)`` returns what is said.
    place : mapping
        --array, --device and --threads.
    """
    output.notes(run.notes)
    drawn: list[Any] = []
    if draw is not None and run.converged:
        with writing_trouble():
            drawn = draw()
    summary = read_account(account)
    if errors is not None:
        summary["errors"] = errors()
    with writing_trouble():
        record_run(output, summary, **place)
    output.say(*report(summary, drawn))


def record_run(output: Output, summary: dict[str, Any], **place: Any) -> None:
    """Write the JSON of the command from the account that a run has left beside its maps, and where it solved."""
    result = {name: value for name, value in summary.items() if name not in ("stepwell", "settings", "seconds")}
    output.record(summary["settings"] | place, result, seconds={"total": summary["seconds"]})


def volume_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that maps voxels the format of its maps, the array of a file, and a phantom."""
    kind = click.option("--format", "kind", type=click.Choice(FORMATS), default="auto", show_default=True,
                        help="Of the maps; auto: .nii.gz for NIfTI, else .npy.")  # fmt: skip
    variable = click.option("--variable", help="Which array of an .npz or .mat file.")
    synthetic = click.option("--synthetic", callback=read_sizes, metavar="XxYxZ",
                             help="Make such a phantom, with its truth, and map it.")  # fmt: skip
    decorated: Callable[..., Any] = kind(variable(synthetic(command)))
    return decorated


def check_volumes(images: dict[str, Path | None], beside: dict[str, Path | None], kind: str) -> None:
    """Refuse images, and maps of a format, whose package is missing."""
    check_packages({**images, **beside, "--format": None if kind in ("auto", "npy") else Path(f"x.{kind}")})


def where_made(output: Path, kind: str) -> Path:
    """Return where a phantom is written, in the format of its maps."""
    return output / ("simulated.npy" if kind == "npy" else "simulated.nii.gz")


def make_phantom(
    sizes: tuple[int, ...], path: Path, simulate: Callable[[tuple[int, int, int]], Any]
) -> tuple[Any, Path]:
    """Write a phantom, its mask and the true maps beside it; return the phantom and where the mask is.

    Files of an equal phantom stay as they are, so that a run of them that was stopped goes on.
    """
    from stepwell.apps.files.foreign import made_elsewhere
    from stepwell.apps.files.nifti import write_nifti

    if len(sizes) not in (2, 3):
        raise click.BadParameter("two or three sizes are needed, such as 64x64x2", param_hint="--synthetic")
    width, height, depth = (*sizes, 1)[:3]
    with usage_errors():
        phantom = simulate((width, height, depth))
    write, end = (write_nifti, "nii.gz") if path.suffix == ".gz" else (write_npy, "npy")
    mask = path.with_name(f"simulated_mask.{end}")
    arrays = {path: phantom.signal, mask: phantom.mask.astype(np.uint8)}
    arrays |= {path.with_name(f"truth_{name}.{end}"): array for name, array in phantom.truth.items()}
    with writing_trouble():
        path.parent.mkdir(parents=True, exist_ok=True)
        for place, array in arrays.items():
            with made_elsewhere(place, same_stays=True) as made:
                write(Path(made), array)
    return phantom, mask


def read_map(path: Path) -> np.ndarray:
    """Read one map back."""
    opened = open_image(path, channels=False)
    return opened.read(0, opened.shape[opened.axis])


def map_files(names: Iterable[str], output: Path) -> list[Path]:
    """Return the files that maps may have, in any format."""
    return [output / f"{name}.{end}" for name in names for end in FORMATS if end != "auto"]


def require_converged(run: Any) -> None:
    """Raise where no voxel was fitted, or none converged."""
    if run.fitted and not run.converged:
        raise click.ClickException(f"none of {run.fitted} voxels converged")
    if not run.fitted:
        raise click.ClickException("there is no voxel to fit: nothing above the threshold within the mask")


def like_of(array: str, device: str) -> Array | None:
    """Return an array of the library on the device where systems are solved, or None for NumPy."""
    place = open_place(array, "float64", device)
    return None if of_numpy(place.like) else place.like
