"""Whether the last axis of an image is that of its echoes: along it, and along no axis of space, signals decay."""

from __future__ import annotations

import numpy as np

from stepwell.apps.images import Image
from stepwell.common.files import Unreadable

#: The last third of a train over the first: above it signals do not decay, above the second they grow.
FLAT, GROWN = 0.9, 1.25
#: Entries that the first axis must have to be one of echoes, and the share of its steps that go down.
FEW, STEADY = 8, 0.8


def require_echoes(image: Image) -> None:
    """Raise for an image whose signals decay along the first axis instead of the last, or grow along the last.

    Only the middle slab is read where it decays as it should.
    """
    if 0 in image.shape:
        return
    middle = image.shape[image.axis] // 2
    slab = image.read(middle, middle + 1).reshape(-1, image.shape[-1])
    ratio = _late_over_early(np.array([_mean(one) for one in slab.T]))
    if ratio < FLAT:
        return
    if ratio > GROWN:
        raise Unreadable(
            f"{image.path}: has shape {image.shape}, and along its last axis signals grow by a factor of {ratio:.3g}: "
            "that is no train of echoes; allowed: four axes, the echo last"
        )
    if image.shape[0] < FEW:
        return
    first = np.array([_mean(image.read(place, place + 1, 0)) for place in range(image.shape[0])])
    if _late_over_early(first) < FLAT and np.mean(np.diff(first) < 0) >= STEADY:
        raise Unreadable(
            f"{image.path}: has shape {image.shape}, and signals decay along its first axis, not along its last: it "
            "looks transposed; allowed: four axes, the echo last"
        )


def _mean(values: np.ndarray) -> float:
    """Return the mean size of what is finite."""
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.mean()) if finite.size else 0.0


def _late_over_early(means: np.ndarray) -> float:
    """Return the mean of the last third over that of the first; 1 where there is nothing."""
    third = max(1, len(means) // 3)
    early, late = float(means[:third].mean()), float(means[-third:].mean())
    return late / early if early > 0 else 1.0
