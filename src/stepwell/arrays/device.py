"""Arrays on a CUDA device: their addresses, their library's streams and graphs, the memory that is free."""

from __future__ import annotations

import contextlib
from typing import Any

from stepwell.arrays.kinds import Array, is_cuda, kind_of


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


def capture(template: Array, work: Any) -> Any:
    """Capture ``work(stream)`` in a CUDA graph; returns a function that replays it on the caller's stream.

    ``work`` is called once, with the handle of the capturing stream, and what it returns is kept alive with the
    graph. Raises whatever the library raises when the work cannot be captured.
    """
    if kind_of(template) == "torch":
        import torch

        # By hand, because `torch.cuda.graph` also empties the memory cache, which takes longer than a short run.
        graph = torch.cuda.CUDAGraph()
        here, side = torch.cuda.current_stream(template.device), torch.cuda.Stream(template.device)
        side.wait_stream(here)
        with torch.cuda.stream(side):
            graph.capture_begin()
            try:
                kept = work(int(side.cuda_stream))
            except BaseException:
                with contextlib.suppress(RuntimeError):  # says only that the capture has failed
                    graph.capture_end()
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
            stream.begin_capture()
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
    """Free memory where the template lives, or None where that cannot be told."""
    kind = kind_of(template)
    if is_cuda(template):
        if kind == "torch":
            import torch

            return int(torch.cuda.mem_get_info(template.device)[0])
        if kind == "cupy":
            with template.device:
                return int(template.device.mem_info[0])
        return None
    try:
        with open("/proc/meminfo") as lines:
            fields = dict(line.split(":", 1) for line in lines)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
