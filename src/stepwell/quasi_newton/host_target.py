"""The host target: the compiled engine, its memory, and its state as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwell import _core
from stepwell.quasi_newton.settings import Settings

#: The engine's state, one record per problem.
STATE_DTYPE = np.dtype(
    {
        "names": list(_core.STATE_FIELDS),
        "formats": [form for form, _ in _core.STATE_FIELDS.values()],
        "offsets": [offset for _, offset in _core.STATE_FIELDS.values()],
        "itemsize": _core.STATE_SIZE,
    }
)

#: Flags returned by ``turn_one``.
ACCEPTED, ENDED, NEEDS_DIAGONAL = 1, 2, 4
#: Parts of a turn.
WHOLE, BEGIN, FINISH = 0, 1, 2


def pair_slots(state: Any, slots: int) -> np.ndarray:
    """Return where the pairs of one problem's state lie in a ring of so many slots, oldest first."""
    head, count = int(state["head"]), int(state["pairs"])
    return np.arange(head - count, head) % slots


def memory_words(n: int, m: int, *, bounded: bool = False, weighted: bool = False) -> int:
    """Return the words of memory that one problem of n variables takes: (2m + 4) n, and 2n more with bounds.

    A diagonal H0 adds n; the products of pairs and the scalars add 3m² and a constant. Bounds and a diagonal that the
    problems of a batch share are counted once for the batch.

    Examples
    --------
    >>> memory_words(1_000_000, 8, bounded=True) // 1_000_000
    22
    """
    vectors = 2 * m + 4 + 2 * bounded + weighted
    return vectors * n + 3 * m * m + int(_core.STATE_SIZE) // 8


class HostTarget:
    """A batch of problems in host memory.

    Parameters
    ----------
    x0 : (B, n) array, float64 or float32
        Starting points, inside the bounds.
    bounds : (lower, upper) or None
        Each (n,) or (B, n), of x0's dtype.
    weights : array or None
        Diagonal of H0, (n,) or (B, n).
    weights_vary : bool
        Whether the diagonal changes from one iteration to the next.
    """

    def __init__(
        self,
        x0: np.ndarray,
        bounds: tuple[np.ndarray, np.ndarray] | None,
        weights: np.ndarray | None,
        settings: Settings,
        *,
        weights_vary: bool = False,
    ) -> None:
        batch, n = x0.shape
        boxed = bounds is not None and bool(np.isfinite(bounds[0]).all() and np.isfinite(bounds[1]).all())
        options = settings.engine_options(
            bounded=bounds is not None,
            boxed=boxed,
            weighted=weights is not None,
            weights_vary=weights_vary,
            single=x0.dtype == np.float32,
        )
        make = _core.EngineFloat64 if x0.dtype == np.float64 else _core.EngineFloat32
        self._engine: Any = make(batch, n, options, settings.thread_count())
        self.bounds, self.weights = bounds, weights
        if bounds is not None:
            self._engine.set_bounds(*bounds)
        if weights is not None:
            self._engine.set_weights(weights)
        self.trial: np.ndarray = self._engine.trial
        self.trial[...] = x0
        self.states: np.ndarray = self._engine.states.view(STATE_DTYPE)[:, 0]
        self.turn_one = self._engine.turn_one
        self.turn_all = self._engine.turn_all
        self.stop = self._engine.stop

    @property
    def nbytes(self) -> int:
        """Bytes held: vectors, history, bounds, diagonal, small matrices and states."""
        extra = [*(self.bounds or ()), *([self.weights] if self.weights is not None else [])]
        return int(self._engine.bytes + sum(array.nbytes for array in extra))

    @property
    def x(self) -> np.ndarray:
        """The accepted points, (B, n); before the first evaluation the starting points."""
        return (
            self._engine.x
            if self.states["started"].all()
            else np.where(self.states["started"][:, None] != 0, self._engine.x, self.trial)
        )

    @property
    def gradient(self) -> np.ndarray:
        """Gradients at the accepted points, (B, n)."""
        g: np.ndarray = self._engine.g
        return g

    def history(self, problem: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return the pairs of one problem, rows of S and of Y, oldest first, as views."""
        s, y = self._engine.s[problem], self._engine.y[problem]
        slots = self._slots(problem)
        return [s[slot] for slot in slots], [y[slot] for slot in slots]

    def pairs(self, problem: int) -> tuple[np.ndarray, np.ndarray]:
        """Return copies of the history of one problem, S and Y, oldest pair first."""
        slots = self._slots(problem)
        return self._engine.s[problem][slots], self._engine.y[problem][slots]

    def _slots(self, problem: int) -> np.ndarray:
        return pair_slots(self.states[problem], int(self._engine.s.shape[1]))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays that make up the complete state, as views."""
        e = self._engine
        return {
            "trial": e.trial,
            "x": e.x,
            "g": e.g,
            "d": e.d,
            "s": e.s,
            "y": e.y,
            "states": e.states,
            "small": e.small,
        }
