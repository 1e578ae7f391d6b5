"""The API: ``tikhonov`` for regularised least squares, ``cg`` for positive definite systems."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from stepwell.arrays import to_host
from stepwell.arrays.checks import read_array, require_each
from stepwell.common.checks import read_switch, require, require_kind, require_shape
from stepwell.common.typing import ArrayLike, BoundsLike, Function, NumberOrArray, OperatorLike
from stepwell.derivatives import plug_for
from stepwell.distributed import local_piece
from stepwell.krylov.bounded import BoundedSystem, Box, exactly_scaled, read_box
from stepwell.krylov.bounded_lam import choose_within
from stepwell.krylov.inputs import (
    Problem,
    iteration_limit,
    prepare,
    soundly_scaled,
)
from stepwell.krylov.options import DEFAULT_WIDTH, MethodChoice, Options
from stepwell.krylov.reductions import Sums
from stepwell.krylov.results import LinearResult, Progress, ends_in_words
from stepwell.krylov.rounds import OutOfRange
from stepwell.krylov.selection import RULES, Choice, Rule, choose
from stepwell.krylov.solving import solve
from stepwell.krylov.systems import PositiveSystem, TikhonovSystem
from stepwell.operators import from_functions


def tikhonov(
    A: OperatorLike,
    B: ArrayLike,
    lam: NumberOrArray | Rule,
    L: OperatorLike | None = None,
    *,
    method: MethodChoice = "auto",
    x0: ArrayLike | None = None,
    tol: float = 1e-6,
    maxiter: int | None = None,
    axis: Literal[0, 1] = 1,
    preconditioner: OperatorLike | Function | None = None,
    callback: Callable[[Progress], object] | None = None,
    noise: NumberOrArray | None = None,
    joint: bool = False,
    memory: float | None = None,
    width: float = DEFAULT_WIDTH,
    bounds: BoundsLike | None = None,
    comm: Any = None,
) -> LinearResult:
    """Minimise ‖AX − B‖² + λ²‖LX‖² for all columns of B, within bounds where they are given.

    Parameters
    ----------
    A : operator, (m, n)
        Dense or sparse matrix, LinearOperator, :class:`stepwell.Convolution`, anything with ``shape``, ``matvec`` and
        ``rmatvec`` (called column by column), pair of functions ``(forward, adjoint)`` of a vector, or
        :class:`stepwell.operators.Operator`.
    B : array, (m,) or (m, k); (k, m) with ``axis=0``
        Right-hand sides. A column with NaN or infinity ends with its own status; zero columns have the solution zero.
    lam : float, array of k floats, or str
        λ itself (it enters squared, as in :func:`stepwell.nnls`), or the rule that chooses it: ``"gcv"`` (generalised
        cross-validation), ``"discrepancy"`` (needs ``noise``) or ``"lcurve"``.
    L : operator, (l, n), optional
        Default: the identity. See :func:`stepwell.operators.gradient` for images.
    method : {"auto", "cgls", "pseudo-block", "block", "prcg", "aprcg", "direct"}, default "auto"
        ``"cgls"``: one column after the other. ``"pseudo-block"``: the same for all columns at once. ``"block"``: all
        columns search in one common space; fewest products. ``"prcg"``, ``"aprcg"``: one after the other, each from
        its projection on earlier directions. ``"direct"``: dense Cholesky. ``"auto"`` chooses one of them, and
        ``result.choice`` says why.
    x0 : array, (n,) or (n, k), default zero
        Starting points; (k, n) with ``axis=0``.
    tol : float, default 1e-6
        Bound on the true relative residual ‖Aᵀ(b − Ax) − λ²LᵀLx‖ / ‖Aᵀb‖ of every column.
    maxiter : int, default twice the number of unknowns, at least 100 (with bounds 1000)
        Bound on the iterations of each column.
    axis : {0, 1}, default 1
        The axis of a two-dimensional `B` along which the right-hand sides lie, and of `x0` and the result's `x` as
        well. 1: they are columns, as in AX = B and in the blocks that operators are applied to. 0: they are rows, as in
        :func:`stepwell.nnls`. The shape of B is never used to guess it.
    preconditioner : operator, callable or array, optional
        Approximate inverse of AᵀA + λ²LᵀL, symmetric positive definite: an operator, a function of a block, or the
        diagonal as a vector.
    callback : callable, optional
        Called with a :class:`~stepwell.krylov.Progress` before the first product (which tells the memory) and after
        every step; a true answer, or StopIteration, stops the run.
    noise : float or array of k floats, optional
        Norm of the noise in each column, for the rule ``"discrepancy"``.
    joint : bool, default False
        Let the rule choose one λ for all columns together: the columns can then share a search space.
    memory : int, default 2**26 for ``"block"`` (2**30 on a GPU), 2**28 for ``"prcg"`` and ``"aprcg"``
        Bytes for earlier directions. More of it saves products.
    width : int, default 256
        Maximum number of columns that ``"block"`` takes into one block.
    bounds : pair (lower, upper), Bounds or array, optional
        ``(0, None)``: X >= 0. Each a number, an array (n,) or one like X; None or an infinity is no bound. In whatever
        form :func:`stepwell.lsq_linear` reads, too. Zero must lie within them. L-BFGS-B takes all columns
        at once, whatever their λ; ``method`` stays ``"auto"``, and the only rule for λ is ``"discrepancy"``.
    comm : optional
        A communicator, as `stepwell.distributed.read_comm` takes it, where unknowns and equations lie over ranks: every
        rank hands in its piece of B and x0 and gets its piece of x, and A, L and the preconditioner map its pieces to
        its pieces, talking to other ranks as they like. All else is global and the same on all ranks: sizes, norms,
        statuses, ``memory``. A callback is called on every rank that has one, and stops all. ``"direct"`` is refused.

    Returns
    -------
    LinearResult
        ``x`` in the kind of B, and per column status, true residual, iterations, products and history. Its dtype is
        NumPy's ``result_type`` of A, B, L and x0, where that is float32, otherwise float64.

    Warns
    -----
    scipy.optimize.OptimizeWarning
        Where a rule chose a λ at an end of the range it searched, or an L-curve has no corner; see
        ``result.lam_at_end``.

    Examples
    --------
    >>> import numpy as np
    >>> import stepwell
    >>> random = np.random.default_rng(0)
    >>> A, B = random.normal(size=(30, 20)), random.normal(size=(30, 3))
    >>> result = stepwell.tikhonov(A, B, 0.5, method="block", tol=1e-10)
    >>> result.success
    True
    >>> exact = np.linalg.solve(A.T @ A + 0.25 * np.eye(20), A.T @ B)
    >>> bool(np.allclose(result.x, exact))
    True
    >>> bounded = stepwell.tikhonov(A, B, 0.5, bounds=(0, None))
    >>> bounded.success, float(bounded.x.min())
    (True, 0.0)
    """
    plug = plug_for((A, L), B, lam, look=bounds is None and comm is None)
    if plug is not None:
        require(bounds is None, "bounds", bounds, "None where derivatives are asked for")
        require(comm is None, "comm", comm, "None where derivatives are asked for")
        found: LinearResult = plug.tikhonov(
            A, B, lam, L, axis=axis, method=method, x0=x0, tol=tol, maxiter=maxiter, preconditioner=preconditioner,
            callback=callback, noise=noise, joint=joint, memory=memory, width=width,
        )  # fmt: skip
        return found
    start = time.perf_counter()
    B, comm = local_piece(B, comm)
    sums = Sums(comm)
    problem = prepare(A, B, L, x0, axis=axis, sums=sums)
    options: Any = None
    given: Any = None
    with sums.holding():
        limit = iteration_limit(maxiter, problem.unknowns.whole, bounds is not None)
        options = Options(method, tol, limit, preconditioner, callback, memory, width)
        given = _read_lam(lam, problem, noise, joint, bounds is not None)
        alone = bounds is None or not sums.spread
        require(alone, "bounds", bounds, "None with comm: within bounds one process has all unknowns")
    sums.check()
    sums.agree_all(options.by_argument | given.by_argument)
    for _ in range(2):
        try:
            box = None
            if bounds is not None:
                problem = exactly_scaled(problem)
                box = read_box(bounds, problem)
                if problem.x0 is not None:
                    problem = replace(problem, x0=box.nearest(problem.x0))
            choice = given.resolve(problem, box)
            parts = problem.A, problem.L, choice.lams / problem.unit, problem.B
            system = TikhonovSystem(*parts, sums=sums) if box is None else BoundedSystem(*parts, box)
            result = solve(problem, system, choice.lams, options, start, choice.products)
            if isinstance(lam, str):
                result.lam_at_end = problem.of_columns(choice.ends)
                _warn_of_ends(lam, choice.ends)
            return result
        except OutOfRange as found:  # only of an operator that was not rescaled yet
            problem = problem.rescaled(found)
    raise AssertionError("unreachable")


def cg(
    H: OperatorLike | Function,
    B: ArrayLike,
    *,
    method: MethodChoice = "auto",
    x0: ArrayLike | None = None,
    tol: float = 1e-6,
    maxiter: int | None = None,
    axis: Literal[0, 1] = 1,
    preconditioner: OperatorLike | Function | None = None,
    callback: Callable[[Progress], object] | None = None,
    memory: float | None = None,
    width: float = DEFAULT_WIDTH,
    comm: Any = None,
) -> LinearResult:
    """Solve HX = B with a symmetric positive definite H for all columns of B.

    Parameters
    ----------
    H : operator, (n, n)
        As A in :func:`tikhonov`, or one function of a vector.
    B, method, x0, tol, maxiter, axis, preconditioner, callback, memory, width, comm
        As in :func:`tikhonov`; ``tol`` bounds ‖b − Hx‖ / ‖b‖, and the preconditioner approximates H⁻¹.

    Returns
    -------
    LinearResult
        As from :func:`tikhonov`, with ``lam`` None.

    Examples
    --------
    >>> import numpy as np
    >>> import stepwell
    >>> H = np.diag([1.0, 2.0, 4.0])
    >>> stepwell.cg(H, np.array([1.0, 1.0, 1.0]), tol=1e-12).x.round(6)
    array([1.  , 0.5 , 0.25])
    """
    plug = plug_for((H,), B, look=comm is None)
    if plug is not None:
        require(comm is None, "comm", comm, "None where derivatives are asked for")
        found: LinearResult = plug.cg(
            H, B, axis=axis, method=method, x0=x0, tol=tol, maxiter=maxiter, preconditioner=preconditioner,
            callback=callback, memory=memory, width=width,
        )  # fmt: skip
        return found
    start = time.perf_counter()
    operator: Any = from_functions(H, H, name="H") if callable(H) and not hasattr(H, "shape") else H
    B, comm = local_piece(B, comm)
    sums = Sums(comm)
    problem = prepare(operator, B, None, x0, name="H", square=True, axis=axis, sums=sums)
    options: Any = None
    with sums.holding():
        limit = iteration_limit(maxiter, problem.unknowns.whole)
        options = Options(method, tol, limit, preconditioner, callback, memory, width)
    sums.check()
    sums.agree_all(options.by_argument)
    problem = soundly_scaled(problem)
    return solve(problem, PositiveSystem(problem.A, problem.B, sums=sums), None, options, start)


def _warn_of_ends(rule: str, ends: np.ndarray) -> None:
    """Say which λ lie at an end of the range that the rule has searched, or at no corner."""
    text = ends_in_words(ends)
    if text:
        from scipy.optimize import OptimizeWarning

        hints = {"discrepancy": "noise is no norm that the residual has there", "gcv": "the rule finds none within"}
        hint = hints.get(rule, "the rule has nothing to go by")
        warnings.warn(f"{text}: {hint}; see lam_at_end, and give lam itself", OptimizeWarning, stacklevel=3)


@dataclass(frozen=True)
class _Lam:
    """What was given for λ: one for each column, or a rule with the noise that it may need."""

    lams: np.ndarray | None
    rule: str
    noise: np.ndarray | None
    joint: bool

    @property
    def by_argument(self) -> dict[str, Any]:
        """Short texts, by the names of the arguments, that two ranks share only where they were given the same."""
        return {"lam": self.rule or _in_words(self.lams), "noise": _in_words(self.noise), "joint": self.joint}

    def resolve(self, problem: Problem, box: Box | None) -> Choice:
        """One λ per column, and what choosing took."""
        if self.lams is not None:
            count = problem.columns
            return Choice(self.lams, np.zeros(count), np.zeros(count, dtype=np.int64))
        levels = None if self.noise is None else self.noise / to_host(problem.scale).ravel()
        choice = choose(problem, self.rule, levels, self.joint)
        if box is not None and levels is not None:
            choice = choose_within(problem, box, levels, self.joint, choice)
        return replace(choice, lams=choice.lams * problem.unit)


def _in_words(numbers: np.ndarray | None) -> Any:
    """A number for all columns as it is; else how many there are, and their sum."""
    if numbers is None or not numbers.size:
        return None
    alike = bool((numbers == numbers[0]).all())
    return float(numbers[0]) if alike else f"{numbers.size} numbers of sum {float(numbers.sum())!r}"


def _read_lam(lam: Any, problem: Problem, noise: Any, joint: bool, bounded: bool) -> _Lam:
    count = problem.columns
    joint = read_switch("joint", joint)
    levels = None if noise is None else _per_column(noise, count, "noise")
    if not isinstance(lam, str):
        return _Lam(_per_column(lam, count, "lam"), "", levels, joint)
    require(lam in RULES, "lam", lam, f"numbers, and the rules {', '.join(map(repr, RULES))}")
    if lam == "discrepancy" and noise is None:
        raise ValueError("noise is None; allowed: the norm of the noise in each column, with lam='discrepancy'")
    if bounded:
        allowed = "numbers and 'discrepancy' with bounds; the other rules choose for solutions without them"
        require(lam == "discrepancy", "lam", lam, allowed)
    return _Lam(None, lam, levels, joint)


def _per_column(value: Any, count: int, name: str) -> np.ndarray:
    allowed = f"one real number or one per column ({count})"
    given = read_array(name, value, allowed)
    require_kind("bool" not in str(given.dtype), name, value, allowed)
    values = to_host(given)
    require_shape(values.shape in ((), (count,)), name, values, allowed)
    require_each(np.isfinite(values) & (values >= 0), name, values, "finite numbers of at least 0")
    return np.array(np.broadcast_to(values, (count,)))
