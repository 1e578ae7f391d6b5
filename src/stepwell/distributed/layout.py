"""How a long vector is spread over ranks: whole chunks, whose length follows from n (and an alignment) alone.

Sums are taken chunk by chunk and added by one tree over all chunks, of which every rank sends the nodes that cover its
own. So a sum over pieces of whole chunks has the same bits on any number of ranks.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from stepwell import _core
from stepwell.arrays import Array, is_cuda
from stepwell.common.checks import read_whole, require, warn_caller
from stepwell.distributed.communicators import Communicator, read_comm
from stepwell.distributed.ranks import Ranks

#: How much more than its share of the chunks a rank may get, for cuts at rounder places of the tree.
_IMBALANCE = 1.04
#: How much more than the mean a rank may have before `split` says so, unless ranks have fewer variables than this.
_WORTH_SAYING, _WORTH_A_RANK = 1.1, 4096
#: What chunks are made of, and the shortest that `chunk` allows.
_TILE = 256


@dataclasses.dataclass(frozen=True)
class Pieces:
    """The pieces of a vector of n elements on all ranks, as seen by one of them.

    Attributes
    ----------
    borders : tuple of int
        Rank r has elements ``borders[r]`` to ``borders[r + 1]``.
    chunk_length : int
        Chunks begin at the multiples of this, and where a piece does.
    rank : int
    """

    borders: tuple[int, ...]
    chunk_length: int
    rank: int

    @property
    def n(self) -> int:
        """How many elements all pieces have together."""
        return self.borders[-1]

    @property
    def begin(self) -> int:
        """Where this rank's piece begins."""
        return self.borders[self.rank]

    @property
    def end(self) -> int:
        """Where this rank's piece ends."""
        return self.borders[self.rank + 1]

    @property
    def before(self) -> int:
        """How many elements of this rank's first chunk would lie before its piece."""
        return self.begin % self.chunk_length

    @property
    def aligned(self) -> bool:
        """Whether all pieces consist of whole chunks: then bits do not depend on the number of ranks."""
        return all(border % self.chunk_length == 0 or border == self.n for border in self.borders)

    def chunks_of(self, rank: int) -> int:
        """Return how many chunks a rank has."""
        begin, end = self.borders[rank : rank + 2]
        return -(-end // self.chunk_length) - begin // self.chunk_length if end > begin else 0

    @property
    def chunks(self) -> int:
        """How many chunks this rank has."""
        return self.chunks_of(self.rank)

    @property
    def cuts(self) -> list[int]:
        """Rank r has chunks ``cuts[r]`` to ``cuts[r + 1]``."""
        counts = [self.chunks_of(rank) for rank in range(len(self.borders) - 1)]
        return [0, *np.cumsum(counts).tolist()]

    @property
    def chunk_starts(self) -> np.ndarray:
        """Where this rank's chunks begin, within its piece."""
        return np.maximum(np.arange(self.chunks) * self.chunk_length - self.before, 0)

    def tree(self) -> _core.RankTree:
        """Return the tree over the chunks of all ranks."""
        return _core.RankTree(self.rank, self.cuts)

    def chunk_sums(self, values: Array) -> Array:
        """Return the sum over each of this rank's chunks of an array with one value for each of its elements.

        It is what an objective may return as its value where f is a sum over the variables. Of an array on a GPU the
        sums stay there.
        """
        if is_cuda(values):
            from stepwell.distributed.device_sums import device_chunk_sums

            size = self.end - self.begin
            return device_chunk_sums(values, size, self.chunks, self.chunk_length, self.before)
        array = np.asarray(values, dtype=np.float64).reshape(-1)
        require(array.size == self.end - self.begin, "values", array.size, f"{self.end - self.begin} numbers")
        if not array.size:
            return np.zeros(0)
        return np.add.reduceat(array, self.chunk_starts)

    def total(self, ranks: Ranks, rows: np.ndarray, tree: _core.RankTree | None = None) -> np.ndarray:
        """Return the sum over the chunks of all ranks of rows (chunks, k), one for each of this rank's: one exchange.

        `tree` is that of these pieces, where it is at hand.
        """
        tree = self.tree() if tree is None else tree
        width = rows.shape[1]
        nodes = tree.fold_own(np.ascontiguousarray(rows, dtype=np.float64))
        received = ranks.exchange(nodes, [count * width for count in tree.nodes])
        total: np.ndarray = tree.finish(np.concatenate(received).reshape(-1, width))
        return total


@dataclasses.dataclass(frozen=True)
class Layout(Pieces):
    """What `split` returns: pieces, and the communicator that they are for; unpacks as ``begin, end``."""

    communicator: Communicator
    align: int
    chunk: int = 0  #: the length of chunks that was asked for; 0: it follows from n and align

    def __iter__(self) -> Iterator[int]:
        return iter((self.begin, self.end))


def split(n: int, comm: Any, align: int = 1, *, chunk: int | None = None, timeout: float | None = None) -> Layout:
    """Spread n variables over the ranks of a communicator, in whole chunks.

    Parameters
    ----------
    n : int
        How many variables there are in all, a multiple of `align`.
    comm
        An mpi4py communicator, a torch process group, ``"self"``, or an object with `rank`, `size` and `allgather`.
    align : int
        Pieces begin and end at multiples of this: the length of a row of a grid, say.
    chunk : int, optional
        How many variables a chunk has, a multiple of `align` and of 256 or more; by default it follows from n and
        `align`. Pieces are whole chunks, so that shorter ones can be dealt out more evenly, to more ranks; a row of
        sums is made of each. Bits are the same on any number of ranks for one length, and others for another.
    timeout : float, optional
        Seconds that a rank waits for the others in one exchange of a solver before it raises TimeoutError. By default
        what the environment variable STEPWELL_RANK_TIMEOUT says, and without it no limit. It must exceed the time that
        any rank takes for an evaluation. After a TimeoutError the communicator is not to be used again.

    Returns
    -------
    Layout
        Unpacks as ``begin, end``, this rank's piece, which may be empty; given as ``comm=layout`` it tells a solver
        the communicator and the rule.

    Warns
    -----
    OptimizeWarning
        On rank 0, where a rank gets more than 1.1 times the mean: with a length of chunks that would not, if there is
        one. Not where ranks have fewer than 4,096 variables each.

    Examples
    --------
    >>> layout = split(1_000_000, "self", align=1000)
    >>> begin, end = layout
    >>> begin, end, layout.chunk_length, layout.chunks
    (0, 1000000, 8000, 125)
    """
    communicator = read_comm(comm, timeout)
    require(communicator is not None, "comm", comm, "a communicator")
    assert communicator is not None
    align = read_whole("align", align, 1)
    n = read_whole("n", n, 1, multiple=align)
    length, asked, ranks = int(_core.chunk_length(n, align)), 0, int(communicator.size)
    if chunk is not None:
        length = asked = read_whole("chunk", chunk, min(_TILE, n), multiple=align)
    borders = borders_of(n, length, ranks)
    if communicator.rank == 0 and n >= _WORTH_A_RANK * ranks:
        _warn_of_balance(n, align, length, borders)
    return Layout(borders, length, int(communicator.rank), communicator, align, asked)


def borders_of(n: int, length: int, ranks: int) -> tuple[int, ...]:
    """Return where the pieces of n variables in chunks of a length begin and end.

    Examples
    --------
    >>> borders_of(10_000, 4096, 2)
    (0, 4096, 10000)
    """
    return tuple(min(cut * length, n) for cut in cut_chunks(-(-n // length), ranks))


def _imbalance(borders: Sequence[int]) -> float:
    """Return the largest piece by the mean."""
    return max(end - begin for begin, end in itertools.pairwise(borders)) * (len(borders) - 1) / borders[-1]


def _warn_of_balance(n: int, align: int, length: int, borders: tuple[int, ...]) -> None:
    ranks, most = len(borders) - 1, _imbalance(borders)
    if most <= _WORTH_SAYING:
        return
    # Ten chunks a rank are within a tenth; longer ones may be, and have fewer rows of sums.
    unit = math.lcm(align, _TILE) if 10 * ranks * math.lcm(align, _TILE) <= n else align
    longest = max(n // (10 * ranks) // unit, 1) * unit
    advice = "; give fewer ranks, or a smaller align"
    if longest >= _TILE and _imbalance(borders_of(n, longest, ranks)) <= _WORTH_SAYING:
        advice = f"; split(..., chunk={longest}) deals out more evenly (and has bits of its own)"
    warn_caller(
        f"{n:,} variables in chunks of {length:,} cannot be dealt out evenly to {ranks} ranks: the largest piece is "
        f"{most:.2f} of the mean{advice}"
    )


def cut_chunks(count: int, ranks: int) -> list[int]:
    """Deal chunks out to ranks, about as many to each; where they have many, cut at rounder places of the tree.

    Examples
    --------
    >>> cut_chunks(8, 3)
    [0, 2, 5, 8]
    """
    plain = [count * rank // ranks for rank in range(ranks + 1)]
    most = int(_IMBALANCE * count / ranks)
    if most <= count / ranks:
        return plain
    cuts = [0]
    for even in plain[1:-1]:
        near = [cut for cut in (even, even + 1, even - 1) if cuts[-1] <= cut <= cuts[-1] + most]
        cuts.append(min(near or [even], key=lambda cut: _depth(cut, count)))
    cuts.append(count)
    return cuts if max(end - begin for begin, end in itertools.pairwise(cuts)) <= most else plain


def _depth(cut: int, count: int) -> int:
    """Return at which depth the tree over `count` chunks is split at `cut`."""
    begin, end, depth = 0, count, 0
    while begin < cut < end:
        middle = (begin + end) // 2
        if cut == middle:
            return depth
        begin, end = (middle, end) if cut > middle else (begin, middle)
        depth += 1
    return -1


def pieces_of(sizes: Sequence[int], chunk_length: int, rank: int) -> Pieces:
    """Return the pieces of ranks that have so many elements each, in the order of the ranks."""
    return Pieces((0, *np.cumsum(sizes).tolist()), chunk_length, rank)
