"""The ranks that work on one problem: what every message carries, and how trouble on one becomes trouble on all.

A message is a header and numbers. The header has a flag (an error, a limit, a wish to stop) and a digest of what all
ranks must have in common. Since every rank sees every header, all take the same way out after the same message.

A rank that fails between two messages *holds* its error and goes on to the next message with numbers that nobody will
use: the others are waiting there. That message raises on every rank, its own error on the rank that failed and
`RankError` on the others.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from stepwell import _core
from stepwell.distributed.communicators import Communicator, read_comm
from stepwell.distributed.rescue import RankError, Rescue, was_rescued
from stepwell.distributed.waiting import TIMEOUT_VARIABLE

T = TypeVar("T")

#: Numbers before those of a row: the flag and the digest.
HEADER = 2
#: Flags. The highest of all ranks holds.
NOTHING, STOP, TIME, ERROR, INTERRUPT = 0.0, 1.0, 2.0, 3.0, 4.0
#: Seconds that a rank with an error waits for the others, at least, before it tries to free them and before it gives
#: up; and how many times the longest time between two messages so far.
RESCUE_AFTER, PATIENCE = 2.0, 300.0
RESCUE_FACTOR, PATIENCE_FACTOR = 5.0, 20.0
#: From so many ranks on, sums go from rank to rank where a communicator can `swap`; among fewer, everybody gets
#: everything at once, which takes less time.
HOPS_FROM = 33


class Ranks:
    """A communicator with flags, digests and errors.

    Parameters
    ----------
    comm
        As `read_comm` takes it.

    Attributes
    ----------
    rank, size : int
    prepares : bool
        Whether the communicator can prepare exchanges (`prepared`).
    exchanges, bytes_sent : int
        What this rank has done so far. One rank alone exchanges nothing.
    hops : bool
        Whether sums go from rank to rank (`open_hops`, `swap`).
    told : float
        The highest flag of the last message: NOTHING, STOP or TIME. (Others raise.)
    """

    def __init__(self, comm: Any) -> None:
        communicator = read_comm(comm)
        assert communicator is not None
        self.communicator: Communicator = communicator
        self.prepares = hasattr(communicator, "prepared")
        self.rank, self.size = int(communicator.rank), int(communicator.size)
        self.exchanges = self.bytes_sent = 0
        self.hops = self.size >= HOPS_FROM and hasattr(communicator, "swap")
        self.told = NOTHING
        self._wish = self._flag = NOTHING
        self._held: BaseException | None = None
        self._rescue: Rescue | None = None
        self._longest_wait, self._last = 0.0, time.monotonic()

    # ---- what the next message will say ----

    def hold(self, error: BaseException) -> None:
        """Keep an error of this rank until the next message, which raises on all ranks; the first one counts."""
        if self._held is None:
            self._held = error

    def ask(self, flag: float) -> None:
        """Tell all ranks, with the next message, that this one wants to end: STOP or TIME."""
        self._wish = max(self._wish, flag)

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Hold whatever is raised inside; what follows must reach the next message with numbers of any kind.

        Examples
        --------
        >>> ranks = Ranks("self")
        >>> product = np.zeros(3)
        >>> with ranks.holding():
        ...     product = np.ones(3) @ np.ones(4)
        >>> ranks.exchange(product)
        Traceback (most recent call last):
        ...
        ValueError: matmul: Input operand 1 has a mismatch in its core dimension ...
        """
        try:
            yield
        except BaseException as error:
            self.hold(error)

    # ---- messages ----

    def exchange(
        self, row: np.ndarray, counts: Sequence[int] | None = None, *, digest: float = 0.0
    ) -> list[np.ndarray]:
        """Return the rows of all ranks, by rank; raise what any of them holds.

        Parameters
        ----------
        row : (k,) array, float64
        counts : sequence of int, optional
            The length of each rank's row; by default all are as long as this one.
        digest : float
            A number that must be the same on all ranks.
        """
        row = np.asarray(row, dtype=np.float64).reshape(-1)
        lengths = [row.size] * self.size if counts is None else [int(count) for count in counts]
        message = np.empty(HEADER + row.size)
        message[HEADER:] = row
        message[1] = digest
        whole = [HEADER + length for length in lengths]
        received = self.exchange_message(message, whole)
        ends = np.cumsum(whole)
        return [received[end - length : end] for end, length in zip(ends.tolist(), lengths)]

    def check(self) -> None:
        """Raise on all ranks what any of them holds: a message without numbers."""
        self.exchange(np.empty(0))

    def exchange_message(self, message: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        """Exchange messages that have room for the header in front and their digest in it; return them all.

        Parameters
        ----------
        message : (HEADER + k,) array
            Its first number is overwritten.
        counts : sequence of int
            The lengths of all ranks' messages, headers included.
        """
        message[0] = flag = self._flag_to_tell()
        return self.read_messages(self._allgather(message, counts, flag >= ERROR), counts)

    def _flag_to_tell(self) -> float:
        flag = self._wish
        if self._held is not None:
            flag = INTERRUPT if isinstance(self._held, KeyboardInterrupt) else ERROR
        self._wish = NOTHING
        return flag

    def open_hops(self) -> float:
        """Begin an exchange by hops; return the flag of this rank, which goes with them."""
        self._count(0)
        self._flag = self._flag_to_tell()
        return self._flag

    def swap(self, partner: int, row: np.ndarray | None, count: int) -> np.ndarray | None:
        """Send a row to a partner, if there is one, and return the `count` numbers that come from it, if any."""
        communicator: Any = self.communicator
        received: np.ndarray | None
        self.bytes_sent += 0 if row is None else row.nbytes
        if self._flag >= ERROR and not getattr(communicator, "waits_for_ever", True):
            received = self._patiently(lambda *limits: communicator.swap(partner, row, count, *limits))
        else:
            received = self._told_apart(lambda: communicator.swap(partner, row, count))
        self._last = time.monotonic()
        return received

    def end_hops(self, header: np.ndarray, length: int) -> np.ndarray:
        """Tell all ranks what each of them said, where the hops have shown that it is not all alike; raise errors."""
        counts = [length] * self.size
        header[0] = self._flag
        return self.read_messages(self._allgather(header[:length], counts, self._flag >= ERROR), counts)

    def find_homes(self) -> list[int]:
        """Return a number for every rank that is the same for those of one node, where neighbours are."""
        home = getattr(self.communicator, "home", None)
        own = zlib.crc32(socket.gethostname().encode()) if home is None else home()
        return [int(row[0]) for row in self.exchange(np.array([float(own)]))]

    def read_messages(self, received: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        """Return the messages of all ranks, as they came; raise what any of them holds."""
        flags, digests = _core.numbers_of_all(received, counts, 0, HEADER)
        self.told = max(flags)
        if self.told >= ERROR:
            self._raise(flags)
        if digests.count(digests[0]) < self.size:
            other = next(rank for rank, digest in enumerate(digests) if digest != digests[0])
            raise RankError(
                f"ranks disagree: ranks 0 and {other} hold different states, although they were given the same sums "
                "(processors of different kinds, or a program that differs between ranks)"
            )
        return received

    def prepared(self, counts: Sequence[int]) -> tuple[np.ndarray, np.ndarray, Callable[[], bool]] | None:
        """Return a short way for messages of these lengths, if the communicator, which `prepares`, has prepared one.

        It is this rank's message, to be filled in with a flag of NOTHING, those of all ranks, and a function that
        exchanges them; which returns False, and does nothing, where this rank has something to tell. Who takes it reads
        the messages (`read_messages`), unless all headers are the same and have no flag.
        """
        exchange = self.communicator.prepared(counts)  # type: ignore[attr-defined]
        if exchange is None:
            return None
        size = exchange.own.nbytes

        def run() -> bool:
            if self._held is not None or self._wish or not exchange.requests:
                return False
            self._count(size)
            self._told_apart(lambda: self.communicator.run(exchange))  # type: ignore[attr-defined]
            self._last = time.monotonic()
            return True

        return exchange.own, exchange.received, run

    def _allgather(self, row: np.ndarray, counts: Sequence[int], failing: bool = False) -> np.ndarray:
        if self.size == 1:
            return row
        self._count(row.nbytes)
        if failing and not getattr(self.communicator, "waits_for_ever", True):
            received = self._allgather_patiently(row, counts)
        else:
            received = self._told_apart(lambda: self.communicator.allgather(row, counts))
        self._last = time.monotonic()
        return received

    def _told_apart(self, exchange: Callable[[], T]) -> T:
        """Run an exchange; where others do not come, the error says in which message of whose call."""
        try:
            return exchange()
        except TimeoutError as error:
            raise TimeoutError(
                f"{error}: rank {self.rank} waits there with message {self.exchanges} of its call; allowed: every rank "
                "calls the solver, as often as the others, and spends less time between two messages (timeout of "
                f"stepwell.distributed.split, or {TIMEOUT_VARIABLE})"
            ) from None

    def _count(self, size: int) -> None:
        wait = time.monotonic() - self._last
        if wait > self._longest_wait:
            self._longest_wait = wait
        self.exchanges += 1
        self.bytes_sent += size

    def _allgather_patiently(self, row: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        communicator: Any = self.communicator
        received: np.ndarray = self._patiently(lambda *limits: communicator.allgather(row, counts, *limits))
        return received

    def _patiently(self, exchange: Callable[..., T]) -> T:
        """Exchange, or raise the error that is held where the others do not come."""
        first, whole = (
            max(least, factor * self._longest_wait)
            for least, factor in ((RESCUE_AFTER, RESCUE_FACTOR), (PATIENCE, PATIENCE_FACTOR))
        )
        communicator: Any = self.communicator
        held = self._held
        assert held is not None

        def rescue() -> None:
            offer = getattr(communicator, "rescue", None)
            self._rescue = None if offer is None else offer(_text_of(held))

        try:
            return exchange(whole, (first, rescue))
        except TimeoutError as late:
            held.add_note(
                f"raised on rank {self.rank} alone: the other ranks did not come to the next exchange ({late}) and may "
                "wait in a communication of the objective's own (communicate first, then raise; under "
                "`python -m mpi4py` this error ends all ranks)"
            )
            raise held from None

    def _raise(self, flags: list[float]) -> NoReturn:
        """Raise on every rank what the flags tell: the own error, or that of the first rank that has one."""
        held, self._held = self._held, None
        rescue, self._rescue = self._rescue, None
        texts = self.gather_texts("" if held is None else _text_of(held))
        self._end_rescues(rescue)
        if held is not None:
            raise held
        rank = flags.index(max(flags))
        if flags[rank] == INTERRUPT:
            raise KeyboardInterrupt(f"rank {rank} was interrupted")
        raise RankError(f"rank {rank}: {texts[rank]}", rank)

    def _end_rescues(self, own: Rescue | None) -> None:
        """Take part in attempts to free other ranks that did not reach any: all of them are here."""
        if not hasattr(self.communicator, "rescue"):
            return
        names = [name for name in self.gather_texts("" if own is None else own.name) if name]
        needed = names and any(self.gather_texts("yes" if any(map(was_rescued, names)) else ""))
        if names and not needed and own is None:
            self.communicator.answer_rescue()  # type: ignore[attr-defined]
        if own is not None:
            own.join()

    def gather_texts(self, text: str) -> list[str]:
        """Return one text a rank."""
        if self.size == 1:
            return [text]
        encoded = text.encode()
        lengths = self._allgather(np.array([float(len(encoded))]), [1] * self.size).astype(int)
        words = [-(-length // 8) for length in lengths.tolist()]
        row = np.frombuffer(encoded.ljust(8 * words[self.rank], b"\0"), np.float64).copy()
        received = self._allgather(row, words)
        ends = np.cumsum(words).tolist()
        return [
            received[end - word : end].tobytes()[:length].decode(errors="replace")
            for end, word, length in zip(ends, words, lengths.tolist())
        ]

    def agree_all(self, values: Mapping[str, Any]) -> None:
        """Raise ValueError on all ranks unless all have the same text of each value; raise what any of them holds.

        The values go by their names, which must be the same on all ranks; the error names the first that differs.
        """
        self.check()
        texts = [json.loads(text) for text in self.gather_texts(json.dumps([repr(value) for value in values.values()]))]
        for index, argument in enumerate(values):
            for rank, text in enumerate(texts):
                if text[index] != texts[0][index]:
                    raise ValueError(
                        f"{argument} is {texts[0][index]} on rank 0 and {text[index]} on rank {rank}; allowed: the "
                        "same on all"
                    )


def _text_of(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
