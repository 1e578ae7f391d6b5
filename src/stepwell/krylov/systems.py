"""The linear systems that the methods solve, seen as few operations on blocks of columns.

A method needs the right-hand sides, products with the system's matrix, and residuals. Conjugate gradients in their
least-squares form (CGLS) keep the residual of the *data*, S = B − AX, rather than that of the normal equations: the
iteration therefore sees a ``state`` that it advances along the ``image`` of a direction, and a ``gradient`` of the
state that is the residual of the normal equations. For a plain positive definite system state, image and gradient
are the residual, the product and the residual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from stepwell.arrays import (
    Array,
    block_grams,
    block_search,
    column_step,
    copy_to_device_of,
    is_array,
    matrix_product,
    plus_multiple,
    take_columns,
    to_host,
)
from stepwell.krylov.reductions import WHOLE, Sums
from stepwell.operators import Operator

State = tuple[Array, ...]
Searched = tuple[Array, Array, Array]

#: The residual of the data that an iteration carries is taken for the recomputed one where they differ by less than
#: this part of the tolerance, relative to the data. (The residuals of the normal equations then differ by less than
#: the tolerance even where ‖Aᵀb‖ is a millionth of ‖A‖‖b‖.)
AGREEMENT = 1e-6


@dataclass
class Carried:
    """What an iteration believes of the point it hands back: residual of the data, and of the normal equations."""

    data: Array
    gradient: Array


class System(Protocol):
    """What the methods ask of a linear system; ``products`` and ``calls`` count what it was asked."""

    @property
    def sums(self) -> Sums:
        """How sums over the long axes of its blocks are taken."""

    @property
    def products(self) -> int:
        """Products with the positive definite matrix so far, a column each."""

    @property
    def calls(self) -> int:
        """Sequential calls in which they were made."""

    def count_products(self, products: int) -> None:
        """Count products that were made one by one elsewhere."""

    @property
    def size(self) -> int:
        """Number of unknowns per column."""

    def rhs(self) -> Array:
        """Right-hand sides of the positive definite systems, ``(n, k)``."""

    def data(self) -> Array:
        """What the caller gave as right-hand sides."""

    def data_norms(self) -> np.ndarray:
        """Euclidean norms of what the caller gave."""

    @property
    def data_size(self) -> int:
        """Entries of a column of images A P; 0 where the matrix is not that of a least-squares problem."""

    def product(self, block: Array) -> Array:
        """Apply the positive definite matrix: one product per column."""

    def search(self, candidates: Array, mix: np.ndarray, residual: Array) -> Searched:
        """Return directions P, mixed of candidates, their products HP, and [PᵀHP, PᵀR] with the residual R.

        For a library that compiles programs, of which it takes one where the matrices are at hand; not over ranks.
        """

    def product_and_image(self, block: Array) -> tuple[Array, Array | None]:
        """Apply the positive definite matrix, and return A times the block as well where there is such an A."""

    def state(
        self, x: Array | None, rhs: Array, carried: Carried | None = None, tol: float = 0.0
    ) -> tuple[State, Array]:
        """State at x (None: zero) and its gradient; one product per column unless x is None.

        What an iteration carried along is confirmed by A rather than computed again, where it can be.
        """

    def image(self, block: Array) -> State:
        """What the state moves along for a direction; together with ``gradient`` one product per column."""

    def curvature(self, block: Array, image: State) -> Array:
        """Per column, the direction's square in the norm of the positive definite matrix."""

    def advance(self, state: State, step: Array, image: State) -> State:
        """State after a step along the direction."""

    def gradient(self, state: State) -> Array:
        """Residual of the positive definite system."""

    def take(self, columns: np.ndarray) -> System:
        """Return the system with the named right-hand sides only, counting into the same numbers."""

    def times(self, factors: np.ndarray) -> System:
        """Return the system with the right-hand sides, and so the solutions, times a power of two each."""


class _Counted:
    """Counts of products that a system shares with those taken from it, and its data."""

    def __init__(self, B: Array, counts: dict[str, int] | None, sums: Sums) -> None:
        self.B, self.sums = B, sums
        self.counts = {"products": 0, "calls": 0} if counts is None else counts
        self._data_norms: np.ndarray | None = None

    def data(self) -> Array:
        """The block B."""
        return self.B

    def data_norms(self) -> np.ndarray:
        """Euclidean norms of the columns of B, computed once."""
        if self._data_norms is None:
            self._data_norms = self.sums.safe_norms(self.B)
        return self._data_norms

    def count_products(self, products: int) -> None:
        self.counts["products"] += products
        self.counts["calls"] += products

    def count(self, block: Array) -> None:
        self.counts["products"] += int(block.shape[1])
        self.counts["calls"] += 1

    @property
    def products(self) -> int:
        return self.counts["products"]

    @property
    def calls(self) -> int:
        return self.counts["calls"]


class TikhonovSystem(_Counted):
    """(AᵀA + λ²LᵀL) X = AᵀB, with one λ for all columns or one per column.

    It is the normal equation of the stacked operator K = [A; λL]; the state is [B − AX; −LX], so a warm start shifts
    both blocks. λ enters where the two meet, as λ².
    """

    def __init__(
        self,
        A: Operator,
        L: Operator | None,
        lam: np.ndarray,
        B: Array,
        counts: dict[str, int] | None = None,
        sums: Sums = WHOLE,
    ) -> None:
        super().__init__(B, counts, sums)
        self.A, self.L, self.lam = A, L, lam
        shared = lam.size and bool(np.all(lam == lam[0]))
        scale: Array = float(lam[0]) if shared else copy_to_device_of(lam, B)
        self.square: Array = scale * scale  # of a λ that is out of range infinity, not an exception

    @property
    def size(self) -> int:
        """Number of unknowns per column."""
        assert self.A.shape[1] is not None
        return self.A.shape[1]

    def rhs(self) -> Array:
        """Right-hand sides AᵀB."""
        return self.A.adjoint(self.B)

    @property
    def data_size(self) -> int:
        """Number of equations."""
        return int(self.B.shape[0])

    def product(self, block: Array) -> Array:
        """Apply AᵀA + λ²LᵀL; every column of the block is taken with the one λ of this system."""
        return self.product_and_image(block)[0]

    def search(self, candidates: Array, mix: np.ndarray, residual: Array) -> Searched:
        """Directions, products and inner products."""
        operators = [self.A] if self.L is None else [self.A, self.L]
        return _searched(self, candidates, mix, residual, operators, self.square)

    def product_and_image(self, block: Array) -> tuple[Array, Array | None]:
        """Apply AᵀA + λ²LᵀL and return A times the block too."""
        self.count(block)
        image = self.A.forward(block)
        penalty = block if self.L is None else self.L.adjoint(self.L.forward(block))
        return plus_multiple(self.A.adjoint(image), self.square, penalty), image

    def state(
        self, x: Array | None, rhs: Array, carried: Carried | None = None, tol: float = 0.0
    ) -> tuple[State, Array]:
        """[B − AX; −LX] and the gradient there; only the first where it confirms what was carried along."""
        if x is None:
            return (self.B, None), rhs
        self.count(x)
        data = self.B - self.A.forward(x)
        if carried is not None:
            gap = to_host(self.sums.norms(data - carried.data))
            if (gap <= AGREEMENT * tol * self.data_norms()).all():
                return (data, -self._seminorm(x)), carried.gradient
        return self.start_at(x, data)

    def start_at(self, x: Array, data: Array) -> tuple[State, Array]:
        """State and gradient at a point of which B − AX is known."""
        state = (data, -self._seminorm(x))
        return state, self.gradient(state)

    def image(self, block: Array) -> State:
        """[AP; LP]."""
        self.count(block)
        return self.A.forward(block), self._seminorm(block)

    def curvature(self, block: Array, image: State) -> Array:
        """‖AP‖² + λ²‖LP‖², column by column."""
        data, penalty = self.sums.several_dots((image[0], image[0]), (image[1], image[1]))
        return data + self.square * penalty

    def advance(self, state: State, step: Array, image: State) -> State:
        """Subtract the step's image from both blocks."""
        penalty = -step * image[1] if state[1] is None else plus_multiple(state[1], -step, image[1])
        return plus_multiple(state[0], -step, image[0]), penalty

    def stepped(self, x: Array, direction: Array, rho: Array, state: State, image: State) -> tuple[Array, State, Array]:
        """Return x and the state after a step to the minimum along each direction, and which have no curvature.

        The same as curvature and advance, as one program of a library that compiles them; not over ranks.
        """
        return column_step(x, direction, rho, self.square, state, image)

    def gradient(self, state: State) -> Array:
        """Aᵀ(B − AX) − λ²LᵀLX."""
        penalty = state[1] if self.L is None else self.L.adjoint(state[1])
        return plus_multiple(self.A.adjoint(state[0]), self.square, penalty)

    def take(self, columns: np.ndarray) -> System:
        """Return the system of some columns."""
        return TikhonovSystem(self.A, self.L, self.lam[columns], take_columns(self.B, columns), self.counts, self.sums)

    def times(self, factors: np.ndarray) -> System:
        """Return the system of columns times powers of two."""
        B = self.B * copy_to_device_of(factors, self.B)
        return TikhonovSystem(self.A, self.L, self.lam, B, self.counts, self.sums)

    def _seminorm(self, block: Array) -> Array:
        return block if self.L is None else self.L.forward(block)


class PositiveSystem(_Counted):
    """H X = B with a symmetric positive definite H."""

    def __init__(self, H: Operator, B: Array, counts: dict[str, int] | None = None, sums: Sums = WHOLE) -> None:
        super().__init__(B, counts, sums)
        self.H = H

    @property
    def size(self) -> int:
        """Number of unknowns per column."""
        return int(self.B.shape[0])

    def rhs(self) -> Array:
        """The block B."""
        return self.B

    @property
    def data_size(self) -> int:
        """There is no data space."""
        return 0

    def product(self, block: Array) -> Array:
        """Apply H."""
        self.count(block)
        return self.H.forward(block)

    def search(self, candidates: Array, mix: np.ndarray, residual: Array) -> Searched:
        """Directions, products and inner products."""
        return _searched(self, candidates, mix, residual, [self.H], None)

    def product_and_image(self, block: Array) -> tuple[Array, Array | None]:
        """Apply H; there is no image."""
        return self.product(block), None

    def state(
        self, x: Array | None, rhs: Array, carried: Carried | None = None, tol: float = 0.0
    ) -> tuple[State, Array]:
        """B − HX, twice."""
        residual = rhs if x is None else rhs - self.product(x)
        return (residual,), residual

    def image(self, block: Array) -> State:
        """HP."""
        return (self.product(block),)

    def curvature(self, block: Array, image: State) -> Array:
        """PᵀHP, column by column."""
        return self.sums.dots(block, image[0])

    def advance(self, state: State, step: Array, image: State) -> State:
        """Subtract the step's product."""
        return (plus_multiple(state[0], -step, image[0]),)

    def gradient(self, state: State) -> Array:
        """Return the residual that the state is."""
        return state[0]

    def take(self, columns: np.ndarray) -> System:
        """Return the system of some columns."""
        return PositiveSystem(self.H, take_columns(self.B, columns), self.counts, self.sums)

    def times(self, factors: np.ndarray) -> System:
        """Return the system of columns times powers of two."""
        return PositiveSystem(self.H, self.B * copy_to_device_of(factors, self.B), self.counts, self.sums)


def _searched(
    system: TikhonovSystem | PositiveSystem,
    candidates: Array,
    mix: np.ndarray,
    residual: Array,
    operators: Sequence[Operator],
    square: Any,
) -> Searched:
    if not all(is_array(operator.matrix) for operator in operators):
        directions = matrix_product(candidates, copy_to_device_of(mix, residual))
        products = system.product(directions)
        return directions, products, block_grams(directions, products, residual)
    system.count(candidates)
    for operator in operators:
        operator.count(int(mix.shape[1]))
    return block_search(candidates, mix, residual, tuple(operator.matrix for operator in operators), square)
