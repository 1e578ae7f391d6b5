"""Which site owns each pixel: exactly, or by jump flooding."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from stepwell import _core
from stepwell.apps.voronoi.domain import pixel_size, read_shape, read_sites
from stepwell.arrays import Array, as_user_array, host_copy, is_cuda, namespace_of
from stepwell.common.checks import read_choice, read_switch
from stepwell.quasi_newton.settings import Settings

METHODS = ("exact", "jump-flooding")


@dataclasses.dataclass(frozen=True)
class Assignment:
    """The discrete Voronoi diagram of sites on a grid of pixels.

    Attributes
    ----------
    owners : (height, width) int32 array
        The site nearest to each pixel's centre; of sites equally near, the lowest.
    empty : int64 array
        Sites that own no pixel, ascending.
    shared : int64 array
        Sites that lie in one pixel with another site, ascending. Jump flooding knows only the lowest of them; the
        exact assignment tells them apart unless they coincide.
    misassigned : float or None
        Fraction of pixels whose owner is not the nearest site; None unless asked for.
    """

    owners: Array
    empty: Array
    shared: Array
    misassigned: float | None = None


def thread_count(threads: int | None) -> int:
    """Return the number of CPU threads: as asked, else all that this process may run on."""
    return Settings(threads=threads).thread_count()


def assign(
    sites: Array, shape: Any, *, method: str = "exact", check: bool = False, threads: int | None = None
) -> Assignment:
    """Assign every pixel of an image to the site nearest to its centre.

    Parameters
    ----------
    sites : (n, 2) array
        x and y; NumPy, PyTorch, CuPy or JAX, on the host or on a CUDA device. The assignment is made there.
    shape : (int, int) or int
        Height and width in pixels.
    method : {"exact", "jump-flooding"}
        Exactly, by comparing at each pixel the few sites that can be nearest to its tile; or by jump flooding, which
        is slower, nearly exact and loses sites that share a pixel.
    check : bool
        Count the pixels whose owner is not the nearest site: against the exact assignment or, where the assignment is
        exact already, against a k-d tree on the host.
    threads : int, optional
        CPU threads; by default all.

    Returns
    -------
    Assignment
        In the library and on the device of `sites`.

    Examples
    --------
    >>> import numpy as np
    >>> assign(np.array([[0.2, 0.25], [0.7, 0.25]]), (2, 4)).owners
    array([[0, 0, 1, 1],
           [0, 0, 1, 1]], dtype=int32)
    """
    flood, check = read_choice("method", method, METHODS) == "jump-flooding", read_switch("check", check)
    shape = read_shape(shape)
    points = read_sites(sites, shape)
    if is_cuda(points):
        from stepwell.apps.voronoi.device import DeviceVoronoi

        owners = DeviceVoronoi(points, shape, int(points.shape[0])).owners(points, flood)
    else:
        owners = np.empty(shape, np.int32)
        _core.VoronoiHost(*shape, len(points), thread_count(threads)).assign(points, flood, owners)
    return describe(points, owners, sites, flood=flood, check=check, threads=threads)


def describe(
    points: Array, owners: Array, like: Array, *, flood: bool, check: bool, threads: int | None = None
) -> Assignment:
    """Wrap owners with what can be told of them, in the kind of `like`."""
    shape = (int(owners.shape[0]), int(owners.shape[1]))
    wrong = None
    if check and flood:
        nearest = assign(points, shape, threads=threads).owners
        wrong = misassigned_fraction(points, owners, nearest)
    elif check:
        wrong = misassigned_fraction(host_copy(points), host_copy(owners))
    empty, shared = empty_cells(owners, int(points.shape[0])), shared_pixels(points, shape)
    if is_cuda(points):
        return Assignment(owners, empty, shared, wrong)
    owners, empty, shared = (as_user_array(found, like) for found in (owners, empty, shared))
    return Assignment(owners, empty, shared, wrong)


def empty_cells(owners: Array, count: int) -> Array:
    """Return the sites that own no pixel.

    Examples
    --------
    >>> empty_cells(np.array([[0, 2], [2, 0]]), 4)
    array([1, 3])
    """
    xp = namespace_of(owners)
    return xp.nonzero(xp.bincount(xp.reshape(owners, (-1,)), minlength=count) == 0)[0]


def shared_pixels(sites: Array, shape: tuple[int, int]) -> Array:
    """Return the sites that lie in one pixel with another.

    Examples
    --------
    >>> shared_pixels(np.array([[0.1, 0.1], [0.9, 0.9], [0.2, 0.2]]), (4, 4))
    array([0, 2])
    """
    xp = namespace_of(sites)
    column, row = (xp.clip(xp.astype(sites[:, axis] * max(shape), xp.int64), 0, shape[1 - axis] - 1) for axis in (0, 1))
    pixel = row * shape[1] + column
    order = xp.argsort(pixel)
    ordered = xp.take(pixel, order)
    equal = ordered[1:] == ordered[:-1]
    no = ordered[:1] != ordered[:1]
    with_neighbour = xp.concat([equal, no]) | xp.concat([no, equal])
    return xp.nonzero(xp.take(with_neighbour, xp.argsort(order)))[0]


def misassigned_fraction(sites: Array, owners: Array, nearest: Array | None = None) -> float:
    """Return the fraction of pixels that another site is nearer to than their owner, beyond rounding.

    The nearest sites are those given or, for NumPy arrays, those that SciPy's k-d tree finds.
    """
    height, width = owners.shape
    pixel = pixel_size((height, width))
    if nearest is None:
        rows, columns = np.divmod(np.arange(owners.size), width)
        centres = (np.stack([columns, rows], axis=1) + 0.5) * pixel
        least = cKDTree(sites).query(centres, workers=-1)[0].reshape(owners.shape)
    else:
        least = _distances(sites, nearest, pixel)
    xp = namespace_of(sites)
    # Distances are rounded to a few units in the last place of coordinates up to 1.
    wrong = _distances(sites, owners, pixel) > least + 1e-14
    return float(xp.mean(xp.astype(wrong, xp.float64)))


def _distances(sites: Array, owners: Array, pixel: float) -> Array:
    """Return the distance of each pixel's centre to its owner."""
    xp = namespace_of(sites)
    height, width = owners.shape
    flat = xp.astype(xp.reshape(owners, (-1,)), xp.int64)
    number = xp.astype(xp.cumulative_sum(xp.ones_like(flat)) - 1, xp.int64)
    row = number // width
    dx = (xp.astype(number - row * width, xp.float64) + 0.5) * pixel - xp.take(sites[:, 0], flat)
    dy = (xp.astype(row, xp.float64) + 0.5) * pixel - xp.take(sites[:, 1], flat)
    return xp.reshape(xp.sqrt(dx * dx + dy * dy), (height, width))
