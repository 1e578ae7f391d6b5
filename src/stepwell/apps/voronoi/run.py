"""One run towards a centroidal tessellation: L-BFGS-B or Lloyd's iteration, when to stop, and whom to tell."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

from stepwell.apps.voronoi.assignment import describe
from stepwell.apps.voronoi.coarse import SmallerImage, pixels_to_merge
from stepwell.apps.voronoi.domain import Density
from stepwell.apps.voronoi.energy import VoronoiEnergy, scale_of
from stepwell.apps.voronoi.tessellation import Intermediate, Tessellation
from stepwell.arrays import Array, as_user_array, copy_to_device_of, is_cuda, namespace_of
from stepwell.quasi_newton.api import minimize
from stepwell.quasi_newton.settings import Settings
from stepwell.quasi_newton.status import Status

#: The diagonal of the energy's Hessian where cells are regular hexagons is 4/9 of Lloyd's 2 m: per coordinate and
#: neighbour j, the integral over the common edge of ρ |x - p|² / |x - x_j| is taken off, 5/9 of 2 m in all.
_NEWTON_BY_LLOYD = 9 / 4
#: Iterations on a smaller image, from sites that were drawn: after so many, its minimum is no longer the image's own.
_FIRST_ITERATIONS = 6
#: Seconds: the shortest time limit.
_SOON = 1e-9


class Run:
    """One run: the energy, when to stop, whom to tell."""

    def __init__(
        self, energy: VoronoiEnergy, settings: Settings, callback: Any, progress: Any, time_parts: bool, like: Array
    ) -> None:
        self.energy, self.settings, self.callback, self.progress = energy, settings, callback, progress
        self.time_parts = time_parts
        self.like = like  # its library is that of the results, on the host
        self.parts: dict[str, float] = {}  # seconds of evaluations and solver, where the device tells
        self.spent = 0.0  # seconds of evaluations on a smaller image
        self.began = time.perf_counter()
        self.mode = "CPU"
        density = energy.density
        #: A site's distance from its centroid, times the mass of its cell, at which it counts as there.
        spacing = (density.area / energy.count) ** 0.5
        self.tolerance = settings.gtol * spacing * density.mass / energy.count

    def tell(self, iteration: int, energy: float, sites: Callable[[], Array]) -> None:
        """Call back; StopIteration passes through."""
        if self.progress is not None:
            self.progress(iteration, self.settings.maxiter)
        if self.callback is not None:
            self.callback(Intermediate(iteration, energy, self.energy.normalized(energy), self.as_given(sites())))

    def as_given(self, array: Array) -> Array:
        """Return an array as the caller has them."""
        return array if is_cuda(array) else as_user_array(array, self.like)

    def cut_off(self) -> float:
        """Return a tenth of the distance between sites where the density is.

        The solver's projected gradient ends at the border of the domain. A density that is nearly all in one place has
        so steep an energy that the tolerance could be wider than the domain, and anything would be below it.
        """
        density = self.energy.density
        return 0.1 * density.root / math.sqrt(density.mass * self.energy.count)

    def on_fewer_pixels(self, start: Array) -> Array:
        """Return where some iterations on a smaller image lead, if cells are large enough for that."""
        energy, s = self.energy, self.settings
        merged = 1 if is_cuda(start) else pixels_to_merge(energy.density, energy.count)
        if merged == 1 or s.maxiter == 0:
            return start
        small = SmallerImage.of(energy.density, merged)
        scale = scale_of(small.density, energy.count)
        there = VoronoiEnergy(small.density, energy.count, scale=scale, threads=s.threads)
        # (As many whatever maxiter is: a longer run begins like a shorter one.)
        few = dataclasses.replace(s, maxiter=_FIRST_ITERATIONS)
        sites = Run(there, few, None, None, False, self.like).lbfgsb(small.there(start))[0]
        self.spent = there.seconds
        return small.back(sites)

    def lbfgsb(self, start: Array) -> tuple[Array, int, int, Status]:
        """Minimise; returns sites, iterations, evaluations and why it ended."""
        energy, count, s = self.energy, self.energy.count, self.settings
        xp = namespace_of(start)
        weights = _NEWTON_BY_LLOYD * _lloyd_weights(start, energy.density) / (2 * energy.scale)
        one, (width, height) = xp.ones_like(weights), energy.density.extent
        high = xp.reshape(xp.stack([width * one, height * one], axis=1), (-1,))

        def watch(*, intermediate_result: Any) -> None:
            f = float(intermediate_result.fun) / energy.scale
            self.tell(int(intermediate_result.nit), f, lambda: xp.reshape(intermediate_result.x, (count, 2)))

        result = minimize(
            energy.fun,
            xp.reshape(start, (-1,)),
            jac=True,
            bounds=(xp.zeros_like(high), high),
            callback=None if self.callback is None and self.progress is None else watch,
            options={
                "maxiter": s.maxiter,
                "maxcor": s.m,
                "ftol": s.ftol,
                "gtol": min(2 * energy.scale * self.tolerance, self.cut_off()),
                "time_limit": max(s.time_limit - (time.perf_counter() - self.began), _SOON),
                "threads": s.threads,
                "h0": xp.reshape(xp.stack([weights, weights], axis=1), (-1,)),
                "time_objective": self.time_parts and is_cuda(start),
            },
        )
        if "turns" in result.get("seconds", {}):
            self.parts = {"evaluation": result.seconds["objective"], "solver": result.seconds["turns"]}
        self.mode = result.get("mode", self.mode)
        return xp.reshape(result.x, (count, 2)), result.nit, result.nfev, result.reason

    def lloyd(self, start: Array) -> tuple[Array, int, int, Status]:
        """Move every site to its centroid, again and again; returns as `lbfgsb`."""
        xp = namespace_of(start)
        if is_cuda(start):
            self.mode = "one launch an evaluation"
        # Copies: the start stays the caller's, and what a callback is shown is its own.
        sites, before, iteration = xp.asarray(start, copy=True), float("inf"), 0
        while True:
            f, g = self.energy.evaluate(sites, self.energy.scale)
            value, pull = float(f) / self.energy.scale, float(xp.max(xp.abs(g))) / (2 * self.energy.scale)
            try:
                if iteration:
                    self.tell(iteration, value, lambda kept=sites: xp.asarray(kept, copy=True))  # type: ignore[misc]
            except StopIteration:
                return sites, iteration, iteration + 1, Status.CALLBACK
            for ended, reason in (
                (pull <= self.tolerance, Status.GRADIENT),
                (before - value <= self.settings.ftol * value, Status.DECREASE),
                (iteration >= self.settings.maxiter, Status.MAX_ITERATIONS),
                (time.perf_counter() - self.began > self.settings.time_limit, Status.TIME_LIMIT),
            ):
                if ended:
                    return sites, iteration, iteration + 1, reason
            sites, before = sites - _to_centroids(g / self.energy.scale, self.energy.masses()), value
            iteration += 1

    def finish(self, sites: Array, iterations: int, evaluations: int, reason: Status) -> Tessellation:
        """Evaluate once more at the final sites, and describe them."""
        energy = self.energy
        energy.wait()
        total = time.perf_counter() - self.began
        history = energy.energies(evaluations) / energy.scale
        spent = energy.seconds + self.spent
        f, g = energy.evaluate(sites)
        energy.wait()
        if is_cuda(sites):
            times = []
            for _ in range(3):
                once = time.perf_counter()
                energy.evaluate(sites)
                energy.wait()
                times.append(time.perf_counter() - once)
            spent = min(total, sorted(times)[1] * evaluations)
        xp, density = namespace_of(sites), energy.density
        mass = energy.masses()
        moves = _to_centroids(g, mass)
        flood = energy.method == "jump-flooding"
        found = describe(sites, energy.owners(sites), self.like, flood=flood, check=flood)
        status, message, success = _outcome(reason)
        return Tessellation(
            sites=self.as_given(sites),
            energy=float(f),
            normalized_energy=energy.normalized(float(f)),
            iterations=int(iterations),
            evaluations=int(evaluations),
            status=status,
            message=message,
            success=success,
            owners=found.owners,
            mass=self.as_given(mass),
            empty=found.empty,
            shared=found.shared,
            misassigned=found.misassigned or 0.0,
            displacement=float(xp.max(xp.sqrt(xp.sum(moves * moves, axis=1)))),
            projected_gradient=max(_projected(sites[:, k], g[:, k], side) for k, side in enumerate(density.extent)),
            history=history,
            seconds={"total": total, "evaluation": spent, "solver": total - spent} | self.parts,
            shape=energy.shape,
            mode=self.mode,
        )


def _lloyd_weights(sites: Array, density: Density) -> Array:
    """Return 1/m_i, with m_i the mass that the cell of a site has in the limit of many: ∫√ρ √ρ(x_i)/n.

    Lloyd's step is the gradient times 1/(2 m_i), the shape of the initial inverse Hessian. The density is averaged over
    blocks as large as a cell.
    """
    xp = namespace_of(density.weights)
    count = int(sites.shape[0])
    height, width = density.shape
    side = max(1, round((height * width / count) ** 0.5))
    rows, columns = max(1, height // side), max(1, width // side)
    # What does not fill a block at the far borders takes the value of the last one.
    whole = xp.astype(density.weights[: rows * side, : columns * side], xp.float64)
    side_y, side_x = int(whole.shape[0]) // rows, int(whole.shape[1]) // columns
    means = xp.mean(xp.reshape(whole, (rows, side_y, columns, side_x)), axis=(1, 3))
    if is_cuda(sites) and not is_cuda(density.weights):
        means = copy_to_device_of(means, sites)
    xp = namespace_of(sites)
    place = [
        xp.clip(xp.astype(sites[:, axis] * max(density.shape), xp.int64) // s, 0, most - 1)
        for axis, s, most in ((0, side_x, columns), (1, side_y, rows))
    ]
    local = xp.sqrt(xp.take(xp.reshape(means, (-1,)), place[1] * columns + place[0]) * density.unit)
    # Where the image is nearly empty a weight without limit would be of no use.
    floor = 1e-3 * density.root / density.area
    return count / (density.root * xp.maximum(local, floor * xp.ones_like(local)))


def _to_centroids(gradient: Array, mass: Array) -> Array:
    """Return x_i − c_i; zero where a cell has no mass."""
    xp = namespace_of(gradient)
    safe = xp.where(mass > 0, 2 * mass, xp.ones_like(mass))
    return gradient / safe[:, None]


def _projected(x: Array, gradient: Array, most: float) -> float:
    """Return the largest component of a gradient, without those that push out of [0, most] where x is at its end."""
    xp = namespace_of(x)
    held = ((x <= 0.0) & (gradient > 0.0)) | ((x >= most) & (gradient < 0.0))
    return float(xp.max(xp.abs(xp.where(held, xp.zeros_like(gradient), gradient))))


def _outcome(reason: Status) -> tuple[int, str, bool]:
    if reason in (Status.ROUNDING, Status.LINE_SEARCH):
        # Pixels that change hands make the energy's slope jump: below that, no line search goes on.
        return 0, "converged to the resolution of the image: no step lowers the energy any more", True
    if reason is Status.GRADIENT:
        return 0, "converged: every site is at its centroid (gtol)", True
    return reason.scipy, reason.message, reason.success
