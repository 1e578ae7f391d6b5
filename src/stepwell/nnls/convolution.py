"""The banded Toeplitz matrix of a deconvolution, given by its pulse and never stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwell import arrays
from stepwell.checks import read_array, read_whole, require_shape


class Convolution:
    """The matrix of a convolution with a pulse, for use as ``A`` in :func:`stepwell.nnls`.

    ``A[i, j] = pulse[i - j + origin]`` where that sample exists, else 0: column ``j`` is the pulse with its sample
    ``origin`` on row ``j``. Only the pulse is kept.

    Parameters
    ----------
    pulse : array, shape (length,) or (systems, length)
        One pulse for all systems, or one for each. NumPy, torch, CuPy or JAX.
    n : int
        Number of unknowns (columns).
    m : int, optional
        Number of observations (rows); by default `n`.
    origin : int, optional
        The sample of the pulse that stands for zero delay, from 0 (the default) to ``length - 1``.

    Examples
    --------
    >>> import numpy as np, stepwell
    >>> A = stepwell.Convolution(np.array([1.0, 2.0, 1.0]), n=4, origin=1)
    >>> A.dense()
    array([[2., 1., 0., 0.],
           [1., 2., 1., 0.],
           [0., 1., 2., 1.],
           [0., 0., 1., 2.]])
    >>> stepwell.nnls(A, A.dense() @ np.array([0.0, 3.0, 0.0, 1.0])).x.round(12)
    array([0., 3., 0., 1.])
    """

    def __init__(self, pulse: arrays.Array, n: int, *, m: int | None = None, origin: int = 0) -> None:
        pulse = read_array("pulse", pulse)
        good = pulse.ndim in (1, 2) and pulse.shape[-1] > 0
        require_shape(good, "pulse", pulse, "(length,) or (systems, length) with length >= 1")
        self.pulse = pulse
        self.n = read_whole("n", n, 0)
        self.m = self.n if m is None else read_whole("m", m, 0)
        self.origin = read_whole("origin", origin, 0, int(pulse.shape[-1]) - 1)

    @property
    def shape(self) -> tuple[int, ...]:
        """``(m, n)``, or ``(systems, m, n)`` for a batch of pulses."""
        return (*self.pulse.shape[:-1], self.m, self.n)

    @property
    def ndim(self) -> int:
        """2, or 3 for a batch of pulses."""
        return len(self.shape)

    def dense(self) -> Any:
        """Return the matrix itself (for small sizes, tests and curiosity), in the pulse's library."""
        pulse, origin = self.pulse, self.origin
        xp = arrays.namespace_of(pulse)
        delay = np.arange(self.m)[:, None] - np.arange(self.n)[None] + origin
        inside = (delay >= 0) & (delay < pulse.shape[-1])
        index = np.where(inside, delay, 0).ravel()
        like = {"device": pulse.device} if hasattr(pulse, "device") else {}
        picked = xp.take(pulse, xp.asarray(index, **like), axis=-1)
        mask = xp.asarray(inside.ravel(), **like)
        return xp.reshape(xp.where(mask, picked, xp.zeros_like(picked)), self.shape)

    def __repr__(self) -> str:
        return f"Convolution(pulse of shape {tuple(self.pulse.shape)}, n={self.n}, m={self.m}, origin={self.origin})"
