"""Cosine transforms (DCT-II, orthonormal) over the trailing axes of a block of images, in any array library.

Kernels transform where there are some (kernels.py). Elsewhere sides of up to `MATRIX_SIDE` pixels are transformed by
products with the cosine matrix, which every library has, and which give a slice alone the bits that it has in a batch.
Longer ones go through the FFT (Makhoul 1980).
"""

from __future__ import annotations

import numpy as np

from stepwell.arrays import Array, copy_to_device_of, matrix_product, namespace_of
from stepwell.krylov.tv.kernels import kernels_for

#: Longest side that is transformed by a product with a matrix.
MATRIX_SIDE = 256


class Cosines:
    """The transform of images with sides ``dims``, in the library, device and dtype of a template.

    Examples
    --------
    >>> import numpy as np
    >>> cosines = Cosines((2, 3), np.empty(0))
    >>> image = np.arange(6.0).reshape(1, 2, 3)
    >>> bool(np.allclose(cosines.inverse(cosines.forward(image)), image))
    True
    """

    def __init__(self, dims: tuple[int, ...], template: Array) -> None:
        self.dims = dims
        self.kernels = kernels_for(dims, template)
        self._sides: dict[int, _Matrix | _Fast] = {}
        if self.kernels is not None:
            return
        for side in set(dims) - {1}:
            self._sides[side] = _Matrix(side, template) if side <= MATRIX_SIDE else _Fast(side, template)

    def forward(self, block: Array) -> Array:
        """Return the cosine coefficients of every image."""
        if self.kernels is not None:
            return self.kernels.transform(block, False)
        for axis, side in enumerate(self.dims, -len(self.dims)):
            if side > 1:
                block = self._sides[side].along(block, axis, False)
        return block

    def inverse(self, block: Array) -> Array:
        """Return the images that have these coefficients."""
        if self.kernels is not None:
            return self.kernels.transform(block, True)
        for axis, side in enumerate(self.dims, -len(self.dims)):
            if side > 1:
                block = self._sides[side].along(block, axis, True)
        return block


class _Matrix:
    """A side transformed by a product with the cosine matrix."""

    def __init__(self, side: int, template: Array) -> None:
        k, j = np.arange(side)[:, None], np.arange(side)[None, :]
        matrix = np.sqrt(2.0 / side) * np.cos(np.pi * k * (2 * j + 1) / (2 * side))
        matrix[0] = np.sqrt(1.0 / side)
        self.forward = copy_to_device_of(matrix, template)
        self.inverse = copy_to_device_of(np.ascontiguousarray(matrix.T), template)

    def along(self, block: Array, axis: int, back: bool) -> Array:
        """Transform along an axis, counted from the end."""
        rows, columns = (self.inverse, self.forward) if back else (self.forward, self.inverse)
        if axis == -1:
            return matrix_product(block, columns)
        if axis == -2:
            return matrix_product(rows, block)
        xp, shape = namespace_of(block), tuple(block.shape)
        flat = xp.reshape(block, (*shape[:axis], shape[axis], -1))
        return xp.reshape(matrix_product(rows, flat), shape)


class _Fast:
    """A side transformed by one FFT of the same length: Makhoul's N-point form."""

    def __init__(self, side: int, template: Array) -> None:
        order = np.concatenate([np.arange(0, side, 2), np.arange(1, side, 2)[::-1]])
        self.order = copy_to_device_of(order, template)
        self.back = copy_to_device_of(np.argsort(order), template)
        self.reflected = copy_to_device_of((-np.arange(side)) % side, template)
        angle = np.pi * np.arange(side) / (2 * side)
        size = np.sqrt(np.where(np.arange(side) == 0, 1.0, 2.0) / side)
        self.cos, self.sin = (copy_to_device_of(f(angle) * size, template) for f in (np.cos, np.sin))
        self.scale = copy_to_device_of(1 / size, template)
        self.cos_back, self.sin_back = (copy_to_device_of(f(angle), template) for f in (np.cos, np.sin))

    def along(self, block: Array, axis: int, back: bool) -> Array:
        """Transform along an axis, counted from the end."""
        xp = namespace_of(block)
        if axis != -1:
            return xp.moveaxis(self.along(xp.moveaxis(block, axis, -1), -1, back), -1, axis)
        if not back:
            found = xp.fft.fft(xp.take(block, self.order, axis=-1))
            return xp.astype(xp.real(found) * self.cos + xp.imag(found) * self.sin, block.dtype, copy=False)
        # The spectrum is that of a real vector: V_k = e^{iπk/2N} (X_k − i X_{N−k}) with X_N = 0, X before scaling.
        plain = block * self.scale
        last = xp.take(plain, self.reflected, axis=-1)
        last = xp.concat([xp.zeros_like(last[..., :1]), last[..., 1:]], axis=-1)
        real = plain * self.cos_back + last * self.sin_back
        imaginary = plain * self.sin_back - last * self.cos_back
        spectrum = real + 1j * imaginary
        found = xp.real(xp.fft.ifft(spectrum))
        return xp.astype(xp.take(found, self.back, axis=-1), block.dtype, copy=False)


def eigenvalues_like(dims: tuple[int, ...], weights: tuple[float, ...], like: Array) -> Array:
    """The same as `laplacian_eigenvalues` in the library, device and dtype of an array, where they are added up."""
    total = None
    for axis, (side, weight) in enumerate(zip(dims, weights)):
        values = weight**2 * (2 - 2 * np.cos(np.pi * np.arange(side) / side))
        part = copy_to_device_of(values.reshape([-1 if k == axis else 1 for k in range(len(dims))]), like)
        total = part if total is None else total + part
    return total


def poisson_inverse(eigenvalues: Array) -> Array:
    """1/e, and 0 for the constant, which ∇ᵀ∇ takes to zero."""
    xp = namespace_of(eigenvalues)
    positive = eigenvalues > 0
    return xp.where(positive, 1 / xp.where(positive, eigenvalues, 1), xp.zeros_like(eigenvalues))


def laplacian_eigenvalues(dims: tuple[int, ...], weights: tuple[float, ...]) -> np.ndarray:
    """Eigenvalues of ∇ᵀ∇ for forward differences with a weight per axis, in the order of the cosine coefficients.

    Examples
    --------
    >>> laplacian_eigenvalues((1, 2), (1.0, 1.0))
    array([[0., 2.]])
    """
    total = np.zeros(dims)
    for axis, (side, weight) in enumerate(zip(dims, weights)):
        values = weight**2 * (2 - 2 * np.cos(np.pi * np.arange(side) / side))
        total += values.reshape([-1 if k == axis else 1 for k in range(len(dims))])
    return total
