"""λ‖x‖₁ or λ Σ‖x_g‖ within bounds: its value, its proximal map, and a lower bound of the least objective.

    dual: max −½‖y‖² − bᵀy − h*(v),   v = −Aᵀy,   h* = Σ max over the box of v x − λ|x|   (0 or ∞ without bounds)

Any y is scaled until h* is finite: s v_j <= λ where x_j may grow without bound, and so on; of groups the norms count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepwell.arrays import Array, as_float, copy_to_device_of, double_precision, namespace_of, to_host
from stepwell.krylov.bounded import Box
from stepwell.krylov.tv.task import column_sums


@dataclass(frozen=True)
class Groups:
    """Which unknowns belong together: a label for each, and the members of every group, padded with n."""

    labels: np.ndarray
    members: np.ndarray

    @classmethod
    def of(cls, labels: np.ndarray) -> Groups:
        """Return the groups of equal labels."""
        _, own = np.unique(labels, return_inverse=True)
        counts = np.bincount(own)
        members = np.full((counts.size, int(counts.max(initial=1))), own.size, dtype=np.int64)
        order = np.argsort(own, kind="stable")
        places = np.arange(own.size) - np.repeat(np.cumsum(counts) - counts, counts)
        members[own[order], places] = order
        return cls(own.astype(np.int64), members)

    def norms(self, block: Array) -> Array:
        """Return the Euclidean norm of every group, (groups, columns)."""
        xp = namespace_of(block)
        padded = xp.concat([block, xp.zeros_like(block[:1])], axis=0)
        flat = xp.take(padded, copy_to_device_of(self.members.ravel(), block), axis=0)
        parts = xp.reshape(flat, (*self.members.shape, block.shape[1]))
        return xp.sqrt(xp.sum(parts * parts, axis=1))

    def spread(self, numbers: Array) -> Array:
        """Return numbers of groups at each of their members."""
        return namespace_of(numbers).take(numbers, copy_to_device_of(self.labels, numbers), axis=0)


@dataclass(frozen=True)
class Penalty:
    """λ of every column, groups, and bounds, within which zero lies."""

    lam: np.ndarray
    groups: Groups | None
    box: Box | None

    def take(self, columns: np.ndarray) -> Penalty:
        """Return the penalty of some columns."""
        return Penalty(self.lam[columns], self.groups, None if self.box is None else self.box.take(columns))

    def value(self, x: Array) -> np.ndarray:
        """λ‖x‖₁, or λ Σ‖x_g‖, of every column."""
        xp = namespace_of(x)
        sizes = xp.abs(x) if self.groups is None else self.groups.norms(x)
        found: np.ndarray = self.lam * _sums(sizes)
        return found

    def nearest(self, x: Array) -> Array:
        """Return the nearest point within the bounds."""
        return x if self.box is None else self.box.nearest(x)

    def shrunk(self, v: Array, steps: np.ndarray) -> Array:
        """Return argmin ½‖x − v‖² + step·h(x), column by column."""
        xp = namespace_of(v)
        threshold = copy_to_device_of((self.lam * steps)[None, :], v)
        if self.groups is None:
            size = xp.abs(v) - threshold
            return self.nearest(xp.where(size > 0, xp.sign(v) * size, xp.zeros_like(v)))
        v = self.nearest(v)  # of x >= 0: the positive part is what is shrunk
        norms = self.groups.norms(v)
        some = norms > threshold
        factor = xp.where(some, 1 - threshold / xp.where(some, norms, xp.ones_like(norms)), xp.zeros_like(norms))
        return v * self.groups.spread(factor)

    def lower_bounds(self, b: Array, y: Array, back: Array) -> np.ndarray:
        """Return a proven lower bound for every column, from any y, and Aᵀy."""
        with double_precision(y):
            b, y, v = (as_float(part, "float64") for part in (b, y, -back))
            square, linear = column_sums(y, y), -column_sums(b, y)
            most = self._most(v)
            with np.errstate(divide="ignore", invalid="ignore"):
                best = np.clip(np.where(square > 0, linear / np.where(square > 0, square, 1), 0.0), 0.0, most)
            found = np.zeros_like(square)
            for scale in (best,) if self.box is None else (best, np.minimum(1.0, most), 0.5 * best):
                bound = scale * linear - 0.5 * scale * scale * square - self._conjugate(v, scale)
                found = np.maximum(found, np.where(np.isfinite(bound), bound, 0.0))  # f is never negative
        return found

    def _most(self, v: Array) -> np.ndarray:
        """Return the largest factor of v with which h* is finite."""
        xp = namespace_of(v)
        if self.box is not None:  # only directions without a bound count
            lower, upper = self.box.lower, self.box.upper
            zero = xp.zeros_like(v)
            if upper is not None:
                v = xp.where((v > 0) & xp.isfinite(_wide(upper)), zero, v)
            if lower is not None:
                v = xp.where((v < 0) & xp.isfinite(_wide(lower)), zero, v)
        sizes = xp.abs(v) if self.groups is None else self.groups.norms(v)
        largest = to_host(xp.max(sizes, axis=0)) if sizes.shape[0] else np.zeros(self.lam.size)
        with np.errstate(divide="ignore", invalid="ignore"):
            found: np.ndarray = np.where(largest > 0, self.lam / np.where(largest > 0, largest, 1), np.inf)
        return found

    def _conjugate(self, v: Array, scale: np.ndarray) -> np.ndarray:
        """h*(s v), where it is finite: at x = 0, or at a finite bound."""
        if self.box is None:
            return np.zeros(self.lam.size)
        xp = namespace_of(v)
        v = v * copy_to_device_of(np.where(np.isfinite(scale), scale, 0.0)[None, :], v)
        lam = copy_to_device_of(self.lam[None, :], v)
        best = xp.zeros_like(v)
        for side in (self.box.lower, self.box.upper):
            if side is not None and self.groups is None:
                side = _wide(side)
                here = xp.where(xp.isfinite(side), side, xp.zeros_like(side))
                best = xp.maximum(best, v * here - lam * xp.abs(here))
        return _sums(best)


def _wide(side: Array) -> Array:
    return as_float(side, "float64")


def _sums(block: Array) -> np.ndarray:
    """Sums of columns, in double precision, on the host."""
    xp = namespace_of(block)
    with double_precision(block):
        return to_host(xp.sum(block, axis=0, dtype=xp.float64))
