"""The order of the tour, and how it is taken: a chapter that fails does not keep the others from being told."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stepwell.arrays.places import Place
from stepwell.lab.studies.measure import blas_threads
from stepwell.lab.tour import (
    bounded,
    derivative,
    fits,
    large,
    myelin,
    phantom,
    rosenbrock,
    voronoi,
    waveform,
)
from stepwell.lab.tour.chapter import Account, Chapter, Comparison, Stage
from stepwell.lab.tour.machine import told_facts

#: In the order of the page, the applications first.
CHAPTERS: tuple[Chapter, ...] = (
    phantom.CHAPTER,
    myelin.CHAPTER,
    fits.CHAPTER,
    waveform.CHAPTER,
    derivative.CHAPTER,
    large.CHAPTER,
    bounded.CHAPTER,
    rosenbrock.CHAPTER,
    voronoi.CHAPTER,
)


@dataclass(frozen=True)
class Stop:
    """What came out of one chapter: its account, or what went wrong.

    Attributes
    ----------
    chapter : Chapter
    seconds : float
        Of the whole chapter.
    account : Account or None
        None if it failed with an exception.
    error : str
        The exception in one line; empty if there was none.
    trace : str
        Where it came from.
    """

    chapter: Chapter
    seconds: float
    account: Account | None = None
    error: str = ""
    trace: str = ""

    @property
    def comparisons(self) -> Sequence[Comparison]:
        """Lines of the summary."""
        return self.account.comparisons if self.account is not None else ()

    @property
    def success(self) -> bool:
        """Whether the chapter ran and every answer is right."""
        return self.account is not None and all(one.agrees for one in self.account.comparisons)


@dataclass(frozen=True)
class Tour:
    """All chapters as they went, and what they ran on."""

    stops: Sequence[Stop]
    seconds: float
    quick: bool
    machine: Sequence[tuple[str, str]] = field(default=())
    interrupted: bool = False

    @property
    def success(self) -> bool:
        """Whether every chapter succeeded."""
        return not self.interrupted and all(stop.success for stop in self.stops)


class Watcher:
    """Told of the beginning, the progress and the end of every chapter; this one says nothing."""

    def on_begin(self, chapter: Chapter) -> None:
        """Take note that a chapter begins."""

    def on_progress(self, chapter: Chapter, what: str, share: float) -> None:
        """Take note of what a chapter is doing, and which share of it is done."""

    def on_end(self, stop: Stop) -> None:
        """Take note of what came out."""


def take_tour(
    *,
    quick: bool = False,
    place: Place | None = None,
    watcher: Watcher | None = None,
    chapters: Sequence[Chapter] = CHAPTERS,
) -> Tour:
    """Take the tour.

    Parameters
    ----------
    quick : bool, default False
        Toy sizes: seconds instead of a minute.
    place : Place, optional
        Where our arrays live; by default NumPy on the host.
    watcher : Watcher, optional
    chapters : sequence of Chapter

    Returns
    -------
    Tour
        A chapter that raised an exception is in it with its error.

    Examples
    --------
    >>> def fall(stage):
    ...     raise ArithmeticError("the well is dry")
    >>> tour = take_tour(chapters=[Chapter("fall", "A fall", fall)])
    >>> tour.success, tour.stops[0].error
    (False, 'ArithmeticError: the well is dry')
    """
    place, watcher = place or Place(), watcher or Watcher()
    began = time.perf_counter()
    # On a busy machine the threads of a BLAS wait for each other for longer than they work, SciPy's and ours alike.
    stops: list[Stop] = []
    interrupted = False
    with blas_threads(1):
        try:
            for chapter in chapters:
                stops.append(_visit(chapter, quick, place, watcher))
        except KeyboardInterrupt:  # the chapters so far are worth showing
            interrupted = True
    return Tour(stops, time.perf_counter() - began, quick, told_facts(place), interrupted)


def _visit(chapter: Chapter, quick: bool, place: Place, watcher: Watcher) -> Stop:
    watcher.on_begin(chapter)
    tell: Callable[[str, float], None] = lambda what, share: watcher.on_progress(chapter, what, share)  # noqa: E731
    began = time.perf_counter()
    try:
        account = chapter.run(Stage(quick, place, tell))
        stop = Stop(chapter, time.perf_counter() - began, account)
    # Whatever goes wrong in one chapter is told in the report; the others are still worth seeing.
    except Exception as error:
        words = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
        stop = Stop(chapter, time.perf_counter() - began, None, words, traceback.format_exc())
    watcher.on_end(stop)
    return stop
