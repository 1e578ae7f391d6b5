"""What the sweeps of kernels and of array operations have in common: their arguments, shrinking and clipping."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepwell.arrays import Array, copy_to_device_of, namespace_of
from stepwell.krylov.tv.differences import along, sizes


@dataclass(frozen=True)
class Widths:
    """Weights of differences: ``values`` (1 or axes, 1, *dims), and which differences count, ``usable`` (axes, ...).

    ``regions`` numbers, on the host, the pixels that usable differences connect; -1 outside a mask.
    """

    values: Array
    usable: Array
    regions: np.ndarray

    def like(self, template: Array) -> Widths:
        """Return the weights in the library, device and dtype of an array; which count as numbers 0 and 1."""
        values, usable = (np.asarray(part, dtype=np.float64) for part in (self.values, self.usable))
        return Widths(copy_to_device_of(values, template), copy_to_device_of(usable, template), self.regions)

    def counting(self, field: Array) -> Array:
        """Return a field with zeros for differences that do not count."""
        return field * self.usable

    def relative(self, lengths: Array) -> Array:
        """Return lengths over their weights, zero where the weight is."""
        xp = namespace_of(lengths)
        some = self.values > 0
        return xp.where(some, lengths / xp.where(some, self.values, xp.ones_like(self.values)), xp.zeros_like(lengths))

    def shrunk(self, w: Array, threshold: Array, eps: float, anisotropic: bool) -> Array:
        """Return z = shrink(w) with thresholds times the weights; differences that do not count stay."""
        xp = namespace_of(w)
        own = threshold * self.values
        size = sizes(self.counting(w), anisotropic)
        factor = 1 - own / xp.maximum(size, xp.where(own > 0, own, xp.ones_like(own)))
        if eps:
            factor = xp.maximum(factor, eps / (eps + own))
        return xp.where(self.usable > 0, w * factor, w)


@dataclass
class Sweep:
    """What kernels need for the sweeps of all problems of a task: the model, the state, and numbers per problem.

    Problems that are ``single`` are swept in single precision, for the step from ``x0``: then rounding is relative to
    the step. Their ``linear`` is that of the step; the arrays are in the precision of all.
    """

    weights: tuple[float, ...]
    rho: float
    over: float
    anisotropic: bool
    threshold: np.ndarray
    least: np.ndarray
    counts: np.ndarray
    linear: Array
    inverse: Array
    solved: Array | None
    small: Array | None
    z: Array
    u: Array
    s: Array | None
    v: Array | None
    lower: Array | None
    upper: Array | None
    single: np.ndarray | None = None
    x0: Array | None = None


def shrunk(w: Array, threshold: np.ndarray, least: np.ndarray, anisotropic: bool) -> Array:
    """Return z = shrink(w), given λ/ρ and the least factor of every problem."""
    lowest = along(least, w, 1) if least.any() else 0.0
    return w * shrinkage(w, along(threshold, w, 1), lowest, anisotropic)


def clipped(h: Array, lower: Array | None, upper: Array | None) -> Array:
    """Return the nearest values within the bounds."""
    xp = namespace_of(h)
    if lower is not None:
        h = xp.where(h < lower, lower, h)
    return h if upper is None else xp.where(h > upper, upper, h)


def shrinkage(w: Array, threshold: Array, least: Array | float, anisotropic: bool) -> Array:
    """Return the factor by which shrinking multiplies w: 1 − τ/|w|, at least 0 (Huber: ε/(ε + τ)); τ is above 0."""
    xp = namespace_of(w)
    factor = 1 - threshold / xp.maximum(sizes(w, anisotropic), threshold)
    return factor if isinstance(least, float) else xp.maximum(factor, least)
