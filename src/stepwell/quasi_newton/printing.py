"""What ``options={"verbose": ...}`` prints: a line an iteration, at most a few a second, and a summary."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from stepwell.quasi_newton.status import Status

_HEAD = "iterations  evaluations              f   projected gradient       step\n"
#: Seconds between two lines of a fast run; the first lines are all printed.
_BETWEEN = 0.1
_FIRST_LINES = 20


class Printer:
    """Prints the course of a run to standard output; 1: the end, 2: iterations as well."""

    def __init__(self, verbose: int) -> None:
        self._verbose = verbose
        self._lines = 0
        self._next = 0.0

    def _due(self) -> bool:
        now = time.perf_counter()
        if self._lines >= _FIRST_LINES and now < self._next:
            return False
        self._next = now + _BETWEEN
        self._lines += 1
        return True

    def iteration(self, state: Any) -> None:
        """Print one iteration of one problem."""
        if self._verbose < 2 or not self._due():
            return
        if self._lines == 1:
            sys.stdout.write(_HEAD)
        sys.stdout.write(
            f"{state['iterations']:10d}  {state['evaluations']:11d}  {state['f']:13.6e}  "
            f"{state['projected_gradient']:18.3e}  {state['step']:9.3g}\n"
        )

    def turn(self, states: np.ndarray) -> None:
        """Print how far a batch is."""
        if self._verbose < 2 or not self._due():
            return
        running = int(np.count_nonzero(states["status"] == Status.RUNNING.value))
        sys.stdout.write(f"{running} of {len(states)} problems run, {int(states['iterations'].max())} iterations\n")

    def end(self, result: Any) -> None:
        """Print how a run ended."""
        sys.stdout.write(
            f"{result.message}\n"
            f"f = {result.fun:.10g}, projected gradient {result.projected_gradient:.3g}, {result.nit} iterations, "
            f"{result.nfev} evaluations, {result.seconds['total']:.3g} s\n"
        )

    def end_batch(self, result: Any) -> None:
        """Print how a batch ended."""
        sys.stdout.write(
            f"{int(np.count_nonzero(result.success))} of {len(result.success)} problems converged, at most "
            f"{int(np.max(result.nit))} iterations, {result.seconds['total']:.3g} s\n"
        )
