"""Centroidal Voronoi tessellations: sites that are the centroids of their own cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.apps.voronoi.assignment import METHODS as ASSIGNMENTS
from stepwell.apps.voronoi.domain import host_template, read_density
from stepwell.apps.voronoi.energy import VoronoiEnergy, scale_of
from stepwell.apps.voronoi.run import Run
from stepwell.apps.voronoi.starts import is_number, read_start
from stepwell.apps.voronoi.tessellation import Intermediate, Tessellation
from stepwell.arrays import Array
from stepwell.arrays.checks import require_one_home
from stepwell.common.checks import read_choice, read_seed, read_switch, require_function
from stepwell.common.progress import as_told, with_bar
from stepwell.quasi_newton.settings import Settings

METHODS = ("lbfgsb", "lloyd")
#: Energies of so many evaluations are kept.
_HISTORY_ROOM = 1 << 16


@with_bar("iterations")
def centroidal(
    sites: Array | int,
    density: Any = 1.0,
    *,
    resolution: Any = None,
    method: str = "lbfgsb",
    assignment: str = "exact",
    seed: int = 0,
    maxiter: int = 500,
    maxcor: int = 8,
    ftol: float = 1e-6,
    gtol: float = 1e-4,
    time_limit: float = float("inf"),
    threads: int | None = None,
    like: Array | None = None,
    time_parts: bool = False,
    callback: Callable[[Intermediate], Any] | None = None,
    progress: Callable[[int, int], Any] | bool | None = None,
) -> Tessellation:
    """Move sites until each is the centroid of its own Voronoi cell.

    Parameters
    ----------
    sites : int or (n, 2) array
        How many, drawn by `draw_sites`; or where they start, inside the domain, whose longer side has length 1. Sites
        that coincide are moved apart by a fraction of a pixel first. There may be no more sites than pixels of positive
        density. On the CPU, L-BFGS-B takes its first six iterations from drawn sites on an image of fewer pixels,
        if cells have at least sixteen of them there; these are not counted.
    density : (height, width) array, or a number
        Non-negative, any real type. In the limit of many sites, they end up as densely as its square root: for points
        as dense as an image is dark, give the square of its darkness.
    resolution : int or (int, int), optional
        Pixels (height, width) of a uniform density.
    method : {"lbfgsb", "lloyd"}
        `stepwell.minimize` within the box of the domain, or Lloyd's iteration: each site to its centroid.
    assignment : {"exact", "jump-flooding"}
        How pixels find their sites; see `assign`.
    seed : int
        Of the start.
    maxiter, time_limit
        Most iterations, most seconds.
    maxcor : int
        Pairs of history of L-BFGS-B.
    ftol : float
        Stop when the energy decreases by less than this fraction in an iteration.
    gtol : float
        Stop when no site is farther from its centroid than this fraction of the mean distance between sites; distances
        count in proportion to the mass of the cell.
    threads : int, optional
        CPU threads; by default all. The result does not depend on it.
    like : array, optional
        With a number of sites and a uniform density: an array of the library and device to work on.
    time_parts : bool
        On a device: take the times of evaluations and of the solver from the device's own events around them.
    callback : callable, optional
        ``callback(intermediate)`` after each iteration, with fields ``iteration energy normalized_energy sites``;
        StopIteration ends the run. On a device, every iteration then waits for the host.
    progress : callable or bool, optional
        ``progress(iteration, maxiter)`` after each iteration; on a device as `callback`. True shows a bar.

    Returns
    -------
    Tessellation
        In the library and on the device of the density, or of `sites`.

    Examples
    --------
    >>> from stepwell.apps.voronoi import HEXAGONAL_BOUND
    >>> t = centroidal(100, resolution=128)
    >>> t.success, HEXAGONAL_BOUND < t.normalized_energy < 1.1 * HEXAGONAL_BOUND
    (True, True)
    """
    read_choice("method", method, METHODS)
    read_choice("assignment", assignment, ASSIGNMENTS)
    require_function("callback", callback)
    require_function("progress", progress)
    seed, time_parts = read_seed(seed), read_switch("time_parts", time_parts)
    settings = Settings(
        m=maxcor, maxiter=maxiter, ftol=ftol, gtol=gtol, time_limit=time_limit, threads=threads
    )  # checks them
    found = read_density(density, resolution)
    start = read_start(sites, found, like, seed)
    if np.ndim(density) != 0:
        require_one_home("sites", start, "density", found.weights, library=False)
    count = int(start.shape[0])
    energy = VoronoiEnergy(
        found,
        count,
        method=assignment,
        scale=scale_of(found, count),
        threads=threads,
        like=start,
        history=int(min(_HISTORY_ROOM, 21 * (maxiter + 1))),
    )
    run = Run(energy, settings, callback, as_told(progress), time_parts, host_template(sites, density, like))
    if method == "lloyd":
        return run.finish(*run.lloyd(start))
    return run.finish(*run.lbfgsb(run.on_fewer_pixels(start) if is_number(sites) else start))
