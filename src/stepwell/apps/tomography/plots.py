"""Pictures of reconstructions: a montage of slices and the convergence of every column."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from stepwell.common.pyplot import finish_figure, load_pyplot

#: Most slices that a montage shows.
MAX_SLICES = 24


def montage(volume: np.ndarray, path: str | os.PathLike[str], *, first: int = 0, title: str = "") -> None:
    """Write a picture of evenly spaced slices of a volume, on one grey scale.

    Parameters
    ----------
    volume : array, (slices, rows, columns)
    path : path
        Where the PNG goes.
    first : int, default 0
        Number of the first slice, for the labels.
    title : str, optional
    """
    pyplot = load_pyplot()
    count = len(volume)
    shown = np.unique(np.linspace(0, count - 1, min(count, MAX_SLICES)).round().astype(int))
    across = min(len(shown), 6)
    down = -(-len(shown) // across)
    low, middle, high = np.percentile(volume, [0.5, 95, 99.8])
    # A few very bright pixels would leave everything else black: then grey goes with the square root.
    gamma = 0.5 if high - low > 4 * (middle - low) else 1.0
    grey = pyplot.matplotlib.colors.PowerNorm(gamma, low, max(high, low + 1e-300), clip=True)
    height = volume.shape[1] / volume.shape[2] * 1.75 + 0.22
    figure, axes = pyplot.subplots(
        down, across, figsize=(1.75 * across + 1.0, height * down + 0.5), squeeze=False, layout="constrained"
    )
    for axis in axes.flat:
        axis.axis("off")
    for axis, index in zip(axes.flat, shown):
        image = axis.imshow(volume[index], cmap="gray", norm=grey, interpolation="nearest")
        axis.set_title(f"slice {first + index}", fontsize=8, pad=2)
    figure.colorbar(image, ax=axes, shrink=0.6, aspect=30, pad=0.01).ax.tick_params(labelsize=8)
    figure.suptitle(title, fontsize=11)
    finish_figure(figure, path, dpi=130)


def convergence(
    histories: Sequence[np.ndarray],
    tol: float,
    path: str | os.PathLike[str],
    *,
    first: int = 0,
    title: str = "",
    measure: str = "relative residual of the normal equations",
) -> None:
    """Write a picture of the relative residual of every column against the iteration.

    Parameters
    ----------
    histories : sequence of arrays
        Relative residuals of each column after each iteration, as in ``LinearResult.history``.
    tol : float
        The tolerance, drawn as a line.
    path : path
        Where the PNG goes.
    first : int, default 0
        Number of the first column, for the colour scale.
    title : str, optional
    measure : str, optional
        What the histories hold, where it is something else: the label of the axis.
    """
    pyplot = load_pyplot()
    figure, axis = pyplot.subplots(figsize=(7.0, 4.2), layout="constrained")
    colours = pyplot.get_cmap("viridis")
    norm = pyplot.Normalize(first, first + max(1, len(histories) - 1))
    for column, history in enumerate(histories):
        if len(history):
            steps = np.arange(len(history) + 1)
            axis.semilogy(
                steps,
                np.concatenate([[1.0], history]),
                color=colours(norm(first + column)),
                lw=0.9,
                alpha=0.8,
            )
    axis.axhline(tol, color="crimson", lw=1.2, ls="--")
    axis.annotate(
        f"tolerance {tol:g}",
        (0.01, tol),
        xycoords=("axes fraction", "data"),
        va="bottom",
        fontsize=9,
        color="crimson",
    )
    axis.set_xlabel("iteration")
    axis.set_ylabel(measure)
    axis.set_xlim(left=0)
    axis.grid(alpha=0.25, lw=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_title(title, fontsize=11)
    scale = pyplot.cm.ScalarMappable(norm=norm, cmap=colours)
    if len(histories) > 1:
        figure.colorbar(scale, ax=axis, label="slice", pad=0.01)
    finish_figure(figure, path, dpi=130)
