"""Exchanges that MPI has prepared, on a duplicate of the caller's communicator: persistent requests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from stepwell.distributed.waiting import ranks_in_words, wait_for


class PreparedExchange:
    """An exchange of rows of given lengths that MPI has prepared.

    Attributes
    ----------
    received : array
        All rows, once it has run; until it runs again.
    own : array
        This rank's, a part of `received`, to be filled in before.
    requests : list
        What MPI has to start and to wait for; empty once it is forgotten.
    last : int
        The number of its last start among those of all exchanges that were prepared: the same on all ranks.
    """

    __slots__ = ("_others", "_starts", "last", "own", "received", "requests")

    def __init__(self, comm: Any, counts: tuple[int, ...], starts: Iterator[int]) -> None:
        from mpi4py import MPI

        self._starts, self.last = starts, 0
        rank, ends = comm.Get_rank(), np.cumsum(counts).tolist()
        self.received = np.empty(sum(counts))
        rows = [self.received[end - count : end] for end, count in zip(ends, counts)]
        self.own = rows[rank]
        self._others: list[int] = []
        if len(counts) <= _FEW:
            self._others = others = [(rank + k) % len(counts) for k in range(1, len(counts))]
            self.requests = [comm.Recv_init(rows[other], other) for other in others]
            self.requests += [comm.Send_init(self.own, other) for other in others]
        else:
            self.requests = [comm.Allgatherv_init(MPI.IN_PLACE, (self.received, list(counts)))]

    def start(self) -> None:
        """Let MPI begin."""
        self.last = next(self._starts)
        for request in self.requests:
            request.Start()

    def missing(self) -> str:
        """Say, in words, whose row has not come, where that can be told: of a collective it cannot."""
        late = [other for other, request in zip(self._others, self.requests) if not request.Test()]
        return ranks_in_words(late) if late else "other ranks have"

    def forget(self) -> None:
        """Give back what MPI holds for it."""
        for request in self.requests:
            request.Free()
        self.requests = []


class PreparedSwap:
    """Rows that go to one rank and come from it, of given lengths, as MPI has prepared it."""

    __slots__ = ("own", "received", "requests")

    def __init__(self, comm: Any, partner: int, sent: int, received: int) -> None:
        self.own, self.received = np.empty(sent), np.empty(received)
        self.requests = [comm.Recv_init(self.received, partner, _SWAP_TAG)] if received else []
        if sent:
            self.requests.append(comm.Send_init(self.own, partner, _SWAP_TAG))

    def forget(self) -> None:
        """Give back what MPI holds for it."""
        for request in self.requests:
            request.Free()


#: Of swaps, on our own duplicate of a communicator; other exchanges there have 0.
_SWAP_TAG = 1
#: Up to so many ranks each sends to each, which every MPI can prepare, and which takes less time than a collective.
_FEW = 4


class OwnComm:
    """A duplicate of a communicator, with the exchanges that were prepared on it.

    One whose rows have lengths that were seen before is prepared for all that follow (persistent requests, which take
    half or a third of the time where little else is in the caches). All ranks see the same lengths in the same order,
    so that all prepare, and forget, the same ones.
    """

    _MOST, _MOST_SWAPS = 16, 256

    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self._swaps: dict[tuple[int, int, int], PreparedSwap] = {}
        self._home: int | None = None
        #: By the lengths of rows; None: seen once.
        self.prepared: dict[tuple[int, ...], PreparedExchange | None] = {}
        self.abandoned: list[Any] = []
        self._prepares, self._starts = True, itertools.count(1)

    def prepare(self, counts: tuple[int, ...]) -> PreparedExchange | None:
        """Prepare an exchange if such a one has been seen before, and if MPI can."""
        found = None
        if counts in self.prepared and self._prepares:
            try:
                found = PreparedExchange(self.comm, counts, self._starts)
            except (AttributeError, NotImplementedError):  # collectives by mpi4py 3, or an MPI before its version 4
                self._prepares = False
        elif len(self.prepared) >= self._MOST:
            # Those seen once go first, then who has not run for longest: the lists of a walk are as long as they are.
            self._forget(min(self.prepared, key=self._last_start))
        self.prepared[counts] = found
        return found

    def swap_with(self, partner: int, sent: int, received: int) -> PreparedSwap:
        """Return a swap of rows of these lengths, prepared once. What others have prepared is their own matter."""
        swap = self._swaps.get((partner, sent, received))
        if swap is None:
            if len(self._swaps) >= self._MOST_SWAPS:  # the lists of walks are as long as they are: begin anew
                self._forget_swaps()
            swap = self._swaps[partner, sent, received] = PreparedSwap(self.comm, partner, sent, received)
        return swap

    def _forget_swaps(self) -> None:
        for swap in self._swaps.values():
            swap.forget()
        self._swaps.clear()

    def home(self) -> int:
        """Return the first of the ranks that share memory with this one; all ranks ask together, for the first time."""
        if self._home is None:
            from mpi4py import MPI

            node = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
            self._home = int(node.bcast(self.comm.Get_rank()))
            node.Free()
        return self._home

    def _last_start(self, counts: tuple[int, ...]) -> int:
        prepared = self.prepared[counts]
        return 0 if prepared is None else prepared.last

    def _forget(self, counts: tuple[int, ...]) -> None:
        prepared = self.prepared.pop(counts)
        if prepared is not None:
            prepared.forget()

    def free(self) -> None:
        """Give back what MPI holds for it."""
        for counts in list(self.prepared):
            self._forget(counts)
        self._forget_swaps()
        self.comm.Free()


_keyval: int | None = None


#: Duplicates that were never finished, as another rank did not come; MPI may write there yet.
_unfinished: list[Any] = []


def own_comm(comm: Any, timeout: float | None) -> OwnComm:
    """Return the duplicate of a communicator: made once, kept as its attribute, freed with it."""
    global _keyval
    from mpi4py import MPI

    if _keyval is None:
        _keyval = MPI.Comm.Create_keyval(delete_fn=lambda _comm, _keyval, own: own.free())
    own = comm.Get_attr(_keyval)
    if own is None:
        duplicate, request = comm.Idup()  # all ranks are to come: a blocking one would not end where one does not
        try:
            wait_for([request], timeout)
        except TimeoutError:
            _unfinished.append((duplicate, request))
            raise
        own = OwnComm(duplicate)
        comm.Set_attr(_keyval, own)
    found: OwnComm = own
    return found
