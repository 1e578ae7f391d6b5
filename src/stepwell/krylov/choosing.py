"""Which method runs: the one that was asked for, or that which is expected to take least."""

from __future__ import annotations

import numpy as np

from stepwell.arrays import available_bytes, take_columns
from stepwell.arrays.sparse import is_scipy_sparse
from stepwell.common.checks import require
from stepwell.krylov.bounded import BoundedSystem
from stepwell.krylov.costs import Work
from stepwell.krylov.direct import direct_bytes, uses_dual
from stepwell.krylov.linear_problem import LinearProblem, bytes_per_number
from stepwell.krylov.options import METHODS, SolveOptions
from stepwell.krylov.results import MethodName
from stepwell.krylov.systems import System, TikhonovSystem

#: ``auto`` solves directly up to this many unknowns (or equations), where the factor costs less than a few products.
DIRECT_SIZE = 1000
#: Beyond, where it is expected to take least, and no more bytes than these nor than half of what is free.
DIRECT_MEMORY = 2**30


def choose_method(
    options: SolveOptions, problem: LinearProblem, system: System, lams: np.ndarray | None, block_memory: int
) -> tuple[MethodName, str]:
    """Return the method, and why it is that one; ``block_memory`` is what ``block`` would keep."""
    method = options.method
    if isinstance(system, BoundedSystem):
        require(method == "auto", "method", method, "'auto' with bounds, which have a method of their own")
        return "bounded", "there are bounds"
    if method != "auto":
        allowed = [name for name in METHODS if name != "direct"] if problem.sums.spread else METHODS
        require(
            method in allowed,
            "method",
            method,
            f"{', '.join(map(repr, allowed))} with comm: a dense factor is not spread over ranks",
        )
        return method, "as asked"
    count, size = problem.columns, problem.size
    equations = int(problem.B.shape[0])
    shared = lams is None or not lams.size or bool(np.all(lams == lams[0]))
    regular = lams is None or bool(np.all(lams > 0))  # without λ the matrix may have no factor
    factored = not problem.sums.spread and problem.A.matrix is not None and shared and regular
    if factored and min(size, max(equations, 1)) <= DIRECT_SIZE and size <= 4 * DIRECT_SIZE:
        return (
            "direct",
            f"the matrix is explicit and a dense factor of {min(size, equations)} unknowns is cheap",
        )
    if not shared:
        return "pseudo-block", f"the {count} columns have different lam and share no search space"
    work = _work(problem, system, options, block_memory)
    if work is not None:
        return _cheapest(work, problem.columns == 1, factored and _has_room(problem, lams))
    if count == 1:
        return "cgls", "there is one right-hand side"
    return "block", f"the {count} columns share one matrix and hence one search space"


def _cheapest(work: Work, alone: bool, factored: bool) -> tuple[MethodName, str]:
    seconds: dict[MethodName, float] = {"cgls" if alone else "pseudo-block": work.pseudo_block}
    if not alone:
        seconds["block"] = work.block
    if factored:
        seconds["direct"] = work.direct
    method = min(seconds, key=lambda name: seconds[name])
    steps = f"{work.steps:.0f} steps" if alone else f"{work.steps:.0f} steps, {work.block_steps:.0f} in a block"
    told = ", ".join(f"{name} {1e3 * seconds[name]:.3g} ms" for name in sorted(seconds, key=lambda name: seconds[name]))
    return method, f"by the counts expected on the host ({steps}) and their cost on one core: {told}"


def _work(problem: LinearProblem, system: System, options: SolveOptions, block_memory: int) -> Work | None:
    """What the costs are counted from; None where they were not measured.

    That is with functions, other libraries, ranks and preconditioners, and for ``cg``.
    """
    if options.preconditioner is not None:
        return None
    explicit = isinstance(problem.B, np.ndarray) and not problem.sums.spread and problem.columns > 0
    if not explicit or not isinstance(system, TikhonovSystem) or system.A.matrix is None:
        return None
    matrices = [operator.matrix for operator in (system.A, system.L) if operator is not None]
    if any(not is_scipy_sparse(matrix) and not isinstance(matrix, np.ndarray) for matrix in matrices):
        return None
    lam = float(system.lam[0])
    norms = system.data_norms()
    usable = np.flatnonzero(np.isfinite(norms) & (norms > 0))
    if not usable.size:
        return None
    column = usable[[usable.size // 2]]  # the middle one of a volume's slices has most in it
    image = system.A.adjoint(take_columns(problem.B, column))
    with np.errstate(all="ignore"):
        size = float(system.sums.norms(image)[0] / norms[column[0]])
        ratio = size / lam if lam > 0 else np.inf
    if np.isnan(ratio):
        return None
    return Work(
        problem.size,
        max(1, int(problem.B.shape[0])),
        sum(int(matrix.nnz) for matrix in matrices if is_scipy_sparse(matrix)),
        sum(int(matrix.size) for matrix in matrices if not is_scipy_sparse(matrix)),
        problem.columns,
        ratio,
        options.tol,
        max(1, options.maxiter),
        block_memory,
        max(1, int(options.width)),
        bytes_per_number(problem.B),
        uses_dual(system.A, system.L, lam),
    )


def _has_room(problem: LinearProblem, lams: np.ndarray | None) -> bool:
    """Whether a dense factor is small enough to be chosen unasked."""
    needed = direct_bytes(problem.A, problem.L, 0.0 if lams is None else float(lams[0]), problem.B)
    available = available_bytes(problem.B)
    return needed <= DIRECT_MEMORY and (available is None or 2 * needed <= available)
