"""What an exchange among many ranks takes, by a model: `python benchmarks/ranks_model.py`.

The compiled sums of every rank (`TreeSums`, the code that real ranks run) work in one process, and messages are handed
from one to the other. Counted are messages, bytes and additions of rows a rank; a clock a rank adds up latency, bytes
and additions along the way, and the latest of them is the time of the exchange.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import time
from typing import NamedTuple

import numpy as np

import stepwell
import stepwell.distributed.ranks
from stepwell import _core
from stepwell.distributed import read_comm
from stepwell.distributed.layout import Pieces, borders_of

#: Numbers of a row at m = 10 (slope, products, totals), and seconds to add two such rows.
WIDTH, ADDITION = 281, 0.37e-6


class Cost(NamedTuple):
    """What one exchange takes: the most of any rank, and the modelled seconds."""

    messages: int
    bytes: int
    additions: int
    seconds: float


def simulate(cuts, homes, *, tiles=1, width=WIDTH, latency=2e-6, bandwidth=10e9, addition=ADDITION):
    """Return the totals of all ranks, one row each, and what they cost; cuts and tiles are those of `Pieces`."""
    cuts, homes = np.asarray(cuts, np.int64), np.asarray(homes, np.int64)
    count, rng = homes.size, np.random.default_rng(0)
    sums = [_core.TreeSums(rank, cuts, homes, tiles) for rank in range(count)]
    for rank, one in enumerate(sums):
        one.begin(rng.normal(size=(one.rows, width)), float(rank))
    partners = [one.partners for one in sums]
    clock, messages, sent = np.zeros(count), np.zeros(count, int), np.zeros(count, int)
    at, has_sent = [0] * count, [-1] * count
    post: dict[tuple[int, int], collections.deque] = collections.defaultdict(collections.deque)

    def go_on(rank: int) -> list[int]:
        """Let a rank make what hops it can; return who may go on then."""
        woken = []
        while at[rank] < len(partners[rank]):
            hop, other = at[rank], partners[rank][at[rank]]
            if has_sent[rank] < hop:
                has_sent[rank] = hop
                out = sums[rank].outgoing(hop)
                if out is not None:
                    messages[rank] += 1
                    sent[rank] += out.nbytes
                    post[rank, other].append((clock[rank] + latency + out.nbytes / bandwidth, out))
                    woken.append(other)
            if sums[rank].expected(hop):
                if not post[other, rank]:
                    break
                arrival, numbers = post[other, rank].popleft()
                before = sums[rank].additions
                sums[rank].incoming(hop, numbers)
                clock[rank] = max(clock[rank], arrival) + addition * (sums[rank].additions - before)
            at[rank] += 1
        return woken

    todo = collections.deque(range(count))
    while todo:
        todo.extend(go_on(todo.popleft()))
    assert all(at[rank] == len(partners[rank]) for rank in range(count))
    totals = np.array([one.total(width) for one in sums])
    shares = {one.share for one in sums}
    assert shares == {count * (count - 1) / 2}
    additions = max(one.additions for one in sums)
    return totals, Cost(int(messages.max()), int(sent.max()), int(additions), float(clock.max()))


def all_at_once(cuts, *, tiles=1, width=WIDTH, latency=2e-6, bandwidth=10e9, addition=ADDITION) -> Cost:
    """Return the same of an exchange in which everybody gets everything."""
    nodes = _core.RankTree(0, list(cuts), tiles).nodes
    ranks, rows = len(nodes), sum(nodes)
    size = 8 * (4 * ranks + rows * width)
    hops = int(np.ceil(np.log2(max(ranks, 2))))
    return Cost(hops, size, rows - 1, hops * latency + size / bandwidth + (rows - 1) * addition)


class Delayed:
    """Ranks whose messages arrive later by so many seconds."""

    def __init__(self, comm, delay):
        self._comm, self._delay = read_comm(comm), delay
        self.rank, self.size = self._comm.rank, self._comm.size

    def allgather(self, row, counts):
        time.sleep(self._delay * math.ceil(math.log2(self.size)))
        return self._comm.allgather(row, counts)

    def swap(self, partner, row, count):
        if count:
            time.sleep(self._delay)
        return self._comm.swap(partner, row, count)

    def home(self):
        return self.rank  # each on a node of its own: the way of the model's second line


def with_delay(comm, iterations=30) -> None:
    """Print the time of an exchange among real ranks whose messages arrive later, beside what the model says.

    The time is that of a whole run, evaluations and sweeps included, by its exchanges.
    """
    stepwell.distributed.ranks.HOPS_FROM = 2
    n = 4096 * 4 * comm.size
    found = {}
    for delay in (0.0, 0.0, 1e-3, 1e-2):  # the first run is not counted
        layout = stepwell.distributed.split(n, Delayed(comm, delay))
        begin, end = layout
        weights = 1.0 + np.arange(begin, end) % 17

        def fun(x):
            return layout.chunk_sums(0.5 * weights * x * x), weights * x  # noqa: B023

        options = {"maxiter": iterations, "gtol": 0, "ftol": 0, "threads": 1}
        getattr(comm, "Barrier", lambda: None)()
        began = time.perf_counter()
        r = stepwell.minimize(fun, np.ones(end - begin), jac=True, comm=layout, options=options)
        found[delay] = (time.perf_counter() - began) / r.exchanges
    if comm.rank:
        return
    cuts, homes = np.arange(comm.size + 1), np.arange(comm.size)
    model = {delay: simulate(cuts, homes, latency=delay)[1].seconds for delay in found}
    for delay, seconds in found.items():
        print(
            f"{comm.size} ranks, {1e3 * delay:g} ms a message: {1e3 * seconds:.2f} ms, model {1e3 * model[delay]:.2f}"
        )
    short, long = list(found)[-2:]
    more, expected = (times[long] - times[short] for times in (found, model))
    print(f"{comm.size} ranks, from {1e3 * short:g} to {1e3 * long:g} ms: {more / expected:.3f} of the model's")


def main() -> None:
    """Print a table, and as JSON with --json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=float, default=1e11)
    parser.add_argument("--ranks", type=int, nargs="+", default=[10, 100, 1000, 10_000])
    parser.add_argument("--node", type=int, default=64, help="ranks of a node")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--delay", action="store_true", help="of real messages, under mpiexec")
    parser.add_argument("--threads", type=int, default=0, help="the same, of ranks that are threads")
    given = parser.parse_args()
    if given.threads:
        stepwell.distributed.run_threads(given.threads, with_delay)
        return
    if given.delay:
        from mpi4py import MPI

        with_delay(MPI.COMM_WORLD)
        return
    n = int(given.n)
    length = int(_core.chunk_length(n))
    lines = []
    for ranks in given.ranks:
        pieces = Pieces(borders_of(n, length, ranks), length, 0)
        ways = {"all at once": all_at_once(pieces.cuts, tiles=pieces.tiles)}
        for way, homes in (("hops", np.arange(ranks)), (f"nodes of {given.node}", np.arange(ranks) // given.node)):
            totals, ways[way] = simulate(pieces.cuts, homes, tiles=pieces.tiles)
            assert (totals == totals[0]).all()
        lines += [{"ranks": ranks, "way": way, **cost._asdict()} for way, cost in ways.items()]
    if given.json:
        print(json.dumps(lines, indent=1))
        return
    print(f"n = {n:.0e}, {-(-n // length)} chunks, rows of {WIDTH} numbers, 2 us and 10 GB/s\n")
    print("| ranks | way | messages | kB sent | additions | ms |\n|---|---|---|---|---|---|")
    for line in lines:
        print(
            f"| {line['ranks']:,} | {line['way']} | {line['messages']} | {line['bytes'] / 1e3:,.0f} | "
            f"{line['additions']:,} | {1e3 * line['seconds']:.3f} |"
        )


if __name__ == "__main__":
    main()
