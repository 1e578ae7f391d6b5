"""Every CUDA kernel of the quasi-Newton engine compiles, for three architectures: no GPU and no driver needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import stepwell
from stepwell.targets import cuda
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


def test_the_loader_knows_the_constants_of_the_kernels():
    folder = Path(stepwell.__file__).parent / "_source" / "cuda"
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
    # Two stages of history rows, in blocks of eight, and the inputs, each row padded by eight numbers.
    assert cuda._staged_bytes(8, False, True, False) == 2 * (16 + 6) * (narrow + 8) * 8
    assert cuda._staged_bytes(9, True, False, True) == 2 * (24 + 5) * (wide + 8) * 4
    assert cuda._staged_bytes(largest, False, True, False) > 0
    assert cuda._staged_bytes(largest + 1, False, True, False) == 0
    assert small <= cuda.SPAN
