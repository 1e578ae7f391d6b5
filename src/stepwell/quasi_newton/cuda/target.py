"""The CUDA target: device memory of a batch of problems, and turns launched on the caller's stream.

A turn is one launch. The host never waits inside it: the state of the first problem and the number of problems still
running reach the host through pinned memory, and are looked at when the caller asks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell import _core
from stepwell.arrays import Array, device_address, dtype_name
from stepwell.cuda.runtime import Event, PinnedBuffer, launch
from stepwell.quasi_newton.cuda.events import WINDOW
from stepwell.quasi_newton.cuda.layout import (
    BLOCK,
    GROUP,
    NUMBERS,
    SMALL,
    SMALL_CAPACITY,
    SPAN,
    WARP,
    Engine,
    kernel_defines,
    resident_kernel,
    walk_length,
    walk_words,
)
from stepwell.quasi_newton.cuda.memory import DeviceVectors
from stepwell.quasi_newton.cuda.windows import Windows
from stepwell.quasi_newton.settings import Settings
from stepwell.quasi_newton.state import STATE_DTYPE, WHOLE
from stepwell.quasi_newton.target import Box


class CudaTarget(DeviceVectors):
    """A batch of problems in device memory; a `Target` whose turns are launched and not waited for.

    Parameters
    ----------
    start : (B, n) device array, float64 or float32
        Starting points, inside the bounds. Their library makes all arrays that come back, and has the stream.
    box : Box or None
        Bounds of start's dtype.
    weights : array or None
        Diagonal of H0, (n,) or (B, n).
    weights_vary : bool
        Whether the diagonal changes from one iteration to the next; then it is (B, n).
    """

    def __init__(
        self,
        start: Array,
        box: Box | None,
        weights: Array | None,
        settings: Settings,
        *,
        weights_vary: bool = False,
    ) -> None:
        super().__init__(start, box, weights, settings, weights_vary=weights_vary)
        batch, m, single = self.batch, settings.m, self.dtype.itemsize == 4
        steps = (0, 0) if box is None else box.steps
        threads = WARP if self.n <= SMALL and m <= SMALL_CAPACITY else BLOCK
        defines = kernel_defines(
            threads, m, single, box is not None, weights is not None, weights_vary, self._history, steps
        )
        kernel, shared, resident = resident_kernel(
            "quasi_newton", "stepwell_turn", tuple(defines.items()), self.device.device_id
        )
        self._plan(resident)
        longest = walk_length(self.n, m, threads, box is not None and settings.cauchy == "exact")
        thread_groups = self._thread_groups
        sums = int(_core.sums_length(self._options)) + NUMBERS
        groups = -(-self._chunks // GROUP)
        partial_stride = sums * (self._chunks + groups + 1)
        walk_stride = walk_words(m, longest, threads)
        doubles = {
            "small": batch * int(_core.small_length(self.slots)),
            "partials": thread_groups * partial_stride,
            "coefficients": thread_groups * 2 * m,
            "scratch": thread_groups * int(_core.scratch_length(m)),
            "walk": thread_groups * walk_stride,
            "states": batch * _core.STATE_SIZE // 8,
            "control": 8 + groups,
            "engine": 128,
        }
        self._take_memory(start, doubles)
        at = self._at
        self._pinned = PinnedBuffer(_core.STATE_SIZE + 64)
        pinned = self._pinned.handle
        host = (ctypes.c_char * (_core.STATE_SIZE + 64)).from_address(pinned)
        view = np.frombuffer(host, dtype=np.uint8)
        view[:] = 0
        self.report = view[: _core.STATE_SIZE].view(STATE_DTYPE)
        self.report[...] = np.frombuffer(_core.start_state_bytes(), dtype=STATE_DTYPE)
        self._running = view[_core.STATE_SIZE : _core.STATE_SIZE + 4].view(np.uint32)
        self._running[0] = batch
        engine = Engine(
            **self._vectors(), states=at["states"], small=at["small"],
            partials=at["partials"], coefficients=at["coefficients"], scratch=at["scratch"], walk=at["walk"],
            barrier=at["control"] + 16, report=pinned, running=pinned + _core.STATE_SIZE, counter=at["control"],
            partial_stride=partial_stride, walk_stride=walk_stride,
            chunks=self._chunks, walk_length=longest, sums=sums,
        )  # fmt: skip
        self._upload(at["engine"], bytes(engine) + self._options.to_bytes())
        self._upload(at["control"], bytes(self._sizes["control"]))
        self._start_states(None if box is None else box.own)
        self._fill_zero(at["partials"], self._sizes["partials"])  # what the first decisions are warmed up with
        self._kernel, self._threads, self._shared_bytes = kernel, threads, shared
        self._f_ring: PinnedBuffer | None = None
        self._launched, self._marks = 0, list[Any]()
        self._room: np.ndarray | None = None
        self.wait()

    def _start_states(self, own_bounds: np.ndarray | None) -> None:
        """Set the states of all problems; `own_bounds` says what differs among them."""
        one, to = bytes(_core.start_state_bytes()), self._at["states"]
        if own_bounds is not None:
            states = np.frombuffer(one * self.batch, STATE_DTYPE).copy()
            states["own_bounds"] = own_bounds
            self._upload(to, states.tobytes())
            return
        filled = min(self.batch, 64)
        self._upload(to, one * filled)
        while filled < self.batch:  # twice as many with each copy
            more = min(filled, self.batch - filled)
            self._copy(to + filled * len(one), to, more * len(one))
            filled += more

    def _plan(self, resident_blocks: int) -> None:
        """Cut the variables into chunks and choose who works on a problem: the grid, or one block."""
        # The cut does not depend on the batch, so that a problem has the same bits alone and in one.
        # In a grid one more block decides.
        self._chunks = max(1, min(resident_blocks - 1, -(-self.n // SPAN)))
        # One problem after the other by the grid, or side by side with a block each: decisions and barriers of a turn
        # take about as long as a block takes for this many chunks.
        decisions = 16
        rounds = -(-self.batch // resident_blocks)
        self._blocks_are_groups = rounds * (decisions + self._chunks) <= self.batch * (decisions + 1)
        self._grid = min(self.batch, resident_blocks) if self._blocks_are_groups else self._chunks + 1
        self._thread_groups = self._grid if self._blocks_are_groups else 1

    def turn(self, f: Any, g: Array, part: int = WHOLE) -> None:
        """Launch one turn with values (a float, host or device array) and gradients at the trial points."""
        self.launch(f, g, part, self._stream_handle)
        self._launched += 1
        if self._launched % WINDOW == 0:
            self.played()

    def played(self) -> None:
        """Note that a window of turns has been launched; the host is at most two of them ahead of the device."""
        self._marks.append(self.mark())
        if self._room is None and self.batch > 1:
            self._room = np.full(self.batch * _core.STATE_SIZE, 0, np.uint8)  # for states(), while there is time
        if len(self._marks) > 1:
            self._marks.pop(0).sync()

    def launch(self, f: Any, g: Array, part: int, stream: int) -> None:
        """Launch one turn on a stream."""
        on_host = isinstance(f, float | np.ndarray)
        launch(
            self._kernel,
            self._grid,
            self._threads,
            stream,
            self._at["engine"],
            self._at["states"],
            np.int32(self._blocks_are_groups),
            device_address(g),
            self._host_values(f) if on_host else device_address(f),
            np.int32(not on_host and dtype_name(f.dtype) == "float32"),
            np.int32(part),
            shared_bytes=self._shared_bytes,
            cooperative=not self._blocks_are_groups,
        )
        # Until the next turn: JAX may otherwise reuse their memory before the device has read it.
        self._kept_turn = (f, g)

    def _host_values(self, values: Any) -> int:
        """Put values of f that are already on the host where the kernel can read them; returns their address."""
        count = self.batch
        if self._f_ring is None:
            length = max(64, count)
            self._f_ring = PinnedBuffer(8 * length)
            ring = (ctypes.c_double * length).from_address(self._f_ring.handle)
            self._f_values: np.ndarray = np.ctypeslib.as_array(ring)
            self._f_next = 0
        if self._f_next + count > len(self._f_values):
            # The ring is as long as turns may be ahead of the host: those values have been read.
            self.wait()
            self._f_next = 0
        at = self._f_next
        self._f_values[at : at + count] = values
        self._f_next += count
        return self._f_ring.handle + 8 * at

    @property
    def running(self) -> int:
        """Problems still running, as of the last turn that has finished; does not wait."""
        return int(self._running[0])

    def mark(self) -> Any:
        """Record an event after the turns launched so far."""
        return Event(self._stream_handle)

    def wait(self) -> None:
        """Wait until all launched turns have finished."""
        super().wait()
        self._marks.clear()

    def states(self) -> np.ndarray:
        """Return the states of the problems; of one problem alone as the last turn has shown it."""
        self.wait()
        if self.batch == 1:
            return self.report
        room, self._room = self._room, None
        if room is None:
            room = np.empty(self.batch * _core.STATE_SIZE, np.uint8)
        return np.frombuffer(self._download("states", room), STATE_DTYPE)

    def _evaluated(self) -> bool:
        self.wait()
        return bool(self.report["evaluations"][0])  # of the first problem, which the host is always told

    def stop(self, status: int) -> None:
        """End all problems that still run."""
        states = np.array(self.states())
        running = states["action"] != _core.ACTION_DONE
        states["status"][running] = status
        states["action"][running] = _core.ACTION_DONE
        self._write_states(states)
        # The accepted points where the next trial points would be; before the first turn these are the start.
        if states["evaluations"][0]:
            self._copy(self._at["trial"], self._at["x"], self.batch * self.n * self.dtype.itemsize)
        self.wait()

    def _write_states(self, states: np.ndarray) -> None:
        self._upload(self._at["states"], states.tobytes())
        self.report[...] = states[0]
        self._running[0] = int(np.count_nonzero(states["action"] != _core.ACTION_DONE))

    def repeated(
        self, evaluate: Callable[[], tuple[Any, Array]], turn: Callable[..., None], graph: str | bool, clock: Any
    ) -> Windows:
        """Return what evaluates and turns, with eight of both in a CUDA graph where that helps."""
        return Windows(self, evaluate, turn, graph if self.follows else False, clock)
