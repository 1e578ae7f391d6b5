"""What is missing or wrong for a run on a GPU is said clearly; all of this needs no GPU."""

from __future__ import annotations

import importlib.util
import sys
import types

import numpy as np
import pytest
from small_problems import bowl

import stepwell
from stepwell.arrays import is_cuda, view_foreign
from stepwell.cuda import devices as cuda_devices
from stepwell.cuda import nvrtc
from stepwell.quasi_newton.cuda import memory as cuda_memory


class Claims:
    """Says that it is a CUDA array, by its interface alone."""

    def __init__(self, n=4):
        self.__cuda_array_interface__ = {"shape": (n,), "typestr": "<f8", "data": (256, False), "version": 3}


class ClaimsDLPack:
    def __init__(self, device):
        self.device = device

    def __dlpack__(self, **_):
        raise AssertionError("not to be asked for")

    def __dlpack_device__(self):
        return self.device, 0


def test_who_is_a_cuda_array():
    assert is_cuda(Claims())
    assert is_cuda(ClaimsDLPack(2))
    assert not is_cuda(ClaimsDLPack(1))
    for value in (np.zeros(3), 1.0, 3, None, [1.0, 2.0], np.float64(2), "x0"):
        assert not is_cuda(value)


def test_a_foreign_array_needs_a_library_that_computes(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name in ("cupy", "torch") else real(name, *rest)
    )
    for call in (stepwell.minimize, stepwell.minimize_batch):
        with pytest.raises(ImportError, match=r"Claims on a GPU.*CuPy or PyTorch.*pip install"):
            call(bowl, Claims(), jac=True)
    with pytest.raises(ImportError, match="CuPy or PyTorch"):
        stepwell.LBFGSB(Claims())


def test_a_pytorch_without_cuda_does_not_compute_with_a_foreign_array(monkeypatch):
    torch = pytest.importorskip("torch")
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "cupy" else real(name, *rest))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ImportError, match=r"Claims on a GPU.*torch built for CUDA"):
        stepwell.minimize(bowl, Claims(), jac=True)


@pytest.mark.parametrize("array", [Claims(), ClaimsDLPack(2)])
def test_answers_on_a_gpu_for_a_start_on_the_host(array):
    said = r"is an array on cuda, x0 on the host; allowed: one device"
    with pytest.raises(ValueError, match="the gradient " + said):
        stepwell.minimize(lambda x: (1.0, array), np.ones(4), jac=True)
    with pytest.raises(ValueError, match="the gradient " + said):
        stepwell.minimize_batch(lambda x: (np.ones(2), array), np.ones((2, 4)), jac=True)
    with pytest.raises(ValueError, match="f " + said):
        stepwell.minimize_batch(lambda x: (array, x), np.ones((2, 4)), jac=True)
    with pytest.raises(ValueError, match="g " + said):
        stepwell.LBFGSB(np.ones(4)).tell(1.0, array)
    with pytest.raises(ValueError, match="h0 " + said):
        stepwell.minimize(bowl, np.ones(4), jac=True, options={"h0": array})


def test_known_arrays_are_adopted_as_they_are():
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(3)
    assert view_foreign(tensor) is tensor


def test_bounds_on_a_gpu_for_a_start_on_the_host():
    class Bound(Claims):
        shape, ndim = (4,), 1

    for bounds in ((Bound(), 1.0), (0.0, Bound())):
        with pytest.raises(ValueError, match=r"x0 on the host.*one device"):
            stepwell.minimize(bowl, np.ones(4), jac=True, bounds=bounds)


@pytest.mark.parametrize("module", ["cuda.core", "cuda.bindings"])
def test_missing_extra(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    if module == "cuda.core":
        with pytest.raises(ImportError, match=r"stepwell\[cu13\]"):
            nvrtc.cuda_core()
    else:
        with pytest.raises(ImportError, match=r"stepwell\[cu13\]"):
            cuda_devices.open_device(0)
        with pytest.raises(ImportError, match=r"stepwell\[cu13\]"):
            cuda_devices.cuda_driver()
        with pytest.raises(ImportError, match=r"stepwell\[cu13\]"):
            cuda_devices.fastest_device()


def test_missing_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path))  # what is compiled already does without

    def absent():
        raise RuntimeError('Failure finding "libnvrtc.so.13"')

    bindings = pytest.importorskip("cuda.bindings.nvrtc")
    monkeypatch.setattr(bindings, "nvrtcVersion", absent)
    with pytest.raises(ImportError, match=r"NVRTC: pip install \"stepwell\[cu13\]"):
        nvrtc.compile_kernel("quasi_newton", {}, "sm_90")


def fake_driver(monkeypatch, **functions):
    fake = types.SimpleNamespace(**functions)
    package = types.ModuleType("cuda.bindings")
    package.driver = fake
    monkeypatch.setitem(sys.modules, "cuda.bindings", package)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", fake)


def test_missing_driver(monkeypatch):
    def absent(flags):
        raise RuntimeError("libcuda.so.1 was not found")

    fake_driver(monkeypatch, cuInit=absent)
    with pytest.raises(RuntimeError, match="no NVIDIA driver was found: install"):
        cuda_devices.cuda_driver()


def test_driver_without_a_device(monkeypatch):
    class Answer(int):
        name = "CUDA_ERROR_NO_DEVICE"

    fake_driver(monkeypatch, cuInit=lambda flags: (Answer(100),))
    with pytest.raises(RuntimeError, match="CUDA_ERROR_NO_DEVICE"):
        cuda_devices.fastest_device()


def device(index, multiprocessors, clock, memory=1):
    return cuda_devices.CudaDevice(index, "GPU", (9, 0), multiprocessors, clock, memory)


@pytest.mark.parametrize(
    ("devices", "fastest"),
    [
        ([device(0, 100, 1000), device(1, 90, 2000)], 1),
        ([device(0, 100, 1000, 5), device(1, 50, 2000, 6), device(2, 100, 1000, 4)], 1),
        ([device(0, 100, 1000), device(1, 100, 1000)], 0),
    ],
)
def test_fastest_device(monkeypatch, devices, fastest):
    """Multiprocessors times clock; memory where that ties; then the first."""
    monkeypatch.setattr(cuda_devices, "list_devices", lambda: devices)
    assert cuda_devices.fastest_device() == fastest


def test_too_little_memory_names_both_figures_and_what_to_do(monkeypatch):
    monkeypatch.setattr(cuda_memory, "memory_free", lambda index: (3 * 2**30, 8 * 2**30))
    monkeypatch.setattr(cuda_memory, "memory_kept", lambda index: 2**30)
    asked = []

    class Device:
        device_id = 1

        def allocate(self, size, stream):
            asked.append(size)
            if len(asked) > 1:
                raise RuntimeError("out of memory")
            return "memory"

    target = object.__new__(cuda_memory.DeviceVectors)
    target.device, target._stream_handle, target._m = Device(), 0, 10
    with pytest.raises(MemoryError, match=r"needs 5\.00 GiB on cuda:1, of which 4\.00 of 8\.00 .*smaller m .*float32"):
        target._allocate(5 * 2**30)
    assert asked == []
    assert target._allocate(2**30) == "memory"
    with pytest.raises(MemoryError, match="smaller m"):  # the allocation itself fails
        target._allocate(2**30)


def test_unknown_graph_option(monkeypatch):
    with pytest.raises(ValueError, match=r"options\['graph'\] is 'perhaps'"):
        stepwell.minimize(bowl, Claims(), jac=True, options={"graph": "perhaps"})
