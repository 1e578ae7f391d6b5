"""A CUDA device that is this process: the sweeps of a rank are run by the kernel's source on emulated blocks.

`EmulatedDevice` stands where `cuda_memory` and `cuda_rank_target` ask for the driver; memory is the host's, and arrays
are NumPy's.
"""

from __future__ import annotations

import ctypes
import threading
from types import SimpleNamespace

import numpy as np
from native_programs import ROOT, build

from stepwell.quasi_newton.cuda import memory as cuda_memory
from stepwell.quasi_newton.cuda import target as cuda_target
from stepwell.quasi_newton.ranks import cuda_target as cuda_rank_target

THREADS, RESIDENT = 64, 2  # of an emulated block; blocks at a time


class _Buffer:
    def __init__(self, size):
        self._bytes = np.full(size + 256, 0xA5, np.uint8)  # what was there before
        self.handle = self._bytes.ctypes.data + -self._bytes.ctypes.data % 256


def _moved(to, source, size, stream=None):
    source = np.frombuffer(source, np.uint8).ctypes.data if isinstance(source, bytes) else source
    ctypes.memmove(to, source, size)
    return (0,)


def _filled(address, value, size, stream):
    ctypes.memset(address, value, size)
    return (0,)


def _view(target, name):
    batch = getattr(target, "batch", 1)
    shape = (batch, target.slots, target.row_stride) if name in "sy" else (batch, target.n)
    dtype = target._pair_dtype if name in "sy" else target.dtype
    memory = (ctypes.c_char * (int(np.prod(shape)) * dtype.itemsize)).from_address(target._at[name])
    return np.frombuffer(memory, dtype).reshape(shape)


class EmulatedDevice:
    """Kernels are compiled into a folder, once for what they are asked for: `libraries` has those that are there."""

    def __init__(self, folder, libraries, monkeypatch):
        self._folder, self._libraries = folder, libraries
        self._lock = threading.Lock()
        driver = SimpleNamespace(
            cuMemcpyHtoD=_moved,
            cuMemcpyHtoDAsync=_moved,
            cuMemcpyDtoH=_moved,
            cuMemcpyDtoDAsync=_moved,
            cuMemsetD8Async=_filled,
            cuStreamSynchronize=lambda stream: (0,),
        )
        device = SimpleNamespace(device_id=0, allocate=lambda size, stream: _Buffer(size), set_current=lambda: None)
        for module in (cuda_memory, cuda_rank_target, cuda_target):
            for name, stand_in in {
                "cuda_driver": lambda: driver,
                "PinnedBuffer": _Buffer,
                "open_device": lambda index: device,
                "device_index": lambda array: 0,
                "device_address": lambda array: array.ctypes.data,
                "current_stream": lambda array: 0,
                "shares_streams": lambda array: True,
                "memory_free": lambda index: (2**40, 2**40),
                "memory_kept": lambda index: 0,
                "is_cuda": lambda array: isinstance(array, np.ndarray) and array.size > 0,
                "resident_kernel": self._kernel,
                "_driver_functions": lambda: self._functions,
                "BLOCK": THREADS,
            }.items():
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, stand_in)
        monkeypatch.setattr(cuda_memory.DeviceVectors, "_view", _view)

    def fail_after(self, launches):
        """Let a launch of any rank fail, once."""
        for library in self._libraries.values():
            ctypes.c_int.in_dll(library, "launches_to_failure").value = launches

    def _kernel(self, name, entry, defines, device):
        assert (name, entry) == ("rank_sweep", "stepwell_rank_sweep")
        with self._lock:  # ranks are threads
            if defines not in self._libraries:
                folder = self._folder / str(len(self._libraries))
                folder.mkdir()
                flags = ["-O1", "-shared", "-fPIC", *(f"-D{key}={value}" for key, value in defines)]
                program = build(folder, [ROOT / "tests/native/rank_sweep_device.cpp"], flags)
                self._libraries[defines] = ctypes.CDLL(str(program))
        library = self._libraries[defines]
        self._functions = tuple(
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in ("emulated_launch", "emulated_wait")
        )
        return SimpleNamespace(handle=1), dict(defines)["SW_STAGED_BYTES"], RESIDENT
