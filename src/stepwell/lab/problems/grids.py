"""What the problems on a rectangular grid share: spacings, the distance to the edge, strips of rows, borders.

The nodes (i, j), 1 <= i <= nx, 1 <= j <= ny, are numbered k = (j - 1) nx + i: a vector of n = nx ny
values is an array of shape (ny, nx). Each cell of the grid is two triangles, and the functions are sums over
triangles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np

from stepwell.arrays import Array
from stepwell.lab.problems.problem import PIECE

MINPACK2 = (
    "B. M. Averick, R. G. Carter, J. J. Moré and G.-L. Xue, The MINPACK-2 test problem collection, "
    "Argonne National Laboratory, preprint MCS-P153-0692 (1992)"
)


@dataclass(frozen=True)
class Grid:
    """Interior nodes nx by ny of a rectangle of the given width and height."""

    nx: int
    ny: int
    width: float = 1.0
    height: float = 1.0

    @property
    def hx(self) -> float:
        """Spacing of the columns."""
        return self.width / (self.nx + 1)

    @property
    def hy(self) -> float:
        """Spacing of the rows."""
        return self.height / (self.ny + 1)

    def distance(self) -> np.ndarray:
        """Distance of each node to the nearest edge, as a vector of n."""
        i, j = np.arange(1, self.nx + 1), np.arange(1, self.ny + 1)
        across = np.minimum(i, self.nx + 1 - i) * self.hx
        along = np.minimum(j, self.ny + 1 - j) * self.hy
        return np.minimum(across, along[:, None]).reshape(-1)

    def strips(self, xp: Any) -> Iterator[tuple[int, int]]:
        """Ranges of rows to work on at a time: all of them, for NumPy as many as stay in the cache."""
        rows = max(1, PIECE // self.nx) if xp is numpy_namespace else self.ny
        if self.ny < 2 * rows:
            rows = self.ny
        for first in range(0, self.ny, rows):
            yield first, min(first + rows, self.ny)


def rows_with_neighbours(xp: Any, v: Array, low: Array, high: Array, first: int, last: int) -> Array:
    """Return rows first - 1 to last of v (..., ny, nx), borders (1, nx) `low` and `high` beyond its ends."""
    inner = v[..., max(first - 1, 0) : last + 1, :]
    parts = [inner]
    if first == 0:
        parts.insert(0, _like_batch(xp, low, v))
    if last == v.shape[-2]:
        parts.append(_like_batch(xp, high, v))
    return xp.concat(parts, axis=-2) if len(parts) > 1 else inner


def columns_with_neighbours(xp: Any, v: Array, left: Array, right: Array) -> Array:
    """Return v (..., rows, nx) between the border columns (rows, 1) `left` and `right`."""
    return xp.concat([_like_batch(xp, left, v), v, _like_batch(xp, right, v)], axis=-1)


def total(xp: Any, terms: Array) -> Array:
    """Sum over the two grid axes, in an order that does not depend on the batch."""
    return xp.sum(xp.reshape(terms, (*terms.shape[:-2], terms.shape[-2] * terms.shape[-1])), axis=-1)


def zero_border(grid: Grid) -> Mapping[str, np.ndarray]:
    """Tables ``row`` (1, nx) and ``column`` (ny, 1) of a border at zero."""
    return {"row": np.zeros((1, grid.nx)), "column": np.zeros((grid.ny, 1))}


def _like_batch(xp: Any, border: Array, v: Array) -> Array:
    return xp.broadcast_to(border, (*v.shape[:-2], *border.shape)) if v.ndim > 2 else border
