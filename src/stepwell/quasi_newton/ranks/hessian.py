"""The inverse Hessian approximation where every rank has a piece of the pairs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from scipy.linalg import solve_triangular

from stepwell.arrays import Array, as_float, is_cuda, to_host
from stepwell.arrays.checks import read_host_array
from stepwell.common.checks import require_shape
from stepwell.distributed import Pieces, Ranks


class RankInverseHessian:
    """The inverse Hessian approximation of a run over ranks: ``H @ v`` for pieces of v, on all ranks at once.

    The compact form (Byrd, Nocedal and Schnabel 1994, theorem 2.2), with R the upper triangle of SᵀY and D its
    diagonal,

        H v = H0 v + S a - H0 Y p,   p = R⁻¹ Sᵀv,   a = R⁻ᵀ ((D + YᵀH0 Y) p - YᵀH0 v)

    takes one exchange, of 2k numbers for k pairs; the first product takes another one, for the small matrices. Of a run
    on a GPU vectors are arrays there, of the library of x0.
    """

    def __init__(
        self, pairs: Callable[[], tuple[list[Array], list[Array]]], count: int, h0: Any, ranks: Ranks, pieces: Pieces
    ) -> None:
        self._pairs = pairs  # of a run on a GPU, they lie there
        self.h0 = h0
        self._ranks, self._pieces, self._tree = ranks, pieces, pieces.tree()
        self.n_corrs = count
        size = self._pieces.end - self._pieces.begin
        self.shape = (size, size)  #: of this rank's piece
        self._small: tuple[np.ndarray, np.ndarray] | None = None

    def __repr__(self) -> str:
        rank, pieces = self._ranks.rank, self._pieces
        return (
            f"<RankInverseHessian of {self.n_corrs} pairs: {pieces.begin} to {pieces.end} of {pieces.n}, rank {rank}>"
        )

    @functools.cached_property
    def _rows(self) -> tuple[list[Array], list[Array]]:
        """Rows of S and of Y, in double precision."""
        s, y = ([as_float(row, "float64") for row in rows] for rows in self._pairs())
        return s, y

    def _read(self, v: Any) -> Array:
        return as_float(v, "float64") if is_cuda(v) else read_host_array("v", v)

    def matvec(self, v: Array) -> Array:
        """Apply the operator to a vector of which this rank has its piece, in whatever shape; return the same piece."""
        s, y = self._rows
        given: Array = np.zeros(self.shape[0])
        with self._ranks.holding():
            given = self._read(v)
            size = math.prod(given.shape)
            require_shape(size == self.shape[0], "v", given, f"{self.shape[0]} elements, this rank's piece")
            if s and is_cuda(s[0]) != is_cuda(given):
                raise TypeError(f"v is a {type(v).__name__}; allowed: an array where x0 lives")
        flat = given.reshape(-1)
        scaled = self.h0 * flat
        k = self.n_corrs
        if k == 0:
            self._ranks.check()
            return scaled.reshape(given.shape)
        upper, curved = self._matrices()
        products = self._sums([row * flat for row in s] + [row * scaled for row in y])
        p = solve_triangular(upper, products[:k])
        a = solve_triangular(upper, curved @ p - products[k:], trans="T")
        from_s = sum(float(a[i]) * s[i] for i in range(k))
        from_y = sum(float(p[i]) * y[i] for i in range(k))
        return (scaled + from_s - self.h0 * from_y).reshape(given.shape)

    __matmul__ = matvec

    def todense(self) -> NoReturn:
        """Refuse: no rank has room for all of it."""
        raise TypeError(
            "hess_inv of a run over ranks has no dense form; allowed: products, H @ v, on all ranks at once"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("hess_inv of a run over ranks cannot be pickled: it holds a communicator")

    def _matrices(self) -> tuple[np.ndarray, np.ndarray]:
        """Return R and D + YᵀH0 Y."""
        if self._small is None:
            k, (s, y) = self.n_corrs, self._rows
            sy = [s[i] * y[j] for i in range(k) for j in range(i, k)]
            yy = [y[i] * self.h0 * y[j] for i in range(k) for j in range(i, k)]
            sums = self._sums(sy + yy)
            above = np.triu_indices(k)
            upper, half = np.zeros((k, k)), np.zeros((k, k))
            upper[above], half[above] = sums[: len(sy)], sums[len(sy) :]
            self._small = upper, half + np.triu(half, 1).T + np.diag(np.diag(upper))
        return self._small

    def _sums(self, vectors: list[Array]) -> np.ndarray:
        """Return the sum of each vector over all ranks, in one exchange."""
        rows = np.array([to_host(self._pieces.chunk_sums(vector)) for vector in vectors]).T
        return self._pieces.total(self._ranks, rows.reshape(self._pieces.chunks, len(vectors)), self._tree)
