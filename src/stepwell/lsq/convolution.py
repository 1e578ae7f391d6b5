"""The banded Toeplitz matrix of a deconvolution, given by its pulse and never stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwell import arrays
from stepwell.arrays.checks import read_array, require_one_home
from stepwell.common.checks import read_whole, require_kind, require_shape
from stepwell.common.typing import ArrayLike

#: Pulses up to this length are multiplied sample by sample, longer ones by Fourier transforms.
DIRECT_LENGTH = 64


class Convolution:
    """The matrix of a convolution with a pulse: ``A`` in :func:`stepwell.nnls`, an operator everywhere else.

    ``A[i, j] = pulse[i - j + origin]`` where that sample exists, else 0: column ``j`` is the pulse with its sample
    ``origin`` on row ``j``. Only the pulse is kept. ``A @ x``, ``A.T @ y``, :func:`stepwell.tikhonov` and SciPy's
    ``aslinearoperator(A)`` work as they do with the matrix.

    Parameters
    ----------
    pulse : array, shape (length,) or (systems, length)
        One pulse for all systems, or one for each. NumPy, torch, CuPy or JAX.
    n : int
        Number of unknowns (columns).
    m : int, default n
        Number of observations (rows).
    origin : int, default 0
        The sample of the pulse that stands for zero delay, from 0 to ``length - 1``.

    Attributes
    ----------
    shape : tuple of int
        ``(m, n)``, or ``(systems, m, n)`` for a batch of pulses.
    dtype : dtype
        The pulse's, in its library.
    T : Convolution
        The transpose, which is the convolution with the pulse turned round.

    Examples
    --------
    >>> import numpy as np, stepwell
    >>> A = stepwell.Convolution(np.array([1.0, 2.0, 1.0]), n=4, origin=1)
    >>> A.dense()
    array([[2., 1., 0., 0.],
           [1., 2., 1., 0.],
           [0., 1., 2., 1.],
           [0., 0., 1., 2.]])
    >>> A @ np.array([0.0, 3.0, 0.0, 1.0])
    array([3., 6., 4., 2.])
    >>> stepwell.nnls(A, A @ np.array([0.0, 3.0, 0.0, 1.0])).x.round(12)
    array([0., 3., 0., 1.])
    """

    __array_ufunc__ = None  # NumPy leaves ``@`` to this class

    def __init__(self, pulse: ArrayLike, n: int, *, m: int | None = None, origin: int = 0) -> None:
        samples: arrays.Array = pulse if arrays.is_container(pulse) else read_array("pulse", pulse)
        good = samples.ndim in (1, 2) and samples.shape[-1] > 0
        require_shape(good, "pulse", samples, "(length,) or (systems, length) with length >= 1")
        self.pulse = samples
        self.n = read_whole("n", n, 0)
        self.m = self.n if m is None else read_whole("m", m, 0)
        self.origin = read_whole("origin", origin, 0, int(samples.shape[-1]) - 1)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(m, n)``, or ``(systems, m, n)`` for a batch of pulses."""
        return (*map(int, self.pulse.shape[:-1]), self.m, self.n)

    @property
    def ndim(self) -> int:
        """2, or 3 for a batch of pulses."""
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        """The pulse's dtype, in its library."""
        return self.pulse.dtype

    @property
    def home(self) -> arrays.Array:
        """An empty array of the pulse's library and device, of the floating dtype that products have."""
        empty = self.pulse.reshape(-1)[:0]
        return arrays.namespace_of(empty).astype(empty, _floating(empty), copy=False)

    @property
    def T(self) -> Convolution:
        """The transpose: the convolution with the pulse turned round."""
        turned = arrays.namespace_of(self.pulse).flip(self.pulse, axis=-1)
        return Convolution(turned, self.m, m=self.n, origin=int(self.pulse.shape[-1]) - 1 - self.origin)

    def __matmul__(self, x: ArrayLike) -> arrays.Array:
        """Multiply by a vector ``(n,)`` or a block of columns ``(n, k)``, as the matrix would be."""
        return self._times("x", x)

    def _times(self, name: str, x: ArrayLike) -> arrays.Array:
        stored = not arrays.is_container(self.pulse)
        require_kind(stored, "pulse", self.pulse, "an array in memory; stepwell.nnls alone takes one of dask or xarray")
        given = read_array(name, x)
        require_one_home(name, given, "pulse", self.pulse)
        require_shape(given.ndim > 0, name, given, f"({self.n},) or ({self.n}, columns)")
        vector = given.ndim == 1
        block = given[:, None] if vector else given
        require_shape(block.shape[-2] == self.n, name, given, f"({self.n},) or ({self.n}, columns)")
        xp = arrays.namespace_of(self.pulse)
        dtype = _floating(self.pulse, block)
        pulse, block = (xp.astype(array, dtype, copy=False) for array in (self.pulse, block))
        product = xp.astype(convolve(pulse, block, self.m, self.origin), dtype, copy=False)
        return product[..., 0] if vector else product

    def matvec(self, x: ArrayLike) -> arrays.Array:
        """``A @ x``, under the name that SciPy's LinearOperator has for it."""
        return self @ x

    def rmatvec(self, y: ArrayLike) -> arrays.Array:
        """``A.T @ y``, under the name that SciPy's LinearOperator has for it."""
        return self.T._times("y", y)

    matmat, rmatmat = matvec, rmatvec

    def dense(self) -> arrays.Array:
        """Return the matrix itself (for small sizes, tests and curiosity), in the pulse's library."""
        pulse, origin = self.pulse, self.origin
        xp = arrays.namespace_of(pulse)
        delay = np.arange(self.m)[:, None] - np.arange(self.n)[None] + origin
        inside = (delay >= 0) & (delay < pulse.shape[-1])
        index = np.where(inside, delay, 0).ravel()
        like = arrays.on_device_of(pulse)
        picked = xp.take(pulse, xp.asarray(index, **like), axis=-1)
        mask = xp.asarray(inside.ravel(), **like)
        return xp.reshape(xp.where(mask, picked, xp.zeros_like(picked)), self.shape)

    def __repr__(self) -> str:
        return f"Convolution(pulse of shape {tuple(self.pulse.shape)}, n={self.n}, m={self.m}, origin={self.origin})"


def _floating(*parts: arrays.Array) -> Any:
    """Return the floating dtype of a product of arrays: their own, or float64 (of JAX its default) for integers."""
    xp = arrays.namespace_of(*parts)
    dtype = xp.result_type(*parts)
    return dtype if xp.isdtype(dtype, "real floating") else getattr(xp, str(arrays.default_float(parts[0])))


def convolve(pulse: arrays.Array, x: arrays.Array, rows: int, origin: int) -> arrays.Array:
    """Return the first rows of a convolution of columns, ``Σ_s pulse[s] x[i − s + origin]``; nothing is checked."""
    by_samples = int(pulse.shape[-1]) <= DIRECT_LENGTH or 0 in (rows, *x.shape)
    return (_by_samples if by_samples else _by_transforms)(pulse, x, rows, origin)


def _by_samples(pulse: arrays.Array, x: arrays.Array, rows: int, origin: int) -> arrays.Array:
    """Σ_s pulse[s] x[i − s + origin], a shift of x after the other."""
    xp = arrays.namespace_of(pulse)
    length, unknowns = int(pulse.shape[-1]), int(x.shape[-2])
    like = arrays.on_device_of(x)

    def zeros(count: int) -> arrays.Array:
        return xp.zeros((*x.shape[:-2], max(0, count), x.shape[-1]), dtype=x.dtype, **like)

    padded = xp.concat([zeros(length - 1 - origin), x, zeros(rows + origin - unknowns)], axis=-2)
    total = None
    for sample in range(length):
        first = length - 1 - sample
        term = pulse[..., sample, None, None] * padded[..., first : first + rows, :]
        total = term if total is None else total + term
    return total


def _by_transforms(pulse: arrays.Array, x: arrays.Array, rows: int, origin: int) -> arrays.Array:
    """The same by Fourier transforms, as long as no end of the convolution wraps round to the rows that are wanted."""
    xp = arrays.namespace_of(pulse)
    needed = max(int(pulse.shape[-1]) + int(x.shape[-2]) - 1, origin + rows)
    size = 1 << (needed - 1).bit_length()
    spectrum = xp.fft.rfft(pulse[..., :, None], n=size, axis=-2) * xp.fft.rfft(x, n=size, axis=-2)
    return xp.fft.irfft(spectrum, n=size, axis=-2)[..., origin : origin + rows, :]
