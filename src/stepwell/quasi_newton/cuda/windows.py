"""Evaluations and turns on a CUDA device, one by one or as a CUDA graph of several.

Turns are launched without waiting; a graph of eight of them with their evaluations helps where the device has caught up
with the host, which is still launching.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import Array, capture
from stepwell.quasi_newton.cuda.events import WINDOW, TurnClock
from stepwell.quasi_newton.state import WHOLE


class Windows:
    """Does an evaluation and a turn a call, or the whole of a captured window.

    Parameters
    ----------
    target : CudaTarget
    evaluate : callable
        Returns checked values and gradients at the trial points.
    turn : callable
        Takes them: ``target.turn``, or what asks for a diagonal in between.
    graph : {"auto", True, False}
        Whether to capture: where it helps, in any case, never.
    clock : TurnClock or None
        Times evaluations and turns on the device.
    """

    def __init__(
        self,
        target: Any,
        evaluate: Callable[[], tuple[Any, Array]],
        turn: Callable[..., None],
        graph: str | bool,
        clock: TurnClock | None,
    ) -> None:
        self._target, self._evaluate, self._turn = target, evaluate, turn
        self._graph, self._clock = graph, clock
        self._turns = 0
        self.replays = 0  #: evaluations of the last call that a graph made
        self._latest: Any = None
        self._play: Callable[[], Any] | None = None
        self._mode = "one launch a turn"

    @property
    def mode(self) -> str:
        """How turns were made."""
        ahead = self._graph is not False and self._turns >= WINDOW
        return f"{self._mode}, the host ahead of the device" if ahead else self._mode

    def __call__(self) -> None:
        """Evaluate and turn once, or play a window."""
        if self._play is not None:
            self._play()
            self._turns += WINDOW
            self.replays = WINDOW
            if self._clock is not None:
                self._clock.replayed()
            self._target.played()
        else:
            place = self._turns % WINDOW
            if self._graph is not False and place == WINDOW - 1:
                self._latest = self._target.mark()
            self._one(place)
            self._turns += 1
            if self._graph is not False and place == WINDOW - 1 and (self._graph is True or self._latest.is_done):
                self._capture()
        if self._clock is not None and self._turns % WINDOW == 0:
            self._target.wait()
            self._clock.gather()

    def _one(self, place: int) -> None:
        if self._clock is None:
            self._turn(*self._evaluate())
            return
        if not self._target.follows:
            self._target.wait()  # for the last turn, whose time is not the objective's
        self._clock.record(place, 0)
        f, g = self._evaluate()
        self._clock.record(place, 1)
        self._turn(f, g)
        self._clock.record(place, 2)

    def _capture(self) -> None:
        """Capture a window, or say why not; either way it is not tried again."""
        wanted, self._graph = self._graph, False
        target, clock = self._target, self._clock
        target.wait()
        if clock is not None:
            clock.gather()
        if not target.running:
            return

        def window(handle: int) -> list[Any]:
            kept = []
            for place in range(WINDOW):
                if clock is not None:
                    clock.record(place, 0, handle)
                f, g = self._evaluate()
                if isinstance(f, float | np.ndarray):
                    raise TypeError("the objective returned a host number")
                if clock is not None:
                    clock.record(place, 1, handle)
                target.launch(f, g, WHOLE, handle)
                if clock is not None:
                    clock.record(place, 2, handle)
                kept.append((f, g))
            return kept

        try:
            self._play, self._mode = capture(target.trial, window), f"CUDA graph of {WINDOW} turns"
        except Exception as error:  # whatever a library says when work cannot be captured
            if wanted is True:
                raise RuntimeError(
                    f"options['graph'] is True, but the objective cannot be captured: {error}"
                ) from error
            self._mode = f"one launch a turn (not captured: {error})"
