"""The panel product on its own: against NumPy, over odd lengths and thread counts."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from stepwell.lab.studies import panels
from stepwell.lab.studies.compiled import compiled
from stepwell.lab.studies.panels import panel_product

pytestmark = pytest.mark.slow

needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")


@needs_compiler
@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 255, 256, 257, 16_384, 40_001])
@pytest.mark.parametrize("shape", [(8, 8), (1, 1), (3, 5), (16, 16)])
def test_panel_product(length, shape):
    rng = np.random.default_rng(length)
    left, right = rng.normal(size=(shape[0], length)), rng.normal(size=(shape[1], length))
    expected = left @ right.T
    # A sum of `length` products has rounding error at most length ε Σ|l||r|.
    room = np.finfo(float).eps * max(length, 1) * (np.abs(left) @ np.abs(right).T)
    one = panel_product(left, right, 1)
    assert (np.abs(one - expected) <= room).all()
    assert (panel_product(left, right, 3) == one).all()  # to the last bit


@needs_compiler
def test_the_call_writes_what_it_was_given():
    left, right, out = np.ones((2, 5)), np.arange(5.0)[None], np.empty((2, 1))
    panels._product_into(left, right, out, 1)()
    np.testing.assert_array_equal(out, [[10.0], [10.0]])


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="left, right and out have shapes"):
        panel_product(np.ones((2, 3)), np.ones((2, 4)), 1)
    with pytest.raises(ValueError, match="r and c to 16"):
        panel_product(np.ones((17, 3)), np.ones((2, 3)), 1)
    with pytest.raises(ValueError, match="allowed: C-ordered float64"):
        panel_product(np.ones((2, 6))[:, ::2], np.ones((2, 3)), 1)


def test_without_a_compiler_the_study_says_what_it_needs(monkeypatch):
    panels._host_kernel.cache_clear()
    compiled.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ValueError, match="found no C\\+\\+ compiler; allowed: g"):
        panel_product(np.ones((2, 3)), np.ones((2, 3)), 1)


@pytest.mark.kernels
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
def test_kernel_compiles(architecture):
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
    from stepwell.cuda.nvrtc import compile_kernel

    try:
        code = compile_kernel("panel_product", {"SW_THREADS": 256}, architecture, panels.SOURCES / "cuda.cu")
    except RuntimeError as error:
        pytest.skip(f"NVRTC is not installed: {error}")
    assert len(code) > 1000


@pytest.mark.cuda
@pytest.mark.parametrize("length", [1, 7, 8, 100, 1001, 65_536, 1_000_003])
def test_device_panel(length):
    import torch

    from stepwell.arrays import current_stream
    from stepwell.lab.studies.panels import DevicePanel

    stride = length + length % 2
    left, right = (torch.randn(8, stride, dtype=torch.float64, device="cuda") for _ in range(2))
    out = torch.empty(8, 8, dtype=torch.float64, device="cuda")
    panel = DevicePanel(left, right, out, length)
    results = []
    for _ in range(2):
        panel.launch(current_stream(out))
        torch.cuda.synchronize()
        results.append(out.cpu().numpy().copy())
    assert (results[0] == results[1]).all()
    a, b = left[:, :length].cpu().numpy(), right[:, :length].cpu().numpy()
    room = np.finfo(float).eps * length * (np.abs(a) @ np.abs(b).T)
    assert (np.abs(results[0] - a @ b.T) <= room).all()
