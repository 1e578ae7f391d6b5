"""A rank's piece of a problem on a CUDA device: the device sweeps, a launch each, and the host decides.

The sums of a sweep reach the host through pinned memory, are put together with those of the other ranks, and the
decisions are those of the host's own code; state and coefficients travel with the next launch, as its argument. One
rank does the same, so that its bits are those of any number of them.
"""

from __future__ import annotations

import ctypes
import functools
import math

import numpy as np

from stepwell import _core
from stepwell.arrays import Array, device_address, dtype_name, is_cuda, namespace_of
from stepwell.cuda.runtime import PinnedBuffer
from stepwell.distributed import Pieces, Ranks
from stepwell.quasi_newton.cuda.layout import (
    BLOCK,
    NUMBERS,
    READ_TOGETHER,
    WALK_BINS,
    Engine,
    kernel_defines,
    resident_kernel,
    walk_words,
)
from stepwell.quasi_newton.cuda.memory import DeviceVectors
from stepwell.quasi_newton.ranks.target import OverRanks
from stepwell.quasi_newton.ranks.values import Value
from stepwell.quasi_newton.settings import Settings
from stepwell.quasi_newton.state import STATE_DTYPE, WHOLE
from stepwell.quasi_newton.target import Box


@functools.cache
def _driver_functions() -> tuple[int, int]:
    """Return the addresses of the driver's functions that launch a kernel and wait for a stream."""
    library = ctypes.CDLL("nvcuda.dll" if hasattr(ctypes, "windll") else "libcuda.so.1")
    found = (ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _FUNCTIONS)
    launch, wait = (int(address or 0) for address in found)
    return launch, wait


_FUNCTIONS = ("cuLaunchKernel", "cuStreamSynchronize")


def _hold_failure(ranks: Ranks, error: int) -> None:
    """Keep a failure of the device until the next message, which the other ranks wait for."""
    ranks.hold(RuntimeError(f"the device failed in the objective or in a turn: CUDA's error {error}"))


def _longest_list(pieces: Pieces, settings: Settings) -> int:
    """Return how many breakpoints ranks may list together at a time: as many as ranks on hosts.

    All of them are listed on each rank.
    """
    if settings.cauchy != "exact":
        return 0
    return min(pieces.n, int(_core.longest_of_chunks(pieces.chunk_length, settings.m)))


class CudaRankTarget(OverRanks, DeviceVectors):
    """This rank's piece of a problem; a `Target` whose turns exchange messages, so that all ranks must make them.

    Parameters
    ----------
    start, box, weights, settings, weights_vary
        As those of `CudaTarget`, of this rank's piece; that there are bounds, or a diagonal, must be the same on all
        ranks.
    pieces : Pieces
        Which variables each rank has.
    ranks : Ranks
    """

    def __init__(
        self,
        start: Array,
        box: Box | None,
        weights: Array | None,
        settings: Settings,
        *,
        weights_vary: bool,
        pieces: Pieces,
        ranks: Ranks,
    ) -> None:
        super().__init__(start, box, weights, settings, weights_vary=weights_vary)
        steps = (0, 0) if box is None else box.steps
        defines = kernel_defines(
            BLOCK, settings.m, self.dtype.itemsize == 4, box is not None, weights is not None, weights_vary,
            self._history, steps,
        )  # fmt: skip
        chunks, length = pieces.chunks, pieces.chunk_length
        # Several variables are read at a time where all chunks begin at a multiple of what one read may take.
        defines["SW_ANY_BEGIN"] = int(length % READ_TOGETHER > 0 or pieces.before % READ_TOGETHER > 0)
        kernel, shared, resident = resident_kernel(
            "rank_sweep", "stepwell_rank_sweep", tuple(defines.items()), int(self.device.device_id)
        )
        parts = int(_core.device_parts(-(-pieces.n // length), length))
        sums = int(_core.sums_length(self._options)) + NUMBERS
        doubles = {
            "partials": chunks * parts * sums,
            "walk": walk_words(settings.m, 0, 0),
            "counters": chunks // 2 + 1,
        }
        self._take_memory(start, doubles)
        for name in ("walk", "counters"):
            self._fill_zero(self._at[name], self._sizes[name])
        longest = _longest_list(pieces, settings) if box is not None else 0
        host = self._take_pinned(
            rows=max(chunks * sums, WALK_BINS),
            breaks=2 * longest,
            break_rows=longest * (2 * settings.m + 1),
            f_values=max(chunks, 1),
        )
        engine = Engine(
            **self._vectors(), partials=self._at["partials"], walk=self._at["walk"], counter=self._at["counters"],
            chunks=chunks, walk_length=longest, sums=sums,
        )  # fmt: skip
        self._problem = _core.DeviceProblem(
            self._options, bytes(engine), **host, chunk_length=length, chunk_before=pieces.before, parts=parts
        )
        self._problem.set_launch(
            *_driver_functions(), kernel.handle, self._stream_handle, max(1, min(chunks * parts, resident)),
            BLOCK, shared,
        )  # fmt: skip
        self._problem.set_exchange(self._meet(ranks, pieces), functools.partial(_hold_failure, ranks))
        self.nbytes += int(self._problem.bytes)
        self._states: np.ndarray = np.frombuffer(self._problem.states, STATE_DTYPE)
        self._device_value: tuple[int, int, bool] = (0, 0, False)
        self.running = 1
        self.wait()

    def _take_pinned(self, **doubles: int) -> dict[str, int]:
        """Take memory of the host that the device writes to; return where each part of it begins."""
        total = sum(doubles.values())
        self._pinned = PinnedBuffer(8 * total)
        self.nbytes += 8 * total
        base = self._pinned.handle
        numbers: np.ndarray = np.ctypeslib.as_array((ctypes.c_double * total).from_address(base))
        numbers[:] = 0
        found, offset = {}, 0
        for name, length in doubles.items():
            found[name] = base + 8 * offset
            if name == "f_values":
                self._values = numbers[offset : offset + length]
            offset += length
        return found

    def turn(self, f: Value, g: Array, part: int = WHOLE) -> None:
        """Take this rank's value and gradient at the trial point; all ranks move on together, or all raise.

        A value that is on the device comes to the host together with the first sums.
        """
        given = f.number if f.chunks is None else f.chunks
        self._device_value = (0, 0, False)
        if is_cuda(given):
            count = math.prod(given.shape)
            self._device_value = (device_address(given), count, dtype_name(given.dtype) == "float32")
            arriving = self._values[:count]
            f = f._replace(number=arriving.reshape(())) if f.chunks is None else f._replace(chunks=arriving)
        super().turn(f, g, part)

    def _turn_here(self, g: Array, part: int) -> None:
        self.device.set_current()
        self.running = int(self._problem.turn(math.nan, device_address(g), *self._device_value, part))

    def no_gradient(self) -> Array:
        """Return zeros."""
        trial = self.trial
        return namespace_of(trial).zeros_like(trial)

    def states(self) -> np.ndarray:
        """Return the state, which is the host's; not to be written to."""
        if not self.follows:
            self.wait()  # before the library, which has streams of its own, looks at vectors
        return self._states

    def _write_states(self, states: np.ndarray) -> None:
        self._problem.states[...] = states.view(np.uint8).reshape(1, -1)
        self.running = int(states["action"][0] != _core.ACTION_DONE)

    def stop(self, status: int) -> None:
        """End the run; the trial point becomes the last accepted one."""
        self._problem.stop(status)
        self.running = 0

    def arrays(self) -> dict[str, np.ndarray]:
        """Return this rank's piece of the run, as host copies in rings of m pairs."""
        self.wait()
        return super().arrays()

    def _download(self, name: str, out: np.ndarray) -> np.ndarray:
        if name == "small":
            out[...] = self._problem.small
            return out
        return super()._download(name, out)

    def _restore(self, name: str, values: np.ndarray) -> None:
        if name == "small":
            self._problem.small[...] = values
        else:
            super()._restore(name, values)
