"""What a solve needs of one CUDA device and of the library whose arrays it gives back: memory, and order.

PyTorch's and CuPy's arrays are allocated by their own library and written by our kernels, on the library's stream. JAX
shows no stream: it is waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stepwell.arrays.conversion import host_copy
from stepwell.arrays.device import (
    available_bytes,
    bytes_on_device,
    clear,
    current_stream,
    device_address,
    empty_on_device,
    shares_streams,
    wait_for_values,
)
from stepwell.arrays.kinds import Array, describe_home, device_index, namespace_of
from stepwell.arrays.together import Wanted, several_on_device
from stepwell.cuda.devices import memory_free, open_device
from stepwell.cuda.driver import checked, cuda_driver


class DeviceMemory:
    """Memory of the device that an array lives on, allocated by the array's library.

    Parameters
    ----------
    template : array
        Of the library and device to work on. An array of JAX is waited for.
    """

    def __init__(self, template: Array) -> None:
        wait_for_values(template)
        self.xp = namespace_of(template)
        self.device_id = device_index(template)
        self.follows = shares_streams(template)  # its library's work follows ours, without waiting
        self._like = empty_on_device(0, "uint8", template)  # the template may be large, and this object live long

    def make_current(self) -> None:
        """Make the device the current one of this thread, where it is not already."""
        error, current = cuda_driver().cuCtxGetDevice()
        if int(error) != 0 or int(current) != self.device_id:
            open_device(self.device_id)

    def stream(self) -> int:
        """Return the handle of the stream that the library is using (0, the default stream, for JAX)."""
        return current_stream(self._like)

    def empty(self, shape: int | Sequence[int], dtype: str) -> Array:
        """Return an array that kernels may write, with anything in it."""
        return empty_on_device(shape, dtype, self._like)

    def several(self, wanted: Mapping[str, Wanted | None]) -> dict[str, Array | None]:
        """Return arrays by their names, made at once; None where none is wanted."""
        named = {name: one for name, one in wanted.items() if one is not None}
        made = dict(zip(named, several_on_device(list(named.values()), self._like), strict=True))
        return {name: made.get(name) for name in wanted}

    def zeros(self, shape: int | Sequence[int], dtype: str) -> Array:
        """Return an array of zeros that kernels may write."""
        return clear(self.empty(shape, dtype))

    def upload(self, data: bytes) -> Array:
        """Copy bytes to the device."""
        return bytes_on_device(np.frombuffer(data, dtype=np.uint8), self._like)

    def address(self, array: Array | None) -> int:
        """Return the device address of an array's first element; 0 for None."""
        return 0 if array is None else device_address(array)

    def available_bytes(self) -> int:
        """Return the bytes that the library can still hand out."""
        found = available_bytes(self._like)
        return memory_free(self.device_id)[0] if found is None else found

    def wait(self, stream: int) -> None:
        """Wait for everything on a stream."""
        checked(*cuda_driver().cuStreamSynchronize(stream))

    def read(self, array: Array, stream: int) -> np.ndarray:
        """Copy an array to the host once everything on a stream is done."""
        if self.follows:
            return host_copy(array)
        self.wait(stream)
        found = np.empty(array.shape, array.dtype)  # (JAX would keep what it has read once, and show that again.)
        checked(*cuda_driver().cuMemcpyDtoH(found.ctypes.data, self.address(array), found.nbytes))
        return found

    def done(self, stream: int, used: list[Any]) -> None:
        """Say that everything is launched, and let go of what it used: JAX, which does not know our stream, waits.

        PyTorch and CuPy order the reuse of freed memory behind the launches of the stream it was allocated on.
        """
        if not self.follows:
            self.wait(stream)
        used.clear()

    def __repr__(self) -> str:
        return f"DeviceMemory({describe_home(self._like)})"
