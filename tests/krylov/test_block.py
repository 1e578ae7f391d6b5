"""The small parts of block conjugate gradients: independent combinations, and the blocks that are kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from krylov_oracle import assert_solves, normal_matrix

import stepwell
from stepwell.arrays import as_user_array, to_host
from stepwell.krylov import block as block_module
from stepwell.krylov import kept as kept_module
from stepwell.krylov.block import independent_combinations, rank_cut
from stepwell.krylov.kept import KeptBlocks


@settings(max_examples=60, deadline=None)
@given(columns=st.integers(1, 130), rank=st.integers(1, 130), seed=st.integers(0, 99), spread=st.sampled_from([0, 60]))
def test_combinations_are_orthonormal_and_span_the_columns(columns, rank, seed, spread):
    """Columns of any scale, so many of them independent; singular values of the independent part are of one order."""
    random = np.random.default_rng(seed)
    rank = min(rank, columns)
    basis = np.linalg.qr(random.normal(size=(200, rank)))[0]
    block = np.concatenate([basis, basis @ random.normal(size=(rank, columns - rank))], axis=1)
    block = (block * 10.0 ** random.uniform(-spread, spread, columns))[:, random.permutation(columns)]
    mix = independent_combinations(block.T @ block, rank_cut(block))
    assert mix.shape == (columns, rank)
    chosen = block @ mix
    # Rounding in the Gram matrix of the normalised columns, some ε per entry, times its condition.
    scale = np.linalg.norm(block, axis=0)
    used = np.flatnonzero(np.any(mix != 0, axis=1))
    condition = np.linalg.cond(block[:, used] / scale[used]) ** 2
    slack = 10 * columns * np.finfo(float).eps * condition
    np.testing.assert_allclose(chosen.T @ chosen, np.eye(rank), atol=slack)
    left = block - chosen @ (chosen.T @ block)
    assert np.all(np.linalg.norm(left, axis=0) <= np.sqrt(rank_cut(block)) * scale + slack * scale)


def test_combinations_of_nothing_of_zeros_and_of_nan():
    assert independent_combinations(np.zeros((0, 0)), 1e-12).shape == (0, 0)
    assert independent_combinations(np.zeros((3, 3)), 1e-12).shape == (3, 0)
    assert independent_combinations(-np.eye(3), 1e-12).shape == (3, 0)
    mix = independent_combinations(np.diag([4.0, 0.0, 9.0]), 1e-12)
    np.testing.assert_array_equal(np.sort(mix.sum(axis=1)), [0.0, 1 / 3, 1 / 2])
    for bad in (np.nan, np.inf):
        gram = np.eye(11)
        gram[10, 3] = bad
        assert independent_combinations(gram, 1e-12) is None


@pytest.mark.parametrize("joined", [False, True])
def test_kept_blocks_stay_within_the_budget_and_drop_the_oldest(joined):
    random = np.random.default_rng(0)
    size, width = 50, 4
    directions = np.linalg.qr(random.normal(size=(size, 5 * width)))[0]  # conjugate for H = I
    blocks = np.split(directions, 5, axis=1)
    budget = 2 * directions[:, : 3 * width].nbytes + 8  # three blocks, each with its products
    kept = KeptBlocks(budget, joined=joined)
    for block in blocks:
        kept.add(block, block, np.eye(width))
        assert kept.bytes_held == 2 * sum(block.nbytes for block, _, _ in kept._blocks) <= budget
    given = random.normal(size=(size, 3))
    left = kept.conjugate(given)
    newest, oldest = np.concatenate(blocks[2:], axis=1), np.concatenate(blocks[:2], axis=1)
    np.testing.assert_allclose(newest.T @ left, 0, atol=1e-13)  # 50 products of numbers of order one
    np.testing.assert_allclose(oldest.T @ left, oldest.T @ given, atol=1e-13)


def test_the_last_block_is_kept_whatever_the_budget():
    for joined in (False, True):
        kept = KeptBlocks(0, joined=joined)
        for place in range(3):
            block = np.eye(6)[:, 2 * place : 2 * place + 2]
            kept.add(block, block, np.eye(2))
        np.testing.assert_array_equal(kept.conjugate(np.ones((6, 1)))[:, 0], [1, 1, 1, 1, 0, 0])


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_the_order_of_work_of_a_device_gives_the_same_answers(library, monkeypatch):
    """Joined blocks, and candidates made before the host has looked, with columns that leave one by one."""
    random = np.random.default_rng(3)
    A = random.normal(size=(120, 80)) * np.geomspace(1, 30, 80)
    B = A @ random.normal(size=(80, 9)) * np.geomspace(1, 1e6, 9) + random.normal(size=(120, 9))
    B[:, 4] = B[:, 3]
    like = np.empty(0)
    if library == "torch":
        like = pytest.importorskip("torch").empty(0)
    for memory in (0, 2**13, 2**20):
        host = stepwell.tikhonov(A, B, 0.5, method="block", tol=1e-9, memory=memory)
        with monkeypatch.context() as patch:
            for module in (block_module, kept_module):
                patch.setattr(module, "is_cuda", lambda array: True)
            there = stepwell.tikhonov(
                as_user_array(A, like), as_user_array(B, like), 0.5, method="block", tol=1e-9, memory=memory
            )
        assert there.success
        assert_solves(to_host(there.x), normal_matrix(A, 0.5), A.T @ B, 1e-9)
        if memory != 2**13:  # joined blocks fill the budget to the last column, single ones do not
            assert np.all(np.abs(there.iterations - host.iterations) <= 1)
