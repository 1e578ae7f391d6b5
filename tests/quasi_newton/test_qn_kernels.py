"""Every CUDA kernel of the quasi-Newton engine compiles, for three architectures: no GPU and no driver needed."""

from __future__ import annotations

import pytest

from stepwell.targets.nvrtc import compile_kernel

# One each of: staged rows in one pass; two row blocks; a strip per row block, with a diagonal that varies; a warp.
VARIANTS = {
    architecture: dict(
        zip(("SW_REAL", "SW_CAPACITY", "SW_THREADS", "SW_BOUNDED", "SW_WEIGHTED", "SW_WEIGHTS_VARY"), values)
    )
    for architecture, values in {
        "sm_80": ("double", 8, 256, 1, 0, 0),
        "sm_90": ("float", 10, 256, 0, 1, 0),
        "sm_100": ("double", 20, 256, 1, 1, 1),
        "sm_90a": ("double", 8, 32, 1, 0, 0),
    }.items()
}


@pytest.mark.parametrize("architecture", list(VARIANTS))
def test_kernels_compile(architecture, monkeypatch, tmp_path):
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path))
    code = compile_kernel("quasi_newton", VARIANTS[architecture], architecture)
    assert b"stepwell_turn" in code
    assert len(list(tmp_path.iterdir())) == 1
    assert compile_kernel("quasi_newton", VARIANTS[architecture], architecture) == code  # from the cache
