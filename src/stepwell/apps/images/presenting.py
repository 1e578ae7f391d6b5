"""What results of applications can do for a person: become a plain dict, show themselves in a notebook, be drawn."""

from __future__ import annotations

import dataclasses
import html
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from stepwell.apps.images.sources import open_image
from stepwell.arrays import host_copy, is_array, is_lazy
from stepwell.common.pyplot import load_pyplot, save_figure

#: Most maps that are drawn, and pixels along a side of one.
MAX_PANELS, MAX_PIXELS = 12, 600


class Told:
    """Gives a dataclass `to_dict` and a short HTML text for notebooks."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name: paths as text, arrays as NumPy arrays on the host, results as dicts."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def _repr_html_(self) -> str:
        cell = '<td style="text-align:left">'
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th>{cell}{html.escape(text)}</td></tr>"
            for name, text in _lines(self.to_dict())
        )
        return f"<table><caption>{html.escape(type(self).__name__)}</caption>{rows}</table>"


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
        if path is not None:
            save_figure(figure, path, dpi=130)
        pyplot.close(figure)  # a notebook shows what is returned, once
        return figure


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


def _plain(value: Any) -> Any:
    """Return a value without paths, devices and classes."""
    if isinstance(value, Path):
        return os.fspath(value)
    if hasattr(value, "to_dict") and not is_lazy(value):
        return value.to_dict()
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return host_copy(value) if is_array(value) and not is_lazy(value) else value


def _lines(held: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a table can show: numbers, words and short lists of them; of arrays their shape."""
    lines = []
    for name, value in held.items():
        if isinstance(value, Mapping):
            if value and all(isinstance(one, int | float) for one in value.values()):
                lines.append((name, ", ".join(f"{key} {one:.4g}" for key, one in value.items())))
        elif isinstance(value, list):
            if value and all(isinstance(one, str) for one in value):
                lines.append((name, ", ".join(value)[:400]))
        elif is_array(value):
            lines.append((name, f"{value.dtype} {tuple(value.shape)}"))
        elif value is not None:
            lines.append((name, f"{value:.4g}" if isinstance(value, float) else str(value)[:400]))
    return lines
