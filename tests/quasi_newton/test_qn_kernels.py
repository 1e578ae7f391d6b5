"""Every CUDA kernel of the quasi-Newton engine compiles, for three architectures: no GPU and no driver needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import stepwell
from stepwell.cuda.nvrtc import compile_kernel
from stepwell.quasi_newton import cuda_layout as cuda

# One each of: staged rows in one pass; two row blocks; a strip per row block, with a diagonal that varies; a warp.
VARIANTS = {
    "sm_80": cuda.kernel_defines(256, 8, single=False, bounded=True, weighted=False, vary=False),
    "sm_90": cuda.kernel_defines(256, 10, single=True, bounded=False, weighted=True, vary=False),
    "sm_100": cuda.kernel_defines(256, 20, single=False, bounded=True, weighted=True, vary=True),
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


def test_the_loader_knows_the_constants_of_the_kernels():
    folder = Path(stepwell.__file__).parent / "_source" / "cuda" / "quasi_newton"
    constants, gang, sums = ((folder / name).read_text() for name in ("constants.cuh", "gang.cuh", "sums.cuh"))

    def number(text, pattern):
        return tuple(int(found) for found in re.search(pattern, text).groups())

    assert number(constants, r"constexpr int span = (\d+);") == (cuda.SPAN,)
    assert number(gang, r"constexpr int group_size = (\d+);") == (cuda.GROUP,)
    assert number(sums, r"constexpr int most_numbers = (\d+);") == (cuda.NUMBERS - 2,)
    walks = number(constants, r"longest_walk = lone_warp \? (\d+) : (\d+);")
    assert walks == (cuda._LONGEST_WALK[cuda.WARP], cuda._LONGEST_WALK[cuda.BLOCK])
    small, wide, narrow, largest = number(
        constants, r"tile = lone_warp \? (\d+) : staged && capacity > 8 \? (\d+) : (\d+);"
    ) + number(constants, r"staged = capacity <= (\d+) &&")
    # Two stages of history rows, in blocks of eight, and the inputs, each row padded by eight numbers; or, where that
    # is more, 16 bytes of each of up to 16 rows for every thread. (The kernel does not compile where it counts
    # otherwise.)
    assert cuda.staged_bytes(8, False, True, False, 256) == 2 * (16 + 6) * (narrow + 8) * 8
    assert cuda.staged_bytes(8, True, True, False, 256) == 16 * 16 * 256
    assert cuda.staged_bytes(16, False, True, False, 256) == 2 * (32 + 6) * (wide + 8) * 8
    assert cuda.staged_bytes(9, True, False, True, 256) == 2 * (24 + 5) * (wide + 8) * 4
    assert cuda.staged_bytes(largest, False, True, False, 256) > 0
    assert cuda.staged_bytes(largest + 1, False, True, False, 256) == 0
    assert small <= cuda.SPAN
