"""Weights of differences and masks of pixels as a caller gives them."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwell.arrays import Array, copy_to_device_of, to_host
from stepwell.arrays.checks import read_array, require_each
from stepwell.common.checks import require, require_shape
from stepwell.krylov.tv.shrinking import Widths
from stepwell.krylov.tv.task import Grid

#: Regions of pixels, between which no difference counts, at most: A is applied to each.
MAX_REGIONS = 32


def read_widths(weights: Any, mask: Any, grid: Grid, anisotropic: bool) -> Widths | None:
    """Read weights and a mask, as arrays on the host; None where all differences count alike."""
    if weights is None and mask is None:
        return None
    name, given = ("weights", weights) if weights is not None else ("mask", mask)
    require(not grid.across, name, given, "None with across")
    axes, shape = len(grid.shape), grid.shape
    values, inside = np.ones((1, *shape)), np.ones(shape, dtype=bool)
    if weights is not None:
        host = to_host(read_array("weights", weights)).astype(np.float64)
        each = (axes, *shape)
        allowed = f"{shape}, one per pixel" + (f", or {each}, one per difference" if anisotropic else "")
        require_shape(host.shape == shape or (anisotropic and host.shape == each), "weights", host, allowed)
        require_each(np.isfinite(host) & (host >= 0), "weights", host, "finite numbers of at least 0")
        require(bool(host.any()), "weights", weights, "at least one number above 0")
        values = host.reshape((-1, *shape))
    if mask is not None:
        host = to_host(read_array("mask", mask))
        require_shape(host.shape in (shape, (grid.pixels,)), "mask", host, shape)
        require_each((host == 0) | (host == 1), "mask", host, "True, False, 1 and 0")
        inside = host.reshape(shape) == 1
        require(bool(inside.any()), "mask", mask, "at least one pixel inside")
    usable = np.zeros((axes, *shape), dtype=bool)
    for axis in range(axes):
        low: list[Any] = [slice(None)] * axes
        high = list(low)
        low[axis], high[axis] = slice(None, -1), slice(1, None)
        usable[(axis, *low)] = inside[tuple(low)] & inside[tuple(high)]
    usable &= values > 0
    regions, count = _regions(usable, inside)
    allowed = f"weights and masks that leave at most {MAX_REGIONS} regions, between which no difference counts"
    require(count <= MAX_REGIONS, name, given, f"{allowed}; here are {count}")
    return Widths(values[:, None], usable[:, None], regions)


def _regions(usable: np.ndarray, inside: np.ndarray) -> tuple[np.ndarray, int]:
    """Number the regions of pixels that usable differences connect; -1 outside."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    index = np.arange(inside.size).reshape(inside.shape)
    starts, ends = [], []
    for axis in range(inside.ndim):
        here = np.flatnonzero(usable[axis].ravel())
        starts.append(here)
        ends.append(here + (index.strides[axis] // index.itemsize))
    one, other = np.concatenate(starts), np.concatenate(ends)
    graph = coo_matrix((np.ones(one.size), (one, other)), shape=(inside.size,) * 2)
    _, labels = connected_components(graph, directed=False)
    names, found = np.unique(labels[inside.ravel()], return_inverse=True)
    regions = np.full(inside.size, -1, dtype=np.int64)
    regions[inside.ravel()] = found
    return regions.reshape(inside.shape), int(names.size)


def zero_outside(
    widths: Widths | None, lower: Array | None, upper: Array | None, like: Array
) -> tuple[Array | None, Array | None]:
    """Return bounds that hold pixels outside the mask at zero."""
    assert widths is not None
    outside = (widths.regions < 0)[None]
    if not outside.any():
        return lower, upper
    found = []
    for side, none in ((lower, -np.inf), (upper, np.inf)):
        host = np.asarray(none) if side is None else to_host(side)
        found.append(copy_to_device_of(np.ascontiguousarray(np.where(outside, 0.0, host)), like))
    return found[0], found[1]
