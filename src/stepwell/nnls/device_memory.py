"""Device arrays of the caller's library: allocation, addresses, the current stream.

torch and CuPy arrays are allocated by their own library and written by our kernels. JAX arrays are immutable and
allocated by XLA: for them the kernels write buffers of our own, which JAX then takes over without a copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwell import arrays
from stepwell.cuda.devices import memory_free
from stepwell.cuda.nvrtc import cuda_core

Array = arrays.Array


def memory_of_device(device_id: int) -> int:
    """Return the bytes of a device's memory, free or not."""
    return memory_free(device_id)[1]


class DeviceMemory:
    """What a solve needs of the library and the device of one array."""

    def __init__(self, template: Array) -> None:
        self.kind = arrays.kind_of(template)
        self.xp = arrays.namespace_of(template)
        name = arrays.device_name(template)
        self.device_id = int(name.split(":")[1]) if ":" in name else 0
        self._device = template.device if self.kind == "torch" else None
        if self.kind == "jax":
            template.block_until_ready()

    def make_current(self) -> None:
        """Make the device the current one of this thread, where it is not already."""
        from cuda.bindings import driver

        error, current = driver.cuCtxGetDevice()
        if int(error) != 0 or int(current) != self.device_id:
            cuda_core().Device(self.device_id).set_current()

    def stream(self) -> int:
        """Return the handle of the caller's current stream (0, the default stream, for JAX)."""
        if self.kind == "torch":
            import torch

            return int(torch.cuda.current_stream(self.device_id).cuda_stream)
        if self.kind == "cupy":
            import cupy

            return int(cupy.cuda.get_current_stream(self.device_id).ptr)
        return 0

    def empty(self, shape: Any, dtype: str) -> Array:
        """Return an uninitialised array that kernels may write."""
        if self.kind == "torch":
            import torch

            return torch.empty(shape, dtype=getattr(torch, dtype), device=self._device)
        if self.kind == "cupy":
            import cupy

            with cupy.cuda.Device(self.device_id):
                return cupy.empty(shape, dtype=dtype)
        import jax

        # XLA allocates; nobody else holds this array, so writing it behind JAX's back is seen by all later readers.
        device = next(d for d in jax.devices() if d.id == self.device_id)
        with arrays.jax_double():  # the kernels write what was asked for, whatever JAX's default
            return jax.device_put(np.zeros(shape, dtype), device).block_until_ready()

    def zeros(self, shape: Any, dtype: str) -> Array:
        """Return an array of zeros."""
        array = self.empty(shape, dtype)
        if self.kind == "torch":
            array.zero_()
        elif self.kind == "cupy":
            array.fill(0)
        return array

    def upload(self, data: bytes) -> Array:
        """Copy bytes to the device."""
        host = np.frombuffer(data, dtype=np.uint8)
        if self.kind == "torch":
            import torch

            return torch.from_numpy(host.copy()).to(self._device)
        if self.kind == "cupy":
            import cupy

            with cupy.cuda.Device(self.device_id):
                return cupy.asarray(host)
        import jax

        device = next(d for d in jax.devices() if d.id == self.device_id)
        return jax.device_put(host, device).block_until_ready()

    def to_host(self, array: Array) -> np.ndarray:
        """Copy a device array to NumPy."""
        if self.kind == "torch":
            return np.asarray(array.cpu().numpy())
        if self.kind == "cupy":
            return np.asarray(array.get())
        return np.asarray(array)

    def address(self, array: Array | None) -> int:
        """Return the device address of an array's first element; 0 for None."""
        if array is None:
            return 0
        if self.kind == "torch":
            return int(array.data_ptr())
        if self.kind == "cupy":
            return int(array.data.ptr)
        return int(array.unsafe_buffer_pointer())

    def strides(self, array: Array) -> tuple[int, ...]:
        """Return the strides in elements."""
        if self.kind == "torch":
            return tuple(int(s) for s in array.stride())
        if self.kind == "cupy":
            return tuple(int(s) // array.itemsize for s in array.strides)
        steps, step = [], 1
        for size in reversed(array.shape):
            steps.append(step)
            step *= int(size)
        return tuple(reversed(steps))

    def rows_contiguous(self, array: Array) -> Array:
        """Return the array itself where its last axis is contiguous, else a copy."""
        if self.kind == "jax" or self.strides(array)[-1] == 1 or array.shape[-1] <= 1:
            return array
        return self.xp.asarray(array, copy=True) if self.kind == "cupy" else array.contiguous()

    def as_bool(self, flags: Array) -> Array:
        """Return bytes that are 0 or 1 as bool, without a copy where the library allows it."""
        if self.kind == "jax":
            return self.xp.astype(flags, self.xp.bool)
        return flags.view(self.xp.bool)

    def free_bytes(self) -> int:
        """Return the free bytes of the device, what the library's own pool holds unused included."""
        free, _ = memory_free(self.device_id)
        spare = 0
        if self.kind == "torch":
            import torch

            spare = torch.cuda.memory_reserved(self.device_id) - torch.cuda.memory_allocated(self.device_id)
        elif self.kind == "cupy":
            import cupy

            spare = cupy.get_default_memory_pool().free_bytes()
        return free + int(spare)

    def wait(self, stream: int) -> None:
        """Wait for everything on a stream."""
        from cuda.bindings import driver

        (error,) = driver.cuStreamSynchronize(stream)
        if int(error) != 0:
            raise RuntimeError(f"cuStreamSynchronize failed: {error}")

    def done(self, stream: int, used: list[Any]) -> None:
        """Say that everything is launched: JAX, which does not know our stream, waits.

        torch and CuPy order the reuse of freed memory behind the launches of the stream it was allocated on.
        """
        if self.kind == "jax":
            self.wait(stream)
        used.clear()

    def __repr__(self) -> str:
        return f"DeviceMemory({self.kind} on cuda:{self.device_id})"
