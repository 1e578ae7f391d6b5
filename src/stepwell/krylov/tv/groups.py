"""Columns in small groups, one per thread at a time, whose images stay in the cache of a core from step to step.

Columns do not depend on each other, so a group runs by itself from its first step to its last. That pays on the host,
where products of a few columns cost per column what those of many do: with sparse matrices and the identity. With
other operators, which may be the caller's functions, every product is of all columns at once.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

import numpy as np

from stepwell.arrays.sparse import is_sparse
from stepwell.common.threads import default_threads, threads_at_most
from stepwell.krylov.tv.task import Task

#: Columns of a group: numbers of a cache line, which products read whole.
TOGETHER = 8


def groups_of(task: Task, rows: np.ndarray) -> list[np.ndarray]:
    """Return the groups that some problems of a task run in, whatever the number of threads; one where together."""
    apart = task.identity or (task.A.matrix is not None and is_sparse(task.A.matrix))
    if not apart or task.grid.across or not isinstance(task.B, np.ndarray):
        return [rows]
    return np.array_split(rows, max(1, -(-rows.size // TOGETHER)))


def run_groups(works: list[Callable[[Callable[[], bool]], None]]) -> None:
    """Run the work of every group, some at a time; what one of them raises, or Ctrl-C, ends all, and is raised.

    Each is given a function that says whether it is to end early.
    """
    ended = threading.Event()
    threads = default_threads()
    workers = min(threads, len(works))

    def run(work: Callable[[Callable[[], bool]], None]) -> None:
        with threads_at_most(threads // workers):
            if not ended.is_set():
                work(ended.is_set)

    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(contextvars.copy_context().run, run, work) for work in works]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            ended.set()  # those at work leave after their step, others do not begin
    for future in futures:
        future.result()
