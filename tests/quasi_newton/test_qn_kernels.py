"""Every CUDA kernel of the quasi-Newton engine compiles, for three architectures: no GPU and no driver needed."""

from __future__ import annotations

import pytest

from stepwell.cuda.nvrtc import compile_kernel
from stepwell.quasi_newton import cuda_layout as cuda

# One each of: staged rows in one pass; two row blocks; a strip per row block, with a diagonal that varies; a warp.
VARIANTS = {
    "sm_80": cuda.kernel_defines(256, 8, single=False, bounded=True, weighted=False, vary=False),
    "sm_90": cuda.kernel_defines(256, 10, single=True, bounded=False, weighted=True, vary=False),
    "sm_100": cuda.kernel_defines(256, 20, single=False, bounded=True, weighted=True, vary=True),
    "sm_86": cuda.kernel_defines(256, 8, single=False, bounded=True, weighted=False, vary=False, history="float32"),
    "sm_103": cuda.kernel_defines(
        256, 10, single=True, bounded=True, weighted=False, vary=False, history="bfloat16", steps=(0, 0)
    ),
    "sm_90a": cuda.kernel_defines(32, 8, single=False, bounded=True, weighted=False, vary=False),
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


def test_staged_memory_is_what_the_sweeps_stage():
    """Two stages of history rows, in blocks of eight, and the inputs, each row padded by eight numbers; or, where that
    is more, 16 bytes of each of up to 16 rows for every thread. (A kernel that counts otherwise does not compile.)
    """
    assert cuda.staged_bytes(8, False, 2, False, 256) == 2 * (16 + 6) * (256 + 8) * 8
    assert cuda.staged_bytes(8, True, 2, False, 256) == 16 * 16 * 256
    assert cuda.staged_bytes(8, False, 1, False, 256) == 2 * (16 + 5) * (256 + 8) * 8
    assert cuda.staged_bytes(16, False, 2, False, 256) == 2 * (32 + 6) * (128 + 8) * 8
    assert cuda.staged_bytes(9, True, 0, True, 256) == 2 * (24 + 5) * (128 + 8) * 4
    assert cuda.staged_bytes(8, False, 2, False, 256, "float32") == 2 * (16 * 4 + 6 * 8) * (256 + 8)
    assert cuda.staged_bytes(8, True, 2, False, 256, "bfloat16") == 16 * 8 * 256
    assert cuda.staged_bytes(17, False, 2, False, 256) == 0
    assert cuda.staged_bytes(8, False, 2, False, cuda.WARP) == 0


def test_a_walk_has_memory_for_its_list():
    """Counters and bins; a breakpoint, its place and 2m + 1 numbers a record; 4m + 1 running sums for each thread."""
    m, length = 10, 512
    assert cuda.walk_words(m, length, cuda.BLOCK) == 1 + 256 + length * (2 + 2 * m + 1) + cuda.BLOCK * (4 * m + 1)
