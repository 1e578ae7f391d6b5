"""matplotlib, where it is installed."""

from __future__ import annotations

from typing import Any


def load_pyplot() -> Any:
    """Return ``matplotlib.pyplot`` for drawing to files; without matplotlib an error says how to get it."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'stepwell[plot]'") from error
    matplotlib.use("Agg", force=False)
    from matplotlib import pyplot

    return pyplot
