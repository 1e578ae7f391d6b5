"""Device memory of a batch of problems: their vectors and history, as kernels and as the caller's library see them."""

from __future__ import annotations

import ctypes
import functools
import threading
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
from stepwell.common.checks import require
from stepwell.cuda.devices import memory_free, memory_kept, open_device
from stepwell.cuda.driver import checked, cuda_driver
from stepwell.cuda.runtime import PinnedBuffer
from stepwell.quasi_newton.cuda.layout import MAX_CAPACITY
from stepwell.quasi_newton.settings import Settings
from stepwell.quasi_newton.state import ARRAYS, STATE_DTYPE, history_array_dtype, pair_slots, with_slots
from stepwell.quasi_newton.target import Box

#: What is no longer than this many bytes comes to the host through pinned memory, of which there is one piece: the
#: states of thousands of problems come in a fraction of the time that they take otherwise.
_STAGED = 2**22
_staging = threading.Lock()


@functools.cache
def _stage() -> PinnedBuffer:
    return PinnedBuffer(_STAGED)


def _too_large(needed: int, free: int, total: int, index: int, m: int) -> str:
    return (
        f"the run needs {needed / 2**30:.2f} GiB on cuda:{index}, of which {free / 2**30:.2f} of "
        f"{total / 2**30:.2f} GiB are free; a smaller m (now {m}) or float32 needs less"
    )


class DeviceVectors:
    """The part of a target that lies in device memory. What sweeps over it, and who decides, is for those who inherit.

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
        self, start: Array, box: Box | None, weights: Array | None, settings: Settings, *, weights_vary: bool
    ) -> None:
        require(settings.m <= MAX_CAPACITY, "m (maxcor)", settings.m, f"1 to {MAX_CAPACITY} on a GPU")
        self._driver = cuda_driver()
        batch, n = map(int, start.shape)
        self.batch, self.n, self.dtype = batch, n, numpy_dtype(start)
        self.device = open_device(device_index(start))
        self._kept: tuple[Any, ...] = (box, weights)
        self._like, self._weights, self._m = start, weights, settings.m
        shared_options = settings.engine_options(
            bounded=box is not None,
            boxed=box is not None and box.boxed,
            weighted=weights is not None,
            weights_vary=weights_vary,
            single=self.dtype.itemsize == 4,
        )
        self._options = _core.Options.from_bytes(shared_options.to_bytes())
        word = self.dtype.itemsize
        self.slots = self._options.slots = settings.m + 1  # a pair is written before its step is accepted
        self._history = settings.history_dtype(word == 4)
        self._pair_dtype = history_array_dtype(self._history)
        kept = self._pair_dtype.itemsize
        whole = max(4, 16 // kept)  # rows are padded to 16 bytes at least
        self.row_stride = -(-n // whole) * whole
        self._sizes = dict.fromkeys(("trial", "x", "g", "d"), batch * n * word)
        self._sizes |= dict.fromkeys("sy", batch * self.slots * self.row_stride * kept)
        # The bulk of it, before a kernel is compiled in vain.
        self._require_memory(sum(self._sizes.values()))

    def _take_memory(self, start: Array, doubles: dict[str, int]) -> None:
        """Take the memory of the vectors and of what else there is, in doubles; set the starting point."""
        self._sizes |= {name: length * 8 for name, length in doubles.items()}
        offsets, total = {}, 0
        for name, size in self._sizes.items():
            offsets[name] = total
            total += -(-size // 256) * 256
        self.nbytes = total
        self._stream_handle = current_stream(start)
        self._memory = self._allocate(max(total, 256))
        base = self._memory.handle
        self._at = {name: base + offset for name, offset in offsets.items()}
        if self.n:
            self._fill_zero(self._at["d"], self._sizes["d"])
            self._copy(self._at["trial"], device_address(start), self._sizes["trial"])
        self.follows = shares_streams(start)
        self._trial = self._view("trial") if self.follows else None

    @property
    def trial(self) -> Array:
        """The points to evaluate, (B, n): a view that the next turn overwrites."""
        if self._trial is not None:
            return self._trial
        self.wait()  # the library has streams of its own, which it does not show
        return self._view("trial")

    def _vectors(self) -> dict[str, int]:
        """Return what the kernels are told of the vectors, as fields of the engine."""
        box, weights = self._kept
        steps = (0, 0) if box is None else box.steps
        return dict(
            batch=self.batch, n=self.n, stride=self.row_stride,
            **{name: self._at[name] for name in ("x", "g", "d", "trial", "s", "y")},
            lower=0 if box is None else device_address(box.lower),
            upper=0 if box is None else device_address(box.upper),
            weights=0 if weights is None else device_address(weights),
            lower_step=steps[0], upper_step=steps[1], own_bounds=box is not None and box.differs,
            own_weights=weights is not None and weights.ndim > 1,
        )  # fmt: skip

    def _require_memory(self, needed: int) -> None:
        """Refuse a run that does not fit; say how much there is and what would need less."""
        index = self.device.device_id
        free, total = memory_free(index)
        free += memory_kept(index)
        if needed > free:
            raise MemoryError(_too_large(needed, free, total, index, self._m))

    def _allocate(self, needed: int) -> Any:
        """Take the device memory of the run."""
        self._require_memory(needed)
        try:
            return self.device.allocate(needed, self._stream_handle)
        except RuntimeError as error:  # somebody else was quicker
            index = self.device.device_id
            raise MemoryError(_too_large(needed, *memory_free(index), index, self._m)) from error

    def _upload(self, address: int, data: bytes) -> None:
        # (Of memory that is not pinned the driver has a copy when it returns.)
        checked(*self._driver.cuMemcpyHtoDAsync(address, data, len(data), self._stream_handle))

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

    def wait(self) -> None:
        """Wait until all that was launched has finished."""
        try:
            checked(*self._driver.cuStreamSynchronize(self._stream_handle))
        except RuntimeError as error:  # whatever faulted, the driver tells the next one who asks
            raise RuntimeError(f"the device failed in the objective or in a turn: {error}") from error

    def states(self) -> np.ndarray:
        """Return the states of the problems."""
        raise NotImplementedError

    def still_running(self) -> np.ndarray:
        """Return the numbers of the problems that still run."""
        return np.flatnonzero(self.states()["action"] != _core.ACTION_DONE)

    def _write_states(self, states: np.ndarray) -> None:
        raise NotImplementedError

    def _evaluated(self) -> bool:
        """Whether there was a turn, once all have finished; the first one is that of all problems."""
        return bool(self.states()["evaluations"][0])

    def accepted(self, name: str) -> Array:
        """Return a copy of the accepted points or gradients; before the first evaluation the starting points."""
        evaluated = self._evaluated()
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
                self._restore(name, padded)
        self._write_states(np.ascontiguousarray(arrays["states"]).reshape(-1).view(STATE_DTYPE))

    def _restore(self, name: str, values: np.ndarray) -> None:
        if values.nbytes:
            self._upload(self._at[name], values.tobytes())

    def _download(self, name: str, out: np.ndarray) -> np.ndarray:
        source, to, size = self._at[name], out.ctypes.data, out.nbytes
        if size > _STAGED:
            checked(*self._driver.cuMemcpyDtoH(to, source, size))
        elif size:
            with _staging:
                checked(*self._driver.cuMemcpyDtoH(_stage().handle, source, size))
                ctypes.memmove(to, _stage().handle, size)
        return out

    def _host_array(self, name: str) -> np.ndarray:
        """Return zeros of the shape that an array of the run has on the device."""
        if name == "small":
            return np.zeros((self.batch, int(_core.small_length(self.slots))), dtype=np.float64)
        if name in "sy":
            return np.zeros((self.batch, self.slots, self.row_stride), dtype=self._pair_dtype)
        return np.zeros((self.batch, self.n), dtype=self.dtype)
