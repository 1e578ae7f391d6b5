"""Pictures of deconvolved lidar shots."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from stepwell.common.pyplot import save_figure
from stepwell.lsq import NNLSStatus


def plot_shots(
    done: Any,
    path: str | os.PathLike[str] | None = None,
    shots: Sequence[int] | None = None,
    least: float | np.ndarray = 0.0,
    *,
    labels: Sequence[str] | None = None,
) -> Any:
    """Plot waveforms, fits and recovered returns of a few shots.

    Parameters
    ----------
    done : Deconvolution
    path : path, optional
        Where to save the picture.
    shots : sequence of int, optional
        Which shots; by default the first four.
    least : float or array
        Smallest amplitude that counts as a return, one for all or one a shot.
    labels : sequence of str, optional
        What each shot of `done` is called; by default its number.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.figure import Figure

    chosen = list(range(min(4, 0 if done is None else len(done.shots)))) if shots is None else list(shots)
    if done is None or not chosen:
        raise ValueError("there is no shot to plot")
    levels = np.broadcast_to(np.asarray(least, dtype=float), len(done.shots))
    figure = Figure(figsize=(10, 2.6 * len(chosen)), layout="constrained")
    rows = figure.subplots(len(chosen), 1, squeeze=False)[:, 0]
    named: dict[str, Any] = {}
    for axes, shot in zip(rows, chosen):
        label = f"shot {shot}" if labels is None else labels[shot]
        drawn = _plot_shot(axes, done, shot, float(levels[shot]), label)
        named |= {str(handle.get_label()): handle for handle in drawn}
    handles = list(named.values())
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles), fontsize=9, frameon=False)
    rows[-1].set_xlabel("time (samples)")
    if path is not None:
        save_figure(figure, path, dpi=150)
    return figure


def _plot_shot(axes: Any, done: Any, shot: int, least: float, label: str) -> list[Any]:
    """Draw one shot; return what a legend should name."""
    waveform, fit = done.shots.waveforms[shot], done.fit[shot]
    axes.plot(waveform, color="0.65", linewidth=2.5, label="received")
    status = NNLSStatus(int(np.asarray(done.result.status)[shot]))
    if status is NNLSStatus.CONVERGED:
        axes.plot(fit, color="C0", linewidth=1.2, label="fit")
    axes.set_ylabel("signal")
    axes.margins(x=0.01)
    times, sizes = done.returns(shot, least)
    other = axes.twinx()
    if done.shots.truth is not None:
        where = np.flatnonzero(done.shots.truth[shot])
        other.plot(where, done.shots.truth[shot, where], "k+", markersize=7, label="truth")
    if len(times):
        marks = other.stem(times, sizes, linefmt="C3-", markerfmt="C3.", basefmt=" ", label="returns")
        marks.stemlines.set_linewidth(1.0)
    other.set_ylim(bottom=0)
    other.set_ylabel("amplitude")
    residual = float(np.asarray(done.result.residual)[shot])
    handles = [*axes.get_legend_handles_labels()[0], *other.get_legend_handles_labels()[0]]
    found = f"{len(times)} returns, ‖b − Ax‖ = {residual:.4g}"
    axes.set_title(f"{label}: {found if status is NNLSStatus.CONVERGED else status.message}", fontsize=10)
    return handles
