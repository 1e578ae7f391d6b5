"""The host target: the compiled engine, its memory, and its state as NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell import _core
from stepwell.quasi_newton.settings import Settings
from stepwell.quasi_newton.state import ARRAYS, STATE_DTYPE, WHOLE, pair_slots, widened
from stepwell.quasi_newton.target import Box

#: Flag returned by ``turn_one``: the problem has ended.
_ENDED = 2


class HostTarget:
    """A batch of problems in host memory; a `Target` whose turns are done when they return.

    Parameters
    ----------
    start : (B, n) array, float64 or float32
        Starting points, inside the bounds.
    box : Box or None
        Bounds of start's dtype.
    weights : array or None
        Diagonal of H0, (n,) or (B, n).
    weights_vary : bool
        Whether the diagonal changes from one iteration to the next; then it is (B, n).
    spare : int
        Places of the ring of pairs beyond the m that are kept.
    """

    def __init__(
        self,
        start: np.ndarray,
        box: Box | None,
        weights: np.ndarray | None,
        settings: Settings,
        *,
        weights_vary: bool = False,
        spare: int = 0,
    ) -> None:
        self.batch, self.n = start.shape
        options = settings.engine_options(
            bounded=box is not None,
            boxed=box is not None and box.boxed,
            weighted=weights is not None,
            weights_vary=weights_vary,
            single=start.dtype == np.float32,
        )
        if spare:
            options = _core.Options.from_bytes(options.to_bytes())  # the settings' own is shared
            options.slots = settings.m + spare
        make = _core.EngineFloat64 if start.dtype == np.float64 else _core.EngineFloat32
        engine: Any = make(self.batch, self.n, options, settings.thread_count())
        self._engine, self._box, self._weights = engine, box, weights
        if box is not None:
            engine.set_bounds(box.lower, box.upper)
        if weights is not None:
            engine.set_weights(weights)
        self.trial: np.ndarray = engine.trial
        self.trial[...] = start
        self._states: np.ndarray = np.frombuffer(engine.states, STATE_DTYPE)
        if box is not None and box.own is not None:
            self._states["own_bounds"] = box.own
        self.running = self.batch
        self._alone = self.batch == 1
        self._turn_one = engine.turn_one

    def turn(self, f: Any, g: np.ndarray, part: int = WHOLE) -> None:
        """Take values and gradients at the trial points, of all problems or of those that still run; move these on."""
        if self._alone:
            if self._turn_one(f if type(f) is float else f[0], g, part) & _ENDED:
                self.running = 0
        else:
            self.running = self._engine.turn_all(f, g, part)

    def copy_points_to(self, points: np.ndarray | None) -> None:
        """Let every turn leave its trial point in an array as well, until another one is given; one problem alone."""
        self._engine.set_copy(points)

    def wait(self) -> None:
        """Return at once: turns are done when they return."""

    def still_running(self) -> np.ndarray:
        """Return the numbers of the problems that still run."""
        return np.array(self._engine.running)

    def states(self) -> np.ndarray:
        """Return the states of the problems as they are; not to be written to."""
        return self._states

    def stop(self, status: int) -> None:
        """End all problems that still run."""
        for problem in self.still_running().tolist():
            self._engine.stop(problem, status)
        self.running = 0

    @property
    def nbytes(self) -> int:
        """Bytes held: vectors, history, bounds, diagonal, small matrices and states."""
        extra = [*(self._box or ())[:2], *([] if self._weights is None else [self._weights])]
        return int(self._engine.bytes + sum(array.nbytes for array in extra))

    def accepted(self, name: str) -> np.ndarray:
        """Return a copy of the accepted points or gradients; before the first evaluation the starting points."""
        if name == "x":
            started = self._states["started"]
            if not started.all():
                return np.where(started[:, None] != 0, self._engine.x, self.trial)
        return np.array(getattr(self._engine, name))

    def pairs(self, problem: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return the pairs of one problem, rows of S and of Y, oldest first: views, but for bfloat16."""
        s, y = self._engine.s[problem], self._engine.y[problem]
        slots = pair_slots(self._states[problem], s.shape[0])
        return [widened(s[slot]) for slot in slots.tolist()], [widened(y[slot]) for slot in slots.tolist()]

    def set_diagonal(self, weights: np.ndarray, problems: np.ndarray) -> None:
        """Replace the diagonal H0 of some problems."""
        assert self._weights is not None
        self._weights[problems] = weights[problems]

    def _views(self) -> dict[str, np.ndarray]:
        return {name: getattr(self._engine, name) for name in ARRAYS}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the complete run, as views."""
        return self._views()

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from saved arrays."""
        for name, mine in self._views().items():
            mine[...] = arrays[name]
        self._engine.forget()
        self.running = int(np.count_nonzero(self._states["action"] != _core.ACTION_DONE))

    def repeated(
        self, evaluate: Callable[[], tuple[Any, Any]], turn: Callable[..., None], graph: str | bool, clock: Any
    ) -> Callable[[], Any]:
        """Return a function that evaluates and turns once."""

        # The last gradient stays until the next one is there. Freed before, it would be the last of the objective's
        # arrays to go, and glibc would give the memory of all of them back, for the next evaluation to fault in again.
        g: Any = None

        def advance() -> None:
            nonlocal g
            f, g = evaluate()  # not turn(*evaluate()): that would be a call by way of C
            turn(f, g)

        return advance
