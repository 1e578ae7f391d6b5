"""Means of maps by region of a label image."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from stepwell.apps.images.sources import Image
from stepwell.common.files import Unreadable

#: Most regions that a label image may have: with more it is no such image.
MOST = 10_000
#: The table of means.
REGIONS = "regions.csv"


def region_table(
    arrays: Mapping[str, np.ndarray], labels: Image, axis: int, converged: Callable[[np.ndarray], np.ndarray]
) -> dict[str, np.ndarray]:
    """Return, by column, label and number of voxels, then mean and standard deviation of each map there.

    Parameters
    ----------
    arrays : dict of arrays
        The maps, ``status`` among them: only voxels that converged count. Whole numbers, and maps with channels, have
        no mean.
    labels : Image
        Whole numbers in the maps' space; 0 is no region.
    axis : int
        Along which slabs are read.
    converged : callable
        Whether voxels converged, from their statuses.
    """
    names = averaged(arrays, len(labels.shape))
    sums: dict[int, np.ndarray] = {}
    for slab in range(labels.shape[axis]):
        marks = np.take(labels.read(slab, slab + 1, axis), 0, axis=axis)
        good = converged(np.take(arrays["status"], slab, axis=axis)) & (marks != 0)
        values = np.stack([np.take(arrays[name], slab, axis=axis)[good].astype(float) for name in names])
        for label in np.unique(marks[good]).astype(int).tolist():
            mine = values[:, marks[good] == label]
            known = np.isfinite(mine)
            filled = np.where(known, mine, 0.0)
            counts = np.full(len(names), mine.shape[1])
            found = np.stack([counts, known.sum(axis=1), filled.sum(axis=1), (filled**2).sum(axis=1)])
            sums[label] = sums.get(label, 0.0) + found
        if len(sums) > MOST:
            raise Unreadable(f"{labels.path}: has more than {MOST} regions; allowed: a label image")
    order = sorted(sums)
    table = {"label": np.array(order, dtype=int), "voxels": np.array([int(sums[one][0, 0]) for one in order])}
    for place, name in enumerate(names):
        count, total, squares = (np.array([sums[one][row, place] for one in order]) for row in (1, 2, 3))
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = total / count
            spread = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
        table |= {f"{name}_mean": mean, f"{name}_std": spread}
    return table


def require_labels(labels: Image, axis: int) -> None:
    """Raise, before any work, for an image that does not hold whole numbers."""
    for slab in range(labels.shape[axis]):
        marks = labels.read(slab, slab + 1, axis)
        if not np.array_equal(marks, np.round(marks)):
            raise Unreadable(f"{labels.path}: holds numbers that are not whole; allowed: a label image")


def averaged(arrays: Mapping[str, np.ndarray], axes: int) -> list[str]:
    """Return the maps that have a mean: those of real numbers, one per voxel."""
    return [name for name, array in arrays.items() if array.dtype.kind == "f" and array.ndim == axes]
