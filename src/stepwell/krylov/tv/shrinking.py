"""What the sweeps of kernels and of array operations have in common: their arguments, shrinking and clipping."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepwell.arrays import Array, namespace_of
from stepwell.krylov.tv.differences import along, sizes


@dataclass
class Sweep:
    """What kernels need for the sweeps of all problems of a task: the model, the state, and numbers per problem."""

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
