"""Many convex polygons in one array: areas, centroids, second moments, and clipping to a rectangle."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Cells:
    """Convex polygons, stored one after the other.

    Attributes
    ----------
    vertices : array, (v, 2)
        Corners of all polygons, each polygon's in order (counterclockwise where y grows upwards).
    starts : array of int, (n + 1,)
        Polygon i has the corners ``vertices[starts[i] : starts[i + 1]]``; none if its cell is empty.

    Examples
    --------
    >>> square = Cells(np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 2.0], [0.0, 2.0]]), np.array([0, 4]))
    >>> square.areas.tolist(), square.centroids.tolist()
    ([4.0], [[1.0, 1.0]])
    """

    vertices: np.ndarray
    starts: np.ndarray

    def __len__(self) -> int:
        return len(self.starts) - 1

    def polygon(self, index: int) -> np.ndarray:
        """Return the corners of one polygon, (k, 2)."""
        return self.vertices[self.starts[index] : self.starts[index + 1]]

    @cached_property
    def owner(self) -> np.ndarray:
        """The polygon that each vertex belongs to."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    @cached_property
    def following(self) -> np.ndarray:
        """The number of the vertex after each one, round its polygon."""
        after = np.arange(1, len(self.vertices) + 1)
        filled = np.diff(self.starts) > 0
        after[self.starts[1:][filled] - 1] = self.starts[:-1][filled]
        return after

    @cached_property
    def areas(self) -> np.ndarray:
        """The area of each polygon."""
        return self._total(self._fan[0])

    @cached_property
    def centroids(self) -> np.ndarray:
        """The centre of gravity of each polygon, (n, 2); nan where it is empty."""
        twice, p, q = self._fan
        with np.errstate(invalid="ignore", divide="ignore"):
            offset = [self._total(twice * (p[:, k] + q[:, k]) / 3) / self.areas for k in range(2)]
        centres: np.ndarray = self._anchor + np.column_stack(offset)
        return centres

    def second_moments(self, about: np.ndarray) -> np.ndarray:
        """Return the integral of ‖x - about‖² over each polygon: with sites, the cells' parts of the CVT energy.

        Parameters
        ----------
        about : array, (n, 2)

        Returns
        -------
        array, (n,)
        """
        half, p, q = self._fan
        # Over the triangle with corners 0, p, q: the integral of |x|² is (|p|² + |q|² + p.q) area / 6.
        square = np.sum(p * p, axis=1) + np.sum(q * q, axis=1) + np.sum(p * q, axis=1)
        own = self._total(half * square / 6)
        away = self._anchor - about
        first = [self._total(half * (p[:, k] + q[:, k]) / 3) for k in range(2)]
        moments: np.ndarray = own + np.sum(away * (2 * np.column_stack(first) + away * self.areas[:, None]), axis=1)
        return moments

    @cached_property
    def _anchor(self) -> np.ndarray:
        """The first vertex of each polygon: sums taken from there keep their digits however small a polygon is."""
        filled = np.diff(self.starts) > 0
        anchor = np.full((len(self), 2), np.nan)
        anchor[filled] = self.vertices[self.starts[:-1][filled]]
        return anchor

    @cached_property
    def _fan(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Areas of the triangles anchor, vertex, next vertex, and both of these from the anchor."""
        p = self.vertices - self._anchor[self.owner]
        q = p[self.following]
        return 0.5 * (p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]), p, q

    def _total(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.owner, values, minlength=len(self))


def clip_to_rectangle(cells: Cells, width: float, height: float) -> Cells:
    """Return the parts of the polygons in [0, width] x [0, height].

    Examples
    --------
    >>> wide = Cells(np.array([[-1.0, 0.2], [3.0, 0.2], [3.0, 0.5], [-1.0, 0.5]]), np.array([0, 4]))
    >>> float(clip_to_rectangle(wide, 1.0, 1.0).areas[0])
    0.3
    """
    for axis, limit, sign in ((0, 0.0, 1.0), (0, width, -1.0), (1, 0.0, 1.0), (1, height, -1.0)):
        cells = _clip(cells, axis, limit, sign)
    return cells


def _clip(cells: Cells, axis: int, limit: float, sign: float) -> Cells:
    """Keep what lies on one side of a line: Sutherland and Hodgman's (1974) step on all polygons at once."""
    depth = sign * (cells.vertices[:, axis] - limit)
    inside = depth >= 0
    if inside.all():
        return cells
    after = cells.following
    crosses = inside != inside[after]
    # Both neighbours of an edge compute its crossing from the same end, so that their corners agree to the last bit.
    here = np.flatnonzero(crosses)
    there = after[here]
    first, second = np.where(inside[here], (here, there), (there, here))
    share = depth[first] / (depth[first] - depth[second])
    crossing = cells.vertices[first] + share[:, None] * (cells.vertices[second] - cells.vertices[first])
    crossing[:, axis] = limit
    # A vertex leaves itself, if it is inside, then the crossing of the edge that starts there.
    count = inside.astype(np.intp) + crosses
    place = np.cumsum(count) - count
    vertices = np.empty((int(count.sum()), 2))
    vertices[place[inside]] = cells.vertices[inside]
    vertices[(place + inside)[crosses]] = crossing
    return Cells(vertices, np.concatenate([[0], np.cumsum(count)])[cells.starts])
