"""Projected conjugate gradients: solve systems that arrive one by one with directions kept from earlier ones.

The first system leaves its search directions P behind. The next one starts from its Galerkin projection on span(P)
(Chan and Wan 1997), direction by direction (PrCG) or by matrix products (APrCG; Lin and Renaut 2010), and conjugate
gradients refine it to the tolerance with directions that are conjugate to all the kept ones; these join the space.

The projection by matrix products divides by the diagonal of PᵀHP, which is right only while the directions are
conjugate. Those of plain conjugate gradients are not for long (tests/krylov/published_projection.py). Here every new
direction is made conjugate to all kept ones and normalised, so that PᵀHP = I to rounding.

A least-squares system also keeps the images AP. They give the Galerkin coefficients straight from the data, (AP)ᵀb,
and the data's residual at the projection, b − AP(AP)ᵀb, whose Aᵀ is the residual of the normal equations there: the
adjoint that others spend on Aᵀb is spent on that, and ‖Aᵀb‖ follows from the kept products.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import copy_to_device_of, to_host, transposed_product
from stepwell.arrays.checks import read_array
from stepwell.common import checkpoints
from stepwell.common.checks import read_real, read_switch, require, require_function, require_shape, warn_caller
from stepwell.common.keywords import keywords_told
from stepwell.common.threads import OneAtATime
from stepwell.common.typing import ArrayLike, Function, OperatorLike
from stepwell.krylov import saved_solver
from stepwell.krylov.inputs import iteration_limit, prepare, working_dtype
from stepwell.krylov.linear_problem import LinearProblem, bytes_per_number, column_numbers
from stepwell.krylov.preconditioners import as_preconditioner
from stepwell.krylov.projection import Projected, problem_space
from stepwell.krylov.reductions import Sums
from stepwell.krylov.results import LinearResult, Progress
from stepwell.krylov.rounds import OutOfRange, solve_in_rounds
from stepwell.krylov.space import DirectionSpace, space_bytes
from stepwell.krylov.systems import TikhonovSystem
from stepwell.operators import Operator, as_operator
from stepwell.operators.matrices import scaled


class ProjectedCG:
    """Tikhonov systems with one operator and right-hand sides that arrive one by one.

    Parameters
    ----------
    A : operator
        Anything :func:`stepwell.operators.as_operator` takes.
    lam : float
        λ in ‖Ax − b‖² + λ²‖Lx‖², which enters squared.
    L : operator, optional
        Default: the identity.
    memory : int, default 2**28
        Bytes that kept directions may take: ``2 n + m`` numbers a direction, for an A of m rows and n columns. When
        it is full, those that contributed least to the latest solutions are dropped.
    augmented : bool, default False
        Project by matrix products (APrCG) rather than direction by direction (PrCG).
    preconditioner : operator, callable or array, optional
        See :func:`stepwell.tikhonov`.
    comm : optional
        See :func:`stepwell.tikhonov`. The memory is that of all ranks together.
    checkpoint : path, optional
        A file for all that is kept, as of :meth:`save`. Where it is there, the solver goes on from it, bit for bit,
        after `solved` right-hand sides. It is written at the beginning of a solve, when the caller has the last one's
        solution: after a crash or SIGKILL go on with ``b[solver.solved]``.
    checkpoint_every : int or str, default "60 s"
        How often: after so many right-hand sides, or a time in ``s``, ``min`` or ``h``.

    Attributes
    ----------
    directions : int
        Number of directions kept at present.
    bytes_held : int
        Bytes that they take.
    solved : int
        Right-hand sides solved so far, those before a checkpoint included.

    Notes
    -----
    One thread at a time: a second one that calls a method meanwhile gets a RuntimeError.

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> A, b = random.normal(size=(60, 40)), random.normal(size=60)
    >>> solver = ProjectedCG(A, lam=0.5, augmented=True)
    >>> first = solver.solve(b, tol=1e-8)
    >>> second = solver.solve(b + 1e-4 * random.normal(size=60), tol=1e-3)
    >>> int(second.products)  # the projection was enough: only the final residual took a product
    1
    """

    @keywords_told
    def __init__(
        self,
        A: OperatorLike,
        lam: float,
        L: OperatorLike | None = None,
        memory: float = 2**28,
        *,
        augmented: bool = False,
        preconditioner: OperatorLike | Function | None = None,
        comm: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int | str = "60 s",
    ) -> None:
        lam = read_real("lam", lam, at_least=0)
        for name, operator in (("A", A), ("L", L), ("preconditioner", preconditioner)):
            if not (callable(operator) or hasattr(operator, "shape") or (operator is None and name != "A")):
                as_operator(operator, name=name)  # a pair, or a TypeError
        self.A, self.L, self.lam = A, L, lam
        self.memory = int(read_real("memory", memory, at_least=0))
        self.augmented = read_switch("augmented", augmented)
        self.preconditioner = preconditioner
        self._sums = Sums(comm)
        self._space: DirectionSpace | None = None
        self._operators: dict[str, tuple[Operator, Operator | None]] = {}
        self._in_units: tuple[Operator, float] | None = None  # A divided by its size, where that is extreme
        self.solved = 0
        self._alone = OneAtATime("this ProjectedCG")
        self._checkpoint: tuple[str, int | None, float | None] | None = None
        if checkpoint is not None:
            allowed = "None with comm: directions that lie over ranks are not saved"
            require(not self._sums.spread, "checkpoint", checkpoint, allowed)
            path = checkpoints.read_path(checkpoint)
            self._checkpoint = (path, *checkpoints.read_interval(checkpoint_every, "right-hand sides"))
            if os.path.exists(path):
                held = saved_solver.read(path)
                for name in ("lam", "memory", "augmented"):
                    given = getattr(self, name)
                    if held[name] != given:
                        raise ValueError(f"checkpoint is {path!r}, whose {name} is {held[name]!r}; allowed: {given!r}")
                self._take_up(held)
        self._written = self.solved, time.monotonic()

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
        b: ArrayLike,
        *,
        tol: float = 1e-6,
        maxiter: int | None = None,
        x0: ArrayLike | None = None,
        callback: Callable[[Progress], object] | None = None,
    ) -> LinearResult:
        """Solve for one right-hand side and keep its directions.

        Parameters
        ----------
        b : array
            The right-hand side, a vector.
        tol : float, default 1e-6
            Bound on ‖Aᵀ(b − Ax) − λ²LᵀLx‖ / ‖Aᵀb‖.
        maxiter : int, default twice the number of unknowns, at least 100
            Bound on the iterations.
        x0 : array, default the projection on kept directions
            Starting point.
        callback : callable, optional
            Called with a :class:`Progress`; a true answer stops the iteration.

        Returns
        -------
        LinearResult
            As for one column of :func:`stepwell.tikhonov`.
        """
        with self._alone:
            self._keep_checkpoint()
            result = self._solve_one(b, tol, maxiter, x0, callback)
            self.solved += 1
        return result

    def _solve_one(
        self,
        b: ArrayLike,
        tol: float,
        maxiter: int | None,
        x0: ArrayLike | None,
        callback: Callable[[Progress], object] | None,
    ) -> LinearResult:
        start = time.perf_counter()
        sums = self._sums
        sums.begin()
        A: Any = None
        L: Any = None
        with sums.holding():
            tol = read_real("tol", tol, above=0)
            right = read_array("b", b)
            require_shape(len(right.shape) in (1, 2), "b", right, "(m,), a vector")
            require_function("callback", callback)
            iteration_limit(maxiter, 0)
            A, L = self._prepared(working_dtype(self.A, b, self.L, x0))
            rows = A.shape[0]
            require_shape(rows in (None, right.shape[0]), "b", right, f"({rows},), as A has rows")
        sums.check()
        problem = prepare(A, b, L, x0, sums=sums)
        if problem.columns != 1:
            raise ValueError(f"b has {problem.columns} columns; allowed: one at a time")
        limit = iteration_limit(maxiter, problem.unknowns.whole)
        kept = {name: getattr(self, name) for name in ("lam", "memory", "augmented")}
        sums.agree_all(kept | {"tol": tol, "maxiter": limit})
        if self._in_units is not None:
            problem = problem.in_units(*self._in_units)
        try:
            return self._solve(problem, tol, limit, callback, start)
        except OutOfRange as found:  # only of an operator that was not rescaled yet
            problem = problem.rescaled(found)
            self._in_units, self._space = (problem.A, problem.unit), None
            return self._solve(problem, tol, limit, callback, start)

    def _solve(
        self,
        problem: LinearProblem,
        tol: float,
        limit: int,
        callback: Callable[[Progress], object] | None,
        start: float,
    ) -> LinearResult:
        system = TikhonovSystem(problem.A, problem.L, np.array([self.lam / problem.unit]), problem.B, sums=problem.sums)
        space = self._space
        number = bytes_per_number(problem.B)
        if space is None or (space.size, space.number) != (problem.size, number):
            space = self._space = problem_space(problem, system, self.memory)
        precondition = as_preconditioner(self.preconditioner, problem)
        method = Projected(space, precondition, self.augmented)
        rescalable = problem.unit == 1
        needed = (
            problem.A.memory + (0 if problem.L is None else problem.L.memory) + number * column_numbers(problem, True)
        )
        needed += space_bytes(problem.size, system.data_size, number, problem.share_of(self.memory))
        stats = solve_in_rounds(system, method, problem.x0, tol, limit, callback, needed, rescalable, True)
        return problem.result(
            stats,
            method="aprcg" if self.augmented else "prcg",
            choice=f"{space.count} directions kept",
            lam=np.array([self.lam]),
            calls=system.calls,
            seconds=time.perf_counter() - start,
            memory=needed,
        )

    def copy(self) -> ProjectedCG:
        """Return a solver with the directions kept so far; the two go on independently."""
        other = ProjectedCG(
            self.A, self.lam, self.L, self.memory, augmented=self.augmented, preconditioner=self.preconditioner
        )
        other.solved = self.solved
        other._operators, other._in_units = self._operators, self._in_units
        other._sums = self._sums
        other._space = None if self._space is None else self._space.copy()
        return other

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the kept directions and settings to a file, an ``.npz`` with a checksum.

        The operators are not written: :meth:`load` is given them again. A file of that name stays whole until the new
        one is, whatever happens in between. Directions that lie over ranks are not saved.
        """
        require(not self._sums.spread, "comm", "a communicator", "None, to save: the directions lie over ranks")
        with self._alone:
            self._save(path)

    def _save(self, path: str | os.PathLike[str]) -> None:
        unit = 1.0 if self._in_units is None else self._in_units[1]
        held: dict[str, Any] = {"lam": self.lam, "memory": self.memory, "augmented": self.augmented, "unit": unit}
        held |= {"version": saved_solver.VERSION, "solved": self.solved}
        checkpoints.write(path, saved_solver.KIND, held | ({} if self._space is None else self._space.arrays()))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        A: OperatorLike,
        L: OperatorLike | None = None,
        *,
        preconditioner: OperatorLike | Function | None = None,
    ) -> ProjectedCG:
        """Read what :meth:`save` wrote, for the same operators (one product checks that they are the same).

        The solver goes on bit for bit. A file that was changed or cut short is a ValueError.
        """
        held = saved_solver.read(path)
        solver = cls(A, held["lam"], L, held["memory"], augmented=held["augmented"], preconditioner=preconditioner)
        solver._take_up(held)
        return solver

    def _take_up(self, held: dict[str, Any]) -> None:
        """Go on from what was saved."""
        self.solved = held["solved"]
        if "directions" not in held or not held["directions"].size:
            return
        directions, products, images, scores = (held[name] for name in ("directions", "products", "images", "scores"))
        unit = held["unit"]
        operator, penalty = self._prepared(working_dtype(self.A, self.L, directions))
        if unit != 1:
            operator = scaled(operator, 1 / unit)
            self._in_units = operator, unit
        saved = (images.shape[1], directions.shape[1])
        fits = all(known in (None, wanted) for known, wanted in zip(operator.shape, saved))
        require_shape(fits, "A", operator, f"{saved}, the equations and unknowns of the saved directions")
        operator.shape = saved
        template = directions if operator.home is None else operator.home
        kept = tuple(copy_to_device_of(part, template) for part in (directions, products, images))
        space = DirectionSpace(saved[1], saved[0], bytes_per_number(kept[0]), self.memory)
        mix = copy_to_device_of(np.random.default_rng(0).standard_normal((directions.shape[0], 1)), template)
        system = TikhonovSystem(operator, penalty, np.array([self.lam / unit]), kept[0].T)
        expected = transposed_product(kept[1], mix)
        found = system.product(transposed_product(kept[0], mix))
        gap = to_host(system.sums.norms(found - expected) / system.sums.norms(expected))
        if not gap[0] <= 1e-3:
            raise ValueError("A, L: not the operators for which the directions were saved")
        space.restore(kept[0], kept[1], kept[2], scores, held["panels"], float(held["longest"]))
        self._space = space

    def _keep_checkpoint(self) -> None:
        """Write the checkpoint, where it is time: before a solve, when the caller has the last one's solution."""
        if self._checkpoint is None:
            return
        path, count, seconds = self._checkpoint
        due = self.solved - self._written[0] >= count if count is not None else False
        due = due or (seconds is not None and time.monotonic() - self._written[1] >= seconds)
        if not due or self.solved == self._written[0]:
            return
        try:
            self._save(path)
        except OSError as error:
            warn_caller(f"the checkpoint could not be written, and the solver goes on: {error}")
        self._written = self.solved, time.monotonic()

    def _prepared(self, dtype: str) -> tuple[Operator, Operator | None]:
        """Operators are made once: a sparse matrix is transposed only for the first right-hand side of a dtype."""
        if dtype not in self._operators:
            self._operators[dtype] = (
                as_operator(self.A, dtype, columns=1),
                None if self.L is None else as_operator(self.L, dtype, name="L", columns=1),
            )
        return self._operators[dtype]


def conjugacy_error(solver: ProjectedCG) -> float:
    """Largest entry of |PᵀQ − I| over the directions that a solver keeps."""
    space = solver._space
    if space is None or not space.count:
        return 0.0
    held = {name: part.astype(np.float64) for name, part in space.arrays().items()}
    (products,) = space.sums.total(held["directions"] @ held["products"].T)
    return float(np.abs(products - np.eye(space.count)).max())
