"""A picture of one fit: data, curve, residuals."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwell.arrays import host_copy
from stepwell.common.pyplot import load_pyplot


def plot_fit(result: Any, index: int | tuple[int, ...], ax: Any) -> Any:
    """Draw one fit of a result into `ax`, or into axes of its own."""
    if result._picture is None:
        raise ValueError("there is nothing to draw; allowed: a result of curve_fit")
    x, y, sigma, values = result._picture(index)
    axes = load_pyplot().subplots()[1] if ax is None else ax
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
    return axes
