"""The picture of a run: f, the projected gradient and the step length over the iterations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.common.pyplot import save_figure
from stepwell.lab.solve.history import Iteration

_BLUE, _ORANGE, _GREEN, _GREY = "#1f5a96", "#c8571b", "#2f7d4f", "#6b7280"
#: Beyond this many iterations markers would merge into a band.
_MARKED = 80


def plot_convergence(
    iterations: Sequence[Iteration],
    path: str | Path,
    *,
    title: str = "",
    subtitle: str = "",
    minimum: float | None = None,
    gtol: float | None = None,
) -> None:
    """Draw a run and save the picture; needs matplotlib.

    Parameters
    ----------
    iterations : sequence of Iteration
        From `History`; the first is the start.
    path : str or Path
        File to write; its ending names the format: png, pdf or svg.
    title, subtitle : str
        What was solved; how it ended.
    minimum : float, optional
        The smallest value of f, where it is known. Without it, f is measured from the lowest value of the run.
    gtol : float, optional
        The tolerance on the projected gradient, drawn as a line where positive.

    Examples
    --------
    >>> import tempfile
    >>> rows = [Iteration(k, k + 1, 4.0**-k, 2.0**-k, 2.0**-k, 1.0 if k else None) for k in range(5)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     plot_convergence(rows, Path(folder) / "run.png", minimum=0.0)
    ...     (Path(folder) / "run.png").stat().st_size > 1000
    True
    """
    # The figure is made without pyplot: no window, no global state.
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, NullFormatter

    nit = np.array([row.nit for row in iterations])
    fun = np.array([row.fun for row in iterations])
    projected = np.array([row.projected_gradient for row in iterations])
    norm = np.array([row.gradient_norm for row in iterations])
    marker: dict[str, Any] = {"marker": "o", "markersize": 3} if len(nit) <= _MARKED else {}

    figure = Figure(figsize=(8, 7.6), layout="constrained")
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=(3, 3, 2))

    _draw_values(top, nit, fun, minimum, marker)
    _draw_logarithmic(middle, nit, norm, color=_ORANGE, alpha=0.45, linewidth=1.1, label="‖g‖, Euclidean")
    _draw_logarithmic(
        middle, nit, projected, color=_ORANGE, linewidth=1.6, label="projected g, largest element", **marker
    )
    if gtol:
        middle.axhline(gtol, color=_GREY, linewidth=1, linestyle=(0, (4, 3)), label=f"gtol = {gtol:g}")
    middle.set_ylabel("gradient")
    middle.legend(frameon=False, fontsize=8.5, loc="best")

    steps = [(row.nit, row.step) for row in iterations if row.step]
    if steps:
        at, length = np.array(steps).T
        bottom.axhline(1.0, color=_GREY, linewidth=1, linestyle=(0, (4, 3)))
        bottom.plot(at, length, linestyle="none", marker="o", markersize=3 if len(at) <= _MARKED else 2, color=_GREEN)
        bottom.set_yscale("log")
        # Whole decades, so that the ticks are powers of ten also where every step is near 1.
        bottom.set_ylim(10.0 ** np.floor(np.log10(length.min()) - 0.3), 10.0 ** np.ceil(np.log10(length.max()) + 0.3))
        bottom.yaxis.set_minor_formatter(NullFormatter())
    bottom.set_ylabel("step length")
    bottom.set_xlabel("iteration")
    bottom.xaxis.set_major_locator(MaxNLocator(integer=True))

    for axes in (top, middle, bottom):
        axes.grid(True, color="#d7dbe0", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.015)
    figure.align_ylabels()
    if title:
        figure.suptitle(title, x=0.015, ha="left", fontsize=13, fontweight="bold")
    if subtitle:
        top.set_title(subtitle, loc="left", fontsize=9.5, color="#374151", pad=8)
    save_figure(figure, path, dpi=150)


def _draw_values(axes: Any, nit: np.ndarray, fun: np.ndarray, minimum: float | None, marker: dict[str, Any]) -> None:
    lowest = np.min(fun[np.isfinite(fun)], initial=np.inf)
    reference = minimum if minimum is not None and lowest >= minimum else lowest
    gap = fun - reference
    if np.count_nonzero(gap > 0) >= 2:
        _draw_logarithmic(axes, nit, gap, color=_BLUE, linewidth=1.6, **marker)
        known = reference == minimum
        axes.set_ylabel(f"f − minimum ({reference:g})" if known else "f − lowest f of the run")
    else:
        axes.plot(nit, fun, color=_BLUE, linewidth=1.6, **marker)
        axes.set_ylabel("f")


def _draw_logarithmic(axes: Any, nit: np.ndarray, values: np.ndarray, **style: Any) -> None:
    """Draw positive values on a logarithmic scale; zeros cannot be shown there and are left out."""
    shown = np.isfinite(values) & (values > 0)
    if shown.any():
        axes.plot(nit[shown], values[shown], **style)
        axes.set_yscale("log")
