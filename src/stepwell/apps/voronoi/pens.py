"""The pens of a drawing: few colours that stand for many."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from stepwell.arrays.checks import read_numpy
from stepwell.common.checks import require_shape

#: Most colours of a drawing; more are gathered round so many.
PENS = 64


def paints(argument: str, colours: Any, ink: str, count: int) -> tuple[np.ndarray, list[str]]:
    """Return the number of each element's colour, and the names of all; without colours all are of the one ink.

    Examples
    --------
    >>> paints("fills", np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]), "black", 3)
    (array([1, 0, 1]), ['#0000ff', '#ff0000'])
    """
    if colours is None:
        return np.zeros(count, np.int64), [ink]
    colours = np.asarray(read_numpy(argument, colours))
    require_shape(colours.shape == (count, 3), argument, colours, (count, 3))
    whole = np.rint(np.clip(colours, 0, 1) * 255).astype(np.int64)
    codes, paint = np.unique(whole @ np.array([65536, 256, 1]), return_inverse=True)
    distinct = np.column_stack([codes >> 16, (codes >> 8) & 255, codes & 255]).astype(np.float64)
    if len(distinct) > PENS:
        centres, nearest = _gathered(distinct, np.bincount(paint))
        distinct, paint = centres, nearest[paint]
    names = [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in np.rint(distinct).astype(int).tolist()]
    return paint, names


def _gathered(colours: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return PENS colours that stand for many, and the number of the nearest for each: Lloyd's iteration once more."""
    # The start is spread by brightness, as many dots to each.
    order = np.argsort(colours @ np.array([0.2126, 0.7152, 0.0722]), kind="stable")
    shares = (np.cumsum(counts[order]) - 0.5 * counts[order]) / counts.sum()
    centres = colours[order[np.searchsorted(shares, (np.arange(PENS) + 0.5) / PENS).clip(max=len(order) - 1)]]
    for _ in range(12):
        nearest = cKDTree(centres).query(colours)[1]
        weight = np.bincount(nearest, counts, minlength=PENS)
        sums = np.column_stack([np.bincount(nearest, counts * colours[:, k], minlength=PENS) for k in range(3)])
        centres = np.where(weight[:, None] > 0, sums / np.maximum(weight, 1)[:, None], centres)
    return centres, nearest
