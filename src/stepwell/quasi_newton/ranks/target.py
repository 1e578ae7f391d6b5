"""A problem whose variables are spread over ranks: a target with an exchange between sums and decisions.

Every rank sweeps over its own chunks, sends the nodes of the tree of sums that cover them, and takes the same decisions
on the same totals. Callbacks and clocks are looked at just before the message of the aim sweep, which carries a wish to
stop: no message is sent for them, and no evaluation is made in vain.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stepwell import _core
from stepwell.arrays import Array
from stepwell.distributed import Pieces, Ranks
from stepwell.distributed.ranks import HEADER, STOP, TIME
from stepwell.quasi_newton.host_target import HostTarget
from stepwell.quasi_newton.ranks.values import NO_VALUE, SHARE, Value, value_of_all
from stepwell.quasi_newton.settings import Settings
from stepwell.quasi_newton.state import WHOLE, with_slots
from stepwell.quasi_newton.status import Status
from stepwell.quasi_newton.target import Box

_ACTION_AIM = _core.ACTION_AIM
_STATUS = {STOP: Status.CALLBACK, TIME: Status.TIME_LIMIT}


class PieceTarget(HostTarget):
    """A problem of which one rank has all variables, cut as its layout says."""

    def __init__(
        self,
        start: np.ndarray,
        box: Box | None,
        weights: np.ndarray | None,
        settings: Settings,
        *,
        weights_vary: bool,
        pieces: Pieces,
        spare: int = 0,
    ) -> None:
        super().__init__(start, box, weights, settings, weights_vary=weights_vary, spare=spare)
        begins = [] if pieces.tiles == 1 else pieces.chunk_starts.tolist()
        whole = pieces.n == pieces.end - pieces.begin
        self._engine.set_chunks(pieces.chunk_length, pieces.before, whole, begins)
        self._tree = pieces.tree()
        #: The kinds in which values of f came.
        self.value_kinds: frozenset[float] = frozenset()

    def turn(self, f: Value, g: np.ndarray, part: int = WHOLE) -> None:
        """Take a value and a gradient at the trial point and move it on."""
        self.value_kinds |= {f.kind}
        number = f.number
        if f.chunks is not None:
            number = self._tree.total_of_all(f.chunks)
        super().turn(number, g, part)


class OverRanks:
    """What a target over several ranks does beside its sweeps: messages, errors, callbacks, clocks.

    Those who inherit have a target's `running` and `stop`, and `_turn_here`, which sweeps, exchanges and decides.
    """

    running: int
    stop: Callable[[int], None]
    states: Callable[[], np.ndarray]
    #: The kinds in which values of f came.
    value_kinds: frozenset[float] = frozenset()

    def _meet(self, ranks: Ranks, pieces: Pieces) -> _core.RankExchange:
        """Return what stands between the sums and the decisions."""
        self.ranks = ranks
        homes = ranks.find_homes() if ranks.hops else []
        self._messages = _Messages(ranks, self)
        self._exchange = _core.RankExchange(ranks.rank, pieces.cuts, pieces.tiles, pieces.begin, self._messages, homes)
        return self._exchange

    def _turn_here(self, g: Array, part: int) -> None:
        raise NotImplementedError

    def no_gradient(self) -> Array:
        """Return numbers that nobody will use, of the place and size of a gradient."""
        raise NotImplementedError

    def turn(self, f: Value, g: Array, part: int = WHOLE) -> None:
        """Take this rank's value and gradient at the trial point; all ranks move on together, or all raise."""
        self.value_kinds |= {f.kind}
        messages = self._messages
        messages.value = f
        messages.looked = False
        # What all ranks say alike, and nobody has to look at, needs no Python on its way but MPI's.
        alike = f.kind != SHARE and type(f.number) is float
        may_be_short = self.ranks.prepares and messages.unwatched
        self._exchange.set_value(f.chunks, f.kind, f.number if alike else None, may_be_short)
        try:
            if messages.watched:  # a driver has seen to interrupts for its whole run
                self._turn_here(g, part)
            else:
                with _patient_interrupts(self.ranks):
                    self._turn_here(g, part)
        except _Ended as ended:
            self.stop(ended.status.value)
        if self.running == 0 and messages.watched:
            messages.look(ended=True)
            self.ranks.check()  # an error of the last callback

    @property
    def holding(self) -> Callable[[], contextlib.AbstractContextManager[None]]:
        """A context that keeps errors of this rank until the next message, which raises them on all."""
        return self.ranks.holding

    @contextlib.contextmanager
    def watch(self, after: Callable[[], None] | None, limit: float) -> Iterator[None]:
        """Look after a run: `after` is called once for every accepted point, and the clock is watched.

        Ctrl-C waits for the next message, with which it ends all ranks; a second one does not.
        """
        messages = self._messages
        messages.watched, messages.after, messages.limit = True, after, limit
        try:
            with _patient_interrupts(self.ranks):
                yield
        finally:
            messages.watched, messages.after, messages.limit = False, None, math.inf

    def set_limit(self, limit: float) -> None:
        """End the run with the first message of the aim sweep after this time, by `time.perf_counter`."""
        self._messages.limit = limit

    def repeated(
        self, evaluate: Callable[[], tuple[Any, Any]], turn: Callable[..., None], graph: str | bool, clock: Any
    ) -> Callable[[], Any]:
        """Return a function that evaluates and turns once; an error of the evaluation is raised on all ranks."""

        def mark(place: int) -> None:
            if clock is not None:
                clock.record(0, place)

        last: tuple[Any, Any] | None = None  # until the next one is there: see HostTarget.repeated

        def advance() -> None:
            nonlocal last
            found: tuple[Any, Any] | None = None
            mark(0)
            with self.ranks.holding():
                found = evaluate()
            last = found
            mark(1)
            turn(*((NO_VALUE, self.no_gradient()) if found is None else found))
            mark(2)
            if clock is not None:
                clock.wait()
                clock.gather()

        return advance


class RankTarget(OverRanks, PieceTarget):
    """A problem over several ranks; a `Target` whose turns exchange messages, so that all ranks must make them.

    Parameters
    ----------
    ranks : Ranks
    pieces : Pieces
        Which variables each rank has. The others are those of `HostTarget`, for this rank's piece; that there are
        bounds, or a diagonal, must be the same on all ranks.
    """

    def __init__(
        self,
        start: np.ndarray,
        box: Box | None,
        weights: np.ndarray | None,
        settings: Settings,
        *,
        weights_vary: bool,
        pieces: Pieces,
        ranks: Ranks,
    ) -> None:
        # A place more in the ring: a pair is written before its step is accepted, to save an exchange.
        super().__init__(start, box, weights, settings, weights_vary=weights_vary, pieces=pieces, spare=1)
        self._engine.set_exchange(self._meet(ranks, pieces))
        self._places = settings.m

    def _turn_here(self, g: np.ndarray, part: int) -> None:
        HostTarget.turn(self, math.nan, g, part)

    def no_gradient(self) -> np.ndarray:
        """Return zeros."""
        return np.zeros(self.n, self.trial.dtype)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return this rank's piece of the run, in rings of m pairs."""
        return with_slots(self._views(), self._places)

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from saved arrays, this rank's piece."""
        super().restore(with_slots(arrays, self._engine.s.shape[1]))


class _Ended(Exception):
    """A rank wants to stop."""

    def __init__(self, status: Status) -> None:
        super().__init__(status)
        self.status = status


class _Messages:
    """What the engine calls with its messages. It does not hold the target, which holds the engine, which holds it."""

    def __init__(self, ranks: Ranks, target: OverRanks) -> None:
        self._ranks, self._target = ranks, weakref.ref(target)
        self.value = NO_VALUE
        self.watched = self.looked = self._late = False
        self.after: Callable[[], None] | None = None
        self.limit = math.inf

    def __call__(self, phase: int, with_value: bool, message: np.ndarray, counts: list[int]) -> Any:
        """Send this rank's message; return those of all, and f where they carry it."""
        self._see_to(phase, with_value)
        if with_value:
            message[HEADER], message[HEADER + 1] = self.value.kind, self.value.number
        return self._found(with_value, self._ranks.exchange_message(message, counts), counts)

    def open(self, phase: int, with_value: bool) -> tuple[float, float, float]:
        """Begin an exchange by hops: return this rank's flag, and kind and number of its f."""
        self._see_to(phase, with_value)
        kind, number = (self.value.kind, float(self.value.number)) if with_value else (0.0, 0.0)
        return self._ranks.open_hops(), kind, number

    def swap(self, partner: int, row: np.ndarray | None, count: int) -> np.ndarray | None:
        """Send a row to another rank, and return what it sends."""
        return self._ranks.swap(partner, row, count)

    def look_further(self, with_value: bool, header: np.ndarray) -> float:
        """Return f where hops have shown that ranks differ, or raise what they hold."""
        length = HEADER + 2 * with_value
        found = self._found(with_value, self._ranks.end_hops(header, length), [length] * self._ranks.size)
        return float(found[1]) if with_value else math.nan

    def _see_to(self, phase: int, with_value: bool) -> None:
        """Look at callbacks and clocks, just before a message that can tell others of it."""
        if with_value:
            # Time was up before this point was evaluated, in a search that goes on and on.
            if self._late:
                self._ranks.ask(TIME)
            self._late = time.perf_counter() > self.limit
        elif phase == _ACTION_AIM and not self.unwatched:
            self.look()

    def read(self, with_value: bool, received: np.ndarray, counts: list[int]) -> Any:
        """Do the same with messages that came the short way (`prepared`) and are not all alike."""
        return self._found(with_value, self._ranks.read_messages(received, counts), counts)

    def prepared(self, counts: list[int]) -> Any:
        """Return the short way for messages of these lengths, if there is one."""
        return self._ranks.prepared(counts)

    def _found(self, with_value: bool, received: np.ndarray, counts: list[int]) -> Any:
        if self._ranks.told:
            raise _Ended(_STATUS[self._ranks.told])
        if not with_value:
            return received
        return received, value_of_all(*_core.numbers_of_all(received, counts, HEADER, HEADER + 2))

    @property
    def unwatched(self) -> bool:
        """Whether there is no callback, and no clock to look at."""
        return self.after is None and self.limit == math.inf

    def look(self, *, ended: bool = False) -> None:
        """Call back for an accepted point, once, and look at the clock; what comes of it goes with the next message."""
        if self.after is not None and not self.looked and self._accepted():
            self.looked = True
            with self._ranks.holding():
                try:
                    self.after()
                except StopIteration:
                    if not ended:
                        self._ranks.ask(STOP)
        if not ended and time.perf_counter() > self.limit:
            self._ranks.ask(TIME)

    def _accepted(self) -> bool:
        target = self._target()
        assert target is not None
        return bool(target.states()[0]["accepted"])


@contextlib.contextmanager
def _patient_interrupts(ranks: Ranks) -> Iterator[None]:
    """Let Ctrl-C wait for the next message, so that no rank is left waiting for another; a second one does not."""
    usual = signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not usual:
        yield
        return
    interrupts = 0

    def note(number: int, frame: Any) -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts > 1:
            usual(number, frame)
        ranks.hold(KeyboardInterrupt())

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


assert (HEADER, SHARE) == (_core.MESSAGE_HEADER, _core.SHARED_KIND)
