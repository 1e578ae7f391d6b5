"""What kernels need while a program runs: devices, streams, memory and launches, by the driver's own bindings.

cuda.core compiles kernels, and is not imported for anything else: that takes longer than loading a kernel that was
compiled before and running it.
"""

from __future__ import annotations

import ctypes
import functools
import pathlib
import threading
import weakref
from typing import Any

import numpy as np

from stepwell.cuda.driver import checked, cuda_driver
from stepwell.cuda.nvrtc import compile_kernel


class Kernel:
    """A kernel of compiled code, ready to launch. The code stays loaded: nobody knows who is still running it."""

    def __init__(self, code: bytes, entry: str) -> None:
        self._allowed = 0
        driver = self.driver = cuda_driver()
        library = checked(*driver.cuLibraryLoadData(code, [], [], 0, [], [], 0))
        self.handle = int(checked(*driver.cuLibraryGetKernel(library, entry.encode())))

    def allow_shared_memory(self, size: int, device_id: int) -> None:
        """Let it be launched with this many bytes of dynamic shared memory, or with more where that was allowed before.

        (More than 48 KiB must be asked for.)
        """
        if size <= self._allowed:
            return
        driver = self.driver
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (error,) = driver.cuKernelSetAttribute(attribute, size, driver.CUkernel(self.handle), device_id)
        if int(error) != 0:
            raise RuntimeError(f"a kernel cannot have {size} bytes of shared memory on cuda:{device_id}: {error}")
        self._allowed = size

    def resident_blocks(self, threads: int, shared_bytes: int) -> int:
        """Return how many blocks a multiprocessor of the current device holds at a time."""
        driver = self.driver
        function = driver.CUfunction(self.handle)
        return int(checked(*driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, shared_bytes)))


def launch(
    kernel: Kernel,
    grid: int | tuple[int, int],
    block: int | tuple[int, int],
    stream: int,
    *arguments: Any,
    shared_bytes: int = 0,
    cooperative: bool = False,
) -> None:
    """Launch a kernel on a stream (a handle) of the current device.

    Arguments are whole numbers of eight bytes, among them addresses; NumPy's int32, of four; floats, of eight; and
    ctypes structures, by value.
    """
    driver = kernel.driver
    blocks, threads = (size if isinstance(size, tuple) else (size, 1) for size in (grid, block))
    begin = driver.cuLaunchCooperativeKernel if cooperative else driver.cuLaunchKernel
    given = (tuple(map(_plain, arguments)), tuple(map(_type_of, arguments)))
    more = () if cooperative else (0,)
    (error,) = begin(driver.CUfunction(kernel.handle), *blocks, 1, *threads, 1, shared_bytes, stream, given, *more)
    if int(error) != 0:
        raise RuntimeError(f"a kernel could not be launched: {error}")


def _plain(argument: Any) -> Any:
    return argument.item() if isinstance(argument, np.generic) else argument


def _type_of(argument: Any) -> Any:
    if isinstance(argument, ctypes.Structure):
        return None  # says itself what it is
    if isinstance(argument, np.int32):
        return ctypes.c_int32
    return ctypes.c_double if isinstance(argument, float) else ctypes.c_int64


def _give_back_with(owner: Any, give_back: Any, *what: Any) -> None:
    """Give something back when its owner goes, in the context in which it was taken, whichever thread that happens in.

    Not at the end of the process, which gives everything back.
    """
    driver = cuda_driver()
    context = checked(*driver.cuCtxGetCurrent())
    weakref.finalize(owner, _give_back, driver, context, give_back, *what).atexit = False


def _give_back(driver: Any, context: Any, give_back: Any, *what: Any) -> None:
    (error,) = driver.cuCtxPushCurrent(context)
    give_back(*what)
    if int(error) == 0:
        driver.cuCtxPopCurrent()


class Event:
    """A place in the work of a stream."""

    def __init__(self, stream: int) -> None:
        driver = self._driver = cuda_driver()
        self._event = checked(*driver.cuEventCreate(int(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)))
        _give_back_with(self, driver.cuEventDestroy, self._event)
        checked(*driver.cuEventRecord(self._event, stream))

    @property
    def is_done(self) -> bool:
        """Whether the stream has come there."""
        (answer,) = self._driver.cuEventQuery(self._event)
        if int(answer) == int(self._driver.CUresult.CUDA_ERROR_NOT_READY):
            return False
        checked(answer)
        return True

    def sync(self) -> None:
        """Wait until the stream has come there."""
        checked(*self._driver.cuEventSynchronize(self._event))


class Graph:
    """Launches that are made again and again: ``work(stream)`` makes them once, on a stream that only takes notes."""

    def __init__(self, work: Any) -> None:
        driver = self._driver = cuda_driver()
        stream = checked(*driver.cuStreamCreate(int(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)))
        try:
            # This thread alone is forbidden what cannot be captured.
            mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
            checked(*driver.cuStreamBeginCapture(stream, mode))
            try:
                work(int(stream))
            finally:
                graph = checked(*driver.cuStreamEndCapture(stream))
        finally:
            driver.cuStreamDestroy(stream)
        self._program = checked(*driver.cuGraphInstantiate(graph, 0))
        driver.cuGraphDestroy(graph)
        _give_back_with(self, driver.cuGraphExecDestroy, self._program)  # when it has run, if it is running

    def launch(self, stream: int) -> None:
        """Make the launches on a stream."""
        checked(*self._driver.cuGraphLaunch(self._program, stream))


class DeviceBuffer:
    """Memory of a device in the order of a stream: it is given back behind what was launched until then."""

    def __init__(self, size: int, stream: int) -> None:
        driver = cuda_driver()
        self.handle = int(checked(*driver.cuMemAllocAsync(size, stream)))
        _give_back_with(self, driver.cuMemFreeAsync, self.handle, stream)


class PinnedBuffer:
    """Memory of the host that devices can read and write."""

    def __init__(self, size: int) -> None:
        driver = cuda_driver()
        self.handle = int(checked(*driver.cuMemAllocHost(size)))
        _give_back_with(self, driver.cuMemFreeHost, self.handle)


class Device:
    """A CUDA device by its number."""

    def __init__(self, device_id: int) -> None:
        self.device_id = device_id

    def attribute(self, name: str) -> int:
        """Return what the driver tells of the device, for example ``"MULTIPROCESSOR_COUNT"``."""
        return _attribute(self.device_id, name)

    @property
    def arch(self) -> str:
        """The architecture that kernels are compiled for, as in ``sm_90``."""
        return "".join(str(self.attribute(f"COMPUTE_CAPABILITY_{part}")) for part in ("MAJOR", "MINOR"))

    def set_current(self) -> None:
        """Make it the current device of this thread, in the context that all libraries share."""
        checked(*cuda_driver().cuCtxSetCurrent(_context(self.device_id)))

    def allocate(self, size: int, stream: int) -> DeviceBuffer:
        """Take memory on a stream; the device is current, and keeps what is given back for the next one."""
        _keep_memory(self.device_id)
        return DeviceBuffer(size, stream)


@functools.cache
def _attribute(device_id: int, name: str) -> int:
    driver = cuda_driver()
    kind = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(checked(*driver.cuDeviceGetAttribute(kind, checked(*driver.cuDeviceGet(device_id)))))


@functools.cache
def _context(device_id: int) -> Any:
    driver = cuda_driver()
    return checked(*driver.cuDevicePrimaryCtxRetain(checked(*driver.cuDeviceGet(device_id))))


@functools.cache
def _keep_memory(device_id: int) -> None:
    """Let the device's pool keep memory that is given back, unless somebody has said how much."""
    driver = cuda_driver()
    pool = checked(*driver.cuDeviceGetMemPool(checked(*driver.cuDeviceGet(device_id))))
    threshold = driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    if int(checked(*driver.cuMemPoolGetAttribute(pool, threshold))) == 0:
        checked(*driver.cuMemPoolSetAttribute(pool, threshold, driver.cuuint64_t(2**64 - 1)))


_loading = threading.RLock()


def load_kernel(
    name: str, entry: str, defines: dict[str, str | int], device_id: int, path: pathlib.Path | None = None
) -> Kernel:
    """Return a kernel ready to launch on a device; the same one every time, since its code stays loaded."""
    with _loading:
        return _loaded_kernel(name, entry, tuple(sorted(defines.items())), device_id, path)


@functools.cache
def _loaded_kernel(
    name: str, entry: str, defines: tuple[tuple[str, str | int], ...], device_id: int, path: pathlib.Path | None
) -> Kernel:
    return Kernel(compile_kernel(name, dict(defines), f"sm_{Device(device_id).arch}", path), entry)
