"""The energy of a tessellation and its gradient, on the CPU or on a CUDA device."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from stepwell import _core
from stepwell.apps.voronoi.assignment import METHODS, thread_count
from stepwell.apps.voronoi.domain import Density, read_density, read_sites, require_count
from stepwell.arrays import Array, as_readable, as_user_array, host_copy, host_view, is_cuda
from stepwell.arrays.checks import require_one_home
from stepwell.common.checks import read_choice, read_real, read_whole
from stepwell.common.threads import OneAtATime

#: F n / area² of the regular hexagonal tessellation of the plane, which no tessellation of uniform density undercuts
#: (Fejes Tóth 1972).
HEXAGONAL_BOUND = 5.0 / (18.0 * 3.0**0.5)


def scale_of(density: Density, count: int) -> float:
    """Return what makes the least energy that can be hoped for 1: then tolerances mean the same for every problem."""
    return count / (density.root**2 * HEXAGONAL_BOUND)


class VoronoiEnergy:
    """F(X) = Σ ρ_p ‖p − x_owner(p)‖² A over pixels p of area A, and its gradient 2 m_i (x_i − c_i).

    `fun` takes and returns flat arrays and goes straight into ``stepwell.minimize(energy.fun, x0, jac=True)``. With
    the exact assignment F is continuous and piecewise quadratic in the sites, and f and g belong to the same function
    to rounding. Cells without mass have gradient zero.

    Densities are rounded to whole numbers of at most 24 bits (images in whole numbers stay as they are), and moments
    are added up in 64-bit integers: the result does not depend on the order in which pixels are visited. It is the
    exact energy, but for the last rounding, of a density that differs from the given one by at most 2^-25 of its
    maximum; so the energy is wrong by at most 2^-25 max ρ Σ ‖p − x_owner(p)‖² A.

    Parameters
    ----------
    density : (height, width) array, or a number
        Non-negative; a CUDA array puts the evaluation on its device, and sites must be of the same library.
    count : int
        Number of sites.
    resolution : int or (int, int), optional
        Pixels of a uniform density.
    method : {"exact", "jump-flooding"}
        How pixels are assigned; see `assign`.
    scale : float
        Factor on what `fun` returns.
    threads : int, optional
        CPU threads; by default all. The result does not depend on it.
    like : array, optional
        With a uniform density: an array of the library and device to work on.
    history : int
        Energies to keep, of the first so many evaluations; see `energies`.

    Attributes
    ----------
    density : Density
        The density in whole numbers, its mass and its shape.
    evaluations : int
        Calls so far.
    seconds : float
        Time in them on the CPU; on a CUDA device, time to launch them.

    Examples
    --------
    >>> import numpy as np, stepwell
    >>> energy = VoronoiEnergy(1.0, 2, resolution=(32, 64))
    >>> start = np.array([[0.3, 0.2], [0.6, 0.3]])
    >>> r = stepwell.minimize(energy.fun, start.ravel(), jac=True, bounds=(0.0, 1.0), options={"ftol": 1e-12})
    >>> bool(np.abs(r.x.reshape(2, 2) - [[0.25, 0.25], [0.75, 0.25]]).max() < 1e-3)
    True

    Notes
    -----
    One thread at a time: a second one that evaluates meanwhile gets a RuntimeError.
    """

    def __init__(
        self,
        density: Any,
        count: int,
        *,
        resolution: Any = None,
        method: str = "exact",
        scale: float = 1.0,
        threads: int | None = None,
        like: Array | None = None,
        history: int = 0,
    ) -> None:
        self.method = read_choice("method", method, METHODS)
        self._flood = method == "jump-flooding"
        self.density = density if isinstance(density, Density) else read_density(density, resolution)
        self.shape = self.density.shape
        self.count, self.scale = read_whole("count", count, 1), read_real("scale", scale)
        require_count(self.count, self.shape)
        history = read_whole("history", history, 0)
        self.evaluations, self.seconds = 0, 0.0
        self._alone = OneAtATime("this VoronoiEnergy")
        self._device: Any = None
        template = self.density.weights if like is None or is_cuda(self.density.weights) else like
        if is_cuda(template):
            from stepwell.apps.voronoi import device

            weights = self.density.weights
            if not is_cuda(weights):
                weights = device.uniform_weights(template, self.shape)
            self._device = device.DeviceVoronoi(template, self.shape, self.count, weights, history)
        else:
            self._host = _core.VoronoiHost(*self.shape, self.count, thread_count(threads))
            self._moments = np.zeros((self.count, 3), np.int64)
        self._history = np.empty(0 if self._device is not None else history)

    @property
    def pixel(self) -> float:
        """Width of a pixel."""
        return self.density.pixel

    def factors(self, scale: float = 1.0) -> tuple[float, float]:
        """Return what energy and gradient in whole weights and pixels are multiplied by."""
        unit, pixel = self.density.unit * scale, self.pixel
        return unit * pixel**4, unit * pixel**3

    def evaluate(self, sites: Array, scale: float = 1.0) -> tuple[Any, Array]:
        """Return the energy and its (n, 2) gradient, times `scale`; no argument is checked.

        `sites` is a contiguous (n, 2) float64 array, NumPy or on the device. On a device the energy is an array with
        one element.
        """
        with self._alone:
            began = time.perf_counter()
            self.evaluations += 1
            if self._device is not None:
                f, g = self._device.evaluate(sites, self._flood, *self.factors(scale))
            else:
                g = np.empty((self.count, 2))
                weights = self.density.weights
                f = self._host.evaluate(sites, self._flood, weights, *self.factors(scale), g, self._moments)
                if self.evaluations <= len(self._history):
                    self._history[self.evaluations - 1] = f
            self.seconds += time.perf_counter() - began
            return f, g

    def fun(self, x: Array) -> tuple[Any, Array]:
        """Return `scale` times F and its gradient at flat sites (x, y, x, y, ...), in the kind of `x`."""
        if self._device is not None:
            from stepwell.apps.voronoi.device import flat_evaluation

            return flat_evaluation(x, self.count, lambda sites: self.evaluate(sites, self.scale))
        sites = as_readable(host_view(x), np.float64).reshape(self.count, 2)
        f, g = self.evaluate(sites, self.scale)
        flat = g.reshape(tuple(x.shape))
        return f, flat if isinstance(x, np.ndarray) else as_user_array(flat, x)

    def energies(self, count: int) -> np.ndarray:
        """Return the energies of the first `count` evaluations, as `evaluate` returned them (with its scale)."""
        if self._device is None:
            return self._history[:count].copy()
        return host_copy(self._device.history)[:count]

    def wait(self) -> None:
        """Wait for evaluations launched on a device."""
        if self._device is not None:
            self._device.wait()

    def owners(self, sites: Array) -> Array:
        """Return the (height, width) owners of all pixels; no argument is checked, as in `evaluate`."""
        with self._alone:
            if self._device is not None:
                return self._device.owners(sites, self._flood)
            owners = np.empty(self.shape, np.int32)
            self._host.assign(sites, self._flood, owners)
            return owners

    def masses(self) -> Array:
        """Return the mass of each cell at the last evaluation."""
        unit = self.density.unit * self.pixel**2
        if self._device is not None:
            return self._device.masses(unit)
        return self._moments[:, 0] * unit

    def normalized(self, energy: float) -> float:
        """Return (F + ∫ρ A/6) n / (∫√ρ)²: F n / area² for uniform ρ = 1, comparable with `HEXAGONAL_BOUND`.

        A sum over pixel centres misses A/6 of the mean squared distance over a pixel, exactly. With it the value for
        a uniform density lies above the bound at every resolution.
        """
        d = self.density
        return (energy + d.mass * d.pixel**2 / 6) * self.count / d.root**2


def cvt_energy(
    sites: Array, density: Any, *, resolution: Any = None, method: str = "exact", threads: int | None = None
) -> tuple[Any, Array]:
    """Return the energy F of the Voronoi tessellation of a density image, and its gradient.

    Parameters
    ----------
    sites : (n, 2) array
        x and y, inside the domain.
    density, resolution, method, threads
        As in `VoronoiEnergy`.

    Returns
    -------
    float, (n, 2) array
        F = Σ ρ_p ‖p − x_owner(p)‖² A and dF/dx_i = 2 m_i (x_i − c_i), zero where a cell has no mass. On a CUDA device
        F is an array with one element.

    Examples
    --------
    >>> import numpy as np
    >>> f, g = cvt_energy(np.array([[0.25, 0.5], [0.75, 0.5]]), np.ones((100, 100)))
    >>> round(f, 3), bool(np.abs(g).max() < 1e-12)
    (0.104, True)
    """
    found = read_density(density, resolution)
    points = read_sites(sites, found.shape)
    if np.ndim(density) != 0:
        require_one_home("sites", points, "density", found.weights, library=False)
    energy = VoronoiEnergy(found, int(points.shape[0]), method=method, threads=threads, like=points)
    f, g = energy.evaluate(points)
    if not is_cuda(points):
        g = as_user_array(g, sites)
    return f, g
