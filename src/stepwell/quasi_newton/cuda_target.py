"""The CUDA target: device memory of a batch of problems, and turns launched on the caller's stream.

A turn is one launch. The host never waits inside it: the state of the first problem and the number of problems still
running reach the host through pinned memory, and are looked at when the caller asks.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell import _core
from stepwell.arrays import (
    Array,
    current_stream,
    device_address,
    device_index,
    from_dlpack,
    namespace_of,
    numpy_dtype,
    shares_streams,
)
from stepwell.checks import require
from stepwell.cuda.devices import checked, cuda_driver, memory_free, memory_kept, open_device
from stepwell.cuda.nvrtc import allow_shared_memory, cuda_core, load_kernel
from stepwell.quasi_newton.cuda_events import WINDOW
from stepwell.quasi_newton.cuda_layout import (
    BLOCK,
    GROUP,
    LONGEST_WALK,
    MAX_CAPACITY,
    NUMBERS,
    SMALL,
    SMALL_CAPACITY,
    SPAN,
    WARP,
    Engine,
    kernel_defines,
    walk_words,
)
from stepwell.quasi_newton.cuda_windows import Windows
from stepwell.quasi_newton.settings import Settings
from stepwell.quasi_newton.state import ARRAYS, STATE_DTYPE, WHOLE, history_array_dtype, pair_slots, with_slots
from stepwell.quasi_newton.target import Box


@functools.lru_cache(maxsize=64)
def _kernel(defines: tuple[tuple[str, str | int], ...], device_id: int) -> tuple[Any, int, int]:
    """Return a turn kernel, the dynamic shared memory of a block and how many a multiprocessor holds."""
    device = cuda_core().Device(device_id)
    named = dict(defines)
    kernel = load_kernel("quasi_newton", "stepwell_turn", named, device)
    shared, threads = int(named["SW_STAGED_BYTES"]), int(named["SW_THREADS"])
    allow_shared_memory(kernel, shared, device_id)
    return kernel, shared, int(kernel.occupancy.max_active_blocks_per_multiprocessor(threads, shared))


def _too_large(needed: int, free: int, total: int, index: int, m: int) -> str:
    return (
        f"the run needs {needed / 2**30:.2f} GiB on cuda:{index}, of which {free / 2**30:.2f} of "
        f"{total / 2**30:.2f} GiB are free; a smaller m (now {m}) or float32 needs less"
    )


class CudaTarget:
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
        require(settings.m <= MAX_CAPACITY, "m (maxcor)", settings.m, f"1 to {MAX_CAPACITY} on a GPU")
        core = cuda_core()
        self._driver = cuda_driver()
        batch, n = map(int, start.shape)
        device_id = device_index(start)
        self.batch, self.n, self.dtype = batch, n, numpy_dtype(start)
        self.device = open_device(device_id)
        self._kept: tuple[Any, ...] = (box, weights)
        self._like, self._weights = start, weights
        shared_options = settings.engine_options(
            bounded=box is not None,
            boxed=box is not None and box.boxed,
            weighted=weights is not None,
            weights_vary=weights_vary,
            single=self.dtype.itemsize == 4,
        )
        self._options = _core.Options.from_bytes(shared_options.to_bytes())
        m, word = settings.m, self.dtype.itemsize
        self.slots = self._options.slots = m + 1  # a pair is written before its step is accepted
        history = settings.history_dtype(word == 4)
        self._pair_dtype = history_array_dtype(history)
        kept = self._pair_dtype.itemsize
        whole = max(4, 16 // kept)  # rows are padded to 16 bytes at least
        stride = -(-n // whole) * whole
        sizes = dict.fromkeys(("trial", "x", "g", "d"), batch * n * word)
        sizes |= dict.fromkeys("sy", batch * self.slots * stride * kept)
        # The bulk of it, before a kernel is compiled in vain.
        self._require_memory(sum(sizes.values()), m)
        steps = (0, 0) if box is None else box.steps
        threads = WARP if n <= SMALL and m <= SMALL_CAPACITY else BLOCK
        defines = kernel_defines(
            threads, m, word == 4, box is not None, weights is not None, weights_vary, history, steps
        )
        kernel, shared, resident = _kernel(tuple(defines.items()), device_id)
        processors = int(self.device.properties.multiprocessor_count)
        self._plan(processors * resident, LONGEST_WALK[threads])
        gangs = self._gangs
        sums = int(_core.sums_length(self._options)) + NUMBERS
        groups = -(-self._chunks // GROUP)
        partial_stride = sums * (self._chunks + groups + 1)
        walk_stride = walk_words(m, self._walk_length, threads)
        doubles = {
            "small": batch * int(_core.small_length(self.slots)),
            "partials": gangs * partial_stride,
            "coefficients": gangs * 2 * m,
            "scratch": gangs * int(_core.scratch_length(m)),
            "walk": gangs * walk_stride,
            "states": batch * _core.STATE_SIZE // 8,
            "control": 8 + groups,
            "engine": 128,
        }
        sizes |= {name: length * 8 for name, length in doubles.items()}
        offsets, total = {}, 0
        for name, size in sizes.items():
            offsets[name] = total
            total += -(-size // 256) * 256
        self.nbytes = total
        self._stream_handle = current_stream(start)
        self._stream = core.Stream.from_handle(self._stream_handle)
        self._memory = self._allocate(total, m)
        self._pinned = core.LegacyPinnedMemoryResource().allocate(_core.STATE_SIZE + 64)
        base = int(self._memory.handle)
        at = {name: base + offset for name, offset in offsets.items()}
        pinned = int(self._pinned.handle)
        host = (ctypes.c_char * (_core.STATE_SIZE + 64)).from_address(pinned)
        view = np.frombuffer(host, dtype=np.uint8)
        view[:] = 0
        self.report = view[: _core.STATE_SIZE].view(STATE_DTYPE)
        self.report[...] = np.frombuffer(_core.start_state_bytes(), dtype=STATE_DTYPE)
        self._running = view[_core.STATE_SIZE : _core.STATE_SIZE + 4].view(np.uint32)
        self._running[0] = batch
        self._at, self.row_stride = at, stride
        engine = Engine(
            batch=batch, n=n, stride=stride, states=at["states"], small=at["small"],
            x=at["x"], g=at["g"], d=at["d"], trial=at["trial"], s=at["s"], y=at["y"],
            lower=0 if box is None else device_address(box.lower),
            upper=0 if box is None else device_address(box.upper),
            weights=0 if weights is None else device_address(weights),
            lower_step=steps[0], upper_step=steps[1], own_bounds=box is not None and box.differs,
            own_weights=weights is not None and weights.ndim > 1,
            partials=at["partials"], coefficients=at["coefficients"], scratch=at["scratch"], walk=at["walk"],
            barrier=at["control"] + 16, report=pinned, running=pinned + _core.STATE_SIZE, counter=at["control"],
            partial_stride=partial_stride, walk_stride=walk_stride,
            chunks=self._chunks, walk_length=self._walk_length, sums=sums,
        )  # fmt: skip
        self._upload(at["engine"], bytes(engine) + self._options.to_bytes())
        self._upload(at["control"], bytes(sizes["control"]))
        states = np.frombuffer(bytes(_core.start_state_bytes()) * batch, STATE_DTYPE).copy()
        if box is not None and box.own is not None:
            states["own_bounds"] = box.own
        self._upload(at["states"], states.tobytes())
        self._fill_zero(at["d"], sizes["d"])
        self._fill_zero(at["partials"], sizes["partials"])  # what the first decisions are rehearsed with
        self._copy(at["trial"], device_address(start), sizes["trial"])
        self._config = core.LaunchConfig(
            grid=self._grid,
            block=threads,
            shmem_size=shared,
            is_cooperative=not self._blocks_are_gangs,
        )
        self._launch, self._kernel = core.launch, kernel
        self._f_ring = core.LegacyPinnedMemoryResource().allocate(8 * max(64, batch))
        ring = (ctypes.c_double * max(64, batch)).from_address(int(self._f_ring.handle))
        self._f_values: np.ndarray = np.ctypeslib.as_array(ring)
        self._f_next = 0
        self._stream.sync()
        self.follows = shares_streams(start)
        self._trial = self._view("trial") if self.follows else None
        self._launched, self._marks = 0, list[Any]()

    def _plan(self, resident_blocks: int, longest_walk: int) -> None:
        """Cut the variables into chunks and choose who works on a problem: the grid, or one block."""
        # The cut does not depend on the batch, so that a problem has the same bits alone and in one.
        # In a grid one more block decides.
        self._chunks = max(1, min(resident_blocks - 1, -(-self.n // SPAN)))
        # One problem after the other by the grid, or side by side with a block each: decisions and barriers of a turn
        # take about as long as a block takes for this many chunks.
        decisions = 16
        rounds = -(-self.batch // resident_blocks)
        self._blocks_are_gangs = rounds * (decisions + self._chunks) <= self.batch * (decisions + 1)
        self._grid = min(self.batch, resident_blocks) if self._blocks_are_gangs else self._chunks + 1
        self._gangs = self._grid if self._blocks_are_gangs else 1
        walk = 32
        while walk < min(self.n, longest_walk):
            walk *= 2
        self._walk_length = walk

    def _require_memory(self, needed: int, m: int) -> None:
        """Refuse a run that does not fit; say how much there is and what would need less."""
        index = int(self.device.device_id)
        free, total = memory_free(index)
        free += memory_kept(index)
        if needed > free:
            raise MemoryError(_too_large(needed, free, total, index, m))

    def _allocate(self, needed: int, m: int) -> Any:
        """Take the device memory of the run."""
        self._require_memory(needed, m)
        try:
            return self.device.allocate(needed, stream=self._stream)
        except Exception as error:  # somebody else was quicker; cuda.core has no public kind of it
            index = int(self.device.device_id)
            raise MemoryError(_too_large(needed, *memory_free(index), index, m)) from error

    def _upload(self, address: int, data: bytes) -> None:
        checked(*self._driver.cuMemcpyHtoD(address, data, len(data)))

    def _copy(self, to: int, source: int, size: int) -> None:
        """Copy bytes on the device, on the caller's stream."""
        checked(*self._driver.cuMemcpyDtoDAsync(to, source, size, self._stream_handle))

    def _fill_zero(self, address: int, size: int) -> None:
        checked(*self._driver.cuMemsetD8Async(address, 0, size, self._stream_handle))

    def _view(self, name: str) -> Array:
        """Return one of the vectors as an array of the caller's library, sharing memory; bfloat16 as whole numbers."""
        shape = (self.batch, self.slots, self.row_stride) if name in "sy" else (self.batch, self.n)
        dtype = self._pair_dtype if name in "sy" else self.dtype
        exported = _core.device_array(self._at[name], shape, dtype.itemsize, self.device.device_id, self._memory)
        return from_dlpack(exported, self._like)

    @property
    def trial(self) -> Array:
        """The points to evaluate, (B, n): a view that the next turn overwrites."""
        if self._trial is not None:
            return self._trial
        self.wait()  # the library has streams of its own, which it does not show
        return self._view("trial")

    def turn(self, f: Any, g: Array, part: int = WHOLE) -> None:
        """Launch one turn with values (a float, host or device array) and gradients at the trial points."""
        self.launch(f, g, part, self._stream)
        self._launched += 1
        if self._launched % WINDOW == 0:
            self.played()

    def played(self) -> None:
        """Note that a window of turns has been launched; the host is at most two of them ahead of the device."""
        self._marks.append(self.mark())
        if len(self._marks) > 1:
            self._marks.pop(0).sync()

    def launch(self, f: Any, g: Array, part: int, stream: Any) -> None:
        """Launch one turn on a stream of cuda.core."""
        on_host = isinstance(f, float | np.ndarray)
        self._launch(
            stream,
            self._config,
            self._kernel,
            self._at["engine"],
            self._at["states"],
            np.int32(self._blocks_are_gangs),
            device_address(g),
            self._host_values(f) if on_host else device_address(f),
            np.int32(not on_host and "32" in str(f.dtype)),
            np.int32(part),
        )
        # Until the next turn: JAX may otherwise reuse their memory before the device has read it.
        self._kept_turn = (f, g)

    def _host_values(self, values: Any) -> int:
        """Put values of f that are already on the host where the kernel can read them; returns their address."""
        count = self.batch
        if self._f_next + count > len(self._f_values):
            # The ring is as long as turns may be ahead of the host: those values have been read.
            self.wait()
            self._f_next = 0
        at = self._f_next
        self._f_values[at : at + count] = values
        self._f_next += count
        return int(self._f_ring.handle) + 8 * at

    @property
    def running(self) -> int:
        """Problems still running, as of the last turn that has finished; does not wait."""
        return int(self._running[0])

    def mark(self) -> Any:
        """Record an event after the turns launched so far."""
        return self._stream.record()

    def wait(self) -> None:
        """Wait until all launched turns have finished."""
        try:
            self._stream.sync()
        except Exception as error:  # whatever faulted, the driver tells the next one who asks
            raise RuntimeError(f"the device failed in the objective or in a turn: {error}") from error
        self._marks.clear()

    def states(self) -> np.ndarray:
        """Return the states of the problems; of one problem alone as the last turn has shown it."""
        self.wait()
        if self.batch == 1:
            return self.report
        return np.frombuffer(self._download("states", np.empty(self.batch * _core.STATE_SIZE, np.uint8)), STATE_DTYPE)

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

    def accepted(self, name: str) -> Array:
        """Return a copy of the accepted points or gradients; before the first evaluation the starting points."""
        # The first turn is that of all problems.
        evaluated = bool(self.states()["evaluations"][0])
        view = self._view(name if evaluated or name != "x" else "trial")
        xp = namespace_of(view)
        return xp.asarray(view, copy=True) if evaluated or name == "x" else xp.full_like(view, np.nan)

    def pairs(self, problem: int) -> tuple[list[Array], list[Array]]:
        """Return the pairs of one problem, rows of S and of Y, oldest first: views, but for a narrower dtype."""
        slots = pair_slots(self.states()[problem], self.slots).tolist()
        s, y = ([self._numbers(rows[problem, slot, : self.n]) for slot in slots] for rows in map(self._view, "sy"))
        return s, y

    def _numbers(self, row: Array) -> Array:
        """Return a row of the history in the dtype of the variables."""
        xp = namespace_of(row)
        if self._pair_dtype == np.uint16:  # bits of bfloat16, the upper half of a float32
            row = (xp.astype(row, xp.int32) << 16).view(xp.float32)
        return xp.astype(row, self._like.dtype, copy=False)

    def set_diagonal(self, weights: Array, problems: np.ndarray) -> None:
        """Replace the diagonal H0 of some problems."""
        size = self.n * self.dtype.itemsize
        to, source = device_address(self._weights), device_address(weights)
        for problem in problems.tolist():
            self._copy(to + problem * size, source + problem * size, size)
        self._kept_diagonal = weights  # until the copies are done

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the complete run as host copies. Rows of pairs are padded on the device, and have one more place."""
        states = np.ascontiguousarray(self.states()).view(np.uint8).reshape(self.batch, -1)
        found = {name: self._download(name, self._host_array(name)) for name in ARRAYS if name != "states"}
        found |= {name: np.ascontiguousarray(found[name][..., : self.n]) for name in "sy"}
        return with_slots(found | {"states": states}, self.slots - 1)

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from saved arrays."""
        arrays = with_slots(arrays, self.slots)
        for name in ARRAYS:
            if name != "states":
                padded = self._host_array(name)
                padded[..., : arrays[name].shape[-1]] = arrays[name]
                self._upload(self._at[name], padded.tobytes())
        self._write_states(np.ascontiguousarray(arrays["states"]).reshape(-1).view(STATE_DTYPE))

    def repeated(
        self, evaluate: Callable[[], tuple[Any, Array]], turn: Callable[..., None], graph: str | bool, clock: Any
    ) -> Windows:
        """Return what evaluates and turns, with eight of both in a CUDA graph where that helps."""
        return Windows(self, evaluate, turn, graph if self.follows else False, clock)

    def _download(self, name: str, out: np.ndarray) -> np.ndarray:
        checked(*self._driver.cuMemcpyDtoH(out.ctypes.data, self._at[name], out.nbytes))
        return out

    def _host_array(self, name: str) -> np.ndarray:
        """Return zeros of the shape that an array of the run has on the device."""
        if name == "small":
            return np.zeros((self.batch, int(_core.small_length(self.slots))), dtype=np.float64)
        if name in "sy":
            return np.zeros((self.batch, self.slots, self.row_stride), dtype=self._pair_dtype)
        return np.zeros((self.batch, self.n), dtype=self.dtype)
