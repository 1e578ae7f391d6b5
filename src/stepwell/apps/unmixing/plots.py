"""A picture of abundances: a map for each material, the three main ones as colours, the misfit, and one pixel."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from stepwell.common.pyplot import load_pyplot, save_figure

#: Most maps of materials that are drawn; those with the largest means come first.
MAX_MAPS = 7
#: Most pixels of a map along either side; a larger image is drawn by every second pixel, or third, ...
MAX_PIXELS = 700


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
    count = len(shown) + 4
    across = min((4, 5, 3), key=lambda number: -count % number)  # the fewest empty places
    down = -(-count // across)
    lines, samples = maps["rmse"].shape
    height = float(np.clip(2.9 * lines / samples, 1.6, 4.5)) + 0.4
    figure = pyplot.figure(figsize=(3.3 * across, height * down + 0.4), layout="constrained")
    grid = list(figure.subplots(down, across, squeeze=False).flat)
    for axes, name in zip(grid, shown):
        _draw(figure, axes, maps[name], name, "viridis", (0.0, 1.0))
    main = shown[:3]
    colours = np.stack([np.clip(maps[name], 0, 1) for name in main] + [np.zeros((lines, samples))] * (3 - len(main)), 2)
    bright = np.where(np.isfinite(colours), colours, 0.85)
    axes = grid[len(shown)]
    axes.imshow(bright, interpolation="nearest")
    axes.set_title("red, green, blue: " + ", ".join(main), fontsize=9)
    _bare(axes)
    _draw(figure, grid[len(shown) + 1], maps["rmse"], "RMSE", "magma", _range(maps["rmse"]))
    _draw(figure, grid[len(shown) + 2], maps["sum"], "sum of abundances", "cividis", _range(maps["sum"]))
    line, sample = pixel["place"]
    for axes in grid[: len(shown) + 3]:
        axes.plot(sample, line, "o", mfc="none", mec="red", markersize=6)
    _plot_pixel(grid[len(shown) + 3], pixel)
    for axes in grid[len(shown) + 4 :]:
        axes.set_axis_off()
    figure.suptitle(title, fontsize=11)
    save_figure(figure, path, dpi=120)
    pyplot.close(figure)


def _draw(figure: Any, axes: Any, values: np.ndarray, title: str, colours: str, limits: tuple[float, float]) -> None:
    shown = axes.imshow(values, cmap=colours, vmin=limits[0], vmax=limits[1], interpolation="nearest")
    axes.set_title(title, fontsize=10)
    axes.set_facecolor("0.85")  # where there is no number
    _bare(axes)
    figure.colorbar(shown, ax=axes, shrink=0.8, pad=0.02).ax.tick_params(labelsize=8)


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
    parts = ", ".join(f"{name} {share:.2f}" for name, share in pixel["parts"][:3])
    axes.set_title(f"the marked pixel: {parts}", fontsize=8)
    axes.set_xlabel("band" if waves is None else "wavelength (nm)", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
