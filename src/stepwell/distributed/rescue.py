"""Freeing ranks that wait for one that has failed, in a communication of the caller's own.

An objective that raises on one rank before its own communication leaves the others waiting there, where no message of
ours reaches them. If they wait in mpi4py's ``comm.allgather`` of the communicator that was given, there is a way: the
rank that failed takes part in it, with an object that raises when it is unpickled. So the others' call raises
`RankError` in their objective, and they come to the next message with it. Of an attempt that nobody needed (the others
were only slow) the next message tells, and all take part in it then: nothing stays behind.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from typing import Any, NoReturn

#: The attempts that this process has been told of.
_received: set[str] = set()


class RankError(RuntimeError):
    """An error on another rank, or ranks that do not agree.

    Attributes
    ----------
    rank : int or None
        The rank that failed; None where none of them alone did.
    """

    def __init__(self, text: str, rank: int | None = None) -> None:
        super().__init__(text)
        self.rank = rank

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.rank)


class _RaisesWhenUnpickled:
    def __init__(self, name: str, text: str, rank: int) -> None:
        self._arguments = (name, text, rank)

    def __reduce__(self) -> tuple[Any, ...]:
        return _tell, self._arguments


def _tell(name: str, text: str, rank: int) -> NoReturn:
    _received.add(name)
    raise RankError(f"rank {rank}: {text}", rank)


class Rescue:
    """An attempt of a rank that has failed, in a thread of its own."""

    def __init__(self, comm: Any, text: str) -> None:
        self.name = secrets.token_hex(8)
        self._object = _RaisesWhenUnpickled(self.name, text, int(comm.Get_rank()))
        self._thread = threading.Thread(target=self._offer, args=(comm,), daemon=True)
        self._thread.start()

    def _offer(self, comm: Any) -> None:
        with contextlib.suppress(RankError):
            comm.allgather(self._object)

    def join(self) -> None:
        """Wait until all ranks have taken part."""
        self._thread.join()


def was_rescued(name: str) -> bool:
    """Whether an attempt, by its name, has reached this rank."""
    return name in _received


def answer_rescue(comm: Any) -> None:
    """Take part in the attempt of another rank."""
    with contextlib.suppress(RankError):
        comm.allgather(None)
