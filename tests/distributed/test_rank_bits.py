"""One problem over ranks: the same bits on any number of them, and as without a communicator."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from rank_problems import CASES, PAIRS, Fixed, digest_of, rosenbrock, signs, solve_rosenbrock, torsion

import stepwell
from stepwell.distributed import Ranks, part, run_threads, split


@functools.cache
def found_on(ranks, **options):
    return digest_of(run_threads(ranks, lambda comm: solve_rosenbrock(comm, **options)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
@pytest.mark.parametrize("ranks", [3, 5])
def test_bits_do_not_depend_on_the_number_of_ranks(ranks, case):
    assert found_on(ranks, **case) == found_on(1, **case)


@pytest.mark.parametrize(
    "case", [{}, {"bounded": False}, {"maxcor": 3}, {"line_search": "va15"}, {"threads": 2}], ids=str
)
def test_nor_with_other_settings(case):
    assert found_on(2, **case) == found_on(1, **case)


def test_nor_with_ranks_that_have_no_variables():
    """Six chunks over eight ranks."""
    whole = functools.partial(split, whole_chunks=True)
    layouts = run_threads(8, lambda comm: whole(PAIRS, comm, align=2))
    assert sorted(layout.end == layout.begin for layout in layouts) == [False] * 6 + [True] * 2
    assert found_on(8, cut=whole) == found_on(1)


def test_one_rank_has_the_bits_of_no_communicator():
    layout = split(PAIRS, "self")
    value, start, bounds, _ = rosenbrock(layout)

    def summed(x):
        chunks, gradient = value(x)
        return float(layout.total(Ranks("self"), chunks[:, None])[0]), gradient

    options = {"ftol": 0, "gtol": 1e-6, "maxiter": 25}
    plain = stepwell.minimize(summed, start, jac=True, bounds=bounds, options=options)
    for comm, fun in (("self", summed), ("self", value), (layout, value)):
        shared = stepwell.minimize(fun, start, jac=True, bounds=bounds, options=options, comm=comm)
        assert digest_of([shared]) == digest_of([plain])
    np.testing.assert_array_equal(shared.hess_inv @ start, plain.hess_inv @ start)


@pytest.mark.parametrize("cauchy", ["exact", "first-interval"])
def test_few_variables_which_one_rank_has(cauchy):
    """Their model is formed by whoever has them, and the others are told, on bent paths too."""
    n = 20
    rng = np.random.default_rng(0)
    centre, weights = 2 * rng.normal(size=n), 10.0 ** rng.uniform(0, 3, n)

    def program(comm):
        layout = split(n, comm)
        i = np.arange(*layout)

        def fun(x):
            d = x - centre[i]
            return layout.chunk_sums(weights[i] * d**2 / 2 + d**4 / 4), weights[i] * d + d**3

        start = np.full(i.size, 0.9)
        options = {"ftol": 0, "cauchy": cauchy}
        return stepwell.minimize(fun, start, jac=True, bounds=(-1.0, 1.0), comm=layout, options=options)

    found = [run_threads(ranks, program) for ranks in (1, 2, 3)]
    assert len({digest_of(results) for results in found}) == 1
    assert found[0][0].cauchy_walks > 0
    np.testing.assert_allclose(np.concatenate([r.x for r in found[2]]), np.clip(centre, -1, 1), atol=1e-4)


def test_few_variables_that_become_many():
    """A chain pulled at one end: with every iteration one more variable leaves its bound.

    Their model is that of few variables at first, and of all pairs later.
    """
    n = 40
    options = {"maxcor": 5, "gtol": 1e-9, "ftol": 0, "maxiter": 60}

    def fun(x):
        pull = np.where(np.arange(x.size) < 1, 50.0, -0.01)
        g = 2 * x - pull
        g[1:] -= x[:-1]
        g[:-1] -= x[1:]
        return 0.5 * float(x @ (g - pull)), g

    def program(comm):
        layout = split(n, comm)
        begin, end = layout

        def piece(x):
            f, g = fun(x)
            return layout.chunk_sums(np.where(np.arange(x.size) < 1, f, 0.0)), g

        start = np.zeros(end - begin)
        return stepwell.minimize(piece, start, jac=True, bounds=(0.0, None), comm=layout, options=options)

    plain = stepwell.minimize(fun, np.zeros(n), jac=True, bounds=(0.0, None), options=options)
    assert (plain.x > 0).sum() > 2 * options["maxcor"]
    for ranks in (1, 2, 3):
        results = run_threads(ranks, program)
        np.testing.assert_array_equal(np.concatenate([r.x for r in results]), plain.x)
        assert {r.nfev for r in results} == {plain.nfev}


@pytest.mark.parametrize("cauchy", ["exact", "first-interval"])
def test_a_problem_with_a_halo(cauchy):
    nx = 150

    def program(comm):
        layout = split(nx * nx, comm, align=nx)
        fun, start, bounds = torsion(layout, nx, comm)
        options = {"maxcor": 8, "gtol": 1e-4, "ftol": 0, "cauchy": cauchy, "threads": 1}
        return stepwell.minimize(fun, start, jac=True, bounds=bounds, comm=layout, options=options)

    found = [run_threads(ranks, program) for ranks in (1, 2, 4)]
    assert len({digest_of(results) for results in found}) == 1
    assert found[0][0].success
    assert found[0][0].cauchy_walks > 0
    # The Cauchy point of a problem whose start presses against all bounds is among thousands of breakpoints.
    assert all(r.mode == "4 ranks; same bits on any number of ranks" for r in found[-1])


def test_a_walk_over_more_breakpoints_than_a_list_is_long():
    """A quadratic whose first direction meets thousands of bounds before its minimum, many of them at one time."""
    n = 20_480

    def program(comm):
        layout = split(n, comm)
        i = np.arange(*layout)
        centre, bound = 1 + (i % 5) / 4, np.where(i % 4 == 0, 0.05, 0.01 + (i % 97) / 200)

        def fun(x):
            scale = 1 + (i % 13)
            return layout.chunk_sums(0.5 * scale * (x - centre) ** 2), scale * (x - centre)

        return stepwell.minimize(
            fun, np.zeros(i.size), jac=True, bounds=(-np.inf, bound), comm=layout, options={"ftol": 0, "threads": 1}
        )

    found = [run_threads(ranks, program) for ranks in (1, 3, 5)]
    assert len({digest_of(results) for results in found}) == 1
    assert found[0][0].cauchy_walks > 0
    i = np.arange(n)
    expected = np.minimum(1 + (i % 5) / 4, np.where(i % 4 == 0, 0.05, 0.01 + (i % 97) / 200))
    np.testing.assert_allclose(np.concatenate([r.x for r in found[1]]), expected, atol=1e-6)


def test_a_diagonal_that_changes():
    def program(comm, ranks):
        layout = split(PAIRS, comm, align=2)
        fun, start, bounds, diagonal = rosenbrock(layout)
        options = {"ftol": 0, "maxiter": 25, "threads": 1, "h0": lambda x: diagonal * (1 + 0.1 * np.tanh(x))}
        return stepwell.minimize(fun, start, jac=True, bounds=bounds, comm=layout, options=options)

    found = {digest_of(run_threads(ranks, lambda comm: program(comm, ranks))) for ranks in (1, 2, 3)}  # noqa: B023
    assert len(found) == 1


# ---- pieces and values of other kinds ----


def with_parts(value, layout):
    """Return the function with its value as this rank's share."""

    def fun(x):
        chunks, gradient = value(x)
        return part(chunks.sum()), gradient

    return fun


def test_shares_of_f_repeat_on_as_many_ranks():
    first, second = (run_threads(3, lambda comm: solve_rosenbrock(comm, fun=with_parts)) for _ in range(2))
    assert digest_of(first) == digest_of(second)
    assert {r.mode for r in first} == {"3 ranks; same bits for these pieces"}
    alone = run_threads(1, lambda comm: solve_rosenbrock(comm))
    # A rounding error of f enters through the line search alone; 25 iterations from a far start take it along.
    assert first[0].fun == pytest.approx(alone[0].fun, rel=1e-6)


def summed_by_the_caller(value, layout):
    """Return the function with its value as a number, which the caller has summed in the order of the ranks."""
    ranks = Ranks(layout)

    def fun(x):
        chunks, gradient = value(x)
        return float(sum(row[0] for row in ranks.exchange(np.array([chunks.sum()])))), gradient

    return fun


def test_of_a_sum_of_the_caller_s_no_more_is_promised_than_it_keeps():
    """Its rounding depends on the number of ranks, and with it the whole run."""
    found = run_threads(3, lambda comm: solve_rosenbrock(comm, fun=summed_by_the_caller))
    assert {r.mode for r in found} == {
        "3 ranks; same bits for these pieces, as long as fun returns f with the same bits"
    }
    assert run_threads(1, lambda comm: solve_rosenbrock(comm, fun=summed_by_the_caller))[0].mode == (
        "1 rank; same bits for these pieces"
    )


def test_pieces_of_any_size():
    """Borders that are no borders of chunks: runs repeat, the result says so, and the answer is the same."""
    borders = [0, 5001, 5001, 17_500, PAIRS]

    def program(comm):
        begin, end = borders[comm.rank : comm.rank + 2]
        whole = split(PAIRS, "self")
        _, start, bounds, _ = rosenbrock(whole)
        centre = 0.5 * np.sin(np.arange(PAIRS))[begin:end]

        def fun(x):
            return part(float(((x - centre) ** 2 + (x - centre) ** 4).sum())), 2 * (x - centre) + 4 * (x - centre) ** 3

        low, high = (half[begin:end] for half in bounds)
        return stepwell.minimize(fun, start[begin:end], jac=True, bounds=(low, high), comm=comm, options={"ftol": 0})

    found = [run_threads(4, program) for _ in range(2)]
    assert digest_of(found[0]) == digest_of(found[1])
    assert {r.mode for r in found[0]} == {"4 ranks; same bits for these pieces"}
    _, _, (lower, upper), _ = rosenbrock(split(PAIRS, "self"))
    expected = np.clip(0.5 * np.sin(np.arange(PAIRS)), lower, upper)
    np.testing.assert_allclose(np.concatenate([r.x for r in found[0]]), expected, atol=1e-5)


@pytest.mark.parametrize(("n", "align", "ranks"), [(10**11, 1, 1000), (10**8, 1, 7), (10**6, 1000, 3), (30, 1, 4)])
def test_pieces_are_even_and_have_few_nodes(n, align, ranks):
    layout = split(n, Fixed(ranks), align)
    sizes = np.diff(layout.borders)
    assert layout.borders[0] == 0
    assert layout.borders[-1] == n
    assert all(border % align == 0 for border in layout.borders)
    if layout.chunks > 25:
        assert sizes.max() <= 1.04 * n / ranks + 1
    nodes = layout.tree().nodes
    assert sum(nodes) >= 1
    chunks = -(-n // layout.chunk_length)
    assert max(nodes) <= max(1, 2 * np.log2(chunks))
    if ranks == 1000:
        assert chunks <= 32768
        assert np.mean(nodes) < 4  # cut where 1000 says, it would be five
        assert max(nodes) <= 5


def test_chunks_are_as_they_were_up_to_two_to_the_26():
    from stepwell import _core

    for n in (1, 100, 4096, 10**6, 2**26):
        assert _core.chunk_length(n) == max(4096, int(np.ceil(np.ceil(n / 128) / 256)) * 256)
    assert _core.chunk_length(2**27) == 2**19  # more of them, not longer ones
    # Two to four would be shared unevenly by threads: eight of one length.
    assert [_core.chunk_length(n) for n in (8191, 8192, 10_000, 16_384, 16_385)] == [4096, 1024, 1256, 2048, 4096]


@pytest.mark.parametrize("nx", [100, 150, 200, 400, 640, 1000])
def test_chunks_of_rows_leave_two_ranks_about_the_same_to_do(nx):
    """In tiles of 256 variables, of which a chunk may begin one that it does not fill."""
    from stepwell import _core

    n, length = nx * nx, _core.chunk_length(nx * nx, nx)
    assert length % nx == 0
    chunks = np.diff(np.append(np.arange(0, n, length), n))
    tiles = -(-chunks // 256)
    half = chunks.size // 2
    assert max(tiles[:half].sum(), tiles[half:].sum()) <= 1.04 * n / 512


@pytest.mark.parametrize("cauchy", ["exact", "none"])
def test_bits_of_chunks_that_were_asked_for(cauchy):
    found = {ranks: found_on(ranks, cut=functools.partial(split, chunk=512), cauchy=cauchy) for ranks in (1, 2, 5)}
    assert len(set(found.values())) == 1
    assert found[1] != found_on(1, cauchy=cauchy)  # they have an order of their own


# ---- what it costs ----


def test_two_exchanges_an_iteration():
    """And three for an evaluation beyond the first of a search, after which slope and pair travel apart twice."""
    whole = functools.partial(split, whole_chunks=True)
    results = run_threads(2, lambda comm: solve_rosenbrock(comm, cauchy="none", maxiter=60, cut=whole))
    r = results[0]
    unusual = 3 * (r.nfev - r.nit) + 2 * r.truncations + r.resets
    assert 2 * r.nit < r.exchanges <= 2 * r.nit + unusual + 12  # the last: to agree on the problem, and at the end
    nodes = 1  # two ranks of three chunks each have half of the tree
    widest = 8 * (2 + 2 + nodes * (2 + 4 * 10 + 2 * 10 + 10 * 21 + 7))
    assert r.bytes_sent <= r.exchanges * widest
    assert widest + 8 * (2 + nodes * 4) <= 2.4e3 * nodes  # an ordinary iteration: this one, and that of the aim sweep


@pytest.mark.parametrize("starts", [None, 3, 40])
@pytest.mark.parametrize("n", [50_000, pytest.param(400_000, marks=pytest.mark.slow)])
def test_a_walk_over_all_bounds_takes_few_exchanges(n, starts):
    """Lists twice as long as the one before, two exchanges each; and the same bits, also where ties do not fit."""

    def solve(comm, cauchy="exact"):
        layout = split(n, comm)
        fun, start, bounds = signs(layout, n, starts)
        options = {"maxiter": 3, "threads": 1, "cauchy": cauchy}
        return stepwell.minimize(fun, start, jac=True, bounds=bounds, comm=layout, options=options)

    found = [run_threads(ranks, solve) for ranks in (1, 2, 3)]
    assert len(set(map(digest_of, found))) == 1
    for results in found:
        r = results[0]
        assert r.cauchy_walks == 1
        ordinary = 5 * (r.nfev + r.nit) + 20
        lists = np.log2(n / 512) + 16
        assert r.exchanges <= ordinary + 2 * lists + (8 if starts is None else 8 * starts)


def test_memory_is_that_of_the_piece():
    """(2m + 6) words a variable with bounds, two more for a pair that may be refused, and kept products."""
    m = 5
    results = run_threads(2, lambda comm: solve_rosenbrock(comm, maxcor=m, maxiter=3))
    words = sum(r.nbytes for r in results) / 8
    tiles = 2 * 40 * 256  # of one thread a rank: fewer than forty rows of a tile
    products = (m + 1) * (2 * m + 3 + 16) + 5  # of the slots, and eight for each row, for each tile of 256 variables
    assert 0 <= words - (2 * m + 2 + 6) * PAIRS - products * PAIRS / 256 <= tiles
