"""What every result can do for a person: draw itself, show itself in a notebook, and become a plain dict."""

from __future__ import annotations

import dataclasses
import enum
import html
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.arrays import host_copy, is_array, is_lazy, without_labels

#: A line of a result's text: a name, a colon, a value; lines without a name go on with the last value.
_FIELD = re.compile(r" *(\w+): (.*)")
#: Most right-hand sides whose convergence is drawn.
MAX_CURVES = 200


def labelled(arrays: Mapping[str, Any], coordinates: Mapping[str, Any], about: Mapping[str, Any]) -> Any:
    """Return an ``xarray.Dataset`` of arrays with their axes; without xarray the error says how to get it."""
    try:
        import xarray
    except ImportError:
        raise ImportError("maps with coordinates need xarray: pip install xarray") from None
    return xarray.Dataset(dict(arrays), dict(coordinates), dict(about))


class Told:
    """Gives a result `to_dict` and a short HTML table for notebooks."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name: arrays as NumPy arrays on the host, statuses by their names, results as dicts.

        What is not computed yet, of dask, stays as it is.
        """
        return {name: _plain(value) for name, value in _fields(self).items() if not name.startswith("_")}

    def _rows(self) -> list[tuple[str, str]]:
        """Return what the table shows: names and values."""
        return _shown(self.to_dict())

    def _repr_html_(self) -> str:
        cell = '<td style="text-align:left">'
        body = "".join(f"<tr><th>{html.escape(a)}</th>{cell}{html.escape(b)}</td></tr>" for a, b in self._rows())
        return f"<table><caption>{html.escape(type(self).__name__)}</caption>{body}</table>"


class Presented(Told):
    """Gives a result whose text is a line per field `plot` too; its table shows these lines."""

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw the solution and, where it is known, how it was reached; needs matplotlib.

        Parameters
        ----------
        path : path, optional
            Where to save the picture.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from stepwell.common.pyplot import finish_figure, load_pyplot

        pyplot = load_pyplot()
        held = _fields(self)
        histories = [np.ravel(one) for one in _listed(held.get("history")) if np.size(one)]
        panels = ["history"] * bool(histories) + ["x"]
        figure, axes = pyplot.subplots(
            1, len(panels), figsize=(5.2 * len(panels), 3.6), squeeze=False, layout="constrained"
        )
        for axis, panel in zip(axes[0], panels):
            if panel == "history":
                _plot_histories(axis, histories)
            else:
                _plot_solution(figure, axis, np.asarray(_plain(held["x"])))
        figure.suptitle(str(_words(held, self))[:100], fontsize=10)
        return finish_figure(figure, path, dpi=130)

    def _rows(self) -> list[tuple[str, str]]:
        rows: list[tuple[str, str]] = []
        for line in repr(self).splitlines()[1:]:
            found = _FIELD.fullmatch(line)
            if found:
                rows.append((found[1], found[2]))
            elif rows:
                rows[-1] = rows[-1][0], f"{rows[-1][1]} {line.strip()}"
        return rows


def _fields(result: Any) -> dict[str, Any]:
    if isinstance(result, Mapping):
        return dict(result)
    names = [field.name for field in dataclasses.fields(result)]
    return {name: getattr(result, name) for name in names}


def _words(held: Mapping[str, Any], result: Any) -> Any:
    message = held.get("message", getattr(result, "message", ""))
    return message if isinstance(message, str) else type(result).__name__


def _plain(value: Any) -> Any:
    """Return a value without labels, devices, enumerations, paths and classes."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Path):
        return os.fspath(value)
    if isinstance(value, Told):
        return value.to_dict()
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: _plain(one) for name, one in _fields(value).items()}
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    value = without_labels(value)
    if is_lazy(value) or not is_array(value):
        return value
    return host_copy(value)


def _shown(held: Mapping[str, Any]) -> list[tuple[str, str]]:
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


def _listed(history: Any) -> list[Any]:
    if history is None:
        return []
    return list(history) if isinstance(history, list | tuple) else [history]


def _plot_histories(axis: Any, histories: list[np.ndarray]) -> None:
    for history in histories[:MAX_CURVES]:
        good = np.where(np.isfinite(history) & (history > 0), history, np.nan)
        axis.semilogy(np.arange(1, len(history) + 1), good, lw=1.0, alpha=max(0.15, 1 / len(histories) ** 0.5))
    axis.set(xlabel="iteration", ylabel="residual", title="convergence")
    axis.grid(alpha=0.25, lw=0.6)


def _plot_solution(figure: Any, axis: Any, x: np.ndarray) -> None:
    x = np.squeeze(x)
    if x.ndim < 2:
        axis.plot(np.atleast_1d(x), ".-" if x.size <= 60 else "-", lw=1.0, markersize=4)
        axis.set(xlabel="index", title=f"x, {x.size} numbers")
        axis.grid(alpha=0.25, lw=0.6)
        return
    flat = x.reshape(x.shape[0], -1)
    shown = axis.imshow(flat, aspect="auto", interpolation="nearest", cmap="viridis")
    axis.set(title=f"x, shape {x.shape}")
    figure.colorbar(shown, ax=axis, pad=0.02)
