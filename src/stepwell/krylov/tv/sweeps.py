"""The inner loop: a step's total variation problem with the metric in place of A, by ADMM. No product with A.

    x = (H + ρ∇ᵀ∇ + μ)⁻¹ (linear + ρ∇ᵀ(z − u) + μ(s − v)),   z = shrink(∇x + u),   s = clip(x + v)

with over-relaxation. This is the one module in which the time goes: fused kernels for hosts and GPUs belong here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stepwell.arrays import Array, copy_to_device_of, namespace_of
from stepwell.krylov.tv.differences import differences, divergence, sizes
from stepwell.krylov.tv.metric import Model
from stepwell.krylov.tv.task import Task, along

#: Over-relaxation of ADMM (Eckstein and Bertsekas 1992).
OVER = 1.7


@dataclass
class Splitting:
    """The state of ADMM: z and u of the differences, s and v of the bounds (None without)."""

    z: Array
    u: Array
    s: Array | None
    v: Array | None

    def take(self, rows: np.ndarray) -> Splitting:
        """Return the states of some problems."""
        return Splitting(
            _taken(self.z, rows, 1), _taken(self.u, rows, 1), take_some(self.s, rows), take_some(self.v, rows)
        )

    def times(self, factors: np.ndarray) -> Splitting:
        """Return the state with its multipliers times a factor per problem: for another λ."""
        return replace(self, u=self.u * along(factors, self.u, 1))


def take_some(block: Array | None, rows: np.ndarray) -> Array | None:
    """Return some problems of a block of images that has a row for each."""
    return None if block is None else _taken(block, rows, 0)


def _taken(block: Array, rows: np.ndarray, axis: int) -> Array:
    return namespace_of(block).take(block, copy_to_device_of(rows, block), axis=axis)


def run_sweeps(
    task: Task, model: Model, linear: Array, start: Splitting, rho: float, count: int
) -> tuple[Array, Splitting]:
    """Run so many sweeps; return x, within the bounds exactly, and the state."""
    xp = namespace_of(linear)
    weights, cosines = task.grid.weights, task.cosines
    z, u, s, v = start.z, start.u, start.s, start.v
    smallest = float(xp.finfo(linear.dtype).smallest_normal)  # so that λ = 0 divides nothing by zero
    threshold = along(np.maximum(task.lam / rho, smallest), u, 1)
    least = task.eps / (task.eps + threshold) if task.eps else 0.0
    x = linear
    for _ in range(count):
        pull = divergence(z - u, weights)
        if s is not None:
            pull = pull + (s - v)
        x = cosines.inverse(model.solve(cosines.forward(rho * pull) + linear))
        w = _relaxed(differences(x, weights), u, z)
        z = w * _shrinkage(w, threshold, least, task.anisotropic)
        u = w - z
        if s is not None:
            h = _relaxed(x, v, s)
            s = task.nearest(h)
            v = h - s
    found = x if s is None else s
    return xp.asarray(found), Splitting(z, u, s, v)


def _relaxed(new: Array, dual: Array, old: Array) -> Array:
    """Return OVER·new + dual − (OVER − 1)·old; `new` may be written to."""
    if isinstance(new, np.ndarray):
        new *= OVER
        new += dual
        new -= (OVER - 1) * old
        return new
    return OVER * new + dual - (OVER - 1) * old


def _shrinkage(w: Array, threshold: Array, least: Array | float, anisotropic: bool) -> Array:
    """Return the factor by which shrinking multiplies w: 1 − τ/|w|, at least 0 (Huber: ε/(ε + τ)); τ is above 0."""
    xp = namespace_of(w)
    factor = 1 - threshold / xp.maximum(sizes(w, anisotropic), threshold)
    return factor if isinstance(least, float) else xp.maximum(factor, least)
