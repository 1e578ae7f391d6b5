"""Runs on the GPU: memory, the loop that feeds turns to the device, and the clock that times them.

Points, gradients and values stay on the device. Turns are launched on the caller's stream without waiting; the host
looks at the state every few turns, through pinned memory. Where the objective can be captured, several turns with their
evaluations go into one CUDA graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from stepwell import _core
from stepwell.arrays import (
    Array,
    capture,
    current_stream,
    device_address,
    device_index,
    from_dlpack,
    namespace_of,
    numpy_dtype,
    shares_streams,
)
from stepwell.quasi_newton.cuda_events import TurnClock
from stepwell.quasi_newton.cuda_target import CudaTarget
from stepwell.quasi_newton.device_inputs import (
    checked_diagonal,
    project_device_start,
    read_device_bounds,
    read_device_diagonal,
    read_device_start,
)
from stepwell.quasi_newton.device_objective import DeviceObjective
from stepwell.quasi_newton.host_target import pair_slots
from stepwell.quasi_newton.results import Status
from stepwell.quasi_newton.settings import Settings

if TYPE_CHECKING:
    from stepwell.quasi_newton.inverse_hessian import DeviceInverseHessian

WINDOW = 8  # turns between two looks at the state


class DeviceRun:
    """One run on a GPU: memory, the caller's objective, and the loop that feeds turns to the device."""

    def __init__(self, x0: Array, bounds: Any, h0: Any, settings: Settings, *, batch: bool = False) -> None:
        self.template = x0 = read_device_start(x0)
        self.shape = tuple(x0.shape)
        self.bounds = read_device_bounds(bounds, x0, batch)
        start = project_device_start(x0, self.bounds, self.shape[0] if batch else 1)
        rows = int(start.shape[0])
        self.dtype = numpy_dtype(x0)
        self.diagonal = h0 if callable(h0) else None
        self.weights = None
        if self.diagonal is not None:
            self.weights = namespace_of(start).ones_like(start)
        elif h0 is not None:
            self.weights = read_device_diagonal(h0, x0, start, batch)
        n = int(start.shape[1])
        self.settings = settings
        self.target = CudaTarget(
            rows,
            n,
            self.dtype,
            device_address(start),
            None
            if self.bounds is None
            else (device_address(self.bounds[0]), device_address(self.bounds[1]), self.bounds[2]),
            self.bounds is not None and self.bounds[3],
            None if self.weights is None else (device_address(self.weights), self.weights.ndim == 1),
            settings,
            weights_vary=self.diagonal is not None,
            device_id=device_index(x0),
            stream=current_stream(x0),
        )
        self._trial = from_dlpack(self.target.array("trial"), x0)
        self.follows = shares_streams(x0)

    def clock(self) -> TurnClock:
        """Make a clock for `drive`."""
        return TurnClock(WINDOW, current_stream(self.template))

    @property
    def x(self) -> Array:
        """The points to evaluate, in the caller's kind and shape: a view that the next turn overwrites."""
        if not self.follows:
            self.target.wait()
            self._trial = from_dlpack(self.target.array("trial"), self.template)
        return namespace_of(self._trial).reshape(self._trial, self.shape)

    def turn(self, f: Any, g: Array, stream: int | None = None) -> None:
        """Launch one turn with values and gradients at `x`."""
        if self.diagonal is not None:
            assert self.weights is not None
            fresh = checked_diagonal(self.diagonal(self.x), self.template, tuple(self.weights.shape))
            self.target.copy(device_address(self.weights), device_address(fresh), fresh.nbytes)
        if _is_on_device(f):
            self.target.turn(device_address(g), device_address(f), "32" in str(f.dtype), stream)
        else:
            self.target.turn(device_address(g), self.target.host_values(f), False, stream)
        # Until the next turn: JAX may otherwise reuse their memory before the device has read it.
        self._kept = (f, g)

    def drive(
        self,
        objective: DeviceObjective,
        *,
        began: float,
        after: Callable[[], None] | None = None,
        graph: str | bool = "auto",
        clock: TurnClock | None = None,
    ) -> str:
        """Run to the end; `after` is called after every turn, with the state up to date. Returns how turns ran."""
        target, turns = self.target, 0
        marks: list[Any] = []
        step_by_step = after is not None or not self.follows or self.diagonal is not None or objective.differenced
        try_graph = graph in ("auto", True) and not step_by_step
        play, latest = None, None
        mode = "one launch a turn"
        while target.running:
            if play is None:
                if try_graph and turns % WINDOW == WINDOW - 1:
                    latest = target.mark()
                self._evaluate_and_turn(objective, clock, turns % WINDOW)
                turns += 1
                # A graph helps where the device has caught up with the host, which is still launching.
                late = latest is not None and turns % WINDOW == 0 and latest.is_done
                if try_graph and turns % WINDOW == 0 and (late or graph is True):
                    play, mode = self._captured(objective, graph, clock)
                    try_graph = False
            else:
                play()
                turns += WINDOW
                if clock is not None:
                    clock.replayed()
            if step_by_step or (clock is not None and turns % WINDOW == 0):
                target.wait()
                if clock is not None:
                    clock.gather()
                if after is not None:
                    after()
            elif turns % WINDOW == 0:
                # At most two windows ahead of the host.
                marks.append(target.mark())
                if len(marks) > 1:
                    marks.pop(0).sync()
            if objective.spent(self.settings.maxfun):
                self.stop(Status.MAX_EVALUATIONS)
            if time.perf_counter() - began > self.settings.time_limit:
                self.stop(Status.TIME_LIMIT)
        target.wait()
        if clock is not None:
            clock.gather()
        return f"{mode}, the host ahead of the device" if try_graph and turns >= WINDOW else mode

    def _evaluate_and_turn(
        self, objective: DeviceObjective, clock: TurnClock | None, slot: int, stream: int | None = None
    ) -> tuple[Any, Array]:
        if clock is None:
            f, g = objective(self.x)
            self.turn(f, g, stream)
            return f, g
        point = self.x  # waits, for JAX
        clock.record(slot, 0, stream)
        f, g = objective(point)
        clock.record(slot, 1, stream)
        self.turn(f, g, stream)
        clock.record(slot, 2, stream)
        return f, g

    def _captured(
        self, objective: DeviceObjective, graph: str | bool, clock: TurnClock | None
    ) -> tuple[Callable[[], Any] | None, str]:
        def window(stream: int) -> list[Any]:
            kept = []
            for slot in range(WINDOW):
                kept.append(self._evaluate_and_turn(objective, clock, slot, stream))
                if not _is_on_device(kept[-1][0]):
                    raise TypeError("the objective returned a host number")
            return kept

        self.target.wait()
        if clock is not None:
            clock.gather()
        if not self.target.running:
            return None, "one launch a turn"
        try:
            return capture(self.template, window), f"CUDA graph of {WINDOW} turns"
        except Exception as error:  # whatever a library says when work cannot be captured
            if graph is True:
                raise RuntimeError(
                    f"options['graph'] is True, but the objective cannot be captured: {error}"
                ) from error
            return None, f"one launch a turn (not captured: {error})"

    def stop(self, status: Status) -> None:
        """End all problems that still run."""
        states = self.target.states()
        running = states["action"] != _core.ACTION_DONE
        states["status"][running] = status.value
        states["action"][running] = _core.ACTION_DONE
        self.target.write_states(states)
        self.target.show_accepted()

    def accepted(self, name: str) -> Array:
        """Return a copy of the accepted points (``"x"``) or gradients (``"g"``), in the caller's kind and shape."""
        self.target.wait()
        view = from_dlpack(self.target.array(name), self.template)
        xp = namespace_of(view)
        return xp.asarray(xp.reshape(view, self.shape), copy=True)

    def inverse_hessian(self, problem: int = 0) -> DeviceInverseHessian:
        """Return the inverse Hessian approximation of one problem as an operator on device arrays."""
        from stepwell.quasi_newton.inverse_hessian import DeviceInverseHessian

        state = self.target.states()[problem]
        n = self.target.n
        s, y = (from_dlpack(self.target.array(name), self.template)[problem] for name in "sy")
        slots = pair_slots(state, int(s.shape[0])).tolist()
        xp = namespace_of(s)
        h0: Any = float(state["gamma"])
        if self.weights is not None:
            h0 = self.weights if self.weights.ndim == 1 else self.weights[problem]
        copies = [[xp.asarray(rows[slot, :n], copy=True) for slot in slots] for rows in (s, y)]
        return DeviceInverseHessian(copies[0], copies[1], h0, n)


def _is_on_device(f: Any) -> bool:
    """Whether checked values of f are an array on the device: else they are a float or a NumPy array."""
    return not isinstance(f, float | np.ndarray)
