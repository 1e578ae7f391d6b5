"""One column's residual and seminorm as functions of λ, and the Krylov space from which they are had."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from stepwell.arrays import Array, namespace_of, to_host
from stepwell.krylov.linear_problem import LinearProblem, bytes_per_number
from stepwell.krylov.projection import Projected
from stepwell.krylov.results import LinearStatus
from stepwell.krylov.rounds import Round
from stepwell.krylov.space import DirectionSpace
from stepwell.krylov.systems import TikhonovSystem

#: Squares of singular values below this share of the largest are rounding errors.
NOISE = 1e-13


@dataclass
class Spectrum:
    """One column's residual and seminorm as functions of λ, in a basis in which the pencil is diagonal.

    ``signal`` and ``penalty`` are the diagonals of AᵀA and LᵀL, ``rhs`` the coefficients of Aᵀb, ``data`` is ‖b‖².
    """

    signal: np.ndarray
    penalty: np.ndarray
    rhs: np.ndarray
    data: float

    def times(self, weight: float) -> Spectrum:
        """Return the spectrum of the right-hand side times a number."""
        return Spectrum(self.signal, self.penalty, weight * self.rhs, weight**2 * self.data)

    def filtered(self, lam: float) -> np.ndarray:
        """Coefficients of x_λ."""
        bottom = self.signal + lam**2 * self.penalty
        return self.rhs / np.where(bottom > 0, bottom, np.inf)

    # Of b in an orthonormal basis, the part along A's direction i is rhs_i / √signal_i, of which x_λ leaves the share
    # λ²p / (s + λ²p). Sums of what is left do not cancel, as ‖b‖² less what is explained would for a small λ.

    @functools.cached_property
    def known(self) -> np.ndarray:
        """Which directions of A are more than rounding errors."""
        return np.asarray(self.signal > NOISE * self.signal.max(initial=0.0))

    @functools.cached_property
    def _along(self) -> np.ndarray:
        """Squares of the parts of b along the directions of A; of those that are rounding errors, none."""
        return np.where(self.known, self.rhs**2 / np.where(self.known, self.signal, 1.0), 0.0)

    def left(self, lam: float) -> np.ndarray:
        """The share of each part that x_λ leaves."""
        held = lam**2 * self.penalty
        bottom = self.signal + held
        return np.divide(held, bottom, out=np.ones_like(bottom), where=bottom > 0)

    @functools.cached_property
    def _outside(self) -> float:
        """The part of b that no x explains, squared."""
        return max(0.0, self.data - float(np.sum(self._along)))

    def residual(self, lam: float) -> float:
        """‖b − A x_λ‖²."""
        return self._outside + float(np.sum(self.left(lam) ** 2 * self._along))

    def unexplained(self, lam: float) -> float:
        """bᵀ(b − A x_λ)."""
        return self._outside + float(np.sum(self.left(lam) * self._along))

    def seminorm(self, lam: float) -> float:
        """‖L x_λ‖²."""
        return float(np.sum(self.penalty * self.filtered(lam) ** 2))


class KrylovSpace:
    """The Krylov space of one column, as large as it is asked for, with its spectrum.

    The directions V are those of conjugate gradients at one λ₀, conjugate to rounding: Vᵀ(AᵀA + λ₀²LᵀL)V = I. The
    eigenvectors of VᵀLᵀLV with eigenvalues p therefore make both parts diagonal: AᵀA is 1 − λ₀²p there. No product
    beyond those of the iteration is needed.
    """

    def __init__(self, problem: LinearProblem, column: Array, lam: float, most: int) -> None:
        self.problem, self.lam = problem, lam
        self.complete = False
        self._spectrum: Spectrum | None = None
        sums = problem.sums
        self._system = TikhonovSystem(problem.A, problem.L, np.array([lam]), column, sums=sums)
        self._rhs = self._system.rhs()
        self._norm = to_host(sums.norms(self._rhs))
        # Beyond this residual new directions would be rounding errors, and no longer conjugate.
        self._tol = float(namespace_of(column).finfo(column.dtype).eps) ** 0.5
        self._data = float(to_host(sums.norms(column))[0] ** 2)
        number = bytes_per_number(column)
        # Without images: the space is projected on by nobody.
        size = problem.unknowns.whole
        self._space = DirectionSpace(problem.size, 0, number, (most + 1) * 2 * size * number, sums, (size, 0))
        self._method = Projected(self._space, lambda residual: residual, augmented=True)

    @property
    def products(self) -> int:
        """Products with AᵀA + λ₀²LᵀL so far."""
        return self._system.products

    def grow_to(self, steps: int) -> None:
        """Add directions until there are so many, or until they hold the solution at λ₀."""
        more = min(steps, self.problem.unknowns.whole) - self._space.count
        if more <= 0 or self.complete:
            return
        aim, spent = np.full(1, self._tol), np.zeros(1, dtype=np.int64)
        task = Round(self._system, (), self._rhs, self._norm, np.ones(1), aim, spent, more, lambda *_: False)
        self._spectrum = None
        self.complete = self._method(task).claims[0] is not LinearStatus.ITERATION_LIMIT

    def spectrum(self) -> Spectrum:
        """Return the spectrum in this space."""
        if self._spectrum is None:
            self._spectrum = self._diagonal()
        return self._spectrum

    def _diagonal(self) -> Spectrum:
        from scipy.linalg import eigh

        basis = namespace_of(self._rhs).concat([panel.directions for panel in self._space.panels()], axis=0).T
        image = basis if self.problem.L is None else self.problem.L.forward(basis)
        squares, shares = self.problem.sums.several_grams((image, image), (basis, self._rhs))
        penalty, turn = eigh(to_host(squares))
        penalty = np.clip(penalty, 0.0, self.lam**-2)
        coefficients = turn.T @ to_host(shares)[:, 0]
        return Spectrum(1 - self.lam**2 * penalty, penalty, coefficients, self._data)
