"""A centroidal Voronoi tessellation as it is returned, and what a callback sees on the way there."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np

from stepwell.arrays import Array, host_copy
from stepwell.arrays.presenting import Told
from stepwell.common.pyplot import finish_figure, load_pyplot


@dataclasses.dataclass(frozen=True)
class Tessellation(Told):
    """A centroidal Voronoi tessellation and how it was found. Arrays are where the density or the start was.

    Attributes
    ----------
    sites : (n, 2) float64 array
        x and y.
    energy : float
        F = Σ ρ_p ‖p − x_owner(p)‖² A over pixels p of area A.
    normalized_energy : float
        (F + ∫ρ A/6) n / (∫√ρ)²: F n / area² for uniform ρ = 1, never below `HEXAGONAL_BOUND`; see `VoronoiEnergy`.
    iterations, evaluations : int
        Iterations of the method, evaluations of the energy.
    status : int
        0 converged, 1 a limit was reached, 2 the energy is not finite, 99 stopped by the callback.
    message : str
        The same in words.
    success : bool
        Whether it converged.
    owners : (height, width) int32 array
        The site that owns each pixel.
    mass : (n,) float64 array
        Mass of each cell.
    empty, shared : int64 arrays
        Sites that own no pixel; sites in one pixel with another.
    misassigned : float
        Fraction of pixels whose owner is not the nearest site: 0 unless by jump flooding.
    displacement : float
        Largest distance of a site from the centroid of its cell.
    projected_gradient : float
        Largest component of the gradient of F at the final sites, without those that push out of the domain.
    history : (evaluations,) array
        F at each evaluation, of the first 65,536 at most; on the host.
    seconds : dict
        ``"total"``, ``"evaluation"`` and ``"solver"``. On a device, where both run on without the host, evaluations
        are timed afterwards at the final sites and the solver has the rest, unless ``time_parts`` was asked for.
    shape : (int, int)
        Height and width in pixels.
    mode : str
        Where it ran: ``"CPU"`` or, on a CUDA device, how turns were launched.
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
    misassigned: float
    displacement: float
    projected_gradient: float
    history: np.ndarray
    seconds: dict[str, float]
    shape: tuple[int, int]
    mode: str

    @property
    def pixel(self) -> float:
        """Width of a pixel."""
        return 1.0 / max(self.shape)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw the sites, and how the energy fell; save the picture where `path` says. Needs matplotlib."""
        pyplot = load_pyplot()
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(9.5, 4.2), layout="constrained")
        sites = np.asarray(host_copy(self.sites))
        left.plot(
            sites[:, 0], sites[:, 1], ".", color="black", markersize=float(np.clip(200 / len(sites) ** 0.5, 0.5, 6))
        )
        left.set(aspect="equal", title=f"{len(sites):,} sites", xticks=[], yticks=[])
        left.invert_yaxis()
        right.plot(np.arange(1, len(self.history) + 1), self.history)
        right.set(xlabel="evaluation", ylabel="energy", title=self.message[:60])
        return finish_figure(figure, path, dpi=130)


@dataclasses.dataclass(frozen=True)
class Intermediate:
    """What a callback sees after an iteration."""

    iteration: int
    energy: float
    normalized_energy: float
    sites: Array
