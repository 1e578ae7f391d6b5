"""What the driver asks of a target: where vectors live, sweeps run and states are kept.

A target owns the memory of a batch of problems and does turns; it has no loop, no clock and no callback. Host and CUDA
implement the protocol, each in one file, and so can anything that adds up sums over more than one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from stepwell.arrays import Array
from stepwell.quasi_newton.state import WHOLE


class Box(NamedTuple):
    """Bounds as targets take them: arrays (n,) that the batch shares, or (B, n), of the points' library and dtype.

    A side that is one number for all variables, infinity among them, is an array of one element.
    """

    lower: Array
    upper: Array
    boxed: bool  # whether every variable has two finite bounds
    own: np.ndarray | None = None  # (B,): problems without a finite bound, or with two of every variable, as states say
    numbers: tuple[float, float] | None = None  # both sides, where they are numbers that the host was given

    @property
    def steps(self) -> tuple[int, int]:
        """From the bounds of one variable to those of the next: 1, or 0 where they are a number."""
        return int(math.prod(self.lower.shape) > 1), int(math.prod(self.upper.shape) > 1)

    @property
    def differs(self) -> bool:
        """Whether each problem has bounds of its own."""
        return bool(max(self.lower.ndim, self.upper.ndim) > 1)


class Target(Protocol):
    """A batch of problems of n variables, in one place. Vectors are arrays of that place's library."""

    batch: int
    n: int

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""

    @property
    def trial(self) -> Array:
        """The points to evaluate, (B, n); once a problem has ended, its solution. The next turn overwrites them."""

    def turn(self, f: Any, g: Array, part: int = WHOLE) -> None:
        """Take values and gradients, checked, at the trial points; move these on. May return before it is done.

        On the host they may be those of the problems that still run alone.
        """

    @property
    def running(self) -> int:
        """How many problems still run, as far as is known without waiting."""

    def wait(self) -> None:
        """Wait until all turns are done and `running` is up to date."""

    def still_running(self) -> np.ndarray:
        """Return the numbers of the problems that still run, after waiting, in order: an array of the caller's."""

    def states(self) -> np.ndarray:
        """Return the state of each problem, a record of `STATE_DTYPE`, after waiting; not to be written to."""

    def stop(self, status: int) -> None:
        """End all problems that still run; their trial points become the last accepted ones."""

    def accepted(self, name: str) -> Array:
        """Return a copy of the accepted points (``"x"``) or of the gradients there (``"g"``), (B, n)."""

    def pairs(self, problem: int) -> tuple[list[Array], list[Array]]:
        """Return the pairs of one problem, rows of S and of Y, oldest first, as views where there are any."""

    def set_diagonal(self, weights: Array, problems: np.ndarray) -> None:
        """Replace the diagonal H0 of some problems, by their numbers."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the complete run as host arrays by the names in `ARRAYS`, rings of m pairs; views where there are."""

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from what `arrays` returned, here or on another target."""

    def repeated(
        self, evaluate: Callable[[], tuple[Any, Array]], turn: Callable[..., None], graph: str | bool, clock: Any
    ) -> Callable[[], Any]:
        """Return a function that evaluates and turns once, or several times where that is faster.

        It may have an attribute ``mode`` that says how, in words.
        """
