"""How many threads the solvers use."""

from __future__ import annotations

import os
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
