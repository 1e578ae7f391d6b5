"""The Delaunay mesh that is dual to a tessellation, and the Voronoi cells as polygons clipped to the domain.

The domain is the rectangle [0, width] x [0, height]. A triangle's dual vertex, where three cells meet, is the centre of
its circumscribed circle: cells come from the triangles round each site, and the triangles whose dual vertex lies in
the domain are the mesh that is dual to the clipped tessellation. It has none of the flat triangles that the convex
hull of the sites adds along the border.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.spatial import Delaunay, QhullError

from stepwell.apps.voronoi.holes import enclosed
from stepwell.apps.voronoi.polygons import Cells, clip_to_rectangle
from stepwell.arrays.checks import read_array, read_numpy, require_each, require_finite
from stepwell.common.checks import read_real, require, require_shape

#: Twice the area of a triangle over its longest edge squared below which it is flat: far above what rounding leaves of
#: three points on a line, far below anything that a tessellation makes.
_FLAT = 1e-12


@dataclass(frozen=True)
class Mesh:
    """A triangulation of sites in the plane.

    Attributes
    ----------
    sites : array, (n, 2)
        Positions x, y; y grows downwards as in an image.
    triangles : array of int32, (t, 3)
        Corners of each triangle, ordered so that ``cross(b - a, c - a) > 0``.
    """

    sites: np.ndarray
    triangles: np.ndarray

    @cached_property
    def edges(self) -> np.ndarray:
        """Every edge once, (e, 2), the lower number first."""
        return self._edges_and_uses[0]

    @cached_property
    def valence(self) -> np.ndarray:
        """The number of edges at each site."""
        return np.bincount(self.edges.ravel(), minlength=len(self.sites))

    @cached_property
    def interior(self) -> np.ndarray:
        """Whether triangles surround the site on all sides."""
        edges, uses = self._edges_and_uses
        inside = np.zeros(len(self.sites), bool)
        inside[self.triangles] = True
        inside[edges[uses == 1]] = False
        return inside

    @cached_property
    def _edges_and_uses(self) -> tuple[np.ndarray, np.ndarray]:
        pairs = np.sort(self.triangles[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1).astype(np.int64)
        keys, uses = np.unique(pairs[:, 0] * len(self.sites) + pairs[:, 1], return_counts=True)
        return np.column_stack(np.divmod(keys, max(1, len(self.sites)))), uses


def delaunay_mesh(
    sites: Any, extent: tuple[float, float] | None = (1.0, 1.0), *, density: np.ndarray | None = None
) -> Mesh:
    """Return the Delaunay mesh of sites, by default the part that is dual to the tessellation of the domain.

    Parameters
    ----------
    sites : array, (n, 2)
        Positions x, y. Of sites that coincide only one is in triangles; sites on a line have no mesh.
    extent : (width, height) or None, default (1, 1)
        Keep the triangles whose circumcentre lies in this rectangle. None keeps all of the convex hull.
    density : array, (rows, columns), optional
        Keep only the triangles whose circumcentre lies in a pixel of positive density, and those that would leave a
        hole at a white pixel: surrounded by kept ones, and not mostly over zero density. The image covers the extent.

    Returns
    -------
    Mesh

    Examples
    --------
    >>> mesh = delaunay_mesh([[0.2, 0.2], [0.8, 0.2], [0.5, 0.7]])
    >>> len(mesh.triangles), mesh.edges.tolist()
    (1, [[0, 1], [0, 2], [1, 2]])
    """
    sites = read_points("sites", sites)
    if density is not None:
        require(extent is not None, "extent", extent, "(width, height), where a density lies")
        density = np.asarray(read_numpy("density", density))
        require_shape(density.ndim == 2 and density.size > 0, "density", density, "(rows, columns)")
    if extent is not None:
        width, height = read_extent(extent)
    triangles = _triangles(sites)
    if extent is not None:
        centres = circumcentres(sites, triangles)
        inside = np.all((centres >= 0) & (centres <= (width, height)), axis=1)
        if density is not None:
            rows, columns = density.shape
            across = np.clip(centres[:, 0] * (columns / width), 0, columns - 1).astype(np.intp)
            down = np.clip(centres[:, 1] * (rows / height), 0, rows - 1).astype(np.intp)
            kept = inside & (density[down, across] > 0)
            inside = kept | enclosed(sites, triangles, kept, ~inside, density, (width, height))
        triangles = triangles[inside]
    return Mesh(sites, triangles)


def voronoi_cells(sites: Any, extent: tuple[float, float] = (1.0, 1.0)) -> Cells:
    """Return the Voronoi cells of sites, clipped to the rectangle [0, width] x [0, height].

    Parameters
    ----------
    sites : array, (n, 2)
        Positions x, y in the rectangle. Of sites that coincide one has the cell, the others have empty ones.
    extent : (width, height), default (1, 1)

    Returns
    -------
    Cells
        One convex polygon a site; their areas sum to width times height.

    Examples
    --------
    >>> cells = voronoi_cells([[0.25, 0.5], [0.75, 0.5]])
    >>> cells.areas.tolist(), sorted(cells.polygon(0).tolist())
    ([0.5, 0.5], [[0.0, 0.0], [0.0, 1.0], [0.5, 0.0], [0.5, 1.0]])
    """
    sites = read_points("sites", sites)
    width, height = read_extent(extent)
    # Sides such as 3/5 and 3 (1/5) differ in the last place, and sites lie on the border of either.
    inside = (sites >= 0) & (sites <= np.nextafter((width, height), np.inf))
    require_each(inside, "sites", sites, f"x and y in [0, {width:g}] x [0, {height:g}]")
    n = len(sites)
    if not n:
        return Cells(np.zeros((0, 2)), np.zeros(1, np.intp))
    # Four sites so far away that they own nothing of the domain make every cell bounded and the triangulation never
    # flat; and since no empty circle can hold them, no dual vertex is much farther than they are.
    far = 4.0 * (width + height) * np.array([[-1.0, -0.9], [1.1, -1.0], [0.9, 1.1], [-1.1, 1.0]])
    far += np.array([width, height]) / 2
    everywhere = np.concatenate([sites, far])
    triangles = _triangles(everywhere)
    owner = triangles.ravel()
    corner = np.repeat(np.arange(len(triangles)), 3)[owner < n]
    owner = owner[owner < n]
    # The fan of triangles round a site, in order, by the direction of their centres of gravity: unlike that of the dual
    # vertices it is well defined where more than three cells meet.
    toward = everywhere[triangles].mean(axis=1)[corner] - sites[owner]
    order = np.lexsort((np.arctan2(toward[:, 1], toward[:, 0]), owner))
    vertices = circumcentres(everywhere, triangles)[corner[order]]
    starts = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=n))])
    return clip_to_rectangle(Cells(vertices, starts), width, height)


def circumcentres(sites: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """Return the centre of the circle through the corners of each triangle, (t, 2).

    Examples
    --------
    >>> circumcentres(np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0]]), np.array([[0, 1, 2]])).tolist()
    [[1.0, 2.0]]
    """
    a, b, c = (sites[triangles[:, k]] for k in range(3))
    p, q = b - a, c - a
    pp, qq = np.sum(p * p, axis=1), np.sum(q * q, axis=1)
    twice = 2 * (p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0])
    offset = np.column_stack([q[:, 1] * pp - p[:, 1] * qq, p[:, 0] * qq - q[:, 0] * pp])
    centres: np.ndarray = a + offset / twice[:, None]
    return centres


def read_points(argument: str, points: Any) -> np.ndarray:
    """Return points as a float64 array (n, 2) of finite numbers, or say what is wrong with them.

    Examples
    --------
    >>> read_points("sites", [[1, 2]])
    array([[1., 2.]])
    """
    array = np.asarray(read_numpy(argument, points), dtype=np.float64)
    require_shape(array.ndim == 2 and array.shape[1] == 2, argument, array, "(n, 2), x and y of each")
    require_finite(argument, array)
    return array


def read_extent(extent: Any, *, flat: bool = False) -> tuple[float, float]:
    """Return width and height of a domain as positive numbers, or say what is wrong with them; `flat`: zero is fine.

    Examples
    --------
    >>> read_extent([1, 2])
    (1.0, 2.0)
    """
    sides = read_array("extent", extent, "(width, height)")
    require_shape(tuple(sides.shape) == (2,), "extent", sides, "(width, height)")
    least, above = (0, None) if flat else (None, 0)
    width, height = (read_real(f"extent[{k}]", side, at_least=least, above=above) for k, side in enumerate(extent))
    return width, height


def _triangles(sites: np.ndarray) -> np.ndarray:
    """All Delaunay triangles that are not flat, with positive area."""
    none = np.zeros((0, 3), np.int32)
    if len(sites) < 3:
        return none
    try:
        triangles: np.ndarray = Delaunay(sites).simplices
    except QhullError:  # all sites on one line, or in one place
        return none
    a, b, c = (sites[triangles[:, k]] for k in range(3))
    p, q, r = b - a, c - a, c - b
    twice = p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]
    longest = np.max([np.sum(e * e, axis=1) for e in (p, q, r)], axis=0)
    turned: np.ndarray = np.where((twice < 0)[:, None], triangles[:, [0, 2, 1]], triangles).astype(np.int32)
    kept: np.ndarray = turned[np.abs(twice) > _FLAT * longest]
    return kept
