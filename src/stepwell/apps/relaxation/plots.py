"""A picture of relaxation maps: a slice of the parameters and their errors, and the curve of one voxel."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from stepwell.apps.relaxation.model import RelaxationModel
from stepwell.common.pyplot import finish_figure, load_pyplot

_COLOURS = ("viridis", "inferno", "cividis", "magma", "plasma")


def plot_maps(
    model: RelaxationModel,
    maps: Mapping[str, np.ndarray],
    voxel: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    title: str = "",
    truth: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Draw one slice and one voxel.

    Parameters
    ----------
    model : RelaxationModel
    maps : dict of arrays, (x, y)
        The maps of one slice by name.
    voxel : dict
        ``signal`` (points,), ``place`` (x, y) in the slice, and its parameters by name.
    path : path
        Where the picture goes.
    title : str, optional
    truth : dict of arrays, (x, y), optional
        True parameters, drawn below those found in place of the standard errors.
    """
    pyplot = load_pyplot()
    names = model.parameters
    figure, grid = pyplot.subplots(2, len(names) + 1, figsize=(3.1 * (len(names) + 1), 6.0), layout="constrained")
    for column, name in enumerate(names):
        picture = maps[name]
        colours, limits = _COLOURS[column % len(_COLOURS)], _limits(picture)
        _draw(figure, grid[0, column], picture, name, colours, limits)
        if truth is None:
            below = maps[f"{name}_se"]
            _draw(figure, grid[1, column], below, f"standard error of {name}", "gray", _limits(below))
        else:
            _draw(figure, grid[1, column], truth[name], f"true {name}", colours, limits)
        if column == 0:
            x, y = voxel["place"]
            grid[0, 0].plot(x, picture.shape[1] - 1 - y, "o", mfc="none", mec="red", markersize=9)
    _draw_curve(grid[0, -1], model, voxel)
    status = np.where(maps["status"] > 0, 1.0 + (maps["bound"] > 0), np.where(maps["status"] == -1, np.nan, 0.0))
    _draw(figure, grid[1, -1], status, "0 not converged, 1 converged, 2 at a bound", "viridis", (0.0, 2.0))
    figure.suptitle(title, fontsize=11)
    finish_figure(figure, path, dpi=120)


def _draw(figure: Any, axes: Any, picture: np.ndarray, text: str, colours: str, limits: tuple[float, float]) -> None:
    low, high = limits
    shown = axes.imshow(np.rot90(picture), cmap=colours, vmin=low, vmax=high, interpolation="nearest")
    axes.set_title(text, fontsize=10)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_facecolor("0.85")  # where there is no number
    figure.colorbar(shown, ax=axes, shrink=0.8, pad=0.02).ax.tick_params(labelsize=8)


def _limits(picture: np.ndarray) -> tuple[float, float]:
    """Return the range of colours: all but the outermost per cents."""
    finite = picture[np.isfinite(picture)]
    if not finite.size:
        return 0.0, 1.0
    low, high = (float(end) for end in np.percentile(finite, [2, 98]))
    return (low, high) if high > low else (low - 0.5 * abs(low) - 1e-12, low + 0.5 * abs(low) + 1e-12)


def _draw_curve(axes: Any, model: RelaxationModel, voxel: Mapping[str, Any]) -> None:
    points = np.asarray(model.points)
    dense = np.linspace(0, points.max(), 300)
    inner = np.radians(dense) if model.quantity == "t1-vfa" else dense
    curve = model.signal(inner, **{name: voxel[name] for name in model.parameters})
    magnitude = model.quantity == "t1" and not model.signed
    axes.plot(points, voxel["signal"], "o", color="0.35", markersize=4, label="measured")
    axes.plot(dense, np.abs(curve) if magnitude else curve, color="C3", linewidth=1.3, label="fit")
    axes.set_xlabel(f"{model.about.axis} ({model.about.unit})")
    axes.set_title("the marked voxel", fontsize=10)
    axes.legend(frameon=False, fontsize=9)
