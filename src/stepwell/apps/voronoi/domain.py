"""The image that is tessellated: its pixels, its density as whole numbers, and sites inside it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from stepwell.arrays import Array, as_contiguous, host_view, is_cuda, namespace_of, numpy_dtype, without_graph
from stepwell.arrays.checks import read_array, require_each
from stepwell.common.checks import WrongKind, read_real, read_whole, require, require_shape

LONGEST_SIDE = 32768
MAX_BITS = 24  # of a pixel's weight: exact in float32
#: Between these the largest density may lie, so that energies, gradients and their scales are ordinary numbers.
MIN_LARGEST, MAX_LARGEST = 1e-280, 1e280


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
    whole = not isinstance(shape, list | tuple | np.ndarray) or (isinstance(shape, np.ndarray) and shape.ndim == 0)
    if whole:
        side = read_whole(name, shape, 1, LONGEST_SIDE, other="a pair (height, width)")
        return side, side
    sides = tuple(shape)
    require(len(sides) == 2, name, shape, "an integer or a pair (height, width)")
    height, width = (read_whole(f"{name}[{k}]", side, 1, LONGEST_SIDE) for k, side in enumerate(sides))
    return height, width


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
        xp = namespace_of(self.weights)
        positive = int(xp.sum(xp.astype(self.weights > 0, xp.int64)))
        _require_at_most(count, positive, "pixels of positive density", self.shape)


def weight_bits(shape: tuple[int, int]) -> int:
    """Return how many bits a weight may have: first moments of a cell as large as the image must fit 63 bits."""
    return min(MAX_BITS, 62 - (shape[0] * shape[1]).bit_length() - max(shape).bit_length())


def read_density(density: Any, resolution: Any = None) -> Density:
    """Check a density and turn it into whole numbers where it lives.

    Parameters
    ----------
    density : array (height, width) or float
        Non-negative and finite, not zero everywhere; a number is a uniform density on `resolution` pixels.
    resolution : int or (int, int), optional
        Only with a number.
    """
    given, density = density, read_array("density", density)
    if density.ndim == 0:
        return _uniform(given, resolution)
    require(resolution is None, "resolution", resolution, "None beside a density image, which has its own shape")
    sides = tuple(density.shape)
    fits = len(sides) == 2 and all(1 <= side <= LONGEST_SIDE for side in sides)
    require_shape(fits, "density", density, f"two dimensions (height, width), each from 1 to {LONGEST_SIDE}")
    shape = int(sides[0]), int(sides[1])
    kind = _kind_of_numbers("density", density, "biuf")
    values = _as_double("density", density)
    xp = namespace_of(values)
    low, high = float(xp.min(values)), float(xp.max(values))
    if not 0 <= low <= high < math.inf:  # only then is it worth a look at every pixel
        good = (values >= 0) & xp.isfinite(values)
        require_each(good, "density", values, "finite numbers of at least 0")
    if high == 0:
        raise ValueError("density is zero everywhere; allowed: positive somewhere")
    _require_maximum(high)
    most = 2.0 ** weight_bits(shape)
    # Images in whole numbers stay as they are.
    unit = 1.0 if kind in "bui" and high < most else high / (most - 1)
    # Transposed images keep their strides through all this.
    weights = as_contiguous(xp.astype(xp.round(values / unit), xp.float32))
    whole = xp.astype(weights, xp.float64)
    area = pixel_size(shape) ** 2
    mass, root = float(xp.sum(whole)) * unit * area, float(xp.sum(xp.sqrt(whole))) * math.sqrt(unit) * area
    return Density(weights, unit, shape, mass, root)


def _require_maximum(high: float) -> None:
    fits = MIN_LARGEST <= high <= MAX_LARGEST
    require(fits, "the maximum of density", high, f"{MIN_LARGEST} to {MAX_LARGEST}")


def _uniform(density: Any, resolution: Any) -> Density:
    value = read_real("density", density, above=0)
    _require_maximum(value)
    allowed = "an integer or a pair (height, width), where the density is uniform"
    require(resolution is not None, "resolution", resolution, allowed)
    shape = read_shape(resolution, "resolution")
    area = shape[0] * shape[1] * pixel_size(shape) ** 2
    return Density(np.ones(shape, np.float32), value, shape, value * area, math.sqrt(value) * area)


def read_sites(sites: Any, shape: tuple[int, int]) -> Array:
    """Check sites and return them as a contiguous (n, 2) float64 array: NumPy for the host's, else on their device."""
    sites = read_array("sites", sites)
    require_shape(sites.ndim == 2 and sites.shape[1] == 2, "sites", sites, "(n, 2), x and y of each")
    _kind_of_numbers("sites", sites, "iuf")
    require_count(int(sites.shape[0]), shape)
    sites = as_contiguous(_as_double("sites", without_graph(sites)))
    for name, column, far in zip("xy", (sites[:, 0], sites[:, 1]), extent_of(shape)):
        allowed = f"0 to {far}, the extent of the domain"
        require_each((column >= 0) & (column <= far), f"{name} of sites", column, allowed)
    return sites


def _kind_of_numbers(argument: str, array: Array, kinds: str) -> str:
    """Return NumPy's letter for the kind of numbers, one of some: other libraries have types that NumPy has not."""
    try:
        kind = numpy_dtype(array).kind
    except TypeError:
        kind = "V"  # nothing that counts
    if kind not in kinds:
        raise WrongKind(f"{argument} has dtype {array.dtype}; allowed: integers, float16, float32 or float64")
    return kind


def _as_double(argument: str, array: Array) -> Array:
    """Return float64 values where they are: in NumPy, without a copy if they are that already, or on the device."""
    if not is_cuda(array):
        return np.asarray(host_view(array), dtype=np.float64)
    xp = namespace_of(array)
    values = xp.astype(array, xp.float64)
    if numpy_dtype(values) != np.float64:
        raise WrongKind(f"{argument} has dtype {values.dtype} in JAX; allowed: float64, with jax_enable_x64 set")
    return values


def host_template(*candidates: Any) -> Any:
    """Return the first array among what a caller gave, whose library results on the host come back in.

    Examples
    --------
    >>> host_template(3, None, np.zeros(2), [1.0])
    array([0., 0.])
    """
    arrays = (given for given in candidates if hasattr(given, "shape") and not isinstance(given, np.generic))
    return next(arrays, np.empty(0))


def require_count(count: int, shape: tuple[int, int]) -> None:
    """Raise unless the number of sites is positive and no larger than that of pixels."""
    _require_at_most(count, shape[0] * shape[1], "pixels", shape)


def _require_at_most(count: int, available: int, what: str, shape: tuple[int, int]) -> None:
    allowed = f"1 to {available}, the number of {what} in {shape[0]} x {shape[1]}"
    require(1 <= count <= available, "the number of sites", count, allowed)
