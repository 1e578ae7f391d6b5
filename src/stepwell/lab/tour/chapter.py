"""What a chapter of the tour is, what it is given and what it returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from stepwell.arrays.places import Place
from stepwell.lab.html import Block, Figure

#: Seconds after which a peer's run is cut short, so that a busy machine does not make the tour endless.
PATIENCE = 15.0


@dataclass(frozen=True)
class Comparison:
    """One line of the summary: some work, how long it took, and whether the answer is right.

    Attributes
    ----------
    what : str
        The work, with its size.
    seconds : float
        Our time.
    answer : str
        What the answer was checked against, and how close it is.
    agrees : bool
        Whether it is close enough.
    peer : str
        Who did the same work; empty if nobody.
    peer_seconds : float or None
        Their time for it.
    cut : bool
        Whether they did not get to the end: the whole would have taken them longer.
    gap : float or None
        The largest difference of the two answers, relative to their size, where both have the same one solution.

    Examples
    --------
    >>> Comparison("a sum", 0.5, "equal", True, "SciPy", 1.0).ratio
    2.0
    """

    what: str
    seconds: float
    answer: str
    agrees: bool
    peer: str = ""
    peer_seconds: float | None = None
    cut: bool = False
    gap: float | None = None

    @property
    def ratio(self) -> float | None:
        """Their time over ours."""
        if self.peer_seconds is None or not self.seconds > 0:
            return None
        return self.peer_seconds / self.seconds


@dataclass(frozen=True)
class Account:
    """What a chapter found.

    Attributes
    ----------
    comparisons : sequence of Comparison
        Lines of the summary.
    blocks : sequence of Block
        What its part of the page shows.
    picture : Figure or None
        What the page may open with.
    figures : sequence of pairs of str
        What it may open with, too: a figure, such as ``"1,000"``, and what it counts.
    """

    comparisons: Sequence[Comparison]
    blocks: Sequence[Block]
    picture: Figure | None = None
    figures: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Stage:
    """What a chapter is given.

    Attributes
    ----------
    quick : bool
        Toy sizes, for tests.
    place : Place
        Where our arrays live.
    tell : callable
        ``tell(what, share)``: what is going on, and which share of the chapter is done.
    """

    quick: bool = False
    place: Place = field(default_factory=Place)
    tell: Callable[[str, float], None] = lambda what, share: None


@dataclass(frozen=True)
class Chapter:
    """A chapter: its anchor in the page, its title, the function that does the work, and how a user writes it.

    Attributes
    ----------
    code : str
        The few lines that do it.
    guide : str
        The page of the documentation that says more, such as ``"nnls"``.
    """

    key: str
    title: str
    run: Callable[[Stage], Account]
    code: str = ""
    guide: str = ""


class Clock:
    """Seconds of a block of code; what is spent under `pause` is not counted.

    Examples
    --------
    >>> with Clock() as clock:
    ...     with clock.pause():
    ...         time.sleep(0.05)
    >>> clock.seconds < 0.05
    True
    """

    def __init__(self) -> None:
        self._began = self.seconds = 0.0

    def __enter__(self) -> Clock:
        self._began = time.perf_counter()
        return self

    def __exit__(self, *trouble: Any) -> None:
        self.seconds += time.perf_counter() - self._began

    def now(self) -> float:
        """Seconds counted so far, inside the block."""
        return self.seconds + time.perf_counter() - self._began

    @contextmanager
    def pause(self) -> Any:
        """Leave out what is done inside."""
        self.seconds += time.perf_counter() - self._began
        try:
            yield
        finally:
            self._began = time.perf_counter()


def duration(seconds: float) -> str:
    """Return a time with three digits and a unit.

    Examples
    --------
    >>> duration(12.345), duration(0.0123), duration(4.2e-5), duration(250.0)
    ('12.3 s', '12.3 ms', '42 µs', '250 s')
    """
    unit, scale = ("s", 1.0) if seconds >= 1 else ("ms", 1e3) if seconds >= 1e-3 else ("µs", 1e6)
    value = seconds * scale
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
