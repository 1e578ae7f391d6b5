"""Sums that go from rank to rank: the bits of the tree over all chunks, and hops as many as the logarithm of ranks."""

from __future__ import annotations

import collections
import itertools
import math

import numpy as np
import pytest
from rank_problems import CASES, digest_of, folded, solve_rosenbrock

import stepwell.distributed.ranks
from stepwell import _core
from stepwell.distributed import part, run_threads
from stepwell.distributed.layout import cut_chunks


def exchanged(cuts, homes, leaves, tiles=1):
    """Let all ranks make their hops in one process; return them, and messages and bytes that each has sent."""
    cuts, homes = np.asarray(cuts, np.int64), np.asarray(homes, np.int64)
    sums = [_core.TreeSums(rank, cuts, homes, tiles) for rank in range(len(homes))]
    post = collections.defaultdict(collections.deque)
    sent = np.zeros((len(homes), 2), int)

    def program(rank):
        one = sums[rank]
        # (What a rank has to add depends on where its own chunks lie alone.)
        own = [0, int(cuts[rank]), int(cuts[rank + 1]), int(cuts[-1])]
        borders = [*_core.RankTree(1, own, tiles).rows, own[2]]
        rows = [folded(leaves[a:b], tiles) for a, b in itertools.pairwise(borders)]
        one.begin(np.reshape(rows, (-1, leaves.shape[1])), 1.0 + rank)
        for hop, other in enumerate(one.partners):
            out = one.outgoing(hop)
            if out is not None:
                sent[rank] += 1, out.nbytes
                post[rank, other].append(out)
            if one.expected(hop):
                while not post[other, rank]:
                    yield
                one.incoming(hop, post[other, rank].popleft())

    running = [program(rank) for rank in range(len(homes))]
    for _ in range(200):
        running = [one for one in running if next(one, "done") != "done"]
        if not running:
            break
    assert not running, "ranks wait for each other"
    assert not any(post.values()), "messages that nobody has read"
    return sums, sent


HOMES = {
    "alone": lambda r: r,
    "one node": lambda r: 0 * r,
    "nodes of 4": lambda r: r // 4,
    "uneven nodes": lambda r: (np.sqrt(7.0 * r)).astype(int),
    "dealt out in turn": lambda r: r % 3,
}


@pytest.mark.parametrize("homes", HOMES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8, 13, 33, 100])
def test_totals_are_those_of_the_tree(ranks, homes):
    rng = np.random.default_rng(ranks)
    for count, tiles in ((1, 1), (7, 1), (127, 1), (500, 1), (500, 31)):
        leaves = rng.normal(size=(count, 3)) * 10.0 ** rng.integers(-8, 9, (count, 3))
        cuts = np.sort(np.append(rng.integers(0, count + 1, ranks - 1), (0, count)))  # some ranks have none
        expected = folded(leaves, tiles)
        sums, _ = exchanged(cuts, HOMES[homes](np.arange(ranks)), leaves, tiles)
        for one in sums:
            np.testing.assert_array_equal(one.total(3), expected)
            assert one.share == ranks * (ranks + 1) / 2


def test_shares_of_f_are_added_by_one_tree_wherever_ranks_are():
    rng = np.random.default_rng(0)
    shares = rng.normal(size=45) * 10.0 ** rng.integers(-8, 9, 45)
    expected = folded(shares[:, None])[0]
    for homes in HOMES.values():
        cuts, ranks = np.arange(46), np.arange(45)
        sums, _ = exchanged(cuts, homes(ranks), shares[:, None])
        assert {one.total(1)[0] for one in sums} == {expected}


@pytest.mark.parametrize("ranks", [10, 100, 1000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("node", [1, 64])
def test_messages_grow_with_the_logarithm(ranks, node):
    """At most log2 R hops and two more; two levels: twice within a node, and two more there."""
    chunks, width = 32_768, 4
    rows = np.random.default_rng(0).normal(size=(chunks, width))
    sums, sent = exchanged(cut_chunks(chunks, ranks), np.arange(ranks) // node, rows)
    expected = folded(rows)
    for one in sums[:: max(1, ranks // 50)]:
        np.testing.assert_array_equal(one.total(width), expected)
    inside, outside = math.log2(min(node, ranks)), math.log2(max(ranks / node, 1))
    most = 2 * math.ceil(inside) + math.ceil(outside) + 2
    assert max(len(one.partners) for one in sums) <= most + 2
    # A range of leaves of a tree has at most two nodes on each level; ranges that hops join are halves of others,
    # and in most hops have far fewer.
    levels = math.ceil(math.log2(chunks))
    assert sent[:, 0].max() <= most + 2
    assert sent[:, 1].max() <= most * 8 * (5 + 2 * math.log2(ranks) + width * levels)
    assert max(one.additions for one in sums) <= 2 * levels * most


@pytest.fixture
def hops(monkeypatch):
    """Let sums go by hops among few ranks, too."""
    monkeypatch.setattr(stepwell.distributed.ranks, "HOPS_FROM", 2)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
@pytest.mark.parametrize("ranks", [3, 6])
def test_runs_have_the_bits_of_one_rank(ranks, case, hops):
    alone = digest_of(run_threads(1, lambda comm: solve_rosenbrock(comm, **case)))
    results = run_threads(ranks, lambda comm: solve_rosenbrock(comm, **case))
    assert digest_of(results) == alone
    assert len({r.exchanges for r in results}) == 1


def test_as_many_exchanges_as_all_at_once(monkeypatch):
    """An exchange is one however many hops it takes; one more, to learn who is on whose node."""
    counts = []
    for least in (99, 2):
        monkeypatch.setattr(stepwell.distributed.ranks, "HOPS_FROM", least)
        counts.append(run_threads(5, lambda comm: solve_rosenbrock(comm, cauchy="none"))[0].exchanges)
    assert counts[1] == counts[0] + 1


def as_part(value, layout):
    def fun(x):
        chunks, gradient = value(x)
        return part(chunks.sum()), gradient

    return fun


def test_shares_repeat(hops):
    first, second = (run_threads(5, lambda comm: solve_rosenbrock(comm, fun=as_part)) for _ in range(2))
    assert digest_of(first) == digest_of(second)
    alone = run_threads(1, lambda comm: solve_rosenbrock(comm))
    assert first[0].fun == pytest.approx(alone[0].fun, rel=1e-6)  # as in test_rank_bits.py


def test_an_error_on_one_rank_is_raised_on_all(hops):
    def fails_on_rank_2(value, layout):
        calls = []

        def fun(x):
            calls.append(1)
            if layout.rank == 2 and len(calls) == 4:
                raise ValueError("no gradient here")
            return value(x)

        return fun

    def program(comm):
        try:
            solve_rosenbrock(comm, fun=fails_on_rank_2)
        except (ValueError, stepwell.distributed.RankError) as error:
            return f"{type(error).__name__}: {error}"

    said = run_threads(4, program)
    assert said == ["RankError: rank 2: ValueError: no gradient here"] * 2 + ["ValueError: no gradient here", said[0]]


def test_values_that_differ_are_named(hops):
    def own(value, layout):
        return lambda x: (float(layout.rank), value(x)[1])

    def program(comm):
        with pytest.raises(ValueError, match=r"fun returned 0.0 on rank 0 and 1.0 on rank 1"):
            solve_rosenbrock(comm, fun=own)
        return True

    assert all(run_threads(3, program))


def test_a_callback_that_stops_on_one_rank_stops_all(hops):
    import stepwell
    from stepwell.distributed import split

    def program(comm):
        layout = split(20_000, comm)
        begin, end = layout
        weights = 1.0 + np.arange(begin, end) % 17

        def callback(intermediate_result):
            if comm.rank == 1 and intermediate_result.nit == 3:
                raise StopIteration

        return stepwell.minimize(
            lambda x: (layout.chunk_sums(0.5 * weights * x * x), weights * x), np.ones(end - begin), jac=True,
            comm=layout, callback=callback,
        )  # fmt: skip

    assert {(r.nit, r.status) for r in run_threads(3, program)} == {(3, 99)}


class Late:
    """Ranks with a clock each, which messages carry along: they arrive one unit of time after they were sent."""

    def __init__(self, comm):
        self._comm, self.rank, self.size = comm, comm.rank, comm.size
        self.clock = self.gathered = 0

    def allgather(self, row, counts):
        self.gathered += 1
        return self._comm.allgather(row, counts)

    def swap(self, partner, row, count):
        stamped = None if row is None else np.append(row, self.clock)
        received = self._comm.swap(partner, stamped, count + 1 if count else 0)
        if not count:
            return None
        self.clock = max(self.clock, received[-1] + 1)
        return received[:-1]


@pytest.mark.parametrize(("ranks", "latencies"), [(2, 1), (4, 2), (6, 3), (7, 4), (8, 3)])
def test_latencies_of_a_run_add_up_as_the_logarithm_says(ranks, latencies, hops):
    """Where ranks are no power of two, extra ones hand in their sums first and hear of the total last.

    Of 7 there are 3, which makes one latency more; of 6, two, whose way is no longer than that of the others.
    """

    def program(comm):
        late = Late(comm)
        return late, solve_rosenbrock(late, cauchy="none")  # (lists of a walk go the way twice)

    for late, r in run_threads(ranks, program):
        expected = latencies * (r.exchanges - late.gathered)
        assert expected > 20
        assert expected - 2 <= late.clock <= expected  # at the end some are there before others
