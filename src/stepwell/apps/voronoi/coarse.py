"""Sites that were drawn, moved on an image of fewer pixels first, where an evaluation costs a fraction."""

from __future__ import annotations

import dataclasses

import numpy as np

from stepwell.apps.voronoi.domain import Density, read_density
from stepwell.arrays import Array

#: Pixels that a cell should have on the smaller image: below, its energy differs too much for its steps to be of use.
_LEAST_PIXELS = 16.0


def pixels_to_merge(density: Density, count: int) -> int:
    """Return how many pixels along a side may become one, a power of two; 1 where cells have too few.

    Examples
    --------
    >>> [pixels_to_merge(read_density(1.0, 64), count) for count in (16, 64, 256)]
    [4, 2, 1]
    """
    # (∫√ρ)²/∫ρ is the area of a uniform density, and of another one about that in which it is.
    of_a_cell = density.root**2 / (density.mass * density.pixel**2 * count)
    merged = 1
    while of_a_cell >= _LEAST_PIXELS * (2 * merged) ** 2:
        merged *= 2
    return merged


@dataclasses.dataclass(frozen=True)
class SmallerImage:
    """A density on fewer pixels, the last of which may reach over the border, and sites there and back.

    Examples
    --------
    >>> small = SmallerImage.of(read_density(np.arange(15.0).reshape(3, 5)), 2)
    >>> small.density.shape, small.ratio
    ((2, 3), 1.2)
    """

    density: Density
    ratio: float  #: how much longer the domain's longer side is than that of the image itself
    extent: tuple[float, float]  #: of the image itself

    @classmethod
    def of(cls, density: Density, merged: int) -> SmallerImage:
        """Make one of a density on the host, with so many pixels along a side in one."""
        small = read_density(_merge(_merge(density.weights, merged).T, merged).T)
        return cls(small, merged * max(small.shape) / max(density.shape), density.extent)

    def there(self, sites: Array) -> Array:
        """Return sites of the image itself in the units of this one."""
        return sites / self.ratio

    def back(self, sites: Array) -> Array:
        """Return sites of this image in the domain of the image itself."""
        return np.clip(sites * self.ratio, 0.0, self.extent)


def _merge(weights: np.ndarray, merged: int) -> np.ndarray:
    """Return the sums of so many rows each."""
    sums = np.zeros((-(-weights.shape[0] // merged), weights.shape[1]))
    for first in range(merged):
        rows = weights[first::merged]
        sums[: len(rows)] += rows
    return sums
