"""A matrix as derivatives see it: products, and the cotangent of its entries.

Only operators and methods that arrays of all libraries have, so that programs of these can be traced and compiled. Of
systems in a batch, vectors are rows: x has shape (n,) or (systems, n).
"""

from __future__ import annotations

from typing import Any, Protocol

from stepwell.arrays import Array, add_products, matrix_product, namespace_of
from stepwell.lsq.convolution import convolve


class Matrix(Protocol):
    """One matrix for all systems or one for each."""

    @property
    def entries(self) -> Array:
        """What the matrix is made of, and what has a cotangent: its entries, or a pulse."""

    def like(self, entries: Array) -> Matrix:
        """Return a matrix of the same kind made of other entries."""

    def times(self, x: Array) -> Array:
        """A x of each system."""

    def transposed_times(self, y: Array) -> Array:
        """Aᵀ y of each system."""

    def cotangent(self, y: Array, x: Array) -> Array:
        """The gradient of Σ yᵀ A x with respect to the entries, summed over the systems that share them."""

    def cotangent_of_two(self, y: Array, x: Array, other_y: Array, other_x: Array) -> Array:
        """The sum of the cotangents of two pairs."""

    def normal_times(self, x: Array) -> Array:
        """AᵀA x of each system."""

    def normal_change(self, change: Array, x: Array) -> Array:
        """(ȦᵀA + AᵀȦ) x, where `change` is Ȧ."""

    def normal_cotangent(self, y: Array, x: Array) -> Array:
        """The gradient of Σ yᵀ AᵀA x with respect to the entries."""


class _Columns:
    """What follows from products with A and its transpose."""

    like: Any
    times: Any
    transposed_times: Any
    cotangent: Any

    def cotangent_of_two(self, y: Array, x: Array, other_y: Array, other_x: Array) -> Array:
        """The sum of two cotangents."""
        found: Array = self.cotangent(y, x) + self.cotangent(other_y, other_x)
        return found

    def normal_times(self, x: Array) -> Array:
        """AᵀA x."""
        return self.transposed_times(self.times(x))

    def normal_change(self, change: Array, x: Array) -> Array:
        """(ȦᵀA + AᵀȦ) x."""
        other = self.like(change)
        return other.transposed_times(self.times(x)) + self.transposed_times(other.times(x))

    def normal_cotangent(self, y: Array, x: Array) -> Array:
        """A y xᵀ + A x yᵀ, as entries have it."""
        return self.cotangent(self.times(y), x) + self.cotangent(self.times(x), y)


class Dense(_Columns):
    """A of shape (m, n), or (systems, m, n)."""

    def __init__(self, entries: Array) -> None:
        self.entries = entries

    def like(self, entries: Array) -> Dense:
        """Return the matrix with other entries."""
        return Dense(entries)

    def times(self, x: Array) -> Array:
        """A x."""
        A = self.entries
        return matrix_product(x, A.T) if A.ndim == 2 else matrix_product(A, x[..., None])[..., 0]

    def transposed_times(self, y: Array) -> Array:
        """Aᵀ y."""
        A = self.entries
        return matrix_product(y, A) if A.ndim == 2 else matrix_product(y[..., None, :], A)[..., 0, :]

    def cotangent(self, y: Array, x: Array) -> Array:
        """Σ y xᵀ: a product of matrices where systems share A, so that no outer product is formed."""
        if self.entries.ndim == 2 and y.ndim == 2:
            return matrix_product(y.T, x)
        return y[..., :, None] * x[..., None, :]

    def cotangent_of_two(self, y: Array, x: Array, other_y: Array, other_x: Array) -> Array:
        """The sum of two cotangents, of which each entry is written twice at the most."""
        first = self.cotangent(y, x)
        if self.entries.ndim == 2 and y.ndim == 2:
            return first + matrix_product(other_y.T, other_x)
        return add_products(first, other_y[..., :, None], other_x[..., None, :])


class Gram(_Columns):
    """AᵀA itself, (n, n) or (systems, n, n), where normal equations are what is given: used as symmetric."""

    def __init__(self, entries: Array) -> None:
        self.entries, self._dense = entries, Dense(entries)

    def like(self, entries: Array) -> Gram:
        """Return the matrix with other entries."""
        return Gram(entries)

    def normal_times(self, x: Array) -> Array:
        """G x."""
        return (self._dense.times(x) + self._dense.transposed_times(x)) / 2

    def normal_change(self, change: Array, x: Array) -> Array:
        """Ġ x."""
        return Gram(change).normal_times(x)

    def normal_cotangent(self, y: Array, x: Array) -> Array:
        """The symmetric part of y xᵀ: where systems share G one product, [y x] [x y]ᵀ / 2."""
        xp = namespace_of(y, x)
        if self.entries.ndim == 2 and y.ndim == 2:
            return matrix_product(xp.concat([y, x]).T, xp.concat([x / 2, y / 2]))
        half = y / 2
        outer = half[..., :, None] * x[..., None, :]
        return add_products(outer, x[..., :, None], half[..., None, :])


class Pulses(_Columns):
    """The convolution ``A[i, j] = pulse[i − j + origin]``, with one pulse, or one a system."""

    def __init__(self, entries: Array, m: int, n: int, origin: int) -> None:
        self.entries, self.m, self.n, self.origin = entries, m, n, origin

    def like(self, entries: Array) -> Pulses:
        """Return the convolution with another pulse."""
        return Pulses(entries, self.m, self.n, self.origin)

    def times(self, x: Array) -> Array:
        """A x."""
        return _convolve(self.entries, x, self.m, self.n, self.origin, transposed=False)

    def transposed_times(self, y: Array) -> Array:
        """Aᵀ y."""
        return _convolve(self.entries, y, self.m, self.n, self.origin, transposed=True)

    def cotangent(self, y: Array, x: Array) -> Array:
        """Σ_i y_i x_{i − t + origin} for every sample t: the convolution with x, transposed, times y."""
        length, missing = int(self.entries.shape[-1]), self.origin + 1 - self.n
        if missing > 0:  # the origin lies beyond the last unknown
            x = _padded(x, missing)
        found = _convolve(x, y, self.m, length, self.origin, transposed=True)
        return found.sum(0) if self.entries.ndim == 1 and found.ndim == 2 else found


#: How compiled programs, which keep plain numbers, say what kind a matrix is: as the rows of a convolution.
DENSE, GRAM = (-1, 0, 0), (-2, 0, 0)
Kind = tuple[int, int, int]


def matrix_of(entries: Array, kind: Kind) -> Any:
    """Return the matrix made of entries: `DENSE`, `GRAM`, or rows, columns and origin of a convolution."""
    rows, columns, origin = kind
    if rows >= 0:
        return Pulses(entries, rows, columns, origin)
    return Gram(entries) if rows == GRAM[0] else Dense(entries)


def _padded(x: Array, count: int) -> Array:
    xp = namespace_of(x)
    zero = xp.zeros_like(x[..., :1])
    return xp.concat([x, *[zero] * count], axis=-1)


def _convolve(pulse: Array, x: Array, m: int, n: int, origin: int, *, transposed: bool) -> Array:
    """Multiply each row of x by the convolution with its pulse, or with the one of all rows."""
    if transposed:  # the convolution with the pulse turned round
        pulse, m, origin = namespace_of(pulse).flip(pulse, axis=-1), n, int(pulse.shape[-1]) - 1 - origin
    if x.ndim > 1 and pulse.ndim == 1:
        return convolve(pulse, x.T, m, origin).T
    return convolve(pulse, x[..., None], m, origin)[..., 0]
