"""The iterations: FISTA with restarts for any operator, ADMM with a factor of a dense matrix.

FISTA (Beck and Teboulle 2009), each column with its own step and restarts (O'Donoghue and Candès 2015):

    y = Az − b,  g = Aᵀy                                  a lower bound from (y, g); A z by linearity
    x⁺ = shrink(z − g/L);  κ = ‖A(x⁺ − z)‖²/‖x⁺ − z‖²;  κ > L: L ← κ and again
    t ← 1 where (z − x⁺)ᵀ(x⁺ − x) > 0;  z = x⁺ + (t − 1)/t⁺ (x⁺ − x)

ADMM:  x = (AᵀA + ρ)⁻¹(Aᵀb + ρ(z − u)),  z = shrink(x + u),  u ← u + x − z, over-relaxed; ρ begins as the mean square of
A's columns and follows the residuals of its column (splitting.py); every few steps f and a lower bound are found at z.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from stepwell.arrays import (
    Array,
    copy_to_device_of,
    matrix_product,
    namespace_of,
    shapes_are_compiled,
    take_columns,
)
from stepwell.krylov.lasso.penalties import Penalty
from stepwell.krylov.lasso.splitting import Balance, Factor
from stepwell.krylov.proven import ProvenStatus, ending
from stepwell.krylov.tv.metric import ROUNDING
from stepwell.krylov.tv.sweeps import put_rows
from stepwell.krylov.tv.task import column_sums
from stepwell.operators import Operator

#: A dense matrix is factored up to this smaller side.
MAX_FACTOR = 4000
#: Over-relaxation of ADMM, and steps between two checks of its gap.
OVER, EVERY = 1.6, 5
#: A column has stagnated after so many steps in which its gap has not fallen to `PROGRESS` of itself.
PATIENCE, PROGRESS = 1000, 0.9
#: L grows by a little more than is seen, and starts with this part of what the first gradient shows.
MARGIN = 1.05
#: An adjoint is one where a dot-product test fails by less than this part of tol, or by rounding.
OF_TOL = 1e-3

Watch = Callable[[int, int, float, float], bool]


@dataclass
class Books:
    """What is known of every column, on the host, and the best points."""

    f: np.ndarray
    lower: np.ndarray
    iterations: np.ndarray
    products: np.ndarray
    mismatch: np.ndarray
    status: list[ProvenStatus | None]
    history: list[list[float]]
    best: Array
    mark: np.ndarray
    age: np.ndarray = field(init=False)

    @classmethod
    def begin(cls, best: Array) -> Books:
        """Return the books before the first step."""
        k = int(best.shape[1])
        zero = np.zeros(k)
        return cls(
            zero + np.inf, zero.copy(), np.zeros(k, dtype=np.int64), zero.copy(), zero.copy(), [None] * k,
            [[] for _ in range(k)], best, zero + np.inf,
        )  # fmt: skip

    def __post_init__(self) -> None:
        self.age = np.zeros(self.f.size, dtype=np.int64)

    def gaps(self) -> np.ndarray:
        """Proven relative gaps; infinite where f is not known."""
        known = np.isfinite(self.f)
        with np.errstate(invalid="ignore", divide="ignore"):
            found: np.ndarray = np.where(
                known, np.where(self.f > 0, np.maximum(self.f - self.lower, 0) / np.where(self.f > 0, self.f, 1), 0.0),
                np.inf,
            )  # fmt: skip
        return found

    def look(self, columns: np.ndarray, x: Array, f: np.ndarray, lower: np.ndarray | None = None) -> None:
        """Take note of points of some columns, and of lower bounds; better ones are kept."""
        if lower is not None:
            self.lower[columns] = np.maximum(self.lower[columns], lower)
        better = f < self.f[columns]
        self.f[columns] = np.where(better, f, self.f[columns])
        if better.all() and columns.size == self.f.size:
            self.best = x
        elif better.any():
            some = np.flatnonzero(better)
            self.best = put_rows(self.best, columns[some], take_columns(x, some), 1)

    def test_adjoint(self, columns: np.ndarray, pairs: tuple[Array, Array, Array, Array], epsilon: float) -> None:
        """Compare yᵀ(Az) with (Aᵀy)ᵀz."""
        y, data, back, z = pairs
        error = np.abs(column_sums(y, data) - column_sums(back, z))
        sizes = np.sqrt(column_sums(y, y) * column_sums(data, data)) + np.sqrt(
            column_sums(back, back) * column_sums(z, z)
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            relative = np.where(sizes > 0, error / np.where(sizes > 0, sizes, 1), 0.0)
        seen = np.where(error > ROUNDING * epsilon * sizes, relative, np.minimum(relative, ROUNDING * epsilon))
        self.mismatch[columns] = np.fmax(self.mismatch[columns], seen)

    def ends(self, columns: np.ndarray, tol: float, limit: bool, steps: int) -> np.ndarray:
        """Find which columns are through, and say how; book the gaps."""
        gaps = self.gaps()[columns]
        absolute = self.f[columns] - self.lower[columns]
        better = absolute < PROGRESS * self.mark[columns]
        self.mark[columns] = np.where(better, absolute, self.mark[columns])
        self.age[columns] = np.where(better, 0, self.age[columns] + steps)
        ended = np.zeros(columns.size, dtype=bool)
        for i, column in enumerate(columns.tolist()):
            self.history[column].append(float(gaps[i]))
            status = ending(self.f[column], gaps[i], tol, self.age[column] >= PATIENCE, limit)
            self.status[column] = status
            ended[i] = status is not None
        return ended


@dataclass
class Lasso:
    """One problem in the solver's units: operator, data, penalty."""

    A: Operator
    B: Array
    penalty: Penalty
    tol: float
    maxiter: int
    watch: Watch | None

    @property
    def epsilon(self) -> float:
        """Machine epsilon of the working dtype."""
        return float(namespace_of(self.B).finfo(self.B.dtype).eps)

    def objective(self, x: Array, residual: Array, penalty: Penalty) -> np.ndarray:
        """F of every column."""
        found: np.ndarray = 0.5 * column_sums(residual, residual) + penalty.value(x)
        return found

    def told(self, books: Books, iteration: int, columns: np.ndarray, ended: np.ndarray) -> bool:
        """Tell the caller; true where the run is to stop."""
        if self.watch is None:
            return False
        gaps = books.gaps()[columns[~ended]]
        return self.watch(iteration, int(gaps.size), float(gaps.max(initial=0.0)), float(books.products.sum()))

    # ---- FISTA ----

    def fista(self, books: Books) -> None:
        """Run FISTA with restarts until every column has ended."""
        xp = namespace_of(self.B)
        columns = np.arange(int(self.B.shape[1]))
        B, penalty = self.B, self.penalty
        x = z = books.best
        seen = bool(xp.any(x != 0))
        data = self.A.forward(x) if seen else xp.zeros_like(B)
        books.products += 0.5 * seen
        at_z = data
        t, L = np.ones(columns.size), np.zeros(columns.size)
        books.look(columns, x, self.objective(x, data - B, penalty))
        for iteration in range(self.maxiter + 1):
            y = at_z - B
            back = self.A.adjoint(y)
            books.products[columns] += 0.5
            books.test_adjoint(columns, (y, at_z, back, z), self.epsilon)
            books.lower[columns] = np.maximum(books.lower[columns], penalty.lower_bounds(B, y, back))
            ended = books.ends(columns, self.tol, iteration >= self.maxiter, 1)
            if self.told(books, iteration, columns, ended):
                stop_all(books, columns[~ended])
                return
            if ended.all():
                return
            if ended.any() and not shapes_are_compiled(B):
                stay = np.flatnonzero(~ended)
                columns, t, L, penalty = columns[stay], t[stay], L[stay], penalty.take(stay)
                B, x, z, data, at_z, back = (take_columns(part, stay) for part in (B, x, z, data, at_z, back))
            if not iteration:
                L = self._first_size(columns, back)
            new, there = self._step(books, columns, penalty, z, at_z, back, L)
            books.look(columns, new, self.objective(new, there - B, penalty))
            move = new - x
            again = column_sums(z - new, move) > 0
            t = np.where(again, 1.0, t)
            after = 0.5 * (1 + np.sqrt(1 + 4 * t * t))
            beta = copy_to_device_of(((t - 1) / after)[None, :], new)
            z, at_z = new + beta * move, there + beta * (there - data)
            x, data, t = new, there, after
            books.iterations[columns] += 1

    def _first_size(self, columns: np.ndarray, back: Array) -> np.ndarray:
        """‖Ag‖²/‖g‖² of the gradients, which is below ‖A‖²."""
        image = self.A.forward(back)
        square = column_sums(back, back)
        with np.errstate(invalid="ignore", divide="ignore"):
            found: np.ndarray = np.where(square > 0, column_sums(image, image) / np.where(square > 0, square, 1), 1.0)
        return np.where(np.isfinite(found) & (found > 0), found, 1.0)

    def _step(
        self, books: Books, columns: np.ndarray, penalty: Penalty, z: Array, at_z: Array, back: Array, L: np.ndarray
    ) -> tuple[Array, Array]:
        """Return x⁺ and A x⁺ with steps that A allows; L grows where it must."""
        for _ in range(60):
            inverse = copy_to_device_of((1 / L)[None, :], z)
            new = penalty.shrunk(z - inverse * back, 1 / L)
            there = self.A.forward(new)
            books.products[columns] += 0.5
            change, image = new - z, there - at_z
            length, square = column_sums(change, change), column_sums(image, image)
            slack = 1 + ROUNDING * self.epsilon
            with np.errstate(invalid="ignore"):
                short = (square > slack * L * length) & np.isfinite(square)
            if not short.any():
                break
            L[:] = np.where(short, np.maximum(MARGIN * square / np.where(length > 0, length, 1), 1.2 * L), L)
        return new, there

    # ---- ADMM ----

    def admm(self, books: Books, matrix: Array) -> None:
        """Run ADMM with a factor of the matrix until every column has ended."""
        xp = namespace_of(self.B)
        columns = np.arange(int(self.B.shape[1]))
        factor = Factor(matrix)
        balance = Balance(factor.first, columns.size)
        rho = copy_to_device_of(balance.rho[None, :], self.B)
        B, penalty = self.B, self.penalty
        z, u = books.best, xp.zeros_like(books.best)
        right = matrix_product(matrix.T, B)
        books.products += 0.5
        pairs = 1.0 if matrix.shape[0] < matrix.shape[1] else 0.0
        for iteration in range(self.maxiter + 1):
            if iteration % EVERY == 0 or iteration >= self.maxiter:
                data = self.A.forward(z)
                y = data - B
                back = self.A.adjoint(y)
                books.products[columns] += 1.0
                books.test_adjoint(columns, (y, data, back, z), self.epsilon)
                books.look(columns, z, self.objective(z, y, penalty), penalty.lower_bounds(B, y, back))
                ended = books.ends(columns, self.tol, iteration >= self.maxiter, EVERY)
                if self.told(books, iteration, columns, ended):
                    stop_all(books, columns[~ended])
                    return
                if ended.all():
                    return
                if ended.any() and not shapes_are_compiled(B):
                    stay = np.flatnonzero(~ended)
                    columns, penalty = columns[stay], penalty.take(stay)
                    B, z, u, right, rho = (take_columns(part, stay) for part in (B, z, u, right, rho))
                    balance.take(stay)
            x = factor.solve(right + rho * (z - u), rho, balance.one)
            before = z
            v = OVER * x + (1 - OVER) * z + u
            z = penalty.shrunk(v, 1 / balance.rho)
            u = v - z
            changed = balance.factors(iteration + 1, x, z, before, u) if (iteration + 1) % EVERY == 0 else None
            if changed is not None:
                rho = copy_to_device_of(balance.rho[None, :], rho)
                u = u / copy_to_device_of(changed[None, :], u)
            books.iterations[columns] += 1
            books.products[columns] += pairs


def stop_all(books: Books, columns: np.ndarray) -> None:
    """Take note that columns were stopped."""
    for column in columns.tolist():
        books.status[column] = ProvenStatus.STOPPED
