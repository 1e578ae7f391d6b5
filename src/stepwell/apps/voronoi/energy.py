"""The energy of a tessellation and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwell.apps.voronoi.assignment import Assignment, assign, pixel_size

Array = Any

#: F n / |Ω|² of the regular hexagonal tessellation of the plane, which no tessellation of uniform density can undercut.
HEXAGONAL_BOUND = 5.0 / (18.0 * 3.0**0.5)


class VoronoiEnergy:
    """F(X) = Σ ρ_p |p − x_owner(p)|² A over pixels p of area A, with its gradient, for sites in a fixed image.

    `fun` takes and returns flat arrays and goes straight into ``stepwell.minimize(energy.fun, x0, jac=True)``.
    """

    def __init__(self, density: Array, count: int, *, resolution: Any = None, method: str = "exact") -> None:
        self.density = np.asarray(density, dtype=np.float64)
        self.shape: tuple[int, int] = (int(self.density.shape[0]), int(self.density.shape[1]))
        self.count, self.method = count, method
        self.pixel = pixel_size(self.shape)
        self.evaluations = 0

    def moments(self, sites: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, Assignment]:
        """Return energy, gradient, masses and the assignment."""
        self.evaluations += 1
        found = assign(sites, self.shape, method=self.method)
        rows, columns = np.mgrid[0 : self.shape[0], 0 : self.shape[1]]
        own = found.owners.ravel()
        weight = self.density.ravel() * self.pixel**2
        dx = (columns.ravel() + 0.5) * self.pixel - sites[own, 0]
        dy = (rows.ravel() + 0.5) * self.pixel - sites[own, 1]
        mass = np.bincount(own, weight, len(sites))
        g = [-2 * np.bincount(own, weight * d, len(sites)) for d in (dx, dy)]
        return float(weight @ (dx * dx + dy * dy)), np.stack(g, axis=1), mass, found

    def fun(self, x: Array) -> tuple[float, Array]:
        """Return F and its gradient at flat sites."""
        f, g, _, _ = self.moments(np.asarray(x).reshape(-1, 2))
        return f, g.reshape(x.shape)


def cvt_energy(sites: Array, density: Array, *, method: str = "exact") -> tuple[float, Array]:
    """Return the energy of a tessellation and its gradient, shape (n, 2)."""
    f, g, _, _ = VoronoiEnergy(density, len(sites), method=method).moments(np.asarray(sites))
    return f, g
