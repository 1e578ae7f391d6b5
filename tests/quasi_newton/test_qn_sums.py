"""Sums over many variables lose to rounding what a tree loses, not what one long sum would."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stepwell import LBFGSB
from stepwell.distributed import split

EPS = np.finfo(float).eps


def most_lost(n):
    """Return how many additions a term goes through: a register of two in a tile of 256, its lanes, tiles pairwise."""
    return 256 / 2 + 8 + math.log2(n / 256) + 2


@pytest.mark.parametrize("n", [4096, 160_000, 1_300_123])
@pytest.mark.parametrize("bounded", [False, True])
def test_norm_and_slope_against_exact_sums(n, bounded):
    """In 1,300,123 variables added one by one in a row, rounding would lose up to ten thousand times as much."""
    rng = np.random.default_rng(n)
    scale = 10.0 ** rng.uniform(-3, 3, n)

    def evaluate(x):
        return 0.5 * float(scale @ (x * x)), scale * x

    x = rng.normal(size=n)
    opt = LBFGSB(x, (-1e9, 1e9) if bounded else None, m=3, ftol=0, gtol=0)
    accepted = 0
    for _ in range(40):
        f, g = evaluate(np.array(opt.x))
        opt.tell(f, g)
        if not opt.accepted:
            continue
        accepted += 1
        norm = math.sqrt(math.fsum(g * g))  # of squares, half of whose relative error remains; and a root
        assert abs(float(opt.state["gradient_norm"]) - norm) <= (most_lost(n) / 2 + 2) * EPS * norm
        terms = g * opt._run.target.arrays()["d"][0]
        assert abs(float(opt.state["slope"]) - math.fsum(terms)) <= (most_lost(n) + 2) * EPS * math.fsum(abs(terms))
        if accepted == 3:
            break
    assert accepted == 3


@pytest.mark.parametrize("n", [4096, 160_000, 1_300_123])
def test_sums_of_chunks_against_exact_sums(n):
    values = np.random.default_rng(n).normal(size=n) * 10.0 ** np.random.default_rng(1).integers(-6, 7, n)
    layout = split(n, "self")
    sums = layout.chunk_sums(values)
    for begin, found in zip(layout.chunk_starts, sums):
        part = values[begin : begin + layout.chunk_length]
        # NumPy adds the 256 of a tile in eight sums of at most 16, or fewer, and those pairwise.
        lost = (32 + 4 + math.log2(max(layout.chunk_length / 256, 1)) + 1) * EPS / 2
        assert abs(found - math.fsum(part)) <= lost * math.fsum(abs(part))
