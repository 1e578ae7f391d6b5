"""A picture of one fit: data, curve, residuals."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from stepwell.arrays import host_copy
from stepwell.common.pyplot import load_pyplot, save_figure


def plot_fit(result: Any, index: int | tuple[int, ...], ax: Any, path: str | os.PathLike[str] | None = None) -> Any:
    """Draw one fit of a result into `ax`, or into axes of its own; save the picture where `path` says."""
    if index == ():
        index = (0,) * (np.ndim(host_copy(result.x)) - 1)  # of a batch, the first
    x, y, sigma, values = result._picture(index)
    pyplot = load_pyplot()
    axes = pyplot.subplots()[1] if ax is None else ax
    plain = np.ndim(x) == 1 and np.shape(x) == np.shape(y)
    abscissa = np.asarray(x, float) if plain else np.arange(len(y))
    order = np.argsort(abscissa, kind="stable")
    axes.errorbar(abscissa, y, yerr=sigma, fmt=".", color="0.5", label="data", zorder=1)
    axes.plot(abscissa[order], values[order], color="C0", label="fit", zorder=2)
    names = result.names or tuple(f"x{j}" for j in range(result.x.shape[-1]))
    found = np.asarray(host_copy(result.x))[index]
    errors = None if result.stderr is None else np.asarray(host_copy(result.stderr))[index]
    said = [
        f"{name} = {value:.4g}" + ("" if errors is None else f" ± {errors[j]:.2g}")
        for j, (name, value) in enumerate(zip(names, found))
    ]
    axes.set_title(", ".join(said), fontsize="small")
    axes.set_xlabel("x" if plain else "point")
    axes.legend()
    if path is not None:
        save_figure(axes.figure, path, dpi=130)
    if ax is None:
        pyplot.close(axes.figure)  # a notebook shows what is returned, once
    return axes.figure
