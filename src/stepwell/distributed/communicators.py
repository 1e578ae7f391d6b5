"""What moves numbers between ranks: three things, `rank`, `size` and `allgather`, and who has them.

An mpi4py communicator is duplicated once and never used as it is: its tags and collectives are the caller's. A torch
process group gets a gloo group beside it. Nothing else here knows that these libraries differ.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from stepwell.arrays import Array
from stepwell.arrays.process_groups import GroupCommunicator, is_process_group
from stepwell.common.checks import require, require_kind
from stepwell.distributed.prepared import PreparedExchange, own_comm
from stepwell.distributed.rescue import Rescue, answer_rescue
from stepwell.distributed.waiting import TIMEOUT_VARIABLE, ranks_in_words, read_timeout, wait_for

_ALLOWED = (
    "None, 'self', an mpi4py communicator, a torch process group, what stepwell.distributed.split returned, or an "
    "object with rank, size and allgather(row, counts)"
)


@runtime_checkable
class Communicator(Protocol):
    """What a solver asks of a communicator. All ranks call in the same order, each from one thread.

    One that has an attribute ``waits_for_ever`` set to False takes ``allgather(row, counts, patience, meanwhile)``,
    raises TimeoutError if others have not come after so many seconds, and may be able to free ranks that wait elsewhere
    (`stepwell.distributed.rescue`). One that has a method ``within(timeout)`` returns the same ranks with a limit of so
    many seconds for every exchange. One that has a method ``swap(partner, row, count)``, which sends a row (or None) to
    another rank and returns the `count` numbers that come from it (or None), lets the sums of many ranks go from rank
    to rank; with ``home()``, a number that ranks of one node share, within nodes first.
    """

    @property
    def rank(self) -> int:
        """The number of this rank, from 0."""

    @property
    def size(self) -> int:
        """How many ranks there are."""

    def allgather(self, row: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        """Return the rows of all ranks, one after the other; float64, ``counts[r]`` numbers from rank r."""


class SelfCommunicator:
    """One rank, alone."""

    rank, size = 0, 1

    def allgather(self, row: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        """Return the row."""
        return row


class MPICommunicator:
    """Ranks of MPI, by mpi4py. The calls are non-blocking ones, so that a rank that failed need not wait for ever."""

    waits_for_ever = False

    def __init__(self, comm: Any, timeout: float | None = None) -> None:
        self._comm, self._given, self._timeout = own_comm(comm, timeout), comm, timeout
        self.rank, self.size = int(comm.Get_rank()), int(comm.Get_size())

    def within(self, timeout: float) -> MPICommunicator:
        """Return the same ranks with a limit of so many seconds for every exchange."""
        return MPICommunicator(self._given, timeout)

    def rescue(self, text: str) -> Rescue | None:
        """Try to free the other ranks, which may wait for this one in the caller's own communicator."""
        from mpi4py import MPI

        return Rescue(self._given, text) if MPI.Query_thread() == MPI.THREAD_MULTIPLE else None

    def answer_rescue(self) -> None:
        """Take part in the attempt of another rank, which nobody needed."""
        answer_rescue(self._given)

    def allgather(
        self,
        row: np.ndarray,
        counts: Sequence[int],
        patience: float | None = None,
        meanwhile: tuple[float, Callable[[], None]] | None = None,
    ) -> np.ndarray:
        """Return the rows of all ranks.

        With `patience`, TimeoutError if not all have come after so many seconds; `meanwhile`: after how many to call
        what.
        """
        ours, lengths = self._comm, tuple(counts)
        prepared = ours.prepared.get(lengths) or ours.prepare(lengths)
        if prepared is None:
            received = np.empty(sum(counts))
            requests = [ours.comm.Iallgatherv(row, (received, list(counts)))]
        else:
            received, requests = prepared.received, prepared.requests
            prepared.own[:] = row
            prepared.start()
        self._finish(requests, (row, received), prepared, patience, meanwhile)
        return received if prepared is None else received.copy()  # the next such exchange writes there again

    def swap(
        self,
        partner: int,
        row: np.ndarray | None,
        count: int,
        patience: float | None = None,
        meanwhile: tuple[float, Callable[[], None]] | None = None,
    ) -> np.ndarray | None:
        """Send a row to another rank, if there is one, and return the `count` numbers that come from it, if any.

        These stay until the next such swap. `patience` and `meanwhile` are those of `allgather`.
        """
        swap = self._comm.swap_with(partner, 0 if row is None else row.size, count)
        if row is not None:
            swap.own[:] = row
        for request in swap.requests:
            request.Start()
        limits = [limit for limit in (patience, self._timeout) if limit is not None]
        try:
            wait_for(swap.requests, min(limits, default=None), meanwhile, lambda: ranks_in_words([partner]))
        except TimeoutError:
            self._comm.abandoned.append(swap)
            raise
        return swap.received if count else None

    def home(self) -> int:
        """Return the first rank of this node."""
        return self._comm.home()

    def prepared(self, counts: Sequence[int]) -> PreparedExchange | None:
        """Return the exchange of rows of these lengths if there is one: who runs it need not call `allgather`."""
        return self._comm.prepared.get(tuple(counts))

    def run(self, exchange: PreparedExchange) -> None:
        """Run an exchange that was prepared, and whose own row is filled in."""
        exchange.start()
        self._finish(exchange.requests, exchange.received, exchange)

    def _finish(
        self,
        requests: list[Any],
        buffers: Any,
        prepared: PreparedExchange | None,
        patience: float | None = None,
        meanwhile: tuple[float, Callable[[], None]] | None = None,
    ) -> None:
        """Wait for an exchange, as long as the limit or the patience of one call allows."""
        limits = [limit for limit in (patience, self._timeout) if limit is not None]
        missing = None if prepared is None else prepared.missing
        try:
            wait_for(requests, min(limits, default=None), meanwhile, missing)
        except TimeoutError:
            self._comm.abandoned.append((requests, buffers))  # MPI may write there yet
            raise


def read_comm(comm: Any, timeout: Any = None) -> Communicator | None:
    """Return the communicator that an argument `comm` stands for; None where there is none.

    Parameters
    ----------
    comm : optional
        An mpi4py communicator, a torch process group, ``"self"`` (one rank), a layout from
        `stepwell.distributed.split`, or an object with `rank`, `size` and `allgather`.
    timeout : float, optional
        Seconds that a rank waits for the others in one exchange before it raises TimeoutError. By default what the
        environment variable STEPWELL_RANK_TIMEOUT says, and without it no limit.

    Examples
    --------
    >>> read_comm("self").size
    1
    """
    if comm is None:
        return None
    if isinstance(comm, str) and comm == "self":
        read_timeout(timeout)  # what is wrong is told here as on many ranks
        return SelfCommunicator()
    inner = getattr(comm, "communicator", None)  # a layout has one, with the limit that it was given
    if inner is not None:
        return read_comm(inner, timeout) if timeout is not None else _checked(inner)
    limit = read_timeout(timeout)
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and isinstance(comm, mpi.Comm):
        usable = comm != mpi.COMM_NULL and not comm.Is_inter()
        require_kind(usable, "comm", comm, "an intracommunicator that this process is part of")
        return MPICommunicator(comm, limit)
    if is_process_group(comm):
        return GroupCommunicator(comm, limit)
    found = _checked(comm)
    if limit is None:
        return found
    if hasattr(found, "within"):
        limited: Communicator = found.within(limit)
        return limited
    allowed = f"None with a communicator of your own, which waits as it likes ({TIMEOUT_VARIABLE} does not reach it)"
    require(timeout is None, "timeout", timeout, allowed)
    return found


def _checked(comm: Any) -> Communicator:
    require_kind(isinstance(comm, Communicator) and callable(comm.allgather), "comm", comm, _ALLOWED)
    found: Communicator = comm
    return found


def local_piece(x: Any, comm: Any) -> tuple[Array, Any]:
    """Return the local array of a distributed one, and its communicator unless one is given; else both as they are.

    A distributed array is known by `local_array` and `base_comm`, as PyLops-MPI's has them.

    Examples
    --------
    >>> local_piece([1.0, 2.0], "self")
    ([1.0, 2.0], 'self')
    """
    if hasattr(x, "local_array") and hasattr(x, "base_comm"):
        return x.local_array, x.base_comm if comm is None else comm
    return x, comm
