"""Projected conjugate gradients: solve systems that arrive one by one with directions kept from earlier ones.

The first system leaves its search directions P behind. The next one starts from its Galerkin projection on span(P)
(Chan and Wan 1997), direction by direction (PrCG) or by matrix products (APrCG; Lin and Renaut 2010), and conjugate
gradients refine it to the tolerance with directions that are conjugate to all the kept ones; these join the space.

The projection by matrix products divides by the diagonal of PᵀHP, which is right only while the directions are
conjugate. Those of plain conjugate gradients are not for long: see :mod:`stepwell.krylov.naive`. Here every new
direction is made conjugate to all kept ones twice and normalised, so that PᵀHP = I to rounding.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import Array, namespace_of, take_columns, to_host, to_like
from stepwell.krylov.inputs import (
    as_preconditioner,
    bytes_per_number,
    check_tolerance,
    iteration_limit,
    prepare,
    working_dtype,
)
from stepwell.krylov.ledger import Ledger
from stepwell.krylov.results import LinearResult, Progress, Status
from stepwell.krylov.rounds import Correction, Round, solve_in_rounds
from stepwell.krylov.systems import TikhonovSystem, column_norms
from stepwell.operators import Operator, as_operator

#: Directions that are gathered one by one before they join the kept ones in one array.
PANEL = 32


class ProjectedCG:
    """Tikhonov systems with one operator and right-hand sides that arrive one by one.

    Parameters
    ----------
    A : operator
        Anything :func:`stepwell.operators.as_operator` takes.
    lam : float
        λ in ‖Ax − b‖² + λ²‖Lx‖².
    L : operator, optional
        Default: the identity.
    memory : int, default 2**28
        Bytes that kept directions may take: ``2 n`` numbers a direction. When it is full, those that contributed
        least to the latest solutions are dropped.
    augmented : bool, default False
        Project by matrix products (APrCG) rather than direction by direction (PrCG).
    preconditioner : operator, optional
        See :func:`stepwell.tikhonov`.

    Attributes
    ----------
    directions : int
        Number of directions kept at present.
    bytes_held : int
        Bytes that they take.

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> A, b = random.normal(size=(60, 40)), random.normal(size=60)
    >>> solver = ProjectedCG(A, lam=0.5, augmented=True)
    >>> first = solver.solve(b, tol=1e-8)
    >>> second = solver.solve(b + 1e-4 * random.normal(size=60), tol=1e-3)
    >>> int(second.products.sum())  # the projection was enough: only the final residual took a product
    1
    """

    def __init__(
        self,
        A: Any,
        lam: float,
        L: Any = None,
        memory: int = 2**28,
        *,
        augmented: bool = False,
        preconditioner: Any = None,
    ) -> None:
        if not (isinstance(lam, int | float | np.number) and np.isfinite(lam) and float(lam) >= 0):
            raise ValueError(f"lam: got {lam!r}; it must be one finite number, at least 0")
        self.A, self.L, self.lam = A, L, float(lam)
        self.memory = int(memory)
        self.augmented = augmented
        self.preconditioner = preconditioner
        self._space: DirectionSpace | None = None
        self._operators: tuple[Operator, Operator | None] | None = None

    @property
    def directions(self) -> int:
        """Number of directions kept at present."""
        return 0 if self._space is None else self._space.count

    @property
    def bytes_held(self) -> int:
        """Bytes that the kept directions and their products take."""
        return 0 if self._space is None else self._space.bytes_held

    def solve(
        self,
        b: Array,
        *,
        tol: float = 1e-6,
        max_iter: int | None = None,
        x0: Array | None = None,
        callback: Callable[[Progress], object] | None = None,
    ) -> LinearResult:
        """Solve for one right-hand side and keep its directions.

        Parameters
        ----------
        b : array
            The right-hand side, a vector.
        tol : float, default 1e-6
            Bound on ‖Aᵀ(b − Ax) − λ²LᵀLx‖ / ‖Aᵀb‖.
        max_iter : int, optional
            Default: twice the number of unknowns, at least 100.
        x0 : array, optional
            Starting point.
        callback : callable, optional
            Called with a :class:`Progress`; a true answer stops the iteration.

        Returns
        -------
        LinearResult
            As for one column of :func:`stepwell.tikhonov`.
        """
        start = time.perf_counter()
        check_tolerance(tol)
        A, L = self._prepared(working_dtype(self.A, b))
        problem = prepare(A, b, L, x0)
        if problem.columns != 1:
            raise ValueError(f"b: got {problem.columns} columns; ProjectedCG.solve takes one at a time")
        limit = iteration_limit(max_iter, problem.size)
        system = TikhonovSystem(problem.A, problem.L, np.array([self.lam]), problem.B)
        space = self._space
        if space is None or space.size != problem.size:
            space = self._space = DirectionSpace(problem.size, bytes_per_number(problem.B), self.memory)
        precondition = as_preconditioner(self.preconditioner, problem)
        method = Projected(space, precondition, self.augmented)
        account = solve_in_rounds(system, method, problem.x0, tol, limit, callback, self.memory)
        return problem.result(
            account,
            method="aprcg" if self.augmented else "prcg",
            choice=f"{space.count} directions kept",
            lam=np.array([self.lam]),
            calls=system.calls,
            seconds=time.perf_counter() - start,
            memory=self.memory,
        )

    def copy(self) -> ProjectedCG:
        """Return a solver with the directions kept so far; the two go on independently."""
        other = ProjectedCG(
            self.A, self.lam, self.L, self.memory, augmented=self.augmented, preconditioner=self.preconditioner
        )
        other._operators = self._operators
        other._space = None if self._space is None else self._space.copy()
        return other

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the kept directions and settings to an ``.npz`` file.

        The operators are not written: :meth:`load` is given them again.
        """
        space = self._space
        held = space.arrays() if space is not None else (np.empty((0, 0)), np.empty((0, 0)), np.empty(0))
        np.savez(
            path,
            directions=held[0],
            products=held[1],
            scores=held[2],
            lam=self.lam,
            memory=self.memory,
            augmented=self.augmented,
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str], A: Any, L: Any = None, *, preconditioner: Any = None) -> ProjectedCG:
        """Read what :meth:`save` wrote, for the same operators (one product checks that they are the same)."""
        with np.load(path) as file:
            solver = cls(
                A,
                float(file["lam"]),
                L,
                int(file["memory"]),
                augmented=bool(file["augmented"]),
                preconditioner=preconditioner,
            )
            directions, products, scores = file["directions"], file["products"], file["scores"]
        if not directions.size:
            return solver
        operator, penalty = solver._prepared(working_dtype(A, directions))
        if operator.shape[1] != directions.shape[0]:
            raise ValueError(f"A: has shape {operator.shape}, the saved directions {directions.shape[0]} unknowns")
        template = directions if operator.home is None else operator.home
        kept = to_like(directions, template), to_like(products, template)
        space = solver._space = DirectionSpace(directions.shape[0], bytes_per_number(kept[0]), solver.memory)
        space.restore(*kept, scores)
        mix = to_like(np.random.default_rng(0).standard_normal((directions.shape[1], 1)), template)
        system = TikhonovSystem(operator, penalty, np.array([solver.lam]), kept[0])
        expected = kept[1] @ mix
        gap = to_host(column_norms(system.product(kept[0] @ mix) - expected) / column_norms(expected))
        if not gap[0] <= 1e-3:
            raise ValueError("A, L: not the operators for which the directions were saved")
        return solver

    def _prepared(self, dtype: str) -> tuple[Operator, Operator | None]:
        """Operators are made once: a sparse matrix is transposed only for the first right-hand side."""
        if self._operators is None:
            self._operators = (
                as_operator(self.A, dtype, columns=1),
                None if self.L is None else as_operator(self.L, dtype, name="L", columns=1),
            )
        return self._operators


class DirectionSpace:
    """Directions P and products Q = HP with PᵀQ = I, within a budget of bytes.

    New directions are gathered singly and join the large arrays in panels. Each direction carries a score, its share
    in the energy norm of the latest solutions, by which the least useful are dropped.
    """

    def __init__(self, size: int, number: int, memory: int) -> None:
        self.size = size
        self.per_direction = 2 * size * number
        self.capacity = memory // self.per_direction
        if self.capacity < 2:
            raise ValueError(
                f"memory: got {memory} bytes; two directions of {size} unknowns need {2 * self.per_direction}"
            )
        self._panel = min(PANEL, self.capacity // 2)
        self._kept: tuple[Array, Array] | None = None
        self._new: list[tuple[Array, Array]] = []
        self._scores = np.empty(0)

    def copy(self) -> DirectionSpace:
        """Return a space with the same directions; arrays are shared, as none is ever written to."""
        other = copy.copy(self)
        other._new = list(self._new)
        return other

    @property
    def count(self) -> int:
        """Number of directions."""
        return (0 if self._kept is None else int(self._kept[0].shape[1])) + len(self._new)

    @property
    def bytes_held(self) -> int:
        """Bytes of the directions and their products."""
        return self.count * self.per_direction

    def groups(self) -> list[tuple[Array, Array]]:
        """Pairs (P, Q) that together hold all directions."""
        return ([] if self._kept is None else [self._kept]) + self._new

    def conjugate(self, vector: Array) -> Array:
        """Remove from a vector what is not conjugate to the kept directions; twice, as once is not enough."""
        for _ in range(2):
            for directions, products in self.groups():
                vector = vector - directions @ (products.T @ vector)
        return vector

    def add(self, direction: Array, product: Array) -> None:
        """Take in one direction of unit energy."""
        if len(self._new) >= self._panel:
            self._gather()
        self._new.append((direction, product))

    def score(self, coefficients: np.ndarray) -> None:
        """Weigh each direction by its share in a solution; earlier solutions count half as much each time."""
        total = float(np.sum(coefficients**2))
        old = np.zeros(coefficients.size)
        old[: self._scores.size] = self._scores
        self._scores = 0.5 * old + (coefficients**2 / total if total > 0 else 0.0)

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return copies on the host: directions, products, scores."""
        self._gather()
        if self._kept is None:
            return np.empty((0, 0)), np.empty((0, 0)), np.empty(0)
        return to_host(self._kept[0]), to_host(self._kept[1]), self._scores.copy()

    def restore(self, directions: Array, products: Array, scores: np.ndarray) -> None:
        """Take over saved directions."""
        self._kept, self._scores = (directions, products), scores
        self._shrink(self.capacity - self._panel)

    def _gather(self) -> None:
        if not self._new:
            return
        groups = self.groups()
        xp = namespace_of(groups[0][0])
        self._kept = (xp.concat([p for p, _ in groups], axis=1), xp.concat([q for _, q in groups], axis=1))
        self._new = []
        # Directions without a score yet belong to the solve in progress: the last to go.
        fresh = self._kept[0].shape[1] - self._scores.size
        self._scores = np.concatenate([self._scores, np.full(max(0, fresh), np.inf)])
        self._shrink(self.capacity - self._panel)

    def _shrink(self, limit: int) -> None:
        if self._kept is None or self._scores.size <= limit:
            return
        best = np.sort(np.argsort(self._scores, kind="stable")[-limit:])
        self._kept = (take_columns(self._kept[0], best), take_columns(self._kept[1], best))
        self._scores = self._scores[best]


class Projected:
    """The methods ``"prcg"`` and ``"aprcg"`` on one column, over a space of kept directions."""

    def __init__(self, space: DirectionSpace, precondition: Callable[[Array], Array], augmented: bool) -> None:
        self.space = space
        self.precondition = precondition
        self.augmented = augmented

    def __call__(self, task: Round) -> Correction:
        """Project on the kept directions, then refine with new ones."""
        space, system = self.space, task.system
        ledger = Ledger(task)
        x, residual, coefficients = self._project(task.residual)
        if not ledger.any_ended:
            now = float(to_host(column_norms(residual))[0]) / float(task.norms[0])
            if now <= task.tol:
                ledger.end_all(Status.CONVERGED)
        steps = 0
        while not ledger.any_ended:
            direction = space.conjugate(self.precondition(residual))
            product = system.product(direction)
            energy = float(to_host(direction.T @ product)[0, 0])
            ledger.step(1.0)
            if not energy > 0:
                ledger.end_all(Status.NONFINITE if np.isnan(energy) else Status.BREAKDOWN)
                break
            direction, product = direction / energy**0.5, product / energy**0.5
            space.add(direction, product)
            step = direction.T @ residual
            x = x + direction * step
            residual = residual - product * step
            coefficients.append(float(to_host(step)[0, 0]))
            steps += 1
            ledger.look(steps, to_host(column_norms(residual))[None, :])
        if len(coefficients) == space.count:  # none was dropped on the way
            space.score(np.array(coefficients))
        ledger.release(x)
        return ledger.close()

    def _project(self, residual: Array) -> tuple[Array, Array, list[float]]:
        """Galerkin solution over the kept directions, what remains of the residual, and the coefficients."""
        x = namespace_of(residual).zeros_like(residual)
        coefficients: list[float] = []
        for directions, products in self.space.groups():
            if self.augmented:
                share = directions.T @ residual  # PᵀHP = I
                x, residual = x + directions @ share, residual - products @ share
                coefficients += to_host(share)[:, 0].tolist()
                continue
            for i in range(int(directions.shape[1])):
                direction, product = directions[:, i : i + 1], products[:, i : i + 1]
                share = direction.T @ residual
                x, residual = x + direction * share, residual - product * share
                coefficients.append(float(to_host(share)[0, 0]))
        return x, residual, coefficients


def conjugacy_error(solver: ProjectedCG) -> float:
    """Largest entry of |PᵀQ − I| over the directions that a solver keeps."""
    space = solver._space
    if space is None or not space.count:
        return 0.0
    directions, products, _ = space.arrays()
    return float(np.abs(directions.T @ products - np.eye(directions.shape[1])).max())
