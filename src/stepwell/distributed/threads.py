"""Ranks that are threads of one process: for tests, and for trying out a program without MPI."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from stepwell.common.checks import read_real, read_whole, require_function

T = TypeVar("T")


class ThreadCommunicator:
    """One rank of several in this process, each in a thread of its own. See `thread_communicators`."""

    waits_for_ever = False

    def __init__(
        self,
        rank: int,
        rows: list[Any],
        meeting: threading.Barrier,
        timeout: float,
        boxes: dict[tuple[int, int], queue.SimpleQueue[np.ndarray]],
    ) -> None:
        self.rank, self.size = rank, len(rows)
        self._rows, self._meeting, self._timeout, self._boxes = rows, meeting, timeout, boxes

    def within(self, timeout: float) -> ThreadCommunicator:
        """Return the same ranks with a limit of so many seconds for every exchange."""
        return ThreadCommunicator(self.rank, self._rows, self._meeting, timeout, self._boxes)

    def allgather(
        self, row: np.ndarray, counts: Sequence[int], patience: float | None = None, meanwhile: Any = None
    ) -> np.ndarray:
        """Return the rows of all ranks, one after the other; TimeoutError on all where one does not come."""
        self._rows[self.rank] = row
        limit = self._timeout if patience is None else min(patience, self._timeout)
        try:
            self._meeting.wait(limit)
            received: np.ndarray = np.concatenate(self._rows)
            self._meeting.wait(self._timeout)  # nobody puts down the next row before all have read this one
        except threading.BrokenBarrierError:
            raise TimeoutError(
                f"a rank among {self.size} threads has not come to an exchange within {limit:g} s"
            ) from None
        if received.size != sum(counts):
            raise RuntimeError(f"rows of {received.size} numbers; expected {list(counts)}")
        return received

    def swap(
        self, partner: int, row: np.ndarray | None, count: int, patience: float | None = None, meanwhile: Any = None
    ) -> np.ndarray | None:
        """Send a row to another rank, if there is one, and return the `count` numbers that come from it, if any."""
        if row is not None:
            self._box(self.rank, partner).put(row.copy())
        if not count:
            return None
        limit = self._timeout if patience is None else min(patience, self._timeout)
        try:
            received = self._box(partner, self.rank).get(timeout=None if limit == float("inf") else limit)
        except queue.Empty:
            raise TimeoutError(f"rank {partner} among {self.size} threads has not come within {limit:g} s") from None
        if received.size != count:
            raise RuntimeError(f"{received.size} numbers from rank {partner}; expected {count}")
        return received

    def _box(self, sender: int, receiver: int) -> queue.SimpleQueue[np.ndarray]:
        return self._boxes.setdefault((sender, receiver), queue.SimpleQueue())


def thread_communicators(size: int, *, timeout: float = 60.0) -> list[ThreadCommunicator]:
    """Return one communicator for each of `size` threads; who waits longer than `timeout` seconds gets an error.

    Examples
    --------
    >>> [comm.rank for comm in thread_communicators(3)]
    [0, 1, 2]
    """
    size, timeout = read_whole("size", size, 1, 4096), read_real("timeout", timeout, above=0, infinite=True)
    rows: list[Any] = [None] * size
    meeting = threading.Barrier(size)
    boxes: dict[tuple[int, int], queue.SimpleQueue[np.ndarray]] = {}
    return [ThreadCommunicator(rank, rows, meeting, timeout, boxes) for rank in range(size)]


def run_threads(size: int, program: Callable[[ThreadCommunicator], T], *, timeout: float = 60.0) -> list[T]:
    """Run a program on ranks that are threads; return what it returned on each, or raise what it raised on the first.

    Examples
    --------
    >>> run_threads(3, lambda comm: float(comm.allgather(np.array([comm.rank]), [1] * 3).sum()))
    [3.0, 3.0, 3.0]
    """
    require_function("program", program, optional=False)
    communicators = thread_communicators(size, timeout=timeout)
    found: list[Any] = [None] * len(communicators)
    raised: list[BaseException | None] = [None] * len(communicators)

    def work(comm: ThreadCommunicator) -> None:
        try:
            found[comm.rank] = program(comm)
        except BaseException as error:
            raised[comm.rank] = error
            if isinstance(error, TimeoutError):
                comm._meeting.abort()

    threads = [threading.Thread(target=work, args=(comm,)) for comm in communicators]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in raised:
        if error is not None:
            raise error
    return found
