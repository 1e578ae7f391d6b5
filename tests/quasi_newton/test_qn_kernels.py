"""Every CUDA kernel of the quasi-Newton engine compiles, for three architectures: no GPU and no driver needed."""

from __future__ import annotations

import pytest

from stepwell.targets.nvrtc import compile_kernel

# One each of: staged rows in one pass; two row blocks; a strip per row block, with a diagonal that varies.
VARIANTS = {
    "sm_80": {"SW_REAL": "double", "SW_CAPACITY": 8, "SW_BOUNDED": 1, "SW_WEIGHTED": 0, "SW_WEIGHTS_VARY": 0},
    "sm_90": {"SW_REAL": "float", "SW_CAPACITY": 10, "SW_BOUNDED": 0, "SW_WEIGHTED": 1, "SW_WEIGHTS_VARY": 0},
    "sm_100": {"SW_REAL": "double", "SW_CAPACITY": 20, "SW_BOUNDED": 1, "SW_WEIGHTED": 1, "SW_WEIGHTS_VARY": 1},
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
