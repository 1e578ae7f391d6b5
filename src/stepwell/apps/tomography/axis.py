"""Where the rotation axis falls on the detector, from projections that look at the object from opposite sides."""

from __future__ import annotations

import numpy as np

from stepwell.arrays.checks import read_numpy
from stepwell.common.checks import require_shape

#: Degrees by which two projections may miss being opposite, in steps between angles.
NEAR = 0.25
#: Steps beyond the last projection to which it is continued, where none is opposite to the first.
BEYOND = 2.0
#: Pairs and slices that are looked at.
PAIRS, SLICES = 8, 64
#: Share of the detector that a projection and its mirror image must have in common.
OVERLAP = 0.4


def find_axis(integrals: np.ndarray, angles: np.ndarray) -> float:
    """Return the detector column of the rotation axis of a parallel-beam scan.

    A projection and the one from the opposite side are mirror images about the axis: the mirror is moved until the two
    agree best, in all slices at once, and the minimum is found between half columns by a parabola.

    Parameters
    ----------
    integrals : array, (angles, slices, detectors)
    angles : array
        Degrees, rising or falling; over at least 180 degrees less two steps.

    Examples
    --------
    >>> column = np.arange(40.0)
    >>> def seen(angle):
    ...     return np.exp(-0.1 * (column - 18.25 - 6 * np.cos(np.deg2rad(angle))) ** 2)
    >>> angles = np.arange(0, 181, 10.0)
    >>> bool(abs(find_axis(np.array([[seen(angle)] for angle in angles]), angles) - 18.25) < 0.02)
    True
    """
    integrals = np.asarray(read_numpy("integrals", integrals), dtype=np.float64)
    angles = np.asarray(read_numpy("angles", angles), dtype=np.float64)
    require_shape(
        integrals.ndim == 3 and 0 not in integrals.shape, "integrals", integrals, "(angles, slices, detectors)"
    )
    require_shape(angles.shape == integrals.shape[:1], "angles", angles, integrals.shape[:1])
    chosen = np.unique(np.linspace(0, integrals.shape[1] - 1, min(SLICES, integrals.shape[1])).round().astype(int))
    pairs = _opposite(np.where(np.isfinite(integrals[:, chosen]), integrals[:, chosen], 0.0), angles)
    width = integrals.shape[2]
    least = max(2, int(np.ceil(OVERLAP * width)))
    sums = np.arange(least - 1, 2 * width - least)  # twice the column of the axis
    misfit = np.array([_misfit(pairs, int(total)) for total in sums])
    best = int(np.argmin(misfit))
    if 0 < best < len(sums) - 1:
        left, middle, right = misfit[best - 1 : best + 2]
        bend = left - 2 * middle + right
        return float((sums[best] + (0.5 * (left - right) / bend if bend > 0 else 0.0)) / 2)
    return float(sums[best] / 2)


def _opposite(integrals: np.ndarray, angles: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return pairs of projections from opposite sides."""
    step = float(np.median(np.abs(np.diff(angles)))) if angles.size > 1 else 0.0
    apart = np.abs((angles[None, :] - angles[:, None]) % 360 - 180)
    found = [(int(i), int(j)) for i, j in np.argwhere(apart <= NEAR * step) if i < j]
    if found:
        return [(integrals[i], integrals[j]) for i, j in found[:: -(-len(found) // PAIRS)]]
    if angles.size > 2 and step > 0:
        # The last projection is continued to where it would be opposite to the first, and the first backwards.
        gap = 180 - abs(angles[-1] - angles[0])
        if 0 < gap <= BEYOND * step:
            ahead, back = gap / abs(angles[-1] - angles[-2]), gap / abs(angles[1] - angles[0])
            return [
                (integrals[0], integrals[-1] + ahead * (integrals[-1] - integrals[-2])),
                (integrals[0] + back * (integrals[0] - integrals[1]), integrals[-1]),
            ]
    raise ValueError(
        f"the angles run from {angles.min():.4g} to {angles.max():.4g} degrees: no two projections are opposite; "
        "allowed: 180 degrees or more for a centre that is found, or its column"
    )


def _misfit(pairs: list[tuple[np.ndarray, np.ndarray]], total: int) -> float:
    """Return how much projections differ from mirrors about total/2, relative to their size where they overlap."""
    width = pairs[0][0].shape[-1]
    low, high = max(0, total - width + 1), min(width, total + 1)
    apart = size = 0.0
    for first, second in pairs:
        here, there = first[..., low:high], second[..., total - high + 1 : total - low + 1][..., ::-1]
        apart += float(np.sum((here - there) ** 2))
        size += float(np.sum(here**2) + np.sum(there**2))
    return apart / size if size > 0 else np.inf
