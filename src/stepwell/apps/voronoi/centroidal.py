"""Centroidal Voronoi tessellations: sites that are the centroids of their own cells."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.apps.voronoi.assignment import pixel_size
from stepwell.apps.voronoi.energy import VoronoiEnergy
from stepwell.minimization import minimize

Array = Any


@dataclasses.dataclass(frozen=True)
class Tessellation:
    """A centroidal Voronoi tessellation and how it was found.

    Attributes
    ----------
    sites : (n, 2) array
        x and y of the sites.
    energy : float
        F, the sum over pixels of density times squared distance to the owner times pixel area.
    normalized_energy : float
        F n / |Ω|² for uniform density.
    iterations, evaluations : int
        Iterations of the method and evaluations of the energy.
    status : int
        0 where it converged, else the reason as a number.
    message : str
        The reason in words.
    success : bool
        Whether it converged.
    owners : (height, width) int32 array
        The site that owns each pixel.
    mass : (n,) array
        Mass of each cell.
    empty, shared : int arrays
        Sites that own no pixel; sites in one pixel with another.
    misassigned : float or None
        Fraction of pixels whose owner is not the nearest site.
    history : (evaluations,) array
        The energy at each evaluation.
    seconds : dict
        ``"total"``, ``"evaluation"`` and ``"solver"``.
    """

    sites: Array
    energy: float
    normalized_energy: float
    iterations: int
    evaluations: int
    status: int
    message: str
    success: bool
    owners: Array
    mass: Array
    empty: Array
    shared: Array
    misassigned: float | None
    history: np.ndarray
    seconds: dict[str, float]


def draw_sites(count: int, density: Array, *, seed: int = 0) -> np.ndarray:
    """Draw sites at random from a density image."""
    density = np.asarray(density, dtype=np.float64)
    rng = np.random.default_rng(seed)
    total = np.cumsum(density.ravel())
    index = np.searchsorted(total, rng.random(count) * total[-1], side="right")
    place = np.stack([index % density.shape[1], index // density.shape[1]], axis=1)
    return np.asarray((place + rng.random((count, 2))) * pixel_size(density.shape))  # type: ignore[arg-type]


def centroidal(
    sites: Array | int,
    density: Array = 1.0,
    *,
    resolution: Any = None,
    method: str = "lbfgsb",
    seed: int = 0,
    maxiter: int = 100,
    callback: Callable[..., Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tessellation:
    """Move sites until each is the centroid of its own Voronoi cell."""
    began = time.perf_counter()
    if np.ndim(density) == 0:
        shape = (resolution, resolution) if isinstance(resolution, int) else tuple(resolution)
        density = np.full(shape, float(density))
    start = draw_sites(sites, density, seed=seed) if isinstance(sites, int) else np.asarray(sites)
    n = len(start)
    energy = VoronoiEnergy(density, n)
    high = np.tile([energy.shape[1] * energy.pixel, energy.shape[0] * energy.pixel], n)
    history: list[float] = []

    def fun(x: np.ndarray) -> tuple[float, np.ndarray]:
        f, g = energy.fun(x)
        history.append(f)
        return f * n, g * n

    run = minimize(fun, start.ravel(), jac=True, bounds=(np.zeros(2 * n), high), options={"maxiter": maxiter})
    x = np.asarray(run.x).reshape(-1, 2)
    f, _, mass, found = energy.moments(x)
    area = energy.shape[0] * energy.shape[1] * energy.pixel**2
    return Tessellation(
        sites=x,
        energy=f,
        normalized_energy=f * n / area**2,
        iterations=run.nit,
        evaluations=len(history),
        status=run.status,
        message=run.message,
        success=run.success,
        owners=found.owners,
        mass=mass,
        empty=found.empty,
        shared=found.shared,
        misassigned=found.misassigned,
        history=np.array(history),
        seconds={"total": time.perf_counter() - began, "evaluation": run.seconds["objective"], "solver": 0.0},
    )
