"""Make the pictures in docs/images with the commands that the pages show.

    python docs/pictures.py

`scripts/docs` calls it for the site. The repository keeps one of them, overview.png, which the README shows. Needs the
extra `plot`. Charts of what was measured come from benchmarks/summaries.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from stepwell.cli.group import main as command_line
from stepwell.lab.studies.pages import draw, read_study

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
WIDTH, STRIP_HEIGHT, GAP = 900, 400, 24
#: The README's picture is drawn so wide, and then made as wide as it is shown (830 pixels) and a little more.
OVERVIEW_WIDTH, SHOWN_WIDTH = 1660, 940
#: A page should load at once.
LARGEST = 390_000

#: Picture -> the command that makes it, and the file that it leaves.
COMMANDS = {
    "nautilus": ("stipple --demo -n 10000 -o nautilus.png", "nautilus.png"),
    "cells": ("voronoi -n 1200 --resolution 1024 -o voronoi", "voronoi/cells.png"),
    "phantom": ("reconstruct phantom --slices 40:70 -o phantom", "phantom/montage.png"),
    "waveform": ("deconvolve --synthetic 200 --shots 1,2 --plot waveform.png", "waveform.png"),
    "decompose": ("decompose --synthetic 200 --shots 1,2 -o decompose", "decompose/shots.png"),
    "relax": ("relax ivim --synthetic 96x96x1 -o relax", "relax/maps.png"),
    "t2map": ("t2map --synthetic 96x96x1 --myelin 0.010 0.040 -o t2map", "t2map/maps.png"),
    "unmixing": ("unmix --synthetic 120x90 -o unmixing", "unmixing.png"),
    "convergence": ("solve minimal-surface -n 40000 -m 5 --plot convergence.png", "convergence.png"),
}
#: Picture -> the example that makes it.
EXAMPLES = {"nonnegative": "nonnegative_tomography.py"}
#: Picture -> the study, and the plot of it that is drawn.
PLOTS = {
    "torsion": ("torsion-cuda", "iteration"),
    "cutest-evaluations": ("cutest-cpu", "evaluations-1e-08"),
    "cutest-ends": ("cutest-cpu", "ends"),
}
#: The README's.
OVERVIEW = "overview"
#: All that are made.
NAMES = (*COMMANDS, *EXAMPLES, *PLOTS, OVERVIEW)
#: What stands side by side in the README.
STRIP = ("nautilus", "cells", "slice")


def run(command: str, folder: Path) -> None:
    """Call the command line as a user in `folder` would."""
    words = [str(folder / word) if before in ("-o", "--plot") else word for before, word in pairs(command.split())]
    command_line(words, standalone_mode=False)


def pairs(words: list[str]) -> list[tuple[str, str]]:
    """Each word with the one before it."""
    return list(zip(["", *words], words))


def save(picture: Image.Image, name: str) -> None:
    """Write in true colour, pictures without colour in 256 greys: fewer colours show as specks and bands."""
    path = IMAGES / f"{name}.png"
    values = np.asarray(picture.convert("RGB"))
    grey = np.ptp(values, axis=2).max() == 0
    picture = picture.convert("L" if grey else "RGB")
    whole, width = picture, picture.width
    picture.save(path, optimize=True)
    while path.stat().st_size > LARGEST:  # fewer pixels rather than fewer colours
        width = width * 9 // 10
        picture = whole.resize((width, whole.height * width // whole.width), Image.Resampling.LANCZOS)
        picture.save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {picture.width} x {picture.height}, {path.stat().st_size // 1024} KiB")


def scaled(picture: Image.Image, *, width: int | None = None, height: int | None = None) -> Image.Image:
    """Shrink or enlarge to a width or a height."""
    factor = width / picture.width if width else (height or picture.height) / picture.height
    size = (round(picture.width * factor), round(picture.height * factor))
    return picture.convert("RGB").resize(size, Image.Resampling.LANCZOS)


def side_by_side(pictures: list[Image.Image]) -> Image.Image:
    """Put pictures in a row on white paper."""
    row = [scaled(picture, height=STRIP_HEIGHT) for picture in pictures]
    strip = Image.new("RGB", (sum(one.width for one in row) + GAP * (len(row) - 1), STRIP_HEIGHT), "white")
    left = 0
    for one in row:
        strip.paste(one, (left, 0))
        left += one.width + GAP
    return strip


def grey(values: np.ndarray) -> Image.Image:
    """Show an array from its smallest value, black, to its largest."""
    low, high = values.min(), values.max()
    return Image.fromarray(np.round(255 * (values - low) / (high - low)).astype(np.uint8))


def iteration_chart(path: Path) -> None:
    """Draw milliseconds of an iteration beside torch.optim and SciPy, in type that can be read at half the size."""
    import matplotlib.pyplot as plt

    kept = json.loads((ROOT / "benchmarks" / "summaries" / "quasi_newton_gpu.json").read_text())
    ours, peers = kept["torsion"]["figures"], kept["peers"]["figures"]
    sizes = ("10,000", "1,000,000")
    bars = {
        "Stepwell, H200, bounds": [ours["10,000 in a graph"]["median"], ours["1,000,000 float64"]["median"]],
        "torch.optim.LBFGS, H200, no bounds": [peers[f"torch.optim.LBFGS {n}"]["solver"] for n in sizes],
        "SciPy L-BFGS-B, 16 cores, bounds": [peers[f"SciPy {n}"] for n in sizes],
    }
    figure, axes = plt.subplots(figsize=(OVERVIEW_WIDTH / 100, 5.2), dpi=100, layout="constrained")
    for place, ((label, seconds), colour) in enumerate(zip(bars.items(), ("#b3361f", "#8c8c8c", "#c9c9c9"))):
        rows = [place + 4 * group for group in range(len(sizes))]
        axes.barh(rows, [1e3 * value for value in seconds], color=colour, height=0.85)
        for row, value in zip(rows, seconds):
            axes.text(1.06e3 * value, row, f"{1e3 * value:.3g} ms  {label}", va="center", fontsize=22)
    axes.set(xscale="log", xlim=(0.02, 6000), yticks=[1, 5], yticklabels=[f"{n}\nvariables" for n in sizes])
    axes.set_title("Solver time of one iteration, logarithmic scale: bounded torsion, m = 8", fontsize=26, loc="left")
    axes.tick_params(labelsize=22, length=0)
    axes.set_xticks([])
    axes.minorticks_off()
    axes.invert_yaxis()
    for side in axes.spines.values():
        side.set_visible(False)
    figure.savefig(path)


def stacked(above: Image.Image, below: Image.Image) -> Image.Image:
    """Put one picture over another, both as wide as the README's."""
    pair = [scaled(one, width=OVERVIEW_WIDTH) for one in (above, below)]
    sheet = Image.new("RGB", (OVERVIEW_WIDTH, sum(one.height for one in pair) + GAP), "white")
    sheet.paste(pair[0], (0, 0))
    sheet.paste(pair[1], (0, pair[0].height + GAP))
    return sheet


def main() -> None:
    """Make them all."""
    IMAGES.mkdir(exist_ok=True)
    made: dict[str, Image.Image] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, (command, file) in COMMANDS.items():
            run(command, folder)
            made[name] = Image.open(folder / file).convert("RGB")
        for name, script in EXAMPLES.items():
            subprocess.run([sys.executable, ROOT / "examples" / script, folder / f"{name}.png"], check=True)
            made[name] = Image.open(folder / f"{name}.png").convert("RGB")
        made["slice"] = grey(np.load(folder / "phantom" / "volume.npy")[24])
        for name, (study, chosen) in PLOTS.items():
            plots = read_study(ROOT / "benchmarks" / "summaries" / "studies" / f"{study}.json").plots
            draw(next(plot for plot in plots if plot.name == chosen), folder / f"{name}.png")
            made[name] = Image.open(folder / f"{name}.png").convert("RGB")
        iteration_chart(folder / "iterations.png")
        chart = Image.open(folder / "iterations.png").convert("RGB")
    for name, picture in made.items():
        if name != "slice":
            save(scaled(picture, width=min(WIDTH, picture.width)), name)
    save(scaled(stacked(side_by_side([made[name] for name in STRIP]), chart), width=SHOWN_WIDTH), OVERVIEW)


if __name__ == "__main__":
    main()
