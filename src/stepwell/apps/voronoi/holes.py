"""Triangles that a mesh needs although their dual vertex lies where the density is zero: else it has holes there."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

#: Share of a hole's area over positive density from which on it is no hole of the domain.
COVERED = 0.25
#: Points of a triangle that are looked at, along each side.
_POINTS = 8


def enclosed(
    sites: np.ndarray,
    triangles: np.ndarray,
    kept: np.ndarray,
    outside: np.ndarray,
    density: np.ndarray,
    extent: tuple[float, float],
) -> np.ndarray:
    """Return which triangles are left out, but surrounded by kept ones and mostly not where the density is zero.

    A picture has white pixels here and there, on which the centre of a circumscribed circle may fall by chance. A ring
    has a white middle: triangles that span it lie over zero density, and stay out.

    Parameters
    ----------
    sites, triangles
        The whole triangulation.
    kept, outside : bool arrays, (triangles,)
        Triangles of the mesh, and those beyond the domain.
    density : array, (rows, columns)
    extent : (width, height)
    """
    count = len(triangles)
    left_out = ~kept & ~outside
    found = np.zeros(count, dtype=bool)
    if not left_out.any():
        return found
    pairs = np.sort(triangles[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1).astype(np.int64)
    owner = np.repeat(np.arange(count), 3)
    keys = pairs[:, 0] * len(sites) + pairs[:, 1]
    order = np.argsort(keys, kind="stable")
    same = keys[order][1:] == keys[order][:-1]
    a, b = owner[order][:-1][same], owner[order][1:][same]
    inner = left_out[a] & left_out[b]
    graph = sp.coo_matrix((np.ones(inner.sum()), (a[inner], b[inner])), (count, count))
    _, part = connected_components(graph, directed=False)
    # A part that reaches the hull, or a triangle beyond the domain, is no hole.
    uses = np.zeros(count, dtype=int)
    np.add.at(uses, a, 1)
    np.add.at(uses, b, 1)
    open_ = left_out & (uses < 3)
    open_[a[left_out[a] & outside[b]]] = True
    open_[b[left_out[b] & outside[a]]] = True
    closed = left_out & ~np.isin(part, np.unique(part[open_]))
    chosen = np.flatnonzero(closed)
    if not chosen.size:
        return found
    covered, area = _covered(sites[triangles[chosen]], density, extent)
    whole = np.bincount(part[chosen], area, minlength=part.max() + 1)
    over = np.bincount(part[chosen], area * covered, minlength=part.max() + 1)
    good = over >= COVERED * whole
    found[chosen] = good[part[chosen]]
    return found


def _covered(corners: np.ndarray, density: np.ndarray, extent: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of each triangle over positive density, by a grid of points, and its area."""
    i, j = np.meshgrid(np.arange(_POINTS), np.arange(_POINTS), indexing="ij")
    inside = i + j < _POINTS
    u, v = (i[inside] + 1 / 3) / _POINTS, (j[inside] + 1 / 3) / _POINTS
    points = np.einsum("kp,tkc->tpc", np.stack([1 - u - v, u, v]), corners)
    rows, columns = density.shape
    across = np.clip(points[..., 0] * (columns / extent[0]), 0, columns - 1).astype(np.intp)
    down = np.clip(points[..., 1] * (rows / extent[1]), 0, rows - 1).astype(np.intp)
    p, q = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    area = 0.5 * np.abs(p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0])
    return (density[down, across] > 0).mean(axis=1), area
