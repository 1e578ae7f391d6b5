"""The CUDA target: device memory of a batch of problems, and turns launched on the caller's stream.

A turn is one launch. The host never waits inside it: the state of the first problem and the number of problems still
running reach the host through pinned memory, and are looked at when the caller asks.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from stepwell import _core
from stepwell.checks import require
from stepwell.cuda.devices import checked, cuda_driver, memory_free, memory_kept, open_device
from stepwell.cuda.nvrtc import allow_shared_memory, cuda_core, load_kernel
from stepwell.quasi_newton.cuda_layout import (
    BLOCK,
    GROUP,
    LONGEST_WALK,
    MAX_CAPACITY,
    NUMBERS,
    SMALL,
    SMALL_CAPACITY,
    SPAN,
    WALK_STATE_WORDS,
    WARP,
    Engine,
    kernel_defines,
)
from stepwell.quasi_newton.host_target import STATE_DTYPE
from stepwell.quasi_newton.settings import Settings


@functools.lru_cache(maxsize=64)
def _kernel(
    threads: int, capacity: int, single: bool, bounded: bool, weighted: bool, vary: bool, device_id: int
) -> tuple[Any, int, int]:
    """Return the turn kernel, the dynamic shared memory of a block and how many a multiprocessor holds."""
    core = cuda_core()
    device = core.Device(device_id)
    defines = kernel_defines(threads, capacity, single, bounded, weighted, vary)
    kernel = load_kernel("quasi_newton", "stepwell_turn", defines, device)
    shared = int(defines["SW_STAGED_BYTES"])
    allow_shared_memory(kernel, shared, device_id)
    return kernel, shared, int(kernel.occupancy.max_active_blocks_per_multiprocessor(threads, shared))


def _too_large(needed: int, free: int, total: int, index: int, m: int) -> str:
    return (
        f"the run needs {needed / 2**30:.2f} GiB on cuda:{index}, of which {free / 2**30:.2f} of "
        f"{total / 2**30:.2f} GiB are free; a smaller m (now {m}) or float32 needs less"
    )


class CudaTarget:
    """A batch of problems in device memory.

    Parameters
    ----------
    batch, n : int
        Shape of the problem: `batch` problems of `n` variables.
    dtype : dtype
        float64 or float32.
    start : int
        Device address of the (batch, n) starting points, inside the bounds.
    bounds : (int, int, bool) or None
        Device addresses of lower and upper bounds, and whether the batch shares one pair of (n,) arrays.
    boxed : bool
        Whether every variable has two finite bounds.
    weights : (int, bool) or None
        Device address of the diagonal of H0, and whether the batch shares it.
    settings : Settings
    device_id, stream : int
        The CUDA device, and the handle of the caller's stream.
    """

    def __init__(
        self,
        batch: int,
        n: int,
        dtype: np.dtype,
        start: int,
        bounds: tuple[int, int, bool] | None,
        boxed: bool,
        weights: tuple[int, bool] | None,
        settings: Settings,
        *,
        weights_vary: bool,
        device_id: int,
        stream: int,
    ) -> None:
        require(settings.m <= MAX_CAPACITY, "m (maxcor)", settings.m, f"1 to {MAX_CAPACITY} on a GPU")
        core = cuda_core()
        self._driver = cuda_driver()
        self.batch, self.n, self.dtype = batch, n, np.dtype(dtype)
        self.device = open_device(device_id)
        self._options = settings.engine_options(
            bounded=bounds is not None,
            boxed=boxed,
            weighted=weights is not None,
            weights_vary=weights_vary,
            single=self.dtype.itemsize == 4,
        )
        m, word = settings.m, self.dtype.itemsize
        self.slots = self._options.slots = m + 1  # a pair is written before its step is accepted
        stride = -(-n // 4) * 4
        vectors = {"trial": n, "x": n, "g": n, "d": n, "s": self.slots * stride, "y": self.slots * stride}
        # The bulk of it, before a kernel is compiled in vain.
        self._require_memory(batch * sum(vectors.values()) * word, m)
        threads = WARP if n <= SMALL and m <= SMALL_CAPACITY else BLOCK
        kernel, shared, resident = _kernel(
            threads, m, word == 4, bounds is not None, weights is not None, weights_vary, device_id
        )
        processors = int(self.device.properties.multiprocessor_count)
        self._plan(processors * resident, LONGEST_WALK[threads])
        gangs = self._gangs
        sums = int(_core.sums_length(self._options)) + NUMBERS
        groups = -(-self._chunks // GROUP)
        partial_stride = sums * (self._chunks + groups + 1)
        walk_words = WALK_STATE_WORDS + 4 * m + self._walk_length * (3 + 4 * m)
        doubles = {
            "small": batch * int(_core.small_length(self.slots)),
            "partials": gangs * partial_stride,
            "coefficients": gangs * 2 * m,
            "scratch": gangs * int(_core.scratch_length(m)),
            "walk": gangs * walk_words,
            "states": batch * _core.STATE_SIZE // 8,
            "control": 8 + groups,
            "engine": 128,
        }
        sizes = {name: batch * length * word for name, length in vectors.items()}
        sizes |= {name: length * 8 for name, length in doubles.items()}
        offsets, total = {}, 0
        for name, size in sizes.items():
            offsets[name] = total
            total += -(-size // 256) * 256
        self.nbytes = total
        self._stream_handle = stream
        self._stream = core.Stream.from_handle(stream)
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
            lower=bounds[0] if bounds else 0, upper=bounds[1] if bounds else 0, weights=weights[0] if weights else 0,
            bound_stride=0 if bounds is None or bounds[2] else n,
            weight_stride=0 if weights is None or weights[1] else n,
            partials=at["partials"], coefficients=at["coefficients"], scratch=at["scratch"], walk=at["walk"],
            barrier=at["control"] + 16, report=pinned, running=pinned + _core.STATE_SIZE, counter=at["control"],
            partial_stride=partial_stride, walk_stride=walk_words,
            chunks=self._chunks, walk_length=self._walk_length, sums=sums,
        )  # fmt: skip
        self._upload(at["engine"], bytes(engine) + self._options.to_bytes())
        self._upload(at["control"], bytes(sizes["control"]))
        self._upload(at["states"], bytes(_core.start_state_bytes()) * batch)
        self._fill_zero(at["d"], sizes["d"])
        self._fill_zero(at["partials"], sizes["partials"])  # what the first decisions are rehearsed with
        self.copy(at["trial"], start, sizes["trial"])
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

    def copy(self, to: int, source: int, size: int) -> None:
        """Copy bytes on the device, on the caller's stream."""
        checked(*self._driver.cuMemcpyDtoDAsync(to, source, size, self._stream_handle))

    def _fill_zero(self, address: int, size: int) -> None:
        checked(*self._driver.cuMemsetD8Async(address, 0, size, self._stream_handle))

    def array(self, name: str) -> Any:
        """Return one of the vectors as an object that array libraries take by DLPack, sharing memory."""
        shape = (self.batch, self.slots, self.row_stride) if name in "sy" else (self.batch, self.n)
        return _core.device_array(self._at[name], shape, self.dtype.itemsize == 4, self.device.device_id, self._memory)

    def turn(self, gradient: int, f: int, f_is_single: bool, stream: int | None = None) -> None:
        """Launch one turn: device addresses of the gradients and of the values. Does not wait."""
        on = self._stream if stream is None else cuda_core().Stream.from_handle(stream)
        self._launch(
            on,
            self._config,
            self._kernel,
            self._at["engine"],
            self._at["states"],
            np.int32(self._blocks_are_gangs),
            gradient,
            f,
            np.int32(f_is_single),
        )

    def host_values(self, values: Any) -> int:
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

    def states(self) -> np.ndarray:
        """Return a host copy of all states."""
        self.wait()
        out = np.empty(self.batch, dtype=STATE_DTYPE)
        checked(*self._driver.cuMemcpyDtoH(out.ctypes.data, self._at["states"], out.nbytes))
        return out

    def write_states(self, states: np.ndarray) -> None:
        """Replace the states on the device."""
        self.wait()
        self._upload(self._at["states"], states.tobytes())
        self.report[...] = states[0]
        self._running[0] = int(np.count_nonzero(states["action"] != _core.ACTION_DONE))

    def show_accepted(self) -> None:
        """Put the accepted points where the next trial points would be."""
        self.copy(self._at["trial"], self._at["x"], self.batch * self.n * self.dtype.itemsize)
        self.wait()

    def read(self, name: str) -> np.ndarray:
        """Return a host copy of one array of the complete state."""
        self.wait()
        if name == "states":
            return self.states().view(np.uint8).reshape(self.batch, -1)
        out = self._shaped(name)
        checked(*self._driver.cuMemcpyDtoH(out.ctypes.data, self._at[name], out.nbytes))
        return out

    def write(self, name: str, values: np.ndarray) -> None:
        """Replace one array of the complete state from the host."""
        if name == "states":
            self.write_states(np.ascontiguousarray(values).reshape(-1).view(STATE_DTYPE))
        else:
            out = self._shaped(name)
            out[...] = values
            self._upload(self._at[name], out.tobytes())

    def _shaped(self, name: str) -> np.ndarray:
        if name == "small":
            return np.empty((self.batch, int(_core.small_length(self.slots))), dtype=np.float64)
        if name in "sy":
            return np.empty((self.batch, self.slots, self.row_stride), dtype=self.dtype)
        return np.empty((self.batch, self.n), dtype=self.dtype)
