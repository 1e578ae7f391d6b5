"""`stepwell voronoi`: a centroidal Voronoi tessellation and what can be made from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from stepwell.apps.voronoi.products import DRAWINGS, Products, is_folder
from stepwell.apps.voronoi.route import METHODS as ORDERS
from stepwell.apps.voronoi.tessellating import (
    INTERRUPTED,
    automatic_resolution,
    check_outputs,
    open_density,
    read_resolution,
    run_options,
    settle_folders,
    tessellate,
)
from stepwell.cli.inputs import FiniteRange
from stepwell.cli.output import Output, output_options
from stepwell.common.pyplot import has_matplotlib


@click.command("voronoi")
@click.option("-n", "--sites", "count", type=click.IntRange(min=1), default=20000, show_default=True,
              help="Number of sites.")  # fmt: skip
@click.option("--resolution", callback=read_resolution, metavar="PIXELS|WIDTHxHEIGHT",
              help="Grid of the tessellation.  [default: about 64 pixels per site, 512 to 4096 along the longer side]"
              )  # fmt: skip
@click.option("--density", "density_file", metavar="FILE",
              help="A picture, dark where sites are to be dense, or an .npy file with the density itself.  [default: "
              "uniform]")  # fmt: skip
@click.option("--invert", is_flag=True, help="Bright where sites are to be dense.")
@click.option("--gamma", type=FiniteRange(min=0, min_open=True), default=1.0, show_default=True,
              help="Power to which the density is raised.")  # fmt: skip
@click.option("--draw", type=click.Choice(DRAWINGS), default="cells", show_default=True,
              help="What SVG and PNG files show.")  # fmt: skip
@click.option("--order", type=click.Choice(ORDERS), default="given", show_default=True,
              help="Order of the sites for a pen; with --draw route, auto.")  # fmt: skip
@run_options
@output_options()
def command(
    count: int,
    resolution: int | tuple[int, int] | None,
    density_file: str | None,
    invert: bool,
    gamma: float,
    draw: str,
    order: str,
    outputs: tuple[Path, ...],
    size: float,
    pixels: int,
    overwrite: bool,
    output: Output,
    **run: Any,
) -> None:
    """Spread sites so that each is the centroid of its own Voronoi cell.

    Minimises the energy of the tessellation under uniform density or that of a picture, and writes points (CSV, NPY),
    cells or stipples (SVG, PNG), the dual Delaunay mesh (OBJ, PLY), plots of its quality, and statistics (JSON). The
    exit status is 0 when files were written, also if the run ended at its limit of iterations; 2 if the command line is
    wrong. Ctrl-C ends a run on the CPU early: what was asked for is made from the sites so far, and the status is 130.
    """
    if draw == "route" and order == "given":
        order = "auto"
    check_outputs(outputs, output.json_file, density_file, drawn=draw, order=order)
    if density_file is None:
        if invert or gamma != 1.0:
            raise click.UsageError("--invert and --gamma need --density")
        sides = automatic_resolution(count, 1.0) if resolution is None else resolution
        density = np.ones((sides, sides) if isinstance(sides, int) else sides)
    else:
        density = open_density(density_file, count, resolution, invert=invert, gamma=gamma)
    asked = {"density": density_file, "invert": invert, "gamma": gamma, "sites": count, "shape": density.shape,
             "draw": draw, "order": order, "size": size, "pixels": pixels}  # fmt: skip
    settings = settle_folders(outputs, asked | run, overwrite, density_file)
    made = tessellate(count, density, **run, moving=output.moving)
    top = float(density.max())
    # Dots of uniform sites cover a quarter of the paper; under a density, as much as it says at most.
    darkness = np.full(density.shape, 0.25) if density_file is None else density / top
    products = Products(made, density, darkness, draw, size, pixels, settings, order=order)
    finish(products, outputs, output)


def finish(products: Products, outputs: tuple[Path, ...], output: Output) -> None:
    """Write what was asked for and report."""
    try:
        written = products.write_all(outputs)
        record = products.record()
        settings, result = record.pop("settings"), record.pop("result")
        output.record(settings, result, **record)
    except ImportError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"cannot write: {error}") from None
    if output.json_file not in (None, "-"):
        written.append(Path(str(output.json_file)))
    output.say(products.summary(), *(["wrote " + ", ".join(str(path) for path in written)] if written else []))
    if any(is_folder(path) for path in outputs) and not has_matplotlib():
        click.echo("left out the PNG files, which need matplotlib: pip install 'stepwell[plot]'", err=True)
    if products.tessellation.message == INTERRUPTED:
        output.interrupted()
