"""Launches, events and devices by the driver's bindings, with a driver that only notes what it is asked."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import types

import numpy as np
import pytest

from stepwell.cuda import runtime
from stepwell.cuda.driver import checked


class Refused(int):
    name = "CUDA_ERROR_OUT_OF_MEMORY"


class Driver:
    """Answers like `cuda.bindings.driver`: an error and what was asked for."""

    CUresult = types.SimpleNamespace(CUDA_ERROR_NOT_READY=600)
    CUevent_flags = types.SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)
    CUfunction = staticmethod(lambda handle: ("function", handle))

    def __init__(self):
        self.calls, self.answers = [], {"cuCtxGetCurrent": (0, "context")}

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments):
            self.calls.append((name, *arguments))
            return self.answers.get(name, (0,))

        return call


@pytest.fixture
def driver(monkeypatch):
    made = Driver()
    monkeypatch.setattr(runtime, "cuda_driver", lambda: made)
    return made


def kernel_of(driver):
    return types.SimpleNamespace(handle=7, driver=driver)


class Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int64), ("b", ctypes.c_double))


def test_arguments_have_the_sizes_that_kernels_expect(driver):
    kernel, pair = kernel_of(driver), Pair(1, 2.0)
    runtime.launch(kernel, 3, 32, 99, 2**40, np.int32(5), np.int64(6), 0.5, pair, shared_bytes=16)
    (call,) = driver.calls
    assert call[:10] == ("cuLaunchKernel", ("function", 7), 3, 1, 1, 32, 1, 1, 16, 99)
    values, kinds = call[10]
    assert values == (2**40, 5, 6, 0.5, pair)
    assert kinds == (ctypes.c_int64, ctypes.c_int32, ctypes.c_int64, ctypes.c_double, None)
    assert call[11:] == (0,)


def test_a_grid_whose_blocks_wait_for_each_other(driver):
    runtime.launch(kernel_of(driver), (3, 4), (32, 8), 99, 1, cooperative=True)
    (call,) = driver.calls
    assert call == ("cuLaunchCooperativeKernel", ("function", 7), 3, 4, 1, 32, 8, 1, 0, 99, ((1,), (ctypes.c_int64,)))


def test_a_launch_that_is_refused(driver):
    driver.answers["cuLaunchKernel"] = (Refused(2),)
    with pytest.raises(RuntimeError, match="a kernel could not be launched"):
        runtime.launch(kernel_of(driver), 1, 32, 0)


def test_an_event_is_asked_waited_for_and_given_back(driver):
    driver.answers["cuEventCreate"] = (0, "event")
    event = runtime.Event(99)
    driver.answers["cuEventQuery"] = (600,)
    assert not event.is_done
    driver.answers["cuEventQuery"] = (0,)
    assert event.is_done
    event.sync()
    driver.answers["cuEventQuery"] = (Refused(2),)
    with pytest.raises(RuntimeError, match="OUT_OF_MEMORY"):
        _ = event.is_done
    del event
    names = [call[0] for call in driver.calls]
    assert names[:3] == ["cuEventCreate", "cuCtxGetCurrent", "cuEventRecord"]
    assert driver.calls[-3:] == in_its_context("cuEventDestroy", "event")
    assert ("cuEventRecord", "event", 99) in driver.calls


def in_its_context(*call):
    return [("cuCtxPushCurrent", "context"), call, ("cuCtxPopCurrent",)]


@pytest.mark.parametrize(
    ("make", "taken", "given_back"),
    [
        (lambda: runtime.DeviceBuffer(64, 99), "cuMemAllocAsync", ("cuMemFreeAsync", 4096, 99)),
        (lambda: runtime.PinnedBuffer(64), "cuMemAllocHost", ("cuMemFreeHost", 4096)),
    ],
)
def test_memory_is_given_back_once(driver, make, taken, given_back):
    driver.answers[taken] = (0, 4096)
    buffer = make()
    assert buffer.handle == 4096
    del buffer
    assert driver.calls[-3:] == in_its_context(*given_back)
    driver.calls.clear()
    driver.answers[taken] = (Refused(2), 0)
    with pytest.raises(RuntimeError, match="OUT_OF_MEMORY"):
        make()
    assert [call[0] for call in driver.calls] == [taken]  # nothing to give back


def test_code_is_loaded_once_and_shared_memory_only_grows(driver, monkeypatch):
    driver.answers |= {"cuLibraryLoadData": (0, 5), "cuLibraryGetKernel": (0, 7), "cuKernelSetAttribute": (0,)}
    names = types.SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
    driver.CUfunction_attribute, driver.CUkernel = names, int
    monkeypatch.setattr(runtime, "compile_kernel", lambda *given: b"code")
    monkeypatch.setattr(runtime, "_attribute", lambda *given: 9)
    runtime._loaded_kernel.cache_clear()
    try:
        kernel = runtime.load_kernel("name", "entry", {"A": 1, "B": 2}, 0)
        assert runtime.load_kernel("name", "entry", {"B": 2, "A": 1}, 0) is kernel
        assert runtime.load_kernel("name", "entry", {"A": 1, "B": 3}, 0) is not kernel
    finally:
        runtime._loaded_kernel.cache_clear()
    for size in (100, 60, 300):
        kernel.allow_shared_memory(size, 0)
    assert [call[2] for call in driver.calls if call[0] == "cuKernelSetAttribute"] == [100, 300]


def test_checked():
    assert checked(0) == ()
    assert checked(0, 5) == 5
    assert checked(0, 5, 6) == (5, 6)
    with pytest.raises(RuntimeError, match="OUT_OF_MEMORY"):
        checked(Refused(2))


def run_alone(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)


def test_threads_import_the_packages_at_once():
    """Ranks that are threads ask for them at the same time; nobody gets one that is half made."""
    pytest.importorskip("cuda.core")
    done = run_alone("""
import sys, threading
from stepwell.cuda import driver, nvrtc
sys.setswitchinterval(1e-6)
start, found = threading.Barrier(12), []

def ask(number):
    start.wait()
    if number % 3 == 0:
        found.append(nvrtc.cuda_core().Program)
    elif number % 3 == 1:
        found.append(driver.import_cuda("cuda.bindings", "driver").cuInit)
    else:
        found.append(nvrtc._compiler_version())

threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(found) == 12, found
""")
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_left_at_the_end_of_a_process_is_not_given_back():
    """Nor is anything said: the bindings may be gone by then."""
    done = run_alone("""
import types
from stepwell.cuda import runtime
driver = types.SimpleNamespace(
    cuMemAllocHost=lambda size: (0, 4096), cuCtxGetCurrent=lambda: (0, 1), cuCtxPushCurrent=None, cuMemFreeHost=None
)
runtime.cuda_driver = lambda: driver
kept = runtime.PinnedBuffer(64)
""")
    assert (done.returncode, done.stderr) == (0, "")
