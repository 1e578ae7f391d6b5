"""What ADMM needs of a dense matrix: the map (AᵀA + ρ)⁻¹, and ρ of every column by the balance of its residuals."""

from __future__ import annotations

import numpy as np

from stepwell.arrays import (
    Array,
    as_float,
    copy_to_device_of,
    double_precision,
    dtype_name,
    matrix_product,
    namespace_of,
    to_host,
)
from stepwell.krylov.tv.task import column_sums

#: Steps before ρ of a column may change first, and by how much longer every change has to wait than the one before:
#: so changes end, and ADMM with a fixed ρ converges.
FIRST_CHANGE, LONGER = 20, 1.5
#: ρ changes by at least the first of these factors, and at most by the second.
LEAST_CHANGE, MOST_CHANGE = 2.0, 3.0


class Factor:
    """The map (AᵀA + ρ)⁻¹: by a Cholesky factor for the first ρ, by eigenvectors once columns have their own.

    Both are of the smaller of the two Gram matrices, with Woodbury's formula where A is wide. Eigenvectors of a tall A
    take two products a step where the inverse takes one, and many problems never need them. The factors are found in
    double precision, once, and used in that of A.
    """

    def __init__(self, matrix: Array) -> None:
        m, n = int(matrix.shape[0]), int(matrix.shape[1])
        self.matrix, self.wide = matrix, m < n
        rho = float(to_host(namespace_of(matrix).sum(matrix * matrix))) / max(1, n)
        #: The mean square of A's columns.
        self.first = rho if np.isfinite(rho) and rho > 0 else 1.0
        with double_precision(matrix):
            precise = as_float(matrix, "float64")
            self.gram = matrix_product(precise, precise.T) if self.wide else matrix_product(precise.T, precise)
        self.inverse: Array | None = None
        self.values: Array | None = None
        self.vectors: Array | None = None

    def solve(self, block: Array, rho: Array, one: bool) -> Array:
        """Return (AᵀA + ρ)⁻¹ of every column, with its ρ in a row; `one`: all are the first."""
        if one and self.values is None:
            inverse = self._inverse()
            if not self.wide:
                return matrix_product(inverse, block)
            inner = matrix_product(inverse, matrix_product(self.matrix, block))
            return (block - matrix_product(self.matrix.T, inner)) / rho
        values, vectors = self._spectrum()
        inner = matrix_product(vectors, block) / (values + rho)
        back = matrix_product(vectors.T, inner)
        return (block - back) / rho if self.wide else back

    def _inverse(self) -> Array:
        if self.inverse is None:
            xp = namespace_of(self.gram)
            with double_precision(self.matrix):
                one = copy_to_device_of(np.eye(int(self.gram.shape[0])), self.gram)
                inverse_root = xp.linalg.solve(xp.linalg.cholesky(self.gram + self.first * one), one)
                self.inverse = self._short(matrix_product(inverse_root.T, inverse_root))
        return self.inverse

    def _spectrum(self) -> tuple[Array, Array]:
        """Eigenvalues in a column, and the rows Vᵀ; VᵀA of a wide A."""
        if self.values is None or self.vectors is None:
            xp = namespace_of(self.gram)
            with double_precision(self.matrix):
                values, vectors = (self._short(part) for part in xp.linalg.eigh(self.gram))
            self.values = xp.where(values > 0, values, xp.zeros_like(values))[:, None]
            self.vectors = matrix_product(vectors.T, self.matrix) if self.wide else vectors.T
            self.inverse = None
        return self.values, self.vectors

    def _short(self, found: Array) -> Array:
        return as_float(found, dtype_name(self.matrix.dtype))


class Balance:
    """ρ of every column, raised where the primal residual is the larger one, lowered where the dual one is.

    Relative residuals (Wohlberg 2017): ‖x − z‖ / max(‖x‖, ‖z‖) and ‖z − z⁻‖ / ‖u‖; the factor is the root of their
    ratio.
    """

    def __init__(self, first: float, columns: int) -> None:
        self.first, self.rho = first, np.full(columns, first)
        self.wait = np.full(columns, float(FIRST_CHANGE))
        self.next = self.wait.copy()

    @property
    def one(self) -> bool:
        """Whether all columns have the first ρ."""
        return bool(np.all(self.rho == self.first))

    def take(self, columns: np.ndarray) -> None:
        """Keep some columns."""
        self.rho, self.wait, self.next = self.rho[columns], self.wait[columns], self.next[columns]

    def factors(self, step: int, x: Array, z: Array, before: Array, u: Array) -> np.ndarray | None:
        """Change ρ after this step; return the factors, or None where there is no change."""
        due = step >= self.next
        if not due.any():
            return None
        size = np.maximum(column_sums(x, x), column_sums(z, z))
        primal, dual = x - z, z - before
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            primal_square = column_sums(primal, primal) / size
            dual_square = column_sums(dual, dual) / column_sums(u, u)
            factor = (primal_square / dual_square) ** 0.25
            large = (factor >= LEAST_CHANGE) | (factor <= 1 / LEAST_CHANGE)
        changes = due & large & np.isfinite(factor) & (factor > 0)
        if not changes.any():
            return None
        found: np.ndarray = np.where(changes, np.clip(factor, 1 / MOST_CHANGE, MOST_CHANGE), 1.0)
        self.rho = self.rho * found
        self.wait = np.where(changes, LONGER * self.wait, self.wait)
        self.next = np.where(changes, step + self.wait, self.next)
        return found
