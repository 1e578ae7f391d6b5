"""Make the pictures in docs/images with the commands that the pages show.

    python docs/pictures.py

Needs the extra `plot`. The chart of iterations comes from benchmarks/results/studies/torsion-cuda.json.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from stepwell.cli import main as command_line
from stepwell.report.study import draw, read_study

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
WIDTH, STRIP_HEIGHT, GAP, COLOURS = 900, 400, 24, 64

#: Picture -> the command that makes it, and the file that it leaves.
COMMANDS = {
    "nautilus": ("stipple --demo -n 10000 -o nautilus.png", "nautilus.png"),
    "cells": ("voronoi -n 1200 --resolution 1024 -o voronoi", "voronoi/cells.png"),
    "phantom": ("reconstruct phantom --slices 40:70 -o phantom", "phantom/montage.png"),
    "waveform": ("deconvolve --synthetic 200 --least 10 --shots 1,2 --plot waveform.png", "waveform.png"),
    "t2map": ("t2map --synthetic 96x96x1 --myelin 0.010 0.040 -o t2map", "t2map/maps.png"),
    "unmixing": ("unmix --synthetic 120x90 -o unmixing", "unmixing.png"),
    "convergence": ("solve minimal-surface -n 40000 -m 5 --plot convergence.png", "convergence.png"),
}
#: Picture -> the example that makes it.
EXAMPLES = {"nonnegative": "nonnegative_tomography.py"}
#: What stands side by side in the README.
STRIP = ("nautilus", "cells", "slice", "torsion")


def run(command: str, folder: Path) -> None:
    """Call the command line as a user in `folder` would."""
    words = [str(folder / word) if before in ("-o", "--plot") else word for before, word in pairs(command.split())]
    command_line(words, standalone_mode=False)


def pairs(words: list[str]) -> list[tuple[str, str]]:
    """Each word with the one before it."""
    return list(zip(["", *words], words))


def save(picture: Image.Image, name: str) -> None:
    """Write with few colours: pages load quickly, and the repository stays small."""
    path = IMAGES / f"{name}.png"
    picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
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
        study = read_study(ROOT / "benchmarks" / "results" / "studies" / "torsion-cuda.json")
        draw(study.plots[0], folder / "torsion.png")
        made["torsion"] = Image.open(folder / "torsion.png").convert("RGB")
    for name, picture in made.items():
        if name != "slice":
            save(scaled(picture, width=min(WIDTH, picture.width)), name)
    save(side_by_side([made[name] for name in STRIP]), "overview")


if __name__ == "__main__":
    main()
