"""Pictures of decomposed lidar shots."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from stepwell.common.pyplot import save_figure
from stepwell.fit.status import FitStatus


def plot_shots(
    done: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    labels: Sequence[str] | None = None,
    truth: np.ndarray | None = None,
) -> Any:
    """Plot waveforms, the Gaussians of their returns, and the sum.

    Parameters
    ----------
    done : Decomposition
        The shots to draw, all of them.
    path : path, optional
        Where to save the picture.
    labels : sequence of str, optional
        What each shot is called; by default its number.
    truth : array, (shots, returns), optional
        True positions.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.figure import Figure

    shots = len(done.shots)
    if not shots:
        raise ValueError("there is no shot to plot")
    figure = Figure(figsize=(10, 2.6 * shots), layout="constrained")
    rows = figure.subplots(shots, 1, squeeze=False)[:, 0]
    times, whole = np.arange(done.shots.waveforms.shape[1]), done.fit
    for shot, axes in enumerate(rows):
        level = done.background[shot]
        axes.plot(done.shots.waveforms[shot], color="0.65", linewidth=2.0, label="received")
        for k in range(done.count[shot]):
            t, s = done.position[shot, k], done.width[shot, k]
            shape = level + done.amplitude[shot, k] * np.exp(-0.5 * ((times - t) / s) ** 2)
            axes.fill_between(times, level, shape, alpha=0.3, linewidth=0, color=f"C{k % 8}")
            axes.errorbar(t, shape.max(), xerr=done.position_se[shot, k], fmt=".", color=f"C{k % 8}", capsize=2)
        axes.plot(whole[shot], color="k", linewidth=0.9, label="fit")
        if truth is not None:
            axes.plot(truth[shot], np.full(truth.shape[1], level), "k+", markersize=8, label="truth")
        ended = FitStatus.of(int(done.status[shot]))
        text = f"{done.count[shot]} returns" if ended.success else ended.message
        axes.set_title(f"{f'shot {shot}' if labels is None else labels[shot]}: {text}", fontsize=10)
        axes.set_ylabel("signal")
        axes.margins(x=0.01)
    rows[0].legend(frameon=False, fontsize=9)
    rows[-1].set_xlabel("time (samples)")
    if path is not None:
        save_figure(figure, path, dpi=150)
    return figure
