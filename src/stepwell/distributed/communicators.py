"""What moves numbers between ranks: three things, `rank`, `size` and `allgather`, and who has them.

An mpi4py communicator is duplicated once and never used as it is: its tags and collectives are the caller's. A torch
process group gets a gloo group beside it. Nothing else here knows that these libraries differ.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from stepwell.arrays import Array
from stepwell.arrays.process_groups import GroupCommunicator, is_process_group
from stepwell.checks import require_kind
from stepwell.distributed.rescue import Rescue, answer_rescue

_ALLOWED = (
    "None, 'self', an mpi4py communicator, a torch process group, what stepwell.distributed.split returned, or an "
    "object with rank, size and allgather(row, counts)"
)


@runtime_checkable
class Communicator(Protocol):
    """What a solver asks of a communicator. All ranks call in the same order, each from one thread.

    One that has an attribute ``waits_for_ever`` set to False takes ``allgather(row, counts, patience, meanwhile)``,
    raises TimeoutError if others have not come after so many seconds, and may be able to free ranks that wait elsewhere
    (`stepwell.distributed.rescue`).
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

    def __init__(self, comm: Any) -> None:
        self._comm, self._given = _duplicate(comm), comm
        self.rank, self.size = int(comm.Get_rank()), int(comm.Get_size())

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
        received = np.empty(sum(counts))
        request = self._comm.Iallgatherv(row, (received, counts))
        if patience is None:
            request.Wait()
            return received
        began = time.monotonic()
        while not request.Test():
            waited = time.monotonic() - began
            if meanwhile is not None and waited > meanwhile[0]:
                meanwhile[1]()
                meanwhile = None
            if waited > patience:
                raise TimeoutError(f"other ranks have not come within {patience:g} s")
            time.sleep(0.002)
        return received


_keyval: int | None = None


def _duplicate(comm: Any) -> Any:
    """Return a duplicate of a communicator: made once, kept as its attribute, freed with it."""
    global _keyval
    from mpi4py import MPI

    if _keyval is None:
        _keyval = MPI.Comm.Create_keyval(delete_fn=lambda _comm, _keyval, ours: ours.Free())
    ours = comm.Get_attr(_keyval)
    if ours is None:
        ours = comm.Dup()
        comm.Set_attr(_keyval, ours)
    return ours


def read_comm(comm: Any) -> Communicator | None:
    """Return the communicator that an argument `comm` stands for; None where there is none.

    Parameters
    ----------
    comm : optional
        An mpi4py communicator, a torch process group, ``"self"`` (one rank), a layout from
        `stepwell.distributed.split`, or an object with `rank`, `size` and `allgather`.

    Examples
    --------
    >>> read_comm("self").size
    1
    """
    if comm is None:
        return None
    if isinstance(comm, str) and comm == "self":
        return SelfCommunicator()
    inner = getattr(comm, "communicator", None)  # a layout has one
    if inner is not None:
        return read_comm(inner)
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and isinstance(comm, mpi.Comm):
        usable = comm != mpi.COMM_NULL and not comm.Is_inter()
        require_kind(usable, "comm", comm, "an intracommunicator that this process is part of")
        return MPICommunicator(comm)
    if is_process_group(comm):
        return GroupCommunicator(comm)
    require_kind(isinstance(comm, Communicator) and callable(comm.allgather), "comm", comm, _ALLOWED)
    found: Communicator = comm
    return found


def local_piece(x: Any, comm: Any) -> tuple[Array, Any]:
    """Return the local array of a distributed one, and its communicator unless one is given; else both as they are.

    A distributed array is known by `local_array` and `base_comm`, as PyLops-MPI's has them.
    """
    if hasattr(x, "local_array") and hasattr(x, "base_comm"):
        return x.local_array, x.base_comm if comm is None else comm
    return x, comm
