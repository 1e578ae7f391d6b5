"""Blocks dealt out by hand: they have the bits of the whole, and a task carries no array along."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import stepwell

PAGE = Path(__file__).parents[2] / "docs" / "dask.md"


def test_the_function_of_the_page_carries_nothing_along():
    """What Ray and Spark send with each task is what cloudpickle makes of the function."""
    cloudpickle = pytest.importorskip("cloudpickle")
    (block,) = (code for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "block_of" in code)
    random = np.random.default_rng(0)
    given = {"np": np, "stepwell": stepwell, "A": random.random((60, 30)), "B": random.random((2000, 60))}
    exec(compile(block, PAGE.name, "exec"), given)  # with its own assertion: the same bits
    assert len(cloudpickle.dumps(given["solve_block"])) < given["A"].nbytes / 4


def cube(t, a, k):
    return a * np.exp(-k * t)


SOLVERS = {
    "nnls": lambda A, B: stepwell.nnls(A, B).x,
    "lsq_linear": lambda A, B: stepwell.lsq_linear(A, B, bounds=(0, 1)).x,
    "lsq_gram": lambda A, B: stepwell.lsq_gram(A.T @ A, B @ A, bounds=(0, 1)).x,
    "curve_fit": lambda A, B: stepwell.curve_fit(cube, np.linspace(0, 1, 40), B, p0=[1.0, 1.0]).x,
}


@pytest.mark.parametrize("name", SOLVERS)
def test_blocks_have_the_bits_of_the_whole(name):
    random = np.random.default_rng(1)
    A, B = random.random((40, 8)), random.random((600, 40))
    parts = []
    for block in np.array_split(B, 7):
        with stepwell.distributed.block_of(len(B)):
            parts.append(SOLVERS[name](A, block))
    assert np.array_equal(np.concatenate(parts), SOLVERS[name](A, B))
