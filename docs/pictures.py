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
from typing import Any

import numpy as np
from PIL import Image

from stepwell.cli.group import main as command_line
from stepwell.lab.studies.pages import draw, read_study

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
WIDTH = 900
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
#: What stands side by side in it, with captions, and the rows of benchmarks/summaries/headlines.json under that.
STRIP = {
    "nautilus": "10,000 dots, stepwell stipple",
    "cells": "1,200 cells, stepwell voronoi",
    "slice": "one of 30 slices, stepwell reconstruct",
}
OVERVIEW_ROWS = ("iteration-1000000", "batch", "lidar", "decays", "slices", "gpu-batch")
RED, GREY = "#b3361f", "#8c8c8c"
#: Where the bars begin, in seconds.
LEFT = 1e-8


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


def grey(values: np.ndarray) -> Image.Image:
    """Show an array from its smallest value, black, to its largest."""
    low, high = values.min(), values.max()
    return Image.fromarray(np.round(255 * (values - low) / (high - low)).astype(np.uint8))


def headlines() -> dict[str, Any]:
    """Return the figures that README and pages show."""
    path = ROOT / "benchmarks" / "summaries" / "headlines.json"
    return dict(json.loads(path.read_text(encoding="utf-8")))


def time_text(seconds: float) -> str:
    """Write a time as the tables do."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def bars(axes: Any, rows: list[dict[str, Any]], size: float) -> None:
    """Draw a pair of bars for each row, Stepwell's time and its first peer's, on a logarithmic axis."""
    for place, row in enumerate(rows):
        peer, other = next(iter(row["peers"].items()))
        peer = peer.replace("`", "").split(" (")[0]
        for shift, seconds, label, colour in (
            (0.0, row["seconds"], f"Stepwell, {row['machine']}", RED),
            (0.4, other, peer, GREY),
        ):
            axes.barh(3 * place / 2 + shift, seconds, color=colour, height=0.4)
            told = f" {time_text(seconds)}  {label}"
            axes.text(seconds, 3 * place / 2 + shift, told, va="center", fontsize=size)
        axes.text(LEFT, 3 * place / 2 - 0.42, row["work"], va="center", fontsize=size, fontweight="bold")
    axes.set(xscale="log", xlim=(LEFT, 3e5), ylim=(3 * len(rows) / 2 - 0.6, -0.8), yticks=[], xticks=[])
    axes.minorticks_off()
    for side in axes.spines.values():
        side.set_visible(False)


def overview(pictures: list[Image.Image], path: Path) -> None:
    """Draw the README's picture: three results with captions, and the figures of its table beside the peers'."""
    import matplotlib.pyplot as plt

    by_key = {row["key"]: row for row in headlines()["rows"]}
    figure = plt.figure(figsize=(OVERVIEW_WIDTH / 100, 12.6), dpi=100, layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(4.6, 8))
    widths = [one.width / one.height for one in pictures]
    for axes, one, caption in zip(above.subplots(1, 3, width_ratios=widths), pictures, STRIP.values()):
        axes.imshow(np.asarray(one.convert("RGB")))
        axes.set_axis_off()
        axes.set_title(caption, fontsize=20, y=-0.12)
    axes = below.subplots()
    axes.set_title("Time, logarithmic scale; each pair is one machine and one run", fontsize=22, loc="left")
    bars(axes, [by_key[key] for key in OVERVIEW_ROWS if key in by_key], 19)
    figure.savefig(path)
    plt.close(figure)


def sizes_chart(path: Path) -> None:
    """Draw the time of an L-BFGS-B iteration by the number of variables, on two cores and on a GPU."""
    import matplotlib.pyplot as plt

    held = headlines()
    rows = [row for row in held["rows"] if row["key"].startswith("iteration-")]
    counts = [int(row["key"].removeprefix("iteration-")) for row in rows]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), dpi=100, sharey=True, layout="constrained")
    left.plot(counts, [1e3 * row["seconds"] for row in rows], "o-", color=RED, label="Stepwell, bounds")
    left.plot(counts, [1e3 * row["peers"]["SciPy L-BFGS-B"] for row in rows], "s-", color=GREY, label="SciPy, bounds")
    left.set_title(rows[0]["machine"])
    gpu = held["iterations on a GPU"]
    styles = (("o-", RED), ("^-", "#1f5a96"), ("s--", GREY))
    for (label, curve), (style, colour) in zip(((k, v) for k, v in gpu.items() if "bounds" in k), styles):
        right.plot([int(n) for n in curve], [1e3 * v for v in curve.values()], style, color=colour, label=label)
    right.set_title(gpu["machine"])
    for axes in (left, right):
        axes.set(xscale="log", yscale="log", xlabel="variables", ylim=(0.02, 2000))
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=9, loc="upper left")
    left.set_ylabel("milliseconds per iteration, solver only")
    figure.savefig(path)
    plt.close(figure)


def peers_chart(path: Path) -> None:
    """Draw batches, least squares, fits and reconstructions beside their peers."""
    import matplotlib.pyplot as plt

    rows = [row for row in headlines()["rows"] if not row["key"].startswith("iteration-")]
    figure, axes = plt.subplots(figsize=(9, 0.95 * len(rows)), dpi=100, layout="constrained")
    bars(axes, rows, 10)
    figure.savefig(path)
    plt.close(figure)


#: Chart -> what draws it.
CHARTS = {"performance-sizes": sizes_chart, "performance-peers": peers_chart}
#: All that are made.
NAMES = (*COMMANDS, *EXAMPLES, *PLOTS, *CHARTS, OVERVIEW)


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
        for name, chart in CHARTS.items():
            chart(folder / f"{name}.png")
            made[name] = Image.open(folder / f"{name}.png").convert("RGB")
        overview([made[name] for name in STRIP], folder / "overview.png")
        whole = Image.open(folder / "overview.png").convert("RGB")
    for name, picture in made.items():
        if name != "slice":
            save(scaled(picture, width=min(WIDTH, picture.width)), name)
    save(scaled(whole, width=SHOWN_WIDTH), OVERVIEW)


if __name__ == "__main__":
    main()
