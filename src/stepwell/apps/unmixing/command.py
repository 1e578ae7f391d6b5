"""`stepwell unmix`: abundances of materials in hyperspectral images."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from stepwell.apps.images.commands import (
    MEBIBYTE,
    check_packages,
    conclude,
    image_trouble,
    imaging_options,
    like_of,
    read_sizes,
    slab_bar,
)
from stepwell.apps.unmixing.extraction import EXTRACTIONS, Extraction
from stepwell.apps.unmixing.target import Target, write_spectra
from stepwell.cli.console import make_table
from stepwell.cli.inputs import (
    NumberOrAuto,
    can_draw,
    check_file,
    refuse_input_as_output,
    usage_errors,
    writing_trouble,
)
from stepwell.cli.output import Output
from stepwell.common.array_files import read_numbers
from stepwell.common.files import own_names

#: Most abundances that the report lists; the table of means has all.
MAX_LISTED = 12
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("unmix")
@click.argument("image", required=False, type=_FILE)
@click.argument("library", required=False, type=_FILE)
@click.option("-o", "--output", "folder", type=click.Path(path_type=Path), required=True,
              help="NAME: NAME.hdr and NAME.img (ENVI); or NAME.tif, NAME.npy.")  # fmt: skip
@click.option("--extract", type=click.IntRange(min=2), metavar="COUNT",
              help="Take so many endmembers from IMAGE itself, instead of LIBRARY.")  # fmt: skip
@click.option("--by", type=click.Choice(EXTRACTIONS), default=EXTRACTIONS[0], show_default=True,
              help="How --extract finds them: N-FINDR, or vertex component analysis alone.")  # fmt: skip
@click.option("--sum", "total", type=click.Choice(["most", "one", "free"]), default="most", show_default=True,
              help="Abundances sum to at most one (the rest is shade), to one, or to anything.")  # fmt: skip
@click.option("--lower", default=0.0, show_default=True, help="Least abundance.")
@click.option("--upper", default=float("inf"), help="Largest abundance.")
@click.option("--per", type=click.Choice(["class", "spectrum"]), default="class", show_default=True,
              help="Add up abundances of spectra of one class, or not.")  # fmt: skip
@click.option("--class-column", help="Column of the library with the classes.")
@click.option("--draws", type=click.IntRange(min=0), default=0, show_default=True,
              help="Unmix so many times by random parts of the library: mean and spread.")  # fmt: skip
@click.option("--subset", type=click.IntRange(min=1), default=30, show_default=True, help="Spectra in such a part.")
@click.option("--best", is_flag=True, help="Of the draws, keep the one that fits best.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of draws and scenes.")
@click.option("--noise", type=_FILE, help="Standard deviation of each band (.npy or text), as weights.")
@click.option("--scale", type=NumberOrAuto(min=0, min_open=True), metavar="NUMBER|auto",
              help="What the image is divided by, to have the library's unit; auto: what fits best.  [default: what "
              "its file says, or 1]")  # fmt: skip
@click.option("--bands-first", is_flag=True, help="The first axis of an .npy, .npz or .mat image is that of the bands.")
@click.option("--wavelengths", type=_FILE, help="Of the image's bands (.npy or text), where its file has none.")
@click.option("--exclude", type=(float, float), multiple=True, metavar="LOW HIGH",
              help="Wavelengths in nm to leave out; may be given again.")  # fmt: skip
@click.option("--variable", help="Which array of an .npz or .mat file.")
@click.option("--synthetic", callback=read_sizes, metavar="SAMPLESxLINES",
              help="Make such a scene, with library and truth, and unmix it.")  # fmt: skip
@click.option("--bands", type=click.IntRange(min=6), default=120, show_default=True, help="Bands of the scene.")
@imaging_options("NAME.png")
def command(
    image: Path | None,
    library: Path | None,
    folder: Path,
    extract: int | None,
    by: Extraction,
    per: str,
    class_column: str | None,
    noise: Path | None,
    scale: Any,
    bands_first: bool,
    wavelengths: Path | None,
    exclude: tuple[tuple[float, float], ...],
    variable: str | None,
    synthetic: tuple[int, ...] | None,
    bands: int,
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
    """Unmix a hyperspectral image: how much of each material is in every pixel.

    IMAGE is an ENVI header (or the binary file beside it, in any interleave), GeoTIFF, .npy, .npz or MATLAB (.mat),
    with axes (lines, samples, bands). LIBRARY is a CSV file with one spectrum per row and wavelengths in the header
    line (or one spectrum per column), a table of numbers alone, an ENVI spectral library, .npz or .mat. Both must be in
    one unit, such as reflectance: see --scale. OUTPUT has a band for each material, then RMSE, the sum and more, and
    the georeference of IMAGE. A run that was stopped goes on when the same command is given again.
    """
    from stepwell.apps.unmixing import read_library, unmix_image
    from stepwell.apps.unmixing.pixels import Unmixing

    if (image is None) == (synthetic is None):
        raise click.UsageError("give either IMAGE and LIBRARY or --synthetic SAMPLESxLINES")
    if image is not None and (library is None) == (extract is None):
        raise click.UsageError("give LIBRARY, the spectra of the materials, or --extract COUNT, to find them in IMAGE")
    target = Target(folder)
    for path in target.files:
        check_file(path, "-o")
    click.get_current_context().with_resource(own_names(target.folder))
    check_packages({"IMAGE": image, "-o": target.cubes[0]})
    plots = can_draw(plots, output)
    like = like_of(array, device)
    options["by_class"] = per == "class"
    truth = None
    if synthetic is not None:
        image, library, truth = _make_scene(synthetic, target.stem, bands, options["seed"])
    assert image is not None
    for given in (image, library, image.with_suffix(".img")):
        refuse_input_as_output(given, target.files, "-o")
    waves = None
    if wavelengths is not None:
        with image_trouble(wavelengths):
            waves = read_numbers(wavelengths)
    if extract is not None:
        with image_trouble(image):
            # (What is found in the image has its unit: nothing is left to be found by auto.)
            scale = None if scale == "auto" else scale
            spectra = _extracted(image, extract, by, options["seed"], waves, variable, bands_first, scale)
    else:
        assert library is not None
        with image_trouble(library):
            spectra = read_library(library, class_column)
    with usage_errors():
        Unmixing(_finite(spectra), **options)
    with slab_bar(output, f"unmixing {image.name}") as tell, image_trouble(image):
        run = unmix_image(image, spectra, folder, wavelengths=waves, exclude=exclude, scale=scale,
                          bands_first=bands_first, noise=noise, variable=variable, restart=restart,
                          overwrite=overwrite, like=like, threads=threads, progress=tell,
                          step_bytes=memory * MEBIBYTE, **options)  # fmt: skip
    endmembers = []
    if extract is not None:
        with writing_trouble():
            write_spectra(target.endmembers, spectra)
        endmembers.append(target.endmembers)

    def draw() -> list[Path]:
        drawn = _draw(run, image, variable, bands_first, target.picture)
        return [] if drawn is None else [drawn]

    conclude(output, run, target.account, draw=draw if plots else None,
             errors=None if truth is None else functools.partial(_errors, run, truth),
             report=lambda summary, drawn: _report(run, summary, [*run.files, *endmembers, *drawn]),
             place={"array": array, "device": device, "threads": threads})  # fmt: skip
    if not run.converged:
        what = f"none of {run.solved} pixels converged" if run.solved else "there is no pixel to unmix"
        raise click.ClickException(what)


def _extracted(
    image: Path, count: int, by: Extraction, seed: int, waves: Any, variable: str | None, bands_first: bool, scale: Any
) -> Any:
    """Return a library of endmembers of the image itself."""
    from stepwell.apps.images import open_image
    from stepwell.apps.unmixing.extraction import library_of_image
    from stepwell.apps.unmixing.run import as_lines, wavelengths_of

    source = as_lines(open_image(image, name=variable), bands_first)
    return library_of_image(
        source, count, wavelengths_of(image, source.about, waves), method=by, seed=seed, scale=scale
    )


def _finite(library: Any) -> Any:
    """Return a library in which missing numbers do not matter: which bands are used is not known yet."""
    return dataclasses.replace(library, spectra=np.nan_to_num(library.spectra))


def _make_scene(sizes: tuple[int, ...], stem: Path, bands: int, seed: int) -> tuple[Path, Path, np.ndarray]:
    """Write a scene, its library and its truth beside the output; return the first two and the truth."""
    from stepwell.apps.files import envi
    from stepwell.apps.files.foreign import made_elsewhere
    from stepwell.apps.unmixing import simulate
    from stepwell.apps.unmixing.library import write_library
    from stepwell.common.files import replacing, write_text

    if len(sizes) != 2:
        raise click.BadParameter("two sizes are needed, such as 80x60", param_hint="--synthetic")
    with usage_errors():
        scene = simulate(sizes[1], sizes[0], bands=bands, seed=seed)
    waves = scene.library.wavelengths
    assert waves is not None

    def write(name: str, cube: np.ndarray, names: list[str], more: dict[str, Any]) -> Path:
        path = Path(f"{stem}_{name}.hdr")
        with (
            made_elsewhere(path.with_suffix(".img"), same_stays=True) as made,
            replacing(made) as file,
        ):  # replaced first
            file.write(np.ascontiguousarray(cube.transpose(0, 2, 1), dtype="<f4").tobytes())
        lines, samples, count = cube.shape
        write_text(path, envi.header_text((lines, samples, count), names, f"simulated {name}", more))
        return path

    with writing_trouble():
        told = {"wavelength units": "Nanometers", "wavelength": [f"{wave:.6g}" for wave in waves]}
        image = write("scene", scene.image, [f"{wave:.0f} nm" for wave in waves], told)
        write("truth", scene.truth, scene.library.class_names, {})
        library = Path(f"{stem}_library.csv")
        write_library(library, scene.library)
    return image, library, scene.truth


def _opened(run: Any) -> Any:
    """Return the cube as (lines, samples, bands), from the disk."""
    from stepwell.apps.images import open_image

    return open_image(run.files[0])


def _errors(run: Any, truth: np.ndarray) -> dict[str, float]:
    """Mean absolute errors against the truth of a scene."""
    cube = _opened(run)
    found = cube.read(0, cube.shape[0], 0)[:, :, : truth.shape[2]]
    return dict(zip(run.names, np.nanmean(np.abs(found - truth), axis=(0, 1)).tolist()))


def _draw(run: Any, image: Path, variable: str | None, bands_first: bool, path: Path) -> Path | None:
    from stepwell.apps.images import open_image
    from stepwell.apps.unmixing import unmix_pixels
    from stepwell.apps.unmixing.plots import MAX_PIXELS, plot_abundances
    from stepwell.apps.unmixing.run import as_lines

    cube = _opened(run)
    lines, samples = cube.shape[:2]
    stride = max(1, -(-max(lines, samples) // MAX_PIXELS))
    shown = np.concatenate([cube.read(line, line + 1, 0)[:, ::stride] for line in range(0, lines, stride)])
    maps = {name: shown[:, :, place] for place, name in enumerate(run.bands)}
    good = maps["status"] == 0
    if not good.any():  # of the pixels that are shown
        return None
    misfit = np.where(good, np.abs(maps["rmse"] - np.nanmedian(np.where(good, maps["rmse"], np.nan))), np.inf)
    mixed = np.where(good, np.stack([maps[name] for name in run.names]).max(axis=0), np.inf)
    row, column = np.unravel_index(int(np.argmin(mixed + 10 * misfit)), mixed.shape)
    line, sample = int(row) * stride, int(column) * stride
    source = as_lines(open_image(image, name=variable), bands_first)
    spectrum = source.read(line, line + 1, 0)[0, sample][run.used] / run.scale
    parts = sorted(((name, float(maps[name][row, column])) for name in run.names), key=lambda part: -part[1])
    library = run.plan.library
    again = unmix_pixels(dataclasses.replace(run.plan, by_class=False, draws=0, best=False), spectrum[None])
    pixel = {
        "spectrum": spectrum,
        "fit": again["abundances"][0] @ library.spectra,
        "wavelengths": library.wavelengths,
        "place": (int(row), int(column)),
        "parts": parts,
    }
    title = f"{image.name}: {run.converged:,} of {run.pixels:,} pixels"
    plot_abundances(maps, run.names, pixel, path, title=title)
    return path


def _report(run: Any, summary: dict[str, Any], written: list[Path]) -> tuple[Table, str]:
    table = make_table("", "", header=False)
    resumed = f", {run.resumed} lines from an earlier run" if run.resumed else ""
    table.add_row("pixels", f"{run.converged:,} converged of {run.solved:,} unmixed, of {run.pixels:,}{resumed}")
    table.add_row("bands", f"{int(run.used.sum())} of {run.used.size}, {len(run.plan.library.names)} spectra")
    largest = sorted(run.names, key=lambda name: -run.means[name])[:MAX_LISTED]
    shown = run.names if len(run.names) <= MAX_LISTED else largest
    more = f", and {len(run.names) - len(shown)} more" if len(run.names) > len(shown) else ""
    table.add_row("abundances", ", ".join(f"{name} {run.means[name]:.3f}" for name in shown) + more)
    table.add_row("RMSE, sum", f"{run.means['rmse']:.4g}, {run.means['sum']:.3f}")
    if "errors" in summary:
        found = ", ".join(f"{name} {value:.3g}" for name, value in summary["errors"].items())
        table.add_row("mean absolute errors", found)
    table.add_row("time", f"{run.seconds:.3g} s, {1e6 * run.seconds / max(1, run.solved):.3g} µs per pixel")
    return table, f"wrote {', '.join(str(path) for path in written)}"
