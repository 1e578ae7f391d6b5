"""Every CUDA kernel of the quasi-Newton engine compiles, for three architectures: no GPU and no driver needed."""

from __future__ import annotations

import pytest

from stepwell import _core
from stepwell.cuda.nvrtc import compile_kernel
from stepwell.quasi_newton.cuda import layout as cuda

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


@pytest.mark.kernels
@pytest.mark.parametrize("architecture", list(VARIANTS))
def test_kernels_compile(architecture, monkeypatch, tmp_path):
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path))
    code = compile_kernel("quasi_newton", VARIANTS[architecture], architecture)
    assert b"stepwell_turn" in code
    assert len(list(tmp_path.iterdir())) == 1
    assert compile_kernel("quasi_newton", VARIANTS[architecture], architecture) == code  # from the cache


RANK_VARIANTS = {
    "sm_90": cuda.kernel_defines(256, 10, single=False, bounded=True, weighted=False, vary=False),
    "sm_80": cuda.kernel_defines(256, 8, single=True, bounded=True, weighted=True, vary=True, history="bfloat16")
    | {"SW_ANY_BEGIN": 1},
    "sm_100": cuda.kernel_defines(256, 20, single=False, bounded=False, weighted=False, vary=False)
    | {"SW_ANY_BEGIN": 1},
}


@pytest.mark.kernels
@pytest.mark.parametrize("architecture", list(RANK_VARIANTS))
def test_sweeps_of_ranks_compile(architecture, monkeypatch, tmp_path):
    pytest.importorskip("cuda.core", reason="cuda-core is not installed")
    pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path))
    assert b"stepwell_rank_sweep" in compile_kernel("rank_sweep", RANK_VARIANTS[architecture], architecture)
    assert b"stepwell_chunk_sums" in compile_kernel("chunk_sums", {"SW_THREADS": 1024}, architecture)


def test_parts_of_chunks_keep_a_device_evenly_at_work():
    """At 10^8 variables 191 chunks of 2048 spans: eleven parts are 2101, eight rounds of 264 blocks, of 187 spans."""
    assert _core.device_parts(191, 2**19) == 11
    assert _core.device_parts(3, 4096) == 16  # few chunks: a span each
    assert _core.device_parts(1, 100) == 1


def test_staged_memory_is_what_the_sweeps_stage():
    """Two stages of history rows, in blocks of eight, and the inputs once, each row padded by eight numbers; or, where
    that is more, for every thread a pack of each of up to 20 rows and, with a narrow history, of two times the vectors.
    (A kernel that counts otherwise does not compile.)
    """
    assert cuda.staged_bytes(8, False, 2, False, 256) == (2 * 16 + 6) * (256 + 8) * 8
    assert cuda.staged_bytes(8, True, 2, False, 256) == 16 * 16 * 256
    assert cuda.staged_bytes(8, False, 1, False, 256) == (2 * 16 + 5) * (256 + 8) * 8
    assert cuda.staged_bytes(16, False, 2, False, 256) == (2 * 32 + 6) * (128 + 8) * 8
    assert cuda.staged_bytes(9, True, 0, True, 256) == (2 * 24 + 5) * (256 + 8) * 4
    assert cuda.staged_bytes(8, False, 2, False, 256, "float32") == (16 * 2 * 4 + 2 * 4 * 16) * 256
    assert cuda.staged_bytes(8, True, 2, False, 256, "bfloat16") == (16 * 4 * 2 + 2 * 4 * 16) * 256
    assert cuda.staged_bytes(10, True, 0, False, 256, "bfloat16") == (20 * 4 * 2 + 2 * 2 * 16) * 256
    assert cuda.staged_bytes(17, False, 2, False, 256) == 0
    assert cuda.staged_bytes(8, False, 2, False, cuda.WARP) == 0


def test_a_walk_has_memory_for_its_list():
    """Counters, what is counted, and bins; a breakpoint, its place and 2m + 1 numbers a record; 4m + 1 running sums for
    each thread."""
    m, length = 10, 512
    assert cuda.walk_words(m, length, cuda.BLOCK) == 4 + 256 + length * (2 + 2 * m + 1) + cuda.BLOCK * (4 * m + 1)


def test_a_long_list_has_a_sixteenth_of_the_variables():
    """No more than 32 MiB, no fewer than 512 or all; and no more than that where there are no walks."""
    assert cuda.walk_length(100, 10, cuda.BLOCK, True) == 100
    assert cuda.walk_length(500, 10, cuda.WARP, True) == 128
    assert cuda.walk_length(8000, 10, cuda.BLOCK, True) == 512
    assert cuda.walk_length(800_000, 10, cuda.BLOCK, True) == 50_000
    assert cuda.walk_length(800_000, 10, cuda.BLOCK, False) == 512
    assert cuda.walk_length(10**9, 10, cuda.BLOCK, True) == 2**22 // 23
    assert _core.longest_of_chunks(4096, 10) == 2**15
