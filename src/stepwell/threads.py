"""How many threads the solvers use, and objects that take one at a time."""

from __future__ import annotations

import os
import threading
from typing import Any

from stepwell.checks import read_whole

#: More would take memory for nothing.
MAX_THREADS = 4096


def default_threads() -> int:
    """Return how many threads solvers use unless told otherwise: all that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
