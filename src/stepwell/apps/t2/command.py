"""`stepwell t2map`: T2 distributions and myelin water of multi-echo MRI."""

from __future__ import annotations

import functools
import math
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
from stepwell.apps.t2.sidecar import read_sidecar
from stepwell.cli.console import make_table
from stepwell.cli.inputs import (
    FiniteRange,
    can_draw,
    check_folder,
    refuse_input_as_output,
    usage_errors,
)
from stepwell.cli.output import Output
from stepwell.common.checks import meant, require

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_POSITIVE = FiniteRange(min=0, min_open=True)
#: Seconds between the echoes of synthetic images, unless said otherwise.
SYNTHETIC_TE = 0.010


@click.command("t2map")
@click.argument("image", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("-o", "--output", "folder", type=click.Path(path_type=Path), required=True, help="Folder for the maps.")
@click.option("--te", type=_POSITIVE, help="Seconds between echoes.  [default: EchoTime of the BIDS sidecar]")
@click.option("--sidecar/--no-sidecar", default=True, show_default=True,
              help="Read the .json beside a NIfTI image, and refuse what contradicts it.")  # fmt: skip
@click.option("--mask", type=_FILE, help="Voxels other than zero are fitted.")
@click.option("--threshold", default=0.0, show_default=True, help="Leave out voxels whose first echo is not above it.")
@click.option("--bins", type=click.IntRange(min=2), default=40, show_default=True, help="T2 values.")
@click.option("--t2", type=(_POSITIVE, _POSITIVE), default=(0.010, 2.0), show_default=True,
              help="Smallest and largest T2, seconds.")  # fmt: skip
@click.option("--myelin", type=(_POSITIVE, _POSITIVE), default=(0.010, 0.025), show_default=True,
              help="Window of myelin water, seconds.")  # fmt: skip
@click.option("--middle", type=_POSITIVE, default=0.2, show_default=True,
              help="Upper end of the window of other tissue water, seconds.")  # fmt: skip
@click.option("--t1", type=_POSITIVE, default=1.0, show_default=True, help="T1, seconds.")
@click.option("--angles", type=(_POSITIVE, _POSITIVE, click.IntRange(min=1)), default=(50.0, 180.0, 64),
              show_default=True, help="Refocusing angles that are tried: first, last, how many.")  # fmt: skip
@click.option("--flip", type=_POSITIVE, help="The refocusing angle in degrees, if it is known.")
@click.option("--b1", type=_FILE, help="Map of relative flip angles (or degrees), instead of a search.")
@click.option("--labels", type=_FILE, help="Regions as whole numbers: means of every map there go to regions.csv.")
@click.option("--lam", default="chi2", show_default=True, help="λ, or its rule: chi2, gcv, lcurve, discrepancy.")
@click.option("--chi2", type=FiniteRange(min=1, min_open=True), default=1.02, show_default=True,
              help="Factor of the rule chi2.")  # fmt: skip
@click.option("--noise", type=_POSITIVE, help="Standard deviation of the noise, for the rule discrepancy.")
@click.option("--smooth", type=click.Choice(["I", "L1", "L2"]), default="I", show_default=True,
              help="Penalise size, slope or curvature of the distribution.")  # fmt: skip
@click.option("--distribution/--no-distribution", default=True, show_default=True, help="Keep t2dist.")
@click.option("--errors/--no-errors", default=True, show_default=True, help="Compute sfr_se.")
@volume_options
@click.option("--echoes", type=click.IntRange(min=2), default=32, show_default=True, help="Echoes of the phantom.")
@click.option("--snr", type=_POSITIVE, default=200.0, show_default=True, help="Signal to noise of the phantom.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the phantom's noise.")
@imaging_options("maps.png")
def command(
    image: Path | None,
    folder: Path,
    te: float | None,
    sidecar: bool,
    mask: Path | None,
    threshold: float,
    angles: tuple[float, float, int],
    flip: float | None,
    b1: Path | None,
    labels: Path | None,
    lam: str,
    distribution: bool,
    errors: bool,
    kind: Any,
    variable: str | None,
    synthetic: tuple[int, ...] | None,
    echoes: int,
    snr: float,
    seed: int,
    restart: bool,
    overwrite: bool,
    plots: bool,
    array: str,
    device: str,
    threads: int | None,
    memory: int,
    output: Output,
    **options: Any,
) -> None:
    """Map T2 distributions, myelin water and more from multi-echo spin-echo MRI.

    IMAGE has four axes, the echo last: NIfTI (.nii, .nii.gz), .npy, .npz, or MATLAB (.mat). Times are in seconds.
    OUTPUT gets one file per map, named as in other programs (sfr, also written as mwf, is the myelin water fraction),
    t2map.json, maps.png and mwf.png (the fraction on the first echo). The excitation pulse is taken to be half the
    refocusing angle, 90 degrees for 180: t2dist and gdn, in units of the image, depend on it. A run that was
    stopped goes on when the same command is given again.
    """
    from stepwell.apps.t2 import MAPS, T2Model, map_image, simulate
    from stepwell.apps.t2.run import ACCOUNT, ALIASES, PICTURES

    if (image is None) == (synthetic is None):
        raise click.UsageError("give either IMAGE or --synthetic XxYxZ")
    if image is not None:
        with image_trouble(image):
            refuse_dicom(image)
            told = sidecar and read_sidecar(image)
        if te is None and not (told and told.echo_times):
            raise click.UsageError("give --te, the seconds between echoes: no sidecar beside IMAGE has an EchoTime")
    te = SYNTHETIC_TE if synthetic is not None and te is None else te
    check_folder(folder, "-o")
    plots = can_draw(plots, output)
    made = where_made(folder, kind)
    check_volumes({"IMAGE": image or made}, {"--mask": mask, "--b1": b1, "--labels": labels}, kind)
    like = like_of(array, device)
    if flip is not None:
        angles = (flip, flip, 1)
    options |= {"angles": angles, "lam": _read_lam(lam)}
    with usage_errors():
        T2Model(echoes=echoes, te=SYNTHETIC_TE if te is None else te, **options)
        require(flip is None or b1 is None, "--b1", str(b1), "none beside --flip")
    truth: dict[str, np.ndarray] | None = None
    if synthetic is not None:
        assert te is not None
        phantom, mask = make_phantom(
            synthetic, made, lambda sizes: simulate(sizes, echoes=echoes, te=te, snr=snr, seed=seed, t1=options["t1"])
        )
        image, truth = made, phantom.truth
    assert image is not None
    refuse_input_as_output(image, map_files((*MAPS, *ALIASES), folder), "-o")
    with slab_bar(output, f"mapping {image.name}") as tell, image_trouble(image):
        run = map_image(image, folder, te, sidecar=sidecar, mask=mask, b1=b1, labels=labels, threshold=threshold,
                        distribution=distribution, errors=errors, format=kind, variable=variable, restart=restart,
                        overwrite=overwrite, like=like, threads=threads, progress=tell,
                        step_bytes=memory * MEBIBYTE, **options)  # fmt: skip

    def draw() -> list[str]:
        _draw(run, image, variable, folder, truth)
        return list(PICTURES)

    def report(summary: dict[str, Any], drawn: list[str]) -> tuple[Table, str]:
        names = [path.name for path in run.files.values()] + [ACCOUNT] + [REGIONS] * (labels is not None) + drawn
        return _report(run, summary), f"wrote {', '.join(names)} to {folder}"

    conclude(output, run, folder / ACCOUNT, draw=draw if plots else None, report=report,
             errors=None if truth is None else functools.partial(_errors, run, truth),
             place={"array": array, "device": device, "threads": threads})  # fmt: skip
    require_converged(run)


def _read_lam(text: str) -> float | str:
    from stepwell.apps.t2.model import LAM_RULES

    if text in LAM_RULES:
        return text
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    with usage_errors():
        allowed = f"a number of at least 0 or one of {', '.join(LAM_RULES)}{meant(text, LAM_RULES)}"
        require(number >= 0 and math.isfinite(number), "--lam", text, allowed)
    return number


def _errors(run: Any, truth: dict[str, np.ndarray]) -> dict[str, float]:
    """Mean absolute errors against the truth of a phantom."""
    return {name: float(np.nanmean(np.abs(read_map(run.files[name]) - array))) for name, array in truth.items()}


def _draw(run: Any, image: Path, variable: str | None, folder: Path, truth: dict[str, np.ndarray] | None) -> None:
    from stepwell.apps.images import open_image
    from stepwell.apps.t2.plots import MAX_SLICES, PANELS, plot_maps, plot_overlay

    names = [*PANELS, "status", *(["t2dist"] if "t2dist" in run.files else [])]
    opened = {name: open_image(run.files[name], channels=name == "t2dist") for name in names}
    depth = opened["sfr"].shape[2]
    middle = depth // 2
    slices = {name: one.read(middle, middle + 1, 2)[:, :, 0] for name, one in opened.items()}
    place = _typical(slices["sfr"], slices["status"])
    source = open_image(image, axes=4, name=variable)
    signal = source.read(middle, middle + 1, 2)[place[0], place[1], 0]
    if "t2dist" in slices:
        distribution = slices["t2dist"][place]
    else:
        from stepwell.apps.t2 import fit_voxels

        distribution = fit_voxels(run.model, signal[None])["t2dist"][0]
    units = {"sfr": ("myelin water", 1.0, ""), "ggm": ("mean T2", 1e3, " ms"), "alpha": ("flip angle", 1.0, "°"),
             "mu": ("λ", 1.0, ""), "resnorm": ("residual", 1.0, "")}  # fmt: skip
    text = "\n".join(f"{word}  {size * slices[name][place]:.3g}{unit}" for name, (word, size, unit) in units.items())
    voxel = {"signal": signal, "distribution": distribution, "alpha": slices["alpha"][place], "place": place,
             "text": f"voxel ({place[0]}, {place[1]}, {middle})\n{text}"}  # fmt: skip
    title = f"{image.name}, slice {middle} of {depth}: {run.converged:,} of {run.fitted:,} voxels converged"
    shown = None if truth is None else truth["sfr"][:, :, middle]
    plot_maps(run.model, slices, voxel, folder / "maps.png", title=title, truth=shown)
    chosen = np.unique(np.linspace(0, depth - 1, min(depth, MAX_SLICES)).round().astype(int)).tolist()
    first = [source.read(place, place + 1, 2)[:, :, 0, 0] for place in chosen]
    fractions = [opened["sfr"].read(place, place + 1, 2)[:, :, 0] for place in chosen]
    plot_overlay(first, fractions, chosen, folder / "mwf.png", title=f"{image.name}: myelin water on the first echo")


def _typical(fraction: np.ndarray, status: np.ndarray) -> tuple[int, int]:
    """Return a converged voxel whose myelin water fraction is high, but not the highest."""
    good = (status == 0) & np.isfinite(fraction)
    if not good.any():
        return 0, 0
    target = np.percentile(fraction[good], 75)
    where = np.argmin(np.where(good, np.abs(fraction - target), np.inf))
    found = np.unravel_index(int(where), fraction.shape)
    return int(found[0]), int(found[1])


def _report(run: Any, summary: dict[str, Any]) -> Table:
    table = make_table("", "", header=False)
    resumed = f", {run.resumed} slabs from an earlier run" if run.resumed else ""
    table.add_row("voxels", f"{run.converged:,} converged of {run.fitted:,} fitted, of {run.voxels:,}{resumed}")
    means = run.means
    error = f", standard error {means['sfr_se']:.4f}" if "sfr_se" in means else ""
    table.add_row("myelin water fraction", f"{means['sfr']:.4f} on average (sfr){error}")
    table.add_row("geometric mean T2", f"{1e3 * means['ggm']:.1f} ms (ggm)")
    table.add_row("flip angle", f"{means['alpha']:.1f}° (alpha)")
    table.add_row("λ", f"{means['mu']:.3g} (mu), χ² factor {means['chi2factor']:.4f}")
    table.add_row("signal to noise", f"{means['snr']:.0f} (snr)")
    if "errors" in summary:
        found = ", ".join(f"{name} {value:.3g}" for name, value in summary["errors"].items())
        table.add_row("mean absolute errors", found)
    table.add_row("time", f"{run.seconds:.3g} s, {1e6 * run.seconds / max(1, run.fitted):.3g} µs per voxel")
    return table
