"""``tikhonov`` and ``cg`` on arrays of one library, without derivatives; `stepwell.api` and derivatives call them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stepwell.arrays import to_host
from stepwell.arrays.checks import read_array, require_each
from stepwell.common.checks import read_switch, require, require_kind, require_shape
from stepwell.distributed import local_piece
from stepwell.krylov.bounded import BoundedSystem, Box, exactly_scaled, read_box
from stepwell.krylov.bounded_lam import choose_within
from stepwell.krylov.inputs import iteration_limit, prepare
from stepwell.krylov.linear_problem import LinearProblem, soundly_scaled
from stepwell.krylov.options import DEFAULT_WIDTH, MethodChoice, SolveOptions
from stepwell.krylov.reductions import Sums
from stepwell.krylov.results import LinearResult, Progress, ends_in_words
from stepwell.krylov.rounds import OutOfRange
from stepwell.krylov.selection import RULES, Choice, choose
from stepwell.krylov.solving import solve
from stepwell.krylov.systems import PositiveSystem, TikhonovSystem
from stepwell.operators import from_functions


def solve_tikhonov(
    A: Any,
    B: Any,
    lam: Any,
    L: Any = None,
    *,
    method: MethodChoice = "auto",
    x0: Any = None,
    tol: float = 1e-6,
    maxiter: int | None = None,
    axis: int = 1,
    preconditioner: Any = None,
    callback: Callable[[Progress], object] | None = None,
    noise: Any = None,
    joint: bool = False,
    memory: float | None = None,
    width: float = DEFAULT_WIDTH,
    bounds: Any = None,
    comm: Any = None,
) -> LinearResult:
    """Solve as `stepwell.tikhonov` does."""
    start = time.perf_counter()
    B, comm = local_piece(B, comm)
    sums = Sums(comm)
    problem = prepare(A, B, L, x0, axis=axis, sums=sums)
    options: Any = None
    given: Any = None
    with sums.holding():
        limit = iteration_limit(maxiter, problem.unknowns.whole, bounds is not None)
        options = SolveOptions(method, tol, limit, preconditioner, callback, memory, width)
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


def solve_cg(
    H: Any,
    B: Any,
    *,
    method: MethodChoice = "auto",
    x0: Any = None,
    tol: float = 1e-6,
    maxiter: int | None = None,
    axis: int = 1,
    preconditioner: Any = None,
    callback: Callable[[Progress], object] | None = None,
    memory: float | None = None,
    width: float = DEFAULT_WIDTH,
    comm: Any = None,
) -> LinearResult:
    """Solve as `stepwell.cg` does."""
    start = time.perf_counter()
    operator: Any = from_functions(H, H, name="H") if callable(H) and not hasattr(H, "shape") else H
    B, comm = local_piece(B, comm)
    sums = Sums(comm)
    problem = prepare(operator, B, None, x0, name="H", square=True, axis=axis, sums=sums)
    options: Any = None
    with sums.holding():
        limit = iteration_limit(maxiter, problem.unknowns.whole)
        options = SolveOptions(method, tol, limit, preconditioner, callback, memory, width)
    sums.check()
    sums.agree_all(options.by_argument)
    problem = soundly_scaled(problem)
    return solve(problem, PositiveSystem(problem.A, problem.B, sums=sums), None, options, start)


def _warn_of_ends(rule: str, ends: np.ndarray) -> None:
    """Say which λ lie at an end of the range that the rule has searched, or at no corner."""
    text = ends_in_words(ends)
    if text:
        from scipy.optimize import OptimizeWarning

        hints = {"discrepancy": "noise is no level that the residual has there", "gcv": "the rule finds none within"}
        hint = hints.get(rule, "the rule has nothing to go by")
        warnings.warn(f"{text}: {hint}; see lam_at_end, and give lam itself", OptimizeWarning, stacklevel=4)


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

    def resolve(self, problem: LinearProblem, box: Box | None) -> Choice:
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


def _read_lam(lam: Any, problem: LinearProblem, noise: Any, joint: bool, bounded: bool) -> _Lam:
    count = problem.columns
    joint = read_switch("joint", joint)
    # The norm of a column's noise, whose entries have this standard deviation.
    levels = None if noise is None else _per_column(noise, count, "noise") * problem.equations.whole**0.5
    if not isinstance(lam, str):
        return _Lam(_per_column(lam, count, "lam"), "", levels, joint)
    require(lam in RULES, "lam", lam, f"numbers, and the rules {', '.join(map(repr, RULES))}")
    if lam == "discrepancy" and noise is None:
        raise ValueError("noise is None; allowed: the standard deviation of B's entries, with lam='discrepancy'")
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
