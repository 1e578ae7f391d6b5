"""From a checked problem to its solution: which method, in which groups of columns, within which memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from stepwell.arrays import available_bytes, is_cuda, namespace_of, take_columns
from stepwell.krylov.block import BlockCG
from stepwell.krylov.bounded import BoundedLBFGS
from stepwell.krylov.choosing import choose_method
from stepwell.krylov.direct import Direct, direct_bytes
from stepwell.krylov.linear_problem import LinearProblem, bytes_per_number, column_numbers
from stepwell.krylov.options import SolveOptions
from stepwell.krylov.preconditioners import as_diagonal, as_preconditioner
from stepwell.krylov.projection import Projected, problem_space
from stepwell.krylov.pseudo import PseudoBlock
from stepwell.krylov.results import LinearResult, Progress
from stepwell.krylov.rounds import Method, SolveStats, solve_in_rounds
from stepwell.krylov.space import space_bytes
from stepwell.krylov.systems import System

#: Default bytes for earlier directions. A block more saves products and costs matrix products of blocks: on a GPU it
#: pays always, on a CPU with a sparse operator hardly. The projecting methods live by what they keep.
BLOCK_MEMORY, BLOCK_MEMORY_ON_GPU, PROJECTED_MEMORY = 2**26, 2**30, 2**28
#: Vectors of unknowns, and of data, that ``bounded`` holds of a column where all of them meet a bound in one step.
BOUNDED_VECTORS, BOUNDED_IMAGES = 16, 6


class Watch:
    """Tells the caller of runs on some of the columns as of one run on all of them; a true answer stops all."""

    def __init__(self, callback: Callable[[Progress], object], columns: int) -> None:
        self.callback, self.columns, self.waiting = callback, columns, columns
        self.begun = self.stopped = False

    def begin(self, columns: int) -> None:
        """Take note that so many more columns are at work."""
        self.waiting -= columns

    def __call__(self, told: Progress) -> bool:
        """Pass the news on, except that a later run begins."""
        if not self.stopped and (told.iteration or not self.begun):
            news = replace(told, running=told.running + self.waiting, columns=self.columns)
            self.begun, self.stopped = True, bool(self.callback(news))
        return self.stopped


def solve(
    problem: LinearProblem,
    system: System,
    lams: np.ndarray | None,
    options: SolveOptions,
    start: float,
    spent: np.ndarray | float = 0.0,
) -> LinearResult:
    """Choose the method, run it on each group of columns that can go together, and join their statistics."""
    precondition = as_preconditioner(options.preconditioner, problem)
    width = int(options.width)
    given = None if options.memory is None else int(options.memory)
    of_block = given if given is not None else BLOCK_MEMORY_ON_GPU if is_cuda(problem.B) else BLOCK_MEMORY
    method, choice = choose_method(options, problem, system, lams, of_block)
    memory = of_block if method == "block" or given is not None else PROJECTED_MEMORY
    needed = _memory_needed(method, problem, lams, memory, width)
    groups = _groups(method, problem.columns, lams)
    watch = None if options.callback is None else Watch(options.callback, problem.columns)
    all_stats: list[SolveStats] = []
    for columns, same_matrix in groups:
        if watch is not None:
            watch.begin(columns.size)
        whole = columns.size == problem.columns
        if method == "bounded":
            run: Method = BoundedLBFGS(as_diagonal(options.preconditioner, problem))
        elif method in ("cgls", "pseudo-block"):
            run = PseudoBlock(precondition)
        elif method == "block":
            run = BlockCG(precondition, memory, width, problem.unknowns.whole)
        elif method == "direct":
            run = Direct()
        elif not same_matrix:  # otherwise the projection goes on with the directions kept so far
            space = problem_space(problem, system, memory)
            run = Projected(space, precondition, method == "aprcg")
        first = problem.x0 if whole or problem.x0 is None else take_columns(problem.x0, columns)
        part = system if whole else system.take(columns)
        all_stats.append(
            solve_in_rounds(part, run, first, options.tol, options.maxiter, watch, needed, problem.unit == 1, True)
        )
    stats = _join(all_stats, [columns for columns, _ in groups], problem)
    all_stats.clear()
    stats.products += spent
    return problem.result(
        stats,
        method=method,
        choice=choice,
        lam=lams,
        calls=system.calls + int(np.sum(spent)),
        seconds=time.perf_counter() - start,
        memory=needed,
    )


def _memory_needed(method: str, problem: LinearProblem, lams: np.ndarray | None, memory: int, width: int) -> int:
    """Bytes beside the caller's own: the working blocks, kept directions, and copies of the operator.

    What ``docs/krylov.md`` says of memory, and what the tests hold it to.
    """
    number = bytes_per_number(problem.B)
    size, count = problem.size, problem.columns
    memory = problem.share_of(memory)
    operators = problem.A.memory + (problem.L.memory if problem.L is not None else 0)
    least_squares = lams is not None
    rows = int(problem.B.shape[0]) if least_squares else 0
    given = number * int(problem.B.shape[0]) * count if problem.copied else 0
    solutions = number * size * count * (1 + problem.scaled)
    if method == "bounded":
        penalties = 0 if problem.L is None else problem.L.shape[0] or 0
        numbers = BOUNDED_VECTORS * size + BOUNDED_IMAGES * (rows + penalties)
        return operators + given + max(solutions, number * count * numbers)
    if method == "pseudo-block":
        return operators + given + max(solutions, number * count * column_numbers(problem, least_squares))
    if method == "block":
        together = min(count, width)
        blocks = number * together * ((9 if problem.L is not None else 8 if least_squares else 6) * size + rows)
        blocks += number * 3 * size * count if count > together else 0
        kept = min(memory, 2 * number * size * (size + together))  # no more directions than unknowns are independent
        copied = (
            kept // 2 if is_cuda(problem.B) or problem.sums.spread else 0
        )  # while a block joins those that are kept
        return operators + given + max(solutions, blocks + copied + max(kept, 2 * number * size * together))
    if method == "direct":
        lam = float(lams[0]) if lams is not None and lams.size else 0.0
        factor = direct_bytes(problem.A, problem.L, lam, problem.B)
        needed = operators + given + factor + number * count * (7 * size + 3 * rows)
        available = available_bytes(problem.B)
        if available is not None and needed > available:
            raise ValueError(
                f"method is 'direct', which needs {needed / 2**30:.1f} GiB for {size} unknowns, where "
                f"{available / 2**30:.1f} GiB are free; allowed: 'block' or 'cgls'"
            )
        return needed
    one = number * column_numbers(problem, least_squares)
    space = 0 if method == "cgls" else space_bytes(size, rows, number, memory)
    if count > 1:  # solutions so far stand beside the work; then they are joined
        together = number * size * count
        return operators + given + max(2 * together + min(space, memory), together + one + space)
    return operators + given + one + space


def _groups(method: str, count: int, lams: np.ndarray | None) -> list[tuple[np.ndarray, bool]]:
    """Columns that go into one run, and whether a run has the matrix of the run before it."""
    values = np.zeros(count) if lams is None else lams
    if method in ("pseudo-block", "bounded") or not count:
        return [(np.arange(count), False)]
    if method == "cgls":
        return [(np.array([column]), False) for column in range(count)]
    by_value = [np.flatnonzero(values == value) for value in np.unique(values)]
    if method in ("block", "direct"):
        return [(columns, False) for columns in by_value]
    return [(columns[i : i + 1], i > 0) for columns in by_value for i in range(columns.size)]


def _join(all_stats: list[SolveStats], groups: list[np.ndarray], problem: LinearProblem) -> SolveStats:
    if len(all_stats) == 1:
        return all_stats[0]
    order = np.argsort(np.concatenate(groups), kind="stable")
    joined = namespace_of(problem.B).concat([stats.x for stats in all_stats], axis=1)
    if (order != np.arange(order.size)).any():
        joined = take_columns(joined, order)
    statuses = [status for stats in all_stats for status in stats.status]
    histories = [history for stats in all_stats for history in stats.history]
    return SolveStats(
        joined,
        [statuses[i] for i in order],
        np.concatenate([stats.residual for stats in all_stats])[order],
        np.concatenate([stats.iterations for stats in all_stats])[order],
        np.concatenate([stats.products for stats in all_stats])[order],
        [histories[i] for i in order],
        np.concatenate([stats.lift if stats.lift is not None else np.ones(len(stats.status)) for stats in all_stats])[
            order
        ],
    )
