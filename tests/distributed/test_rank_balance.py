"""Pieces of about one size: they end inside chunks where whole ones cannot be dealt out, and bits stay the same."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
import warnings

import numpy as np
import pytest
from rank_problems import CASES, PAIRS, Fixed, digest_of, folded, solve_rosenbrock

import stepwell
import stepwell.distributed.ranks
from stepwell import _core
from stepwell.distributed import run_threads, split
from stepwell.distributed.layout import Pieces

TILE = 256


def largest(layout):
    """Return the largest piece by the mean."""
    return np.diff(layout.borders).max() * layout.communicator.size / layout.n


# ---- pieces ----

#: More ranks than chunks can be dealt out to evenly, up to n / 4096 of them.
UNEVEN = [
    (40_000, 8), (160_000, 16), (10**6, 48), (10**6, 96), (10**7, 96), (10**7, 2441), (10**8, 256), (10**8, 24_414),
    (10**9, 100_000), (10**12, 10_000),
]  # fmt: skip


@pytest.mark.parametrize(("n", "ranks"), [*UNEVEN, (4096 * 39, 39), (4096 * 1000, 1000), (10**9, 2000)])
def test_up_to_n_over_4096_ranks_are_within_a_tenth_of_the_mean(n, ranks):
    assert ranks <= n // 4096
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layout = split(n, Fixed(ranks))
    assert largest(layout) <= 1.1
    assert (layout.borders[0], layout.borders[-1]) == (0, n)
    assert layout.aligned
    # A range of leaves has at most two nodes on each level of a tree; a piece of 4096 variables has few levels.
    pieces = np.diff(layout.borders)
    most = 2 * (math.log2(pieces.max() / TILE) + 1)
    assert max(layout.tree().nodes) <= most
    assert layout.chunk_length == _core.chunk_length(n)  # bits are those of any other number of ranks


@pytest.mark.parametrize("n", [8192, 9999, 12_345, 16_385, 20_000, 57_605, 999_999, 5_462_385])
def test_every_number_of_ranks_is_within_a_tenth(n):
    """By a border's distance from even: half a tile of 256, or a fiftieth of a mean of 4096 or more."""
    for ranks in {*range(2, min(n // 4096, 60) + 1), n // 4096}:
        assert largest(split(n, Fixed(ranks))) <= 1.0625


@pytest.mark.parametrize(("n", "ranks"), [(137_200_682, 262), (137_200_682, 265), (10**8, 192), (10**6, 128)])
def test_no_rank_is_idle_where_chunks_are_nearly_as_many_as_ranks(n, ranks):
    """Whole chunks would be nearly even there, with a few ranks that have none."""
    layout = split(n, Fixed(ranks))
    assert np.diff(layout.borders).min() > 0
    assert largest(layout) <= 1.1


@pytest.mark.parametrize("ranks", range(1, 9))
@pytest.mark.parametrize("n", [10**5, 160_000, 10**6, 10**7, 10**8])
def test_few_ranks_have_whole_chunks(n, ranks):
    layout, whole = split(n, Fixed(ranks)), split(n, Fixed(ranks), whole_chunks=True)
    if largest(whole) <= 1.05:
        assert layout.borders == whole.borders
        assert layout.tiles == 1
    assert n < 10**6 or layout.tiles == 1


@pytest.mark.parametrize("align", [2, 3, 64, 768])
def test_borders_inside_chunks_keep_to_an_alignment(align):
    n = 800_000 * align
    layout = split(n, Fixed(96), align)
    assert all(border % align == 0 for border in layout.borders)
    assert all(border % layout.chunk_length % TILE == 0 for border in layout.borders[:-1])
    assert largest(layout) <= 1.1
    assert any(border % layout.chunk_length for border in layout.borders[:-1])


def test_ranks_that_have_less_than_a_tile():
    """Nobody has part of one; the others have nothing."""
    layout = split(1500, Fixed(20))
    assert set(np.diff(layout.borders)) == {0, TILE, 1500 % TILE}


@pytest.mark.parametrize(("n", "ranks"), UNEVEN)
def test_pieces_of_the_chunks_that_a_warning_names_are_even(n, ranks):
    with pytest.warns(UserWarning, match="cannot be dealt out evenly") as said:
        before = split(n, Fixed(ranks), whole_chunks=True)
    assert largest(before) > 1.1
    chunk = int(re.search(r"chunk=(\d+)", str(said[0].message))[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        after = split(n, Fixed(ranks), chunk=chunk, whole_chunks=True)
    assert after.chunk_length == chunk
    assert largest(after) <= 1.1
    assert after.borders[-1] == n


def test_who_is_warned_of_balance():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        split(10**7, Fixed(96, rank=3), whole_chunks=True)  # others are silent
        split(8000, Fixed(70))  # little work
        split(10**6, Fixed(2))
    for given in ({"ranks": 100, "n": 16_384}, {"ranks": 48, "align": 10**4}):
        with pytest.warns(UserWarning, match="fewer ranks, or a smaller align"):
            split(given.get("n", 10**6), Fixed(given["ranks"]), align=given.get("align", 1))


@pytest.mark.parametrize(("chunk", "align"), [(255, 1), (300, 7), (0, 1), (1.5, 1)])
def test_chunks_that_cannot_be(chunk, align):
    with pytest.raises((ValueError, TypeError), match="chunk is"):
        split(7000, "self", align, chunk=chunk)


# ---- bits ----

#: Where five ranks end: three of them inside the first chunk of 4096, one of a single tile, one without variables.
BORDERS = (0, 256, 1536, 1536, 9472, PAIRS)


def at_borders(n, comm, align=1, *, borders=BORDERS):
    """Deal out variables as `borders` says, or all to one rank."""
    layout = split(n, comm, align)
    assert layout.communicator.size in (1, len(borders) - 1)
    return dataclasses.replace(layout, borders=borders if layout.communicator.size > 1 else (0, n))


@functools.cache
def found_on(ranks, **options):
    return digest_of(run_threads(ranks, lambda comm: solve_rosenbrock(comm, **options)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_bits_do_not_depend_on_borders_inside_chunks(case):
    assert found_on(5, **case, cut=at_borders) == found_on(1, **case)


@pytest.mark.parametrize(
    "case",
    [
        {"bounded": False}, {"bounded": False, "weighted": True}, {"maxcor": 3}, {"maxcor": 25},
        {"line_search": "va15"}, {"threads": 2}, {"history": "float32"}, {"history": "bfloat16"},
    ],
    ids=str,
)  # fmt: skip
def test_nor_with_other_settings(case):
    assert found_on(5, **case, cut=at_borders) == found_on(1, **case)


@pytest.mark.parametrize("ranks", [2, 3, 4, 5])
def test_split_deals_out_parts_of_chunks(ranks):
    """Six chunks, on which even two ranks have uneven shares: the last is shorter."""
    layouts = run_threads(ranks, lambda comm: split(PAIRS, comm, align=2))
    assert all(layout.tiles == 16 for layout in layouts)
    assert found_on(ranks) == found_on(1)


def test_sums_go_by_hops_as_well(monkeypatch):
    monkeypatch.setattr(stepwell.distributed.ranks, "HOPS_FROM", 2)
    results = run_threads(5, lambda comm: solve_rosenbrock(comm, cut=at_borders))
    assert digest_of(results) == found_on(1)
    assert {r.mode for r in results} == {"5 ranks; same bits on any number of ranks"}


def test_a_part_with_few_variables_is_swept_as_its_chunk_is():
    """A last tile of 100 of a longer chunk, alone on a rank; and a last chunk of 100, whose products are others."""
    for n in (4 * 4096 + 612, 5 * 4096 + 100):
        borders = (0, 1024, 4 * 4096, n - 100, n)

        def program(comm):
            layout = at_borders(n, comm, borders=borders)  # noqa: B023
            i = np.arange(*layout)
            centre, weights = 1.5 * np.sin(i), 1.0 + i % 23

            def fun(x):
                d = x - centre
                return layout.chunk_sums(weights * d**2 / 2 + d**4 / 4), weights * d + d**3

            options = {"ftol": 0, "maxiter": 20, "threads": 1}
            return stepwell.minimize(fun, 0.9 * np.cos(i), jac=True, bounds=(-1, 1), comm=layout, options=options)

        assert digest_of(run_threads(4, program)) == digest_of(run_threads(1, program))


def test_pieces_of_one_s_own_that_end_with_tiles():
    """The promise holds for them, too; one variable further it does not."""

    def program(comm, moved):
        borders = [border + moved * (0 < border < PAIRS) for border in BORDERS]
        begin, end = borders[comm.rank : comm.rank + 2]
        centre = np.sin(np.arange(PAIRS))[begin:end]
        pieces = Pieces(tuple(borders), 4096, comm.rank)

        def fun(x):
            return pieces.chunk_sums((x - centre) ** 2 + (x - centre) ** 4), 2 * (x - centre) + 4 * (x - centre) ** 3

        options = {"ftol": 0, "maxiter": 10}
        return stepwell.minimize(fun, np.zeros(end - begin), jac=True, comm=comm, options=options)

    even, moved = (run_threads(5, lambda comm: program(comm, by)) for by in (0, 1))  # noqa: B023
    assert {r.mode for r in even} == {"5 ranks; same bits on any number of ranks"}
    assert {r.mode for r in moved} == {"5 ranks; same bits for these pieces"}
    np.testing.assert_allclose(np.concatenate([r.x for r in moved]), np.concatenate([r.x for r in even]), atol=1e-5)


def test_memory_of_a_part_of_a_chunk_is_that_of_the_part():
    """(2m + 8) words a variable, and products for each of its tiles, not for all 512 of the chunk that it is in."""
    n, size, m = 2**18, 4096, 5

    def program(comm):
        layout = dataclasses.replace(split(n, comm, chunk=n // 2), borders=(0, size, n))
        centre = np.sin(np.arange(*layout))
        return stepwell.minimize(
            lambda x: (layout.chunk_sums((x - centre) ** 2), 2 * (x - centre)), np.zeros(centre.size), jac=True,
            bounds=(-0.5, 0.5), comm=layout, options={"maxcor": m, "maxiter": 2, "threads": 1},
        )  # fmt: skip

    words = run_threads(2, program)[0].nbytes / 8
    products = (m + 1) * (2 * m + 3 + 16) + 5
    assert 0 <= words - (2 * m + 8) * size - products * size / TILE <= 40 * TILE  # fewer than forty rows of a tile


def test_products_with_the_inverse_hessian():
    def program(comm, cut):
        r = solve_rosenbrock(comm, cut=cut)
        return r.hess_inv @ np.cos(np.arange(*cut(PAIRS, comm, align=2)))

    whole, parts = (
        np.concatenate(run_threads(ranks, functools.partial(program, cut=cut)))
        for ranks, cut in ((3, functools.partial(split, whole_chunks=True)), (5, at_borders))
    )
    np.testing.assert_array_equal(parts, whole)


# ---- the tree ----


@pytest.mark.parametrize("of_a_chunk", [1, 2, 5, 16, 31])
@pytest.mark.parametrize("count", [1, 30, 217])
def test_nodes_of_any_borders_make_up_the_tree(count, of_a_chunk):
    rng = np.random.default_rng(count)
    tiles = rng.normal(size=(count, 2)) * 10.0 ** rng.integers(-8, 9, (count, 2))
    expected = folded(tiles, of_a_chunk)
    for ranks in (1, 2, 7):
        cuts = np.sort(np.append(rng.integers(0, count + 1, ranks - 1), (0, count))).tolist()
        trees = [_core.RankTree(rank, cuts, of_a_chunk) for rank in range(ranks)]
        nodes = []
        for tree, begin, end in zip(trees, cuts, cuts[1:]):
            borders = [*tree.rows, end]
            assert begin in borders
            rows = [folded(tiles[a:b], of_a_chunk) for a, b in itertools.pairwise(borders)]
            nodes.append(tree.fold_own(np.array(rows).reshape(-1, 2)))
        for tree in trees:
            np.testing.assert_array_equal(tree.finish(np.concatenate(nodes)), expected)


def test_sums_of_chunks_are_those_of_their_tiles():
    values = np.random.default_rng(0).normal(size=PAIRS)
    tiles = np.add.reduceat(values, np.arange(0, PAIRS, TILE))  # (4096 is 16 of them)
    whole = split(PAIRS, "self").chunk_sums(values)
    expected = [folded(tiles[a : a + 16], 16) for a in range(0, len(tiles), 16)]
    np.testing.assert_array_equal(whole, expected)
    parts = [Pieces(BORDERS, 4096, rank) for rank in range(5)]
    rows = [one.chunk_sums(values[one.begin : one.end]) for one in parts]
    nodes = np.concatenate([one.tree().fold_own(row[:, None]) for one, row in zip(parts, rows)])
    assert parts[0].tree().finish(nodes)[0] == folded(tiles, 16)


def test_on_a_gpu_parts_of_chunks_are_swept_like_chunks():
    for rank, parts in enumerate([1, 1, 0, 3, 4]):
        pieces = Pieces(BORDERS, 4096, rank, on_device=True)
        assert pieces.chunks == parts
        assert not pieces.aligned
        assert pieces.cuts == [0, 1, 2, 2, 5, 9]
    assert Pieces((0, 4096, PAIRS), 4096, 0, on_device=True).aligned
