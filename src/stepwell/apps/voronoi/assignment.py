"""Which site owns each pixel: exactly, or by jump flooding."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from stepwell import _core
from stepwell.apps.voronoi.domain import pixel_size, read_shape, read_sites
from stepwell.arrays import Array, host_copy, in_kind, is_cuda, to_like
from stepwell.settings import Settings

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


def check_method(method: Any) -> bool:
    """Return whether the method is jump flooding; raise unless it is a method."""
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; allowed: {', '.join(map(repr, METHODS))}")
    return bool(method == "jump-flooding")


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
    flood = check_method(method)
    shape = read_shape(shape)
    points = read_sites(sites, shape)
    if is_cuda(points):
        from stepwell.apps.voronoi.device import assign_on_device

        owners = assign_on_device(points, shape, flood)
        found = host_copy(owners)
        place = host_copy(points)
    else:
        owners = found = _assign_on_host(points, shape, flood, thread_count(threads))
        place = points
    wrong = None
    if check:
        nearest = None
        if flood:
            nearest = assign(place, shape, threads=threads).owners
        wrong = misassigned_fraction(place, found, nearest)
    empty, shared = empty_cells(found, len(place)), shared_pixels(place, shape)
    if is_cuda(points):
        return Assignment(owners, to_like(empty, points), to_like(shared, points), wrong)
    return Assignment(in_kind(owners, sites), in_kind(empty, sites), in_kind(shared, sites), wrong)


def _assign_on_host(points: np.ndarray, shape: tuple[int, int], flood: bool, threads: int) -> np.ndarray:
    owners = np.empty(shape, np.int32)
    _core.VoronoiHost(*shape, len(points), threads).assign(points, flood, owners)
    return owners


def empty_cells(owners: np.ndarray, count: int) -> np.ndarray:
    """Return the sites that own no pixel."""
    return np.flatnonzero(np.bincount(owners.ravel(), minlength=count) == 0)


def shared_pixels(sites: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return the sites that lie in one pixel with another.

    Examples
    --------
    >>> shared_pixels(np.array([[0.1, 0.1], [0.9, 0.9], [0.2, 0.2]]), (4, 4))
    array([0, 2])
    """
    place = np.minimum((sites * max(shape)).astype(np.int64), [shape[1] - 1, shape[0] - 1])
    pixel = place[:, 1] * shape[1] + place[:, 0]
    order = np.argsort(pixel, kind="stable")
    equal = pixel[order][1:] == pixel[order][:-1]
    return np.unique(np.concatenate([order[1:][equal], order[:-1][equal]]))


def misassigned_fraction(sites: np.ndarray, owners: np.ndarray, nearest: np.ndarray | None = None) -> float:
    """Return the fraction of pixels that another site is nearer to than their owner, beyond rounding."""
    height, width = owners.shape
    pixel = pixel_size((height, width))
    rows, columns = np.divmod(np.arange(owners.size), width)
    centres = (np.stack([columns, rows], axis=1) + 0.5) * pixel
    least = (
        cKDTree(sites).query(centres, workers=-1)[0]
        if nearest is None
        else np.linalg.norm(centres - sites[nearest.ravel()], axis=1)
    )
    distance = np.linalg.norm(centres - sites[owners.ravel()], axis=1)
    # Distances are rounded to a few units in the last place of coordinates up to 1.
    return float(np.mean(distance > least + 1e-14))
