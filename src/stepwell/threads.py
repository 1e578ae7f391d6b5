"""How many threads the solvers use."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from stepwell.checks import read_whole

#: More would take memory for nothing.
MAX_THREADS = 4096

_at_most: ContextVar[int | None] = ContextVar("threads_at_most", default=None)


def available_cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_threads() -> int:
    """Return how many threads solvers use unless told otherwise: all cores that this process may run on.

    ``OMP_NUM_THREADS`` is a limit, as job schedulers, MPI launchers and dask's workers set it for every library of a
    process; :func:`threads_at_most` sets another for a while.
    """
    threads = available_cores()
    if "OMP_NUM_THREADS" in os.environ:
        threads = min(threads, _omp_limit() or threads)
    at_most = _at_most.get()
    return threads if at_most is None else min(threads, at_most)


def _omp_limit() -> int:
    """Return the number in ``OMP_NUM_THREADS``, of a list its first; 0 where there is none."""
    first = os.environ["OMP_NUM_THREADS"].partition(",")[0].strip()
    return int(first) if first.isdecimal() else 0


@contextlib.contextmanager
def threads_at_most(count: int) -> Iterator[None]:
    """Let solvers called in this context use at most so many threads unless told otherwise.

    Examples
    --------
    >>> with threads_at_most(1):
    ...     default_threads()
    1
    """
    before = _at_most.set(max(1, count))
    try:
        yield
    finally:
        _at_most.reset(before)


def read_threads(threads: Any) -> int | None:
    """Return a number of threads, checked; None leaves the choice to the solver."""
    return None if threads is None else read_whole("threads", threads, 1, MAX_THREADS, as_float=True)
