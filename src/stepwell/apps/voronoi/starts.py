"""Where sites start: spread over the image along a Hilbert curve, as densely as they will end up.

In the limit of many sites the best ones lie as densely as √ρ (Gersho 1979, in two dimensions); a start drawn from √ρ is
therefore far better than one drawn from ρ. Cut into n pieces of equal ∫√ρ, a space-filling curve gives compact pieces,
and one site in each is better spread than n independent ones.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from stepwell.apps.voronoi.assignment import shared_pixels
from stepwell.apps.voronoi.domain import Density, host_template, read_density, read_sites
from stepwell.arrays import Array, as_user_array, copy_to_device_of, host_copy, is_cuda, namespace_of
from stepwell.common.checks import read_seed, read_whole

_MOST_BLOCKS = 1024  # along a side of the grid that the curve runs through
_ROOT_BITS = 8  # after the point, of the roots of whole weights


@functools.lru_cache(maxsize=4)
def hilbert_order(rows: int, columns: int) -> np.ndarray:
    """Return the blocks of a grid, numbered row by row, in the order in which a Hilbert curve visits them.

    Examples
    --------
    >>> hilbert_order(2, 2)
    array([0, 2, 3, 1])
    """
    order = (max(rows, columns) - 1).bit_length()
    row, column = (axis.reshape(-1) for axis in np.indices((rows, columns), dtype=np.int32))
    distance = np.zeros(rows * columns, np.int64)
    mask = np.int32((1 << order) - 1)
    for level in reversed(range(order)):
        bit = np.int32(1 << level)
        right, below = (column & bit) > 0, (row & bit) > 0
        distance += (np.int64(bit) ** 2) * ((3 * right) ^ below)
        # Each quadrant holds a turned copy of the curve.
        flip, turn = right & ~below, ~below
        column, row = np.where(flip, mask - column, column), np.where(flip, mask - row, row)
        column, row = np.where(turn, row, column), np.where(turn, column, row)
    found = np.argsort(distance, kind="stable")
    found.flags.writeable = False
    return found


def draw_sites(
    count: int, density: Any = 1.0, *, resolution: Any = None, seed: int = 0, like: Array | None = None
) -> Array:
    """Draw sites as densely as the square root of a density, one from each of `count` compact pieces of the image.

    Parameters
    ----------
    count : int
        How many: no more than there are pixels of positive density.
    density : (height, width) array, or a number
        As in `centroidal`; sites come back in its library and on its device.
    resolution : int or (int, int), optional
        Pixels of a uniform density.
    seed : int
        Equal seeds give equal sites, on the CPU and on a GPU.
    like : array, optional
        With a uniform density: an array of the library and device that sites are wanted in.

    Returns
    -------
    (count, 2) array
        x and y, float64.

    Examples
    --------
    >>> draw_sites(3, 1.0, resolution=(32, 64), seed=1).shape
    (3, 2)
    """
    seed = read_seed(seed)
    sites = draw_from(read_whole("count", count, 1), read_density(density, resolution), seed, like)
    return sites if is_cuda(sites) else as_user_array(sites, host_template(density, like))


def draw_from(count: int, density: Density, seed: int, like: Array | None) -> Array:
    """Draw sites as `draw_sites` does, from a density that was read: in NumPy or on the device."""
    density.require_room(count)
    sites = _draw(count, density, np.random.default_rng(seed))
    moves = like is not None and is_cuda(like) and not is_cuda(density.weights)
    return copy_to_device_of(sites, namespace_of(like).astype(like, namespace_of(like).float64)) if moves else sites


def is_number(sites: Any) -> bool:
    """Whether sites are to be drawn, as many as this says; else it is an array, or a list, of them."""
    return isinstance(sites, np.generic) or not (hasattr(sites, "shape") or isinstance(sites, list | tuple))


def read_start(sites: Any, density: Density, like: Array | None, seed: int) -> Array:
    """Return where sites start: drawn, if `sites` says how many, else as given but with none that coincide."""
    if is_number(sites):
        return draw_from(read_whole("sites", sites, 1, other="an array (n, 2)"), density, seed, like)
    points = read_sites(sites, density.shape)
    density.require_room(int(points.shape[0]))
    return _apart(points, density, seed)


def _apart(points: Array, density: Density, seed: int) -> Array:
    """Move sites that coincide with another by up to half a pixel: nothing else could tell them apart."""
    crowded = shared_pixels(points, density.shape)
    if crowded.shape[0] == 0:
        return points
    host = host_copy(points)
    _, first = np.unique(host, axis=0, return_index=True)
    again = np.setdiff1d(np.arange(len(host)), first)
    if len(again) == 0:
        return points
    moves = np.random.default_rng(seed).uniform(-0.5, 0.5, (len(again), 2)) * density.pixel
    # What would leave the domain is mirrored at its border: held there, several would meet again in a corner.
    far = np.array(density.extent)
    host[again] = far - np.abs(far - np.abs(host[again] + moves))
    return copy_to_device_of(host, points)


def _draw(count: int, density: Density, rng: np.random.Generator) -> Array:
    xp = namespace_of(density.weights)
    height, width = density.shape
    side = -(-max(height, width) // _MOST_BLOCKS)
    rows, columns = -(-height // side), -(-width // side)
    # Roots as whole numbers: they add up alike everywhere, so that a seed means the same on every device.
    real = xp.sqrt(xp.astype(density.weights, xp.float64)) * 2**_ROOT_BITS
    roots = xp.astype(xp.round(real), xp.int64)
    roots = _widened(_widened(roots, 0, rows * side), 1, columns * side)
    blocks = xp.permute_dims(xp.reshape(roots, (rows, side, columns, side)), (0, 2, 1, 3))
    order = copy_to_device_of(hilbert_order(rows, columns).copy(), real)
    along = xp.take(xp.reshape(blocks, (rows * columns, side * side)), order, axis=0)
    sums = xp.cumulative_sum(xp.reshape(along, (-1,)))
    total = int(sums[-1])
    wanted = ((np.arange(count) + rng.random(count)) * (total / count)).astype(np.int64)
    place = first_above(sums, copy_to_device_of(np.minimum(wanted, total - 1), real))
    block = xp.take(order, place // side**2)
    inner = place % side**2
    row, column = block // columns * side + inner // side, block % columns * side + inner % side
    corner = xp.astype(xp.stack([column, row], axis=1), xp.float64)
    return (corner + copy_to_device_of(rng.random((count, 2)), real)) * density.pixel


def _widened(values: Array, axis: int, size: int) -> Array:
    """Append zeros along an axis up to a size."""
    xp = namespace_of(values)
    shape = list(values.shape)
    shape[axis] = size - shape[axis]
    if shape[axis] == 0:
        return values
    return xp.concat([values, copy_to_device_of(np.zeros(shape, np.int64), values)], axis=axis)


def first_above(sums: Array, wanted: Array) -> Array:
    """Return for each wanted number the first place at which the ascending sums exceed it.

    Examples
    --------
    >>> first_above(np.array([1, 1, 4]), np.array([0, 1, 3]))
    array([0, 2, 2])
    """
    return namespace_of(sums).searchsorted(sums, wanted, side="right")
