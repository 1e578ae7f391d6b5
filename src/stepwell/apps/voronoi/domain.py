"""The image that is tessellated: its pixels, its density as whole numbers, and sites inside it."""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import Any

import numpy as np

from stepwell.arrays import Array, as_contiguous, device_name, host_view, is_cuda, kind_of, namespace_of, numpy_dtype
from stepwell.settings import require

LONGEST_SIDE = 32768
MOST_BITS = 24  # of a pixel's weight: exact in float32
#: Between these the largest density may lie, so that energies, gradients and their scales are ordinary numbers.
LEAST_MAXIMUM, MOST_MAXIMUM = 1e-280, 1e280


def pixel_size(shape: tuple[int, int]) -> float:
    """Return the width of a pixel: the longer side of the domain has length 1.

    Examples
    --------
    >>> pixel_size((100, 200))
    0.005
    """
    return 1.0 / max(shape)


def extent_of(shape: tuple[int, int]) -> tuple[float, float]:
    """Return width and height of the domain: of the ways to round them, the larger, so that nobody lies outside.

    Examples
    --------
    >>> extent_of((100, 200))
    (1.0, 0.5)
    """
    width, height = (max(side / max(shape), side * pixel_size(shape)) for side in (shape[1], shape[0]))
    return width, height


def read_shape(shape: Any, name: str = "shape") -> tuple[int, int]:
    """Return (height, width) of an image; a whole number stands for a square."""
    sides = (shape, shape) if np.ndim(shape) == 0 else tuple(shape)
    try:
        sides = tuple(operator.index(side) for side in sides)
    except TypeError:
        raise TypeError(f"{name} is {shape!r}; allowed: whole numbers (height, width)") from None
    if len(sides) != 2 or not all(1 <= side <= LONGEST_SIDE for side in sides):
        raise ValueError(f"{name} is {shape!r}; allowed: (height, width), each 1 to {LONGEST_SIDE}")
    return sides[0], sides[1]


@dataclasses.dataclass(frozen=True)
class Density:
    """A density image as whole numbers: ``density = weights * unit`` up to half a unit.

    Attributes
    ----------
    weights : (height, width) float32 array
        Whole numbers up to 2^24, exact in float32, where the density lives.
    unit : float
        What a weight of 1 stands for. Rounding changes the density by at most half of it: 2^-25 of its maximum.
    shape : (int, int)
        Height and width in pixels.
    mass : float
        ∫ρ.
    root : float
        ∫√ρ. The least energy of n sites is about (5/(18√3)) (∫√ρ)²/n (Gersho 1979); for uniform ρ = 1 it is |Ω|.
    """

    weights: Array
    unit: float
    shape: tuple[int, int]
    mass: float
    root: float

    @property
    def pixel(self) -> float:
        """Width of a pixel."""
        return pixel_size(self.shape)

    @property
    def extent(self) -> tuple[float, float]:
        """Width and height of the domain."""
        return extent_of(self.shape)

    @property
    def area(self) -> float:
        """Area of the domain."""
        return self.extent[0] * self.extent[1]

    def require_room(self, count: int) -> None:
        """Raise unless the number of sites is positive and no larger than that of pixels with any density."""
        check_count(count, self.shape)
        xp = namespace_of(self.weights)
        room = int(xp.sum(xp.astype(self.weights > 0, xp.int64)))
        if count > room:
            raise ValueError(
                f"there are {count} sites for {room} pixels of positive density, of {self.shape[0]} x "
                f"{self.shape[1]}; allowed: 1 to {room}"
            )


def weight_bits(shape: tuple[int, int]) -> int:
    """Return how many bits a weight may have: first moments of a cell as large as the image must fit 63 bits."""
    return min(MOST_BITS, 62 - (shape[0] * shape[1]).bit_length() - max(shape).bit_length())


def read_density(density: Any, resolution: Any = None) -> Density:
    """Check a density and turn it into whole numbers where it lives.

    Parameters
    ----------
    density : array (height, width) or float
        Non-negative and finite, not zero everywhere; a number is a uniform density on `resolution` pixels.
    resolution : int or (int, int), optional
        Only with a number.
    """
    if not hasattr(density, "shape"):
        density = _as_numbers(density, "density")
    if isinstance(density, np.ma.MaskedArray):
        raise TypeError("density is a masked array; allowed: one without a mask, such as density.filled(0)")
    if density.ndim == 0:
        return _uniform(density, resolution)
    if resolution is not None:
        raise ValueError(f"resolution is {resolution!r} beside a density image; allowed: only with a uniform density")
    if density.ndim != 2:
        raise ValueError(f"density has shape {tuple(density.shape)}; allowed: two dimensions, (height, width)")
    shape = read_shape(tuple(density.shape), "density's shape")
    kind = numpy_dtype(density).kind
    if kind not in "buif":
        raise TypeError(f"density has dtype {density.dtype}; allowed: real numbers")
    if not is_cuda(density):
        density = host_view(density)
    xp = namespace_of(density)
    values = xp.astype(density, xp.float64)
    if numpy_dtype(values) != np.float64:
        raise TypeError(f"density becomes {values.dtype}; allowed: JAX with jax_enable_x64 set, for float64")
    low, high = float(xp.min(values)), float(xp.max(values))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError("density is not finite everywhere; allowed: finite numbers, zero or more")
    if low < 0:
        raise ValueError(f"density is {low} somewhere; allowed: zero or more")
    if high == 0:
        raise ValueError("density is zero everywhere; allowed: positive somewhere")
    _check_maximum(high)
    most = 2.0 ** weight_bits(shape)
    # Images in whole numbers stay as they are.
    unit = 1.0 if kind in "bui" and high < most else high / (most - 1)
    # Transposed images keep their strides through all this.
    weights = as_contiguous(xp.astype(xp.round(values / unit), xp.float32))
    whole = xp.astype(weights, xp.float64)
    area = pixel_size(shape) ** 2
    mass, root = float(xp.sum(whole)) * unit * area, float(xp.sum(xp.sqrt(whole))) * math.sqrt(unit) * area
    return Density(weights, unit, shape, mass, root)


def _check_maximum(high: float) -> None:
    if not LEAST_MAXIMUM <= high <= MOST_MAXIMUM:
        raise ValueError(f"density is at most {high}; allowed: a maximum from {LEAST_MAXIMUM} to {MOST_MAXIMUM}")


def _uniform(density: np.ndarray, resolution: Any) -> Density:
    value = float(density)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"density is {value}; allowed: a positive number, or an image")
    _check_maximum(value)
    if resolution is None:
        raise ValueError("resolution is missing; allowed: (height, width) or a whole number, for a uniform density")
    shape = read_shape(resolution, "resolution")
    area = shape[0] * shape[1] * pixel_size(shape) ** 2
    return Density(np.ones(shape, np.float32), value, shape, value * area, math.sqrt(value) * area)


def read_sites(sites: Any, shape: tuple[int, int]) -> Array:
    """Check sites and return them as a contiguous (n, 2) float64 array: NumPy for the host's, else on their device."""
    if not hasattr(sites, "shape"):
        sites = _as_numbers(sites, "sites")
    if sites.ndim != 2 or sites.shape[1] != 2:
        raise ValueError(f"sites have shape {tuple(sites.shape)}; allowed: (n, 2), x and y of each")
    if numpy_dtype(sites).kind not in "iuf":
        raise TypeError(f"sites have dtype {sites.dtype}; allowed: real numbers")
    check_count(int(sites.shape[0]), shape)
    if is_cuda(sites):
        xp = namespace_of(sites)
        if kind_of(sites) == "torch":
            sites = sites.detach()
        sites = as_contiguous(xp.astype(sites, xp.float64))
        if numpy_dtype(sites) != np.float64:
            raise TypeError(f"sites become {sites.dtype}; allowed: JAX with jax_enable_x64 set, for float64")
        low = [float(v) for v in xp.min(sites, axis=0)]
        high = [float(v) for v in xp.max(sites, axis=0)]
    else:
        sites = np.ascontiguousarray(host_view(sites), dtype=np.float64)
        low, high = sites.min(axis=0), sites.max(axis=0)
    if not all(math.isfinite(v) for v in (*low, *high)):
        raise ValueError("sites are not finite everywhere; allowed: finite numbers")
    for name, axis, far in zip("xy", (0, 1), extent_of(shape)):
        if low[axis] < 0 or high[axis] > far:
            found = low[axis] if low[axis] < 0 else high[axis]
            raise ValueError(f"sites: {name} is {found} somewhere; allowed: 0 to {far}, the extent of the domain")
    return sites


def _as_numbers(values: Any, name: str) -> np.ndarray:
    """Return nested lists or a number as a NumPy array."""
    try:
        found = np.asarray(values)
    except ValueError:  # rows of different lengths
        found = np.empty(0, object)
    if found.dtype.kind not in "buif":
        raise TypeError(f"{name} is {values!r:.60}; allowed: an array of real numbers")
    return found


def read_count(count: Any, name: str = "count", allowed: str = "a whole number") -> int:
    """Return a number of sites as an int, or say that it is none."""
    try:
        if isinstance(count, bool | np.bool_):
            raise TypeError
        return operator.index(count)
    except TypeError:
        raise TypeError(f"{name} is {count!r}; allowed: {allowed}") from None


def check_seed(seed: Any) -> None:
    """Raise unless a start can be drawn again from this."""
    require(isinstance(seed, int | np.integer) and int(seed) >= 0, "seed", seed, "whole numbers from 0 on")


def host_template(*candidates: Any) -> Any:
    """Return the first array among what a caller gave, whose library results on the host come back in.

    Examples
    --------
    >>> host_template(3, None, np.zeros(2), [1.0])
    array([0., 0.])
    """
    arrays = (given for given in candidates if hasattr(given, "shape") and not isinstance(given, np.generic))
    return next(arrays, np.empty(0))


def check_count(count: int, shape: tuple[int, int]) -> None:
    """Raise unless the number of sites is positive and no larger than that of pixels."""
    if not 1 <= count <= shape[0] * shape[1]:
        raise ValueError(
            f"there are {count} sites for {shape[0]} x {shape[1]} pixels; allowed: 1 to {shape[0] * shape[1]}"
        )


def require_one_home(sites: Array, weights: Array) -> None:
    """Raise where sites and density live on different devices or, on a GPU, in different libraries."""
    if not (is_cuda(sites) or is_cuda(weights)):
        return
    if device_name(sites) != device_name(weights) or kind_of(sites) != kind_of(weights):
        raise ValueError(
            f"sites are a {kind_of(sites)} array on {device_name(sites)}, the density a {kind_of(weights)} array on "
            f"{device_name(weights)}; allowed: one library and one device (nothing is moved silently)"
        )
