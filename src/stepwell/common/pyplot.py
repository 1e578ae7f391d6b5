"""matplotlib, where it is installed."""

from __future__ import annotations

import importlib
import importlib.util
import os
from typing import Any

from stepwell.common.files import replacing

#: What matplotlib writes without further software.
FORMATS = ("png", "pdf", "svg")


def has_matplotlib() -> bool:
    """Whether pictures can be drawn: matplotlib is there, and can be imported."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    try:
        importlib.import_module("matplotlib")
    except ImportError:  # it is there, but broken
        return False
    return True


def load_pyplot() -> Any:
    """Return ``matplotlib.pyplot`` for drawing to files; without matplotlib an error says how to get it."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'stepwell[plot]'") from error
    matplotlib.use("Agg", force=False)
    from matplotlib import pyplot

    return pyplot


def save_figure(figure: Any, path: str | os.PathLike[str], **look: Any) -> None:
    """Write a figure in the format of the name's ending; without one matplotlib's default is added, as it does."""
    name = os.fspath(path)
    ending = os.path.splitext(name)[1][1:].lower()
    if not ending:
        ending = figure.canvas.get_default_filetype()
        name = f"{name.rstrip('.')}.{ending}"
    with replacing(name) as file:
        figure.savefig(file, format=ending, **look)


def finish_figure(figure: Any, path: str | os.PathLike[str] | None, **look: Any) -> Any:
    """Write a figure where there is a path, and return it closed: a notebook shows what is returned, once."""
    if path is not None:
        save_figure(figure, path, **look)
    load_pyplot().close(figure)
    return figure
