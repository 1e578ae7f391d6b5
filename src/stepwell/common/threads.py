"""How many threads the solvers use, and objects that take one at a time."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from stepwell.common.checks import read_whole

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
def threads_at_most(count: int | None) -> Iterator[None]:
    """Let solvers called in this context use at most so many threads unless told otherwise; None sets no limit.

    Examples
    --------
    >>> with threads_at_most(1):
    ...     default_threads()
    1
    """
    before = _at_most.set(_at_most.get() if count is None else max(1, count))
    try:
        yield
    finally:
        _at_most.reset(before)


def read_threads(threads: Any) -> int | None:
    """Return a number of threads, checked; None leaves the choice to the solver."""
    return None if threads is None else read_whole("threads", threads, 1, MAX_THREADS, as_float=True)


class OneAtATime:
    """Refuses a second thread, and a call from within a call, to an object whose calls follow each other.

    Examples
    --------
    >>> alone = OneAtATime("this solver")
    >>> with alone, alone:
    ...     pass
    Traceback (most recent call last):
    ...
    RuntimeError: this solver is in use, by another thread or by a call that is not done; allowed: one call at a time
    """

    def __init__(self, what: str) -> None:
        self._what, self._lock = what, threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                f"{self._what} is in use, by another thread or by a call that is not done; allowed: one call at a time"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type[OneAtATime], tuple[str]]:
        """Copy and pickle: a copy of the object is not in use."""
        return OneAtATime, (self._what,)
