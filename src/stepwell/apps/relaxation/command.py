"""`stepwell relax`: T1, T2*, T2, ADC and IVIM maps of MRI series."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from stepwell.apps.files.packages import refuse_dicom
from stepwell.apps.images.commands import (
    MEBIBYTE,
    check_volumes,
    conclude,
    image_trouble,
    imaging_options,
    like_of,
    make_phantom,
    map_files,
    read_map,
    require_converged,
    slab_bar,
    volume_options,
    where_made,
)
from stepwell.apps.images.regions import REGIONS
from stepwell.apps.relaxation.quantities import COMMON, QUANTITIES
from stepwell.cli.console import make_table
from stepwell.cli.inputs import (
    FiniteRange,
    can_draw,
    check_folder,
    refuse_input_as_output,
    usage_errors,
)
from stepwell.cli.output import Output
from stepwell.common.array_files import read_numbers

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_POSITIVE = FiniteRange(min=0, min_open=True)
#: Option -> what it gives points to.
_POINTS = {"te": ("t2star", "t2"), "ti": ("t1",), "flip": ("t1-vfa",), "bvals": ("adc", "ivim")}


@click.command("relax")
@click.argument("quantity", type=click.Choice(list(QUANTITIES)))
@click.argument("images", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("-o", "--output", "folder", type=click.Path(path_type=Path), required=True, help="Folder for the maps.")
@click.option("--te", metavar="S,S,...|FILE", help="Echo times, seconds.  [default: EchoTime of the BIDS sidecars]")
@click.option("--ti", metavar="S,S,...|FILE", help="Inversion times, seconds.  [default: InversionTime, likewise]")
@click.option("--flip", metavar="DEG,DEG,...|FILE", help="Flip angles, degrees.  [default: FlipAngle, likewise]")
@click.option("--bvals", metavar="B,B,...|FILE", help="b-values, s/mm².  [default: the .bval beside a NIfTI image]")
@click.option("--tr", type=_POSITIVE, help="Repetition time of t1-vfa, seconds.  [default: of the BIDS sidecar]")
@click.option("--sidecar/--no-sidecar", default=True, show_default=True,
              help="Read .json and .bval beside NIfTI images, and refuse what contradicts them.")  # fmt: skip
@click.option("--bounds", "bounds", multiple=True, type=(str, float, float), metavar="MAP LOW HIGH",
              help="Where a parameter may lie, such as T2star 0.001 0.2; may be given again.")  # fmt: skip
@click.option("--offset", is_flag=True, help="Fit a constant beside the decay of t2star or t2.")
@click.option("--signed", is_flag=True, help="The images of t1 have their sign: they are no magnitudes.")
@click.option("--mask", type=_FILE, help="Voxels other than zero are fitted.")
@click.option("--threshold", default=0.0, show_default=True, help="Leave out voxels whose largest signal is not above.")
@click.option("--b1", type=_FILE, help="Map of relative flip angles, for t1-vfa.")
@click.option("--labels", type=_FILE, help="Regions as whole numbers: means of every map there go to regions.csv.")
@volume_options
@click.option("--snr", type=_POSITIVE, default=100.0, show_default=True, help="Signal to noise of the phantom.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the phantom's noise.")
@imaging_options("maps.png")
def command(
    quantity: str, images: tuple[Path, ...], folder: Path, tr: float | None, sidecar: bool,
    bounds: tuple[tuple[str, float, float], ...], offset: bool, signed: bool, mask: Path | None, threshold: float,
    b1: Path | None, labels: Path | None, kind: Any, variable: str | None, synthetic: tuple[int, ...] | None,
    snr: float, seed: int, restart: bool, overwrite: bool, plots: bool, array: str, device: str, threads: int | None,
    memory: int, output: Output, **axes: str | None,
) -> None:  # fmt: skip
    """Map T1, T2*, T2, ADC or IVIM of a series of MRI images, with uncertainties.

    QUANTITY is t2star, t2, t1 (inversion recovery), t1-vfa (variable flip angles), adc or ivim. IMAGES is one image
    with four axes, the measurements last, or one with three axes for each measurement: NIfTI (.nii, .nii.gz), .npy,
    .npz, or MATLAB (.mat). OUTPUT gets one file per parameter, one for its standard error, residual, distance, bound
    and status, relax.json, and maps.png. A run that was stopped goes on when the same command is given again.
    """
    from stepwell.apps.relaxation import RelaxationModel, map_series, simulate
    from stepwell.apps.relaxation.run import ACCOUNT, PICTURE

    if (not images) == (synthetic is None):
        raise click.UsageError("give either IMAGES or --synthetic XxYxZ")
    points = _read_points(quantity, axes)
    for image in images:
        with image_trouble(image):
            refuse_dicom(image)
    check_folder(folder, "-o")
    plots = can_draw(plots, output)
    made = where_made(folder, kind)
    beside = {"--mask": mask, "--b1": b1, "--labels": labels}
    check_volumes({"IMAGES": images[0] if images else made}, beside, kind)
    like = like_of(array, device)
    given: dict[str, Any] = {"offset": offset, "signed": signed, "tr": tr}
    given["bounds"] = {name: (low, high) for name, low, high in bounds}
    with usage_errors():
        # (Where points and tr are not known yet, those of a phantom stand for them.)
        trial = QUANTITIES[quantity].default if points is None else points
        try:
            RelaxationModel(quantity, trial, **given | ({"tr": 0.015} if quantity == "t1-vfa" and tr is None else {}))
        except ValueError as error:  # which calls points what the command line has another option for, each quantity
            flag = next(name for name, quantities in _POINTS.items() if quantity in quantities)
            raise ValueError(re.sub("^points ", f"--{flag} ", str(error))) from None
    truth: dict[str, np.ndarray] | None = None
    if synthetic is not None:
        phantom, mask = make_phantom(
            synthetic, made, lambda sizes: simulate(quantity, sizes, points=points, snr=snr, tr=tr, seed=seed)
        )
        truth, images, points, given["tr"] = phantom.truth, (made,), phantom.model.points, phantom.model.tr
    for image in images:
        refuse_input_as_output(image, _outputs(quantity, folder), "-o")
    with slab_bar(output, f"mapping {images[0].name}") as tell, image_trouble(images[0]):
        run = map_series(list(images), folder, quantity, points, sidecar=sidecar, mask=mask, b1=b1, labels=labels,
                         threshold=threshold, format=kind, variable=variable, restart=restart, overwrite=overwrite,
                         like=like, threads=threads, progress=tell,
                         step_bytes=memory * MEBIBYTE, **given)  # fmt: skip

    def draw() -> list[str]:
        _draw(run, images, variable, folder, truth)
        return [PICTURE]

    def errors() -> dict[str, float]:
        return {name: _error(run.files[name], true) for name, true in (truth or {}).items()}

    def report(summary: dict[str, Any], drawn: list[str]) -> tuple[Table, str]:
        names = [path.name for path in run.files.values()] + [ACCOUNT] + [REGIONS] * (labels is not None) + drawn
        return _report(run, summary), f"wrote {', '.join(names)} to {folder}"

    conclude(output, run, folder / ACCOUNT, draw=draw if plots else None, report=report,
             errors=None if truth is None else errors,
             place={"array": array, "device": device, "threads": threads})  # fmt: skip
    require_converged(run)


def _read_points(quantity: str, axes: dict[str, str | None]) -> tuple[float, ...] | None:
    """Return the numbers of the one option that belongs to a quantity."""
    for name, text in axes.items():
        if text is not None and quantity not in _POINTS[name]:
            raise click.UsageError(f"--{name} is for {' and '.join(_POINTS[name])}")
    flag, text = next((name, text) for name, text in axes.items() if quantity in _POINTS[name])
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        pass
    if not Path(text).is_file():
        raise click.BadParameter(f"{text!r} is neither numbers with commas between nor a file", param_hint=f"--{flag}")
    with image_trouble(text):
        return tuple(read_numbers(Path(text)).tolist())


def _outputs(quantity: str, folder: Path) -> list[Path]:
    names = [*QUANTITIES[quantity].maps, *COMMON, "offset"]
    return map_files([*names, *(f"{name}_se" for name in names)], folder)


def _error(path: Path, truth: np.ndarray) -> float:
    """Return the median absolute error of a map, as a share of the mean truth: outliers at bounds are no measure."""
    found = read_map(path)
    return float(np.nanmedian(np.abs(found - truth)) / np.nanmean(truth))


def _draw(run: Any, images: tuple[Path, ...], variable: str | None, folder: Path, truth: Any) -> None:
    from stepwell.apps.images import open_image
    from stepwell.apps.relaxation.plots import plot_maps
    from stepwell.apps.relaxation.series import open_series
    from stepwell.common.temporary import scratch_folder

    opened = {name: open_image(path, channels=False) for name, path in run.files.items()}
    depth = opened["status"].shape[2]
    middle = depth // 2
    slices = {name: one.read(middle, middle + 1, 2)[:, :, 0] for name, one in opened.items()}
    main = run.model.parameters[0]
    good = (slices["status"] > 0) & (slices["bound"] == 0) & np.isfinite(slices[main])
    good = good if good.any() else slices["status"] > 0
    known = slices[main][good]
    target = np.median(known) if known.size else 0.0
    flat = int(np.argmin(np.where(good, np.abs(slices[main] - target), np.inf)))
    x, y = (int(one) for one in np.unravel_index(flat, good.shape))
    with scratch_folder(folder) as scratch:
        signal = open_series(images, variable, scratch).read(middle, middle + 1, 2)[x, y, 0]
    voxel = {"signal": signal, "place": (x, y)} | {name: slices[name][x, y] for name in run.model.parameters}
    title = f"{images[0].name}, slice {middle} of {depth}: {run.converged:,} of {run.fitted:,} voxels converged"
    shown = None if truth is None else {name: true[:, :, middle] for name, true in truth.items()}
    plot_maps(run.model, slices, voxel, folder / "maps.png", title=title, truth=shown)


def _report(run: Any, summary: dict[str, Any]) -> Table:
    table = make_table("", "", header=False)
    resumed = f", {run.resumed} slabs from an earlier run" if run.resumed else ""
    table.add_row("voxels", f"{run.fitted:,} fitted of {run.voxels:,}{resumed}")
    table.add_row("converged", f"{run.converged:,}; {run.at_bound:,} with a parameter at a bound")
    for name in run.model.parameters:
        error = run.means.get(f"{name}_se", float("nan"))
        table.add_row(f"mean {name}", f"{run.means[name]:.4g} ± {error:.2g} in a voxel: {run.model.maps[name]}")
    if "errors" in summary:
        found = ", ".join(f"{name} {100 * value:.2g} %" for name, value in summary["errors"].items())
        table.add_row("median error", found)
    table.add_row("time", f"{run.seconds:.3g} s, {1e6 * run.seconds / max(1, run.fitted):.3g} µs per voxel")
    return table
