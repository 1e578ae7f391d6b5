"""CUDA events around evaluations and turns: the device's own times, read only after a window of turns has finished."""

from __future__ import annotations

from stepwell.arrays import Array, current_stream
from stepwell.cuda.driver import checked, cuda_driver
from stepwell.quasi_newton.state import LOOK_EVERY

WINDOW = LOOK_EVERY  # turns that are launched, or captured, together


def clock_for(template: Array) -> TurnClock:
    """Make a clock for a run where the template lives."""
    return TurnClock(WINDOW, current_stream(template))


class TurnClock:
    """Tells apart what the stream spends in the objective and in the solver's turns.

    Each turn has a slot of three events: before the evaluation, between it and the turn, after the turn. Recording one
    never waits. The same events serve every window, also one that is replayed as a CUDA graph, so a window must have
    finished before `gather` reads it and the next one begins.

    Parameters
    ----------
    window : int
        Slots.
    stream : int
        The handle of the stream on which evaluations and turns are launched.
    """

    def __init__(self, window: int, stream: int) -> None:
        driver = cuda_driver()
        self._driver, self._stream = driver, stream
        self._events = [[checked(*driver.cuEventCreate(0)) for _ in range(3)] for _ in range(window)]
        self._fresh = 0
        self.objective = self.turns = 0.0

    def record(self, slot: int, place: int, stream: int | None = None) -> None:
        """Mark a place (0: before the evaluation, 1: after it, 2: after the turn) on the stream."""
        driver = self._driver
        handle = self._stream if stream is None else stream
        event = self._events[slot][place]
        capturing = stream is not None and int(checked(*driver.cuStreamIsCapturing(handle))) != 0
        # Inside a capture the record becomes a node of the graph, and happens whenever the graph is played.
        flag = driver.CUevent_record_flags.CU_EVENT_RECORD_EXTERNAL if capturing else 0
        checked(*driver.cuEventRecordWithFlags(event, handle, int(flag)))
        if not capturing:
            self._fresh = max(self._fresh, slot + 1)

    def replayed(self) -> None:
        """Say that a graph has recorded the events of all slots."""
        self._fresh = len(self._events)

    def wait(self) -> None:
        """Wait until the stream has come to where the last mark is."""
        checked(*self._driver.cuStreamSynchronize(self._stream))

    def gather(self) -> None:
        """Add up the slots recorded since the last call; they must have finished."""
        for before, between, after in self._events[: self._fresh]:
            self.objective += 1e-3 * checked(*self._driver.cuEventElapsedTime(before, between))
            self.turns += 1e-3 * checked(*self._driver.cuEventElapsedTime(between, after))
        self._fresh = 0

    def __del__(self) -> None:
        for slot in getattr(self, "_events", ()):
            for event in slot:
                self._driver.cuEventDestroy(event)
