"""A picture of abundances: a map for each material, the three main ones as colours, the misfit, and one pixel."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from stepwell.common.pyplot import finish_figure, load_pyplot

#: Most maps of materials that are drawn; those with the largest means come first.
MAX_MAPS = 7
#: Most pixels of a map along either side; a larger image is drawn by every second pixel, or third, ...
MAX_PIXELS = 700
#: Standard deviation of the sum of abundances below which it is held.
CONSTANT = 1e-4
#: Words in the name of a material, and the colour that it has to most eyes.
COLOURS: tuple[tuple[tuple[str, ...], tuple[float, float, float]], ...] = (
    (("water", "lake", "sea", "river", "ocean"), (0.12, 0.38, 0.85)),
    (("tree", "forest", "conifer", "wood", "oak", "pine"), (0.05, 0.42, 0.12)),
    (("veget", "grass", "crop", "leaf", "green", "shrub", "plant"), (0.25, 0.72, 0.2)),
    (("soil", "dirt", "clay", "ground", "earth", "mud"), (0.62, 0.42, 0.2)),
    (("sand", "straw", "dry", "npv", "litter", "hay"), (0.92, 0.8, 0.45)),
    (("roof", "brick", "tile"), (0.8, 0.25, 0.2)),
    (("road", "asphalt", "concrete", "urban", "building", "metal"), (0.6, 0.6, 0.62)),
    (("snow", "ice", "cloud", "white"), (0.95, 0.97, 1.0)),
    (("shade", "shadow", "dark"), (0.1, 0.1, 0.12)),
)
#: For all others, one after the other.
OTHERS = ((0.58, 0.3, 0.75), (0.95, 0.5, 0.1), (0.1, 0.7, 0.75), (0.9, 0.35, 0.65), (0.7, 0.72, 0.1), (0.45, 0.3, 0.2),
          (0.2, 0.25, 0.55))  # fmt: skip


def colours_of(names: list[str]) -> dict[str, tuple[float, float, float]]:
    """Return a colour for each material: that of its name, where it has one and no other has taken it.

    Examples
    --------
    >>> colours_of(["Water", "unknown"])["Water"]
    (0.12, 0.38, 0.85)
    """
    found: dict[str, tuple[float, float, float]] = {}
    others = iter(OTHERS * (1 + len(names) // len(OTHERS)))
    for name in names:
        fitting = [colour for words, colour in COLOURS if any(word in name.lower() for word in words)]
        free = [colour for colour in fitting if colour not in found.values()]
        found[name] = free[0] if free else next(others)
    return found


def plot_abundances(
    maps: Mapping[str, np.ndarray],
    materials: list[str],
    pixel: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    title: str = "",
) -> None:
    """Draw an image.

    Parameters
    ----------
    maps : dict of arrays, (lines, samples)
        Abundances by material, and ``rmse`` and ``sum``.
    materials : list of str
        Which of the maps are of materials.
    pixel : dict
        ``spectrum`` and ``fit`` (bands,), ``wavelengths`` or None, ``place`` (line, sample), ``parts``: materials and
        their shares.
    path : path
        Where the picture goes.
    title : str, optional
    """
    pyplot = load_pyplot()
    means = {name: float(np.nanmean(maps[name])) if np.isfinite(maps[name]).any() else 0.0 for name in materials}
    shown = sorted(materials, key=lambda name: -means[name])[:MAX_MAPS]
    held = float(np.nanstd(maps["sum"])) < CONSTANT if np.isfinite(maps["sum"]).any() else True
    count = len(shown) + 4 - held  # a sum that is held has nothing to show
    across = min((4, 5, 3), key=lambda number: -count % number)  # the fewest empty places
    down = -(-count // across)
    lines, samples = maps["rmse"].shape
    height = float(np.clip(2.9 * lines / samples, 1.6, 4.5)) + 0.4
    figure = pyplot.figure(figsize=(3.3 * across, height * down + 0.4), layout="constrained")
    grid = list(figure.subplots(down, across, squeeze=False).flat)
    for axes, name in zip(grid, shown):
        _draw(figure, axes, maps[name], _short(name), "viridis", (0.0, 1.0))
    axes = grid[len(shown)]
    colours = colours_of(shown)
    mixed = sum(np.clip(maps[name], 0, 1)[:, :, None] * np.array(colours[name]) for name in shown)
    axes.imshow(np.where(np.isfinite(mixed), np.clip(mixed, 0, 1), 0.85), interpolation="nearest")
    axes.set_title("all materials, mixed as their colours", fontsize=10)
    marks = [pyplot.matplotlib.patches.Patch(color=colours[name], label=_short(name)) for name in shown]
    axes.legend(handles=marks, loc="upper center", bbox_to_anchor=(0.5, -0.01), ncols=2, fontsize=7, frameon=False)
    _bare(axes)
    _draw(figure, grid[len(shown) + 1], maps["rmse"], "RMSE", "magma", _range(maps["rmse"]))
    if not held:
        _draw(figure, grid[len(shown) + 2], maps["sum"], "sum of abundances", "cividis", _range(maps["sum"]))
    line, sample = pixel["place"]
    for axes in grid[: count - 1]:
        axes.plot(sample, line, "o", mfc="none", mec="red", markersize=6)
    _plot_pixel(grid[count - 1], pixel)
    for axes in grid[count:]:
        axes.set_axis_off()
    figure.suptitle(title, fontsize=11)
    finish_figure(figure, path, dpi=120)


def _draw(figure: Any, axes: Any, values: np.ndarray, title: str, colours: str, limits: tuple[float, float]) -> None:
    shown = axes.imshow(values, cmap=colours, vmin=limits[0], vmax=limits[1], interpolation="nearest")
    axes.set_title(title, fontsize=10)
    axes.set_facecolor("0.85")  # where there is no number
    _bare(axes)
    figure.colorbar(shown, ax=axes, shrink=0.8, pad=0.02).ax.tick_params(labelsize=8)


def _short(name: str) -> str:
    """Return a name without what it has in brackets, as far as there is room."""
    return (name.partition(" (")[0] or name)[:24]


def _bare(axes: Any) -> None:
    axes.set_xticks([])
    axes.set_yticks([])


def _range(values: np.ndarray) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0, 1.0
    low, high = (float(end) for end in np.percentile(finite, [1, 99]))
    return (low, high) if high - low > 1e-6 * abs(high) else (low - 0.5 * abs(low), high + 0.5 * abs(high) + 1e-12)


def _plot_pixel(axes: Any, pixel: Mapping[str, Any]) -> None:
    waves = pixel["wavelengths"]
    bands = np.arange(len(pixel["spectrum"])) if waves is None else waves
    axes.plot(bands, pixel["spectrum"], ".", color="0.4", markersize=3, label="measured")
    axes.plot(bands, pixel["fit"], color="C3", linewidth=1.2, label="fit")
    parts = ", ".join(f"{_short(name)} {share:.2f}" for name, share in pixel["parts"][:3])
    axes.set_title(f"the marked pixel: {parts}", fontsize=8)
    axes.set_xlabel("band" if waves is None else "wavelength (nm)", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
