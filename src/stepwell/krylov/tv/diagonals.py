"""The diagonal of AᵀA in the cosine basis from a noisy estimate: averages over frequencies, and over neighbours.

An average over all coefficients of one frequency has little noise and misses what is not radial, such as the star that
few angles make. An average over neighbours has that, and noise. Estimates from the even and from the odd coefficients
of a window have the same structure and independent noise: their product tells the one, their difference the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepwell.krylov.tv.transforms import laplacian_eigenvalues

#: Bins of the frequency at most; fewer for small images, so that each has several coefficients.
BINS = 48
#: The diagonal is at least this part of its largest value, and this part of the average over its frequency.
FLOOR, NEAR = 1e-3, 0.3
#: Coefficients below which there is no average over neighbours.
FEW = 1024
#: Variance of the structure, relative to the radial average: above, neighbours alone count; a second probe is made.
CLEAR, STRONG = 0.25, 1.0


def by_frequency(diagonal: np.ndarray, shape: tuple[int, ...], weights: tuple[float, ...]) -> np.ndarray:
    """Average a noisy diagonal over bins of equal frequency, and keep it off zero."""
    frequency = np.sqrt(laplacian_eigenvalues(shape, weights))
    bins = int(np.clip(round(np.sqrt(diagonal.size) / 2), 1, BINS))
    which = np.minimum((frequency / max(frequency.max(), np.finfo(float).tiny) * bins).astype(int), bins - 1)
    total = np.bincount(which.ravel(), diagonal.ravel(), bins)
    mean = total / np.maximum(np.bincount(which.ravel(), minlength=bins), 1)
    top = mean.max()
    if not (np.isfinite(top) and top > 0):
        return np.ones(shape)  # A is zero, or not finite: any metric serves
    found: np.ndarray = np.maximum(mean, FLOOR * top)[which]
    return found


@dataclass(frozen=True)
class Structure:
    """What a noisy diagonal has beside its radial average: the share that averages over neighbours get."""

    share: float
    again: bool

    def blended(self, diagonal: np.ndarray, radial: np.ndarray) -> np.ndarray:
        """Return the diagonal between both averages."""
        if not self.share:
            return radial
        local = radial + self.share * (_smoothed(diagonal) - radial)
        found: np.ndarray = np.maximum(np.maximum(local, NEAR * radial), FLOOR * radial.max())
        return found


def structure(diagonal: np.ndarray, radial: np.ndarray) -> Structure:
    """Find how much of what differs from the radial average is no noise."""
    if diagonal.size < FEW or not np.isfinite(diagonal).all():
        return Structure(0.0, again=False)
    relative = diagonal / radial - 1
    even = np.indices(diagonal.shape).sum(axis=0) % 2 == 0
    one, other = (_smoothed(np.where(half, relative, 0.0)) / _smoothed(half.astype(float)) for half in (even, ~even))
    seen, noise = max(0.0, float(np.mean(one * other))), float(np.mean((one - other) ** 2)) / 4
    share = 1.0 if seen > CLEAR else seen / (seen + noise) if seen > 0 else 0.0
    return Structure(share, again=seen > STRONG)


def _smoothed(diagonal: np.ndarray) -> np.ndarray:
    """Average over the next neighbours along every axis, over more of them on a line."""
    from scipy.ndimage import uniform_filter

    found: np.ndarray = uniform_filter(diagonal, 9 if np.sum(np.array(diagonal.shape) > 1) < 2 else 3, mode="reflect")
    return found
