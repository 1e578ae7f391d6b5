"""How the result of a mapped image is drawn, from the files that it wrote."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from stepwell.apps.images.sources import open_image
from stepwell.arrays.presenting import Told
from stepwell.common.pyplot import finish_figure, load_pyplot

#: Most maps that are drawn, and pixels along a side of one.
MAX_PANELS, MAX_PIXELS = 12, 600


class Mapped(Told):
    """Gives the result of a mapped image `plot`; `files` holds its maps by name, or a cube and `names` its bands."""

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw the middle slice of the maps, or the abundances; needs matplotlib.

        Parameters
        ----------
        path : path, optional
            Where to save the picture.

        Returns
        -------
        matplotlib.figure.Figure
        """
        pyplot = load_pyplot()
        pictures = dict(list(_pictures(self).items())[:MAX_PANELS])
        across = min(4, max(1, len(pictures)))
        down = max(1, -(-len(pictures) // across))
        figure, axes = pyplot.subplots(
            down, across, figsize=(3.2 * across, 2.9 * down), squeeze=False, layout="constrained"
        )
        for axis in axes.flat:
            axis.set_axis_off()
        for axis, (name, picture) in zip(axes.flat, pictures.items()):
            known = picture[np.isfinite(picture)]
            low, high = (float(end) for end in np.percentile(known, [1, 99])) if known.size else (0.0, 1.0)
            if high - low <= 1e-6 * abs(high):  # one number everywhere
                low, high = low - 0.5 * abs(low) - 1e-12, high + 0.5 * abs(high) + 1e-12
            shown = axis.imshow(picture, vmin=low, vmax=high, interpolation="nearest")
            axis.set_title(name[:30], fontsize=10)
            figure.colorbar(shown, ax=axis, shrink=0.8, pad=0.02)
        return finish_figure(figure, path, dpi=130)


def _pictures(run: Any) -> dict[str, np.ndarray]:
    """Return the pictures of a run by name, as they lie on the disk."""
    if isinstance(run.files, Mapping):
        found = {}
        for name, file in run.files.items():
            opened = open_image(file, channels=False)
            if len(opened.shape) == 3:
                middle = opened.shape[2] // 2
                found[name] = np.rot90(_thinned(opened.read(middle, middle + 1, 2)[:, :, 0]))
        return found
    cube = open_image(run.files[0])
    stride = max(1, -(-max(cube.shape[:2]) // MAX_PIXELS))
    lines = np.concatenate([cube.read(line, line + 1, 0) for line in range(0, cube.shape[0], stride)])
    return {name: lines[:, ::stride, place] for place, name in enumerate(run.names)}


def _thinned(picture: np.ndarray) -> np.ndarray:
    stride = max(1, -(-max(picture.shape) // MAX_PIXELS))
    return picture[::stride, ::stride]
