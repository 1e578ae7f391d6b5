"""Arrays on a CUDA device: their addresses, their library's streams and graphs, the memory that is free."""

from __future__ import annotations

import contextlib
import gc
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stepwell.arrays.conversion import jax_double
from stepwell.arrays.kinds import Array, device_index, is_cuda, kind_of, namespace_of
from stepwell.common.memory import available_memory


def current_stream(template: Array) -> int:
    """Return the handle of the CUDA stream that the template's library is using on the template's device."""
    kind = kind_of(template)
    if kind == "torch":
        import torch

        return int(torch.cuda.current_stream(template.device).cuda_stream)
    if kind == "cupy":
        import cupy

        return int(cupy.cuda.get_current_stream(template.device.id).ptr)
    return 0  # JAX has streams of its own, which it does not show: the default stream, and waiting


def shares_streams(template: Array) -> bool:
    """Whether work of the template's library and ours can follow each other on one stream, without waiting."""
    return kind_of(template) in ("torch", "cupy")


def device_address(array: Array) -> int:
    """Return the address of a contiguous device array; waits for JAX to have computed it."""
    kind = kind_of(array)
    if kind == "torch":
        return int(array.data_ptr())
    if kind == "cupy":
        return int(array.data.ptr)
    array.block_until_ready()
    return int(array.unsafe_buffer_pointer())


def wait_for_values(array: Array) -> Array:
    """Return an array when it has been computed, where its library has streams of its own: JAX; else at once."""
    return array.block_until_ready() if kind_of(array) == "jax" else array


def wait_for_device(template: Array) -> None:
    """Wait until all work of the template's library on the template's device is done, so that a clock can be read."""
    if not is_cuda(template):
        return
    kind = kind_of(template)
    if kind == "torch":
        import torch

        torch.cuda.synchronize(template.device)
    elif kind == "cupy":
        template.device.synchronize()
    else:
        import jax

        # A device computes in the order in which it was asked to: what comes last ends last. (Copies do not wait.)
        (jax.device_put(np.float32(0), next(iter(template.devices()))) + 1).block_until_ready()


def seconds_of(work: Callable[[], Any], repeats: int, template: Array) -> float:
    """Return the mean seconds of one call among `repeats` back to back, where the template lives.

    PyTorch on a GPU notes the times there, by CUDA events; elsewhere the host's clock is read when all is done.
    """
    if kind_of(template) == "torch" and is_cuda(template):
        import torch

        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        for _ in range(repeats):
            work()
        ended.record()
        ended.synchronize()
        return float(began.elapsed_time(ended)) / 1e3 / repeats
    wait_for_device(template)
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    wait_for_device(template)
    return (time.perf_counter() - start) / repeats


#: Arrays of JAX of so many numbers are made on the device, by a program that is compiled for each shape.
LARGE = 1 << 16


def empty_on_device(shape: Any, dtype: str, template: Array) -> Array:
    """Return an array on the template's device that kernels may write, with anything in it.

    PyTorch and CuPy allocate as ever. JAX's arrays do not change, but nobody else holds this one yet: writing it
    behind JAX's back is seen by all later readers.
    """
    kind = kind_of(template)
    if kind == "torch":
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype), device=template.device)
    if kind == "cupy":
        import cupy

        with template.device:
            return cupy.empty(shape, dtype=dtype)
    import jax

    if math.prod(shape if isinstance(shape, tuple | list) else (shape,)) < LARGE:
        return bytes_on_device(np.zeros(shape, dtype), template)
    with jax_double():  # (made there: it would take longer to bring it than to use it)
        return jax.numpy.zeros(shape, dtype, device=next(iter(template.devices()))).block_until_ready()


def bytes_on_device(values: np.ndarray, template: Array) -> Array:
    """Copy host values to the template's device, byte by byte: with the dtype that they have."""
    kind = kind_of(template)
    if kind == "torch":
        import torch

        return torch.from_numpy(values.copy()).to(template.device)
    if kind == "cupy":
        import cupy

        with template.device:
            return cupy.asarray(values)
    import jax

    with jax_double():  # the kernels write what was asked for, whatever JAX's default
        return jax.device_put(values, next(iter(template.devices()))).block_until_ready()


def double_on_device(shape: tuple[int, ...], value: float, template: Array) -> Array:
    """Return one number everywhere, as doubles, on the template's device: PyTorch and CuPy are not waited for."""
    kind = kind_of(template)
    if kind == "torch":
        import torch

        return torch.full(shape, value, dtype=torch.float64, device=template.device)
    if kind == "cupy":
        import cupy

        with template.device:
            return cupy.full(shape, value, dtype="float64")
    return bytes_on_device(np.full(shape, value), template)


def clear(array: Array) -> Array:
    """Set an array of `empty_on_device` to zero, which JAX's are from the start."""
    kind = kind_of(array)
    if kind == "torch":
        return array.zero_()
    if kind == "cupy":
        array.fill(0)
    return array


def bytes_as_bool(flags: Array) -> Array:
    """Return bytes that are 0 or 1 as bool, without a copy where the library allows it."""
    xp = namespace_of(flags)
    return xp.astype(flags, xp.bool) if kind_of(flags) == "jax" else flags.view(xp.bool)


def from_dlpack(exported: Any, template: Array) -> Array:
    """View exported device memory as an array of the template's library, without a copy."""
    kind = kind_of(template)
    if kind == "torch":
        import torch

        return torch.from_dlpack(exported)
    if kind == "cupy":
        import cupy

        return cupy.from_dlpack(exported)
    import jax

    return jax.dlpack.from_dlpack(exported)


_captures_lock, _captures, _collects = threading.Lock(), 0, True


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """No garbage is collected inside: an array among it would give its memory back, which ends a capture."""
    global _captures, _collects
    with _captures_lock:
        if _captures == 0:
            _collects = gc.isenabled()
            gc.disable()
        _captures += 1
    try:
        yield
    finally:
        with _captures_lock:
            _captures -= 1
            if _captures == 0 and _collects:
                gc.enable()


@_without_collection()
def capture(template: Array, work: Any) -> Any:
    """Capture ``work(stream)`` in a CUDA graph; returns a function that replays it on the caller's stream.

    ``work`` is called once, with the handle of the capturing stream, and what it returns is kept alive with the
    graph. Raises whatever the library raises when the work cannot be captured.

    The capture forbids this thread alone what cannot be captured. Forbidden to all threads, as is the libraries'
    default, JAX's watch over its stream asks for the stream's status, is refused, and holds the stream for broken
    for the rest of the process.
    """
    if kind_of(template) == "torch":
        import torch

        # By hand, because `torch.cuda.graph` also empties the memory cache, which takes longer than a short run.
        graph = torch.cuda.CUDAGraph()
        here, side = torch.cuda.current_stream(template.device), torch.cuda.Stream(template.device)
        side.wait_stream(here)
        with torch.cuda.stream(side):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                kept = work(int(side.cuda_stream))
            except BaseException:
                try:
                    graph.capture_end()
                except RuntimeError:  # says only that the capture has failed, and leaves the random numbers captured
                    generator = torch.cuda.default_generators[side.device.index]
                    with contextlib.suppress(AttributeError):  # before PyTorch 2.5
                        generator.graphsafe_set_state(generator.clone_state())
                raise
            graph.capture_end()
        here.wait_stream(side)
        replay = graph.replay
    else:
        import cupy

        # A pool of its own: memory used inside the graph must not be lent to anyone else while it can be replayed.
        pool = cupy.cuda.MemoryPool()
        stream = cupy.cuda.Stream(non_blocking=True)
        outer = cupy.cuda.get_current_stream()
        with cupy.cuda.using_allocator(pool.malloc), stream:
            work(int(stream.ptr))  # a real turn outside the graph fills the pool: nothing is allocated while capturing
            stream.synchronize()
            stream.begin_capture(cupy.cuda.runtime.streamCaptureModeThreadLocal)
            try:
                kept = (work(int(stream.ptr)), pool)
            finally:
                captured = stream.end_capture()

        def replay() -> None:
            captured.launch(stream=outer)

    def play() -> Any:
        replay()
        return kept

    return play


def available_bytes(template: Array) -> int | None:
    """Memory that the template's library can still hand out where the template lives, or None where nobody can tell.

    On a device that is what is free there and, with it, what the library's own pool keeps of arrays that are gone: the
    library gives that to the next ones, or back to the device where it comes in the wrong pieces.
    """
    kind = kind_of(template)
    if not is_cuda(template):
        return available_memory()
    if kind == "torch":
        import torch

        pooled = torch.cuda.memory_reserved(template.device) - torch.cuda.memory_allocated(template.device)
        return int(torch.cuda.mem_get_info(template.device)[0] + pooled)
    if kind == "cupy":
        import cupy

        with template.device:
            return int(template.device.mem_info[0] + cupy.get_default_memory_pool().free_bytes())
    return _available_to_jax(template)


def _available_to_jax(template: Array) -> int | None:
    from stepwell.cuda.devices import memory_free

    try:
        free, _ = memory_free(device_index(template))
    except (ImportError, RuntimeError):
        return None
    told = next(iter(template.devices())).memory_stats() or {}  # some allocators keep no books
    if "bytes_limit" not in told or "bytes_in_use" not in told:
        return free
    # JAX takes three quarters of the device for itself at its start, or as it needs them, and never more.
    return max(0, min(int(told["bytes_limit"]), free + int(told.get("pool_bytes", 0))) - int(told["bytes_in_use"]))
