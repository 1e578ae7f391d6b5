"""A picture of T2 maps: a slice of the main ones, and one voxel's decay and distribution."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stepwell.apps.t2 import T2Model
from stepwell.common.pyplot import finish_figure, load_pyplot

#: Map -> (title, colours, factor of its unit).
PANELS = {
    "sfr": ("myelin water fraction (sfr)", "inferno", 1.0),
    "ggm": ("mean T2 (ggm), ms", "viridis", 1000.0),
    "alpha": ("flip angle (alpha), degrees", "cividis", 1.0),
    "mu": ("λ (mu)", "magma", 1.0),
    "resnorm": ("residual (resnorm)", "gray", 1.0),
}


#: Most slices of the overlay, and the fraction below which the first echo alone is shown.
MAX_SLICES, LEAST_SHOWN = 12, 0.01


def plot_overlay(
    first: Sequence[np.ndarray],
    fractions: Sequence[np.ndarray],
    numbers: Sequence[int],
    path: str | os.PathLike[str],
    *,
    title: str = "",
) -> None:
    """Draw the myelin water fraction in colours on the first echo in grey, slice by slice.

    Parameters
    ----------
    first, fractions : sequences of arrays, (x, y)
        First echo and myelin water fraction of each slice.
    numbers : sequence of int
        Which slices these are.
    path : path
        Where the picture goes.
    title : str, optional
    """
    pyplot = load_pyplot()
    across = min(4, len(first))
    down = -(-len(first) // across)
    wide, high = first[0].shape
    size = (3.0 * across + 0.8, 3.0 * high / wide * down + 0.5)
    figure, axes = pyplot.subplots(down, across, figsize=size, squeeze=False, layout="constrained")
    known = np.concatenate([one[np.isfinite(one)] for one in fractions])
    top = max(0.05, float(np.percentile(known, 99.5))) if known.size else 1.0
    white = max(float(np.nanpercentile(one, 99.5)) for one in first)
    for axis in axes.flat:
        axis.axis("off")
    for axis, echo, fraction, number in zip(axes.flat, first, fractions, numbers):
        axis.imshow(np.rot90(echo), cmap="gray", vmin=0, vmax=white, interpolation="nearest")
        seen = np.where(fraction >= LEAST_SHOWN, fraction, np.nan)
        shown = axis.imshow(np.rot90(seen), cmap="inferno", vmin=0, vmax=top, alpha=0.75, interpolation="nearest")
        axis.set_title(f"slice {number}", fontsize=9)
    figure.colorbar(shown, ax=axes, shrink=0.7, pad=0.02, label="myelin water fraction")
    figure.suptitle(title, fontsize=11)
    finish_figure(figure, path, dpi=120)


def plot_maps(
    model: T2Model,
    maps: Mapping[str, np.ndarray],
    voxel: Mapping[str, np.ndarray],
    path: str | os.PathLike[str],
    *,
    title: str = "",
    truth: np.ndarray | None = None,
) -> None:
    """Draw one slice and one voxel.

    Parameters
    ----------
    model : T2Model
    maps : dict of arrays, (x, y)
        The maps of one slice by name.
    voxel : dict
        ``signal`` (echoes,), ``distribution`` (bins,), ``alpha`` in degrees, ``place`` (x, y) in the slice, ``text``.
    path : path
        Where the picture goes.
    title : str, optional
    truth : array, (x, y), optional
        The true myelin water fraction, drawn in place of the residual.
    """
    pyplot = load_pyplot()
    figure = pyplot.figure(figsize=(12.5, 6.6), layout="constrained")
    grid = figure.subplots(2, 4)
    panels = dict(PANELS)
    pictures = {name: maps[name] * factor for name, (_, _, factor) in panels.items()}
    limits = {name: _limits(picture) for name, picture in pictures.items()}
    limits["sfr"] = (0.0, max(0.05, limits["sfr"][1]))
    if truth is not None:
        panels = {"sfr": panels["sfr"], "truth": ("true myelin water fraction", "inferno", 1.0), **panels}
        pictures["truth"], limits["truth"] = truth, limits["sfr"]
        del panels["resnorm"]
    for axes, (name, (text, colours, _)) in zip(grid.flat, panels.items()):
        low, high = limits[name]
        shown = axes.imshow(np.rot90(pictures[name]), cmap=colours, vmin=low, vmax=high, interpolation="nearest")
        axes.set_title(text, fontsize=10)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_facecolor("0.85")  # where there is no number
        figure.colorbar(shown, ax=axes, shrink=0.8, pad=0.02).ax.tick_params(labelsize=8)
        if name == "sfr":
            x, y = voxel["place"]
            axes.plot(x, pictures[name].shape[1] - 1 - y, "o", mfc="none", mec="cyan", markersize=9)
    rest = list(grid.flat)[len(panels) :]
    _plot_decay(rest[0], model, voxel)
    _plot_distribution(rest[1], model, voxel)
    for axes in rest[2:]:
        axes.set_axis_off()
        axes.text(0.0, 0.9, str(voxel["text"]), va="top", fontsize=9, transform=axes.transAxes)
    figure.suptitle(title, fontsize=11)
    finish_figure(figure, path, dpi=120)


def _limits(picture: np.ndarray) -> tuple[float, float]:
    """Return the range of colours: all but the outermost per cents."""
    finite = picture[np.isfinite(picture)]
    if not finite.size:
        return 0.0, 1.0
    low, high = (float(end) for end in np.percentile(finite, [1, 95]))
    if high - low <= 1e-5 * abs(high):  # one number everywhere
        return (0.0, 2 * high) if high > 0 else (low - 1, low + 1)
    return low, high


def _plot_decay(axes: Any, model: T2Model, voxel: Mapping[str, Any]) -> None:
    times = 1e3 * model.te * np.arange(1, model.echoes + 1)
    which = int(np.abs(model.flip_angles - float(voxel["alpha"])).argmin())
    axes.plot(times, voxel["signal"], "o", color="0.35", markersize=3.5, label="measured")
    axes.plot(times, model.dictionary[which] @ voxel["distribution"], color="C3", linewidth=1.3, label="fit")
    axes.set(xlabel="echo time (ms)", ylabel="signal", title="decay of the marked voxel")
    axes.title.set_fontsize(10)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)


def _plot_distribution(axes: Any, model: T2Model, voxel: Mapping[str, Any]) -> None:
    times = 1e3 * model.t2_times
    axes.axvspan(1e3 * model.myelin[0], 1e3 * model.myelin[1], color="C1", alpha=0.15, lw=0, label="myelin")
    axes.axvspan(1e3 * model.myelin[1], 1e3 * model.middle, color="C0", alpha=0.12, lw=0, label="middle")
    axes.vlines(times, 0, voxel["distribution"], color="C3", linewidth=1.0)
    axes.plot(times, voxel["distribution"], ".-", color="C3", markersize=4, linewidth=1.0)
    axes.set(xscale="log", xlabel="T2 (ms)", title="its T2 distribution")
    axes.title.set_fontsize(10)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)
