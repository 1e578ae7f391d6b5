"""`stepwell stipple`: a picture drawn with dots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from stepwell.apps.voronoi.command import finish
from stepwell.apps.voronoi.drawing import MARKS
from stepwell.apps.voronoi.picture import TONES
from stepwell.apps.voronoi.products import DRAWINGS, Products
from stepwell.apps.voronoi.route import METHODS as ORDERS
from stepwell.apps.voronoi.tessellating import (
    automatic_resolution,
    check_outputs,
    open_picture,
    read_longest,
    run_options,
    settle_folders,
    tessellate,
)
from stepwell.cli.inputs import FiniteRange, usage_errors
from stepwell.cli.output import Output, output_options


@click.command("stipple")
@click.argument("image", required=False)
@click.option("--demo", is_flag=True, help="Stipple a picture that is drawn by the program: a nautilus shell.")
@click.option("-n", "--sites", "count", type=click.IntRange(min=1), default=20000, show_default=True,
              help="Number of dots.")  # fmt: skip
@click.option("--resolution", callback=read_longest, metavar="PIXELS",
              help="Longer side of the grid that the picture is brought to.  [default: about 64 pixels a dot, 512 to "
              "4096]")  # fmt: skip
@click.option("--even", is_flag=True, help="Dots of one size; otherwise each is as large as its cell is dark.")
@click.option("--contrast", type=FiniteRange(0, 4), metavar="POWER",
              help="Power of the darkness by which dots are spread; their sizes make up for it. A higher one puts more "
              "into dark detail.  [default: 1.5; with --even 2]")  # fmt: skip
@click.option("--scale", type=FiniteRange(min=0, min_open=True), default=1.0, show_default=True,
              help="Factor on the sizes of dots.")  # fmt: skip
@click.option("--gamma", type=FiniteRange(min=0, min_open=True), default=1.0, show_default=True,
              help="Power of the darkness itself; above 1 light tones become lighter.")  # fmt: skip
@click.option("--tone", type=click.Choice(TONES), default="display", show_default=True,
              help="Darkness as a display's grey values, or linear in the light.")  # fmt: skip
@click.option("--invert", is_flag=True, help="White dots on black paper.")
@click.option("--colour", "--color", "colour", is_flag=True, help="Dots in the colours of the picture.")
@click.option("--marks", type=click.Choice(MARKS), default="dots", show_default=True,
              help="SVG elements: strokes of no length, one touch of a pen each, or circles.")  # fmt: skip
@click.option("--draw", type=click.Choice(DRAWINGS), default="stipples", show_default=True,
              help="What SVG and PNG files show.")  # fmt: skip
@click.option("--order", type=click.Choice(ORDERS), default="auto", show_default=True,
              help="Order of the dots for a pen.")  # fmt: skip
@run_options
@output_options()
def command(
    image: str | None,
    demo: bool,
    count: int,
    resolution: int | None,
    even: bool,
    contrast: float | None,
    scale: float,
    gamma: float,
    tone: str,
    invert: bool,
    colour: bool,
    marks: str,
    draw: str,
    order: str,
    outputs: tuple[Path, ...],
    size: float,
    pixels: int,
    overwrite: bool,
    output: Output,
    **run: Any,
) -> None:
    """Draw IMAGE with dots: dark where they are dense.

    The dots are the sites of a centroidal Voronoi tessellation whose density is the picture's darkness; each covers as
    much paper as its cell is dark. IMAGE is any picture that Pillow reads, or an .npy file with grey values from 0
    (black) to 1; transparent means white. The exit status is 0 when files were written, 2 if the command line is wrong.
    Ctrl-C ends a run on the CPU early: what was asked for is made from the dots so far, and the status is 130.
    """
    if demo == (image is not None):
        raise click.UsageError("give either IMAGE or --demo")
    check_outputs(outputs, output.json_file, image, drawn=draw, order=order)
    if demo:
        from stepwell.apps.voronoi.shell import nautilus

        picture = nautilus()
    else:
        picture = open_picture(str(image), "IMAGE")
    longest = resolution or automatic_resolution(count, min(picture.shape) / max(picture.shape))
    with usage_errors(ImportError):
        picture = picture.resized(longest)
    darkness = picture.darkness(tone=tone, invert=invert, gamma=gamma)
    if not np.any(darkness > 0):
        which = "black, and with --invert" if invert else "white:"
        hint = "without --invert" if invert else "with --invert"
        raise click.BadParameter(
            f"{picture.name} is all {which} the density is zero everywhere; try {hint}", param_hint="IMAGE"
        )
    power = contrast if contrast is not None else 2.0 if even else 1.5
    density = np.where(darkness > 0, darkness**power, 0.0)
    asked = {"image": "demo" if demo else image, "contrast": power, "scale": scale, "gamma": gamma, "tone": tone,
             "even": even, "invert": invert, "colour": colour, "sites": count, "shape": density.shape, "marks": marks,
             "draw": draw, "order": order, "size": size, "pixels": pixels}  # fmt: skip
    settings = settle_folders(outputs, asked | run, overwrite, image)
    made = tessellate(count, density, **run, moving=output.moving)
    look: dict[str, Any] = {"even": even, "scale": scale, "marks": marks}
    look |= {"ink": "white", "background": "black"} if invert else {}
    if colour:
        look["colours"] = picture.colours
        darkness = picture.coverage(invert=invert)
    finish(Products(made, density, darkness, draw, size, pixels, settings, order=order, look=look), outputs, output)
