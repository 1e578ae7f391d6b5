"""How a long vector is spread over ranks, so that sums have the same bits on any number of them.

Chunks, whose length follows from n (and an alignment) alone, are swept tile by tile. Sums of tiles are added by one
tree, inside each chunk and then over all chunks, of which every rank sends the largest nodes that it has whole. So
pieces may end where a chunk or a tile does: at chunks where these are dealt out evenly, since that leaves few nodes.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from stepwell import _core
from stepwell.arrays import Array, is_cuda
from stepwell.arrays.checks import read_host_array
from stepwell.common.checks import read_switch, read_whole, require, warn_caller
from stepwell.distributed.communicators import Communicator, read_comm
from stepwell.distributed.ranks import Ranks

#: How much more than its share of the chunks a rank may get, for cuts at rounder places of the tree.
_IMBALANCE = 1.04
#: How much more than the mean a rank may have before pieces end inside chunks, and before `split` says so.
_NEAR, _WORTH_SAYING = 1.05, 1.1
#: Fewer variables than this are little work, however they are dealt out.
_WORTH_RANKS = 8192
#: The variables of a tile, and the shortest that `chunk` allows.
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
    on_device : bool
        Whether sums are taken on a GPU, where a part of a chunk is swept like a chunk of its own.
    """

    borders: tuple[int, ...]
    chunk_length: int
    rank: int
    on_device: bool = dataclasses.field(default=False, kw_only=True)

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

    @functools.cached_property
    def whole_chunks(self) -> bool:
        """Whether all pieces consist of whole chunks."""
        return all(border % self.chunk_length == 0 or border == self.n for border in self.borders)

    @property
    def aligned(self) -> bool:
        """Whether pieces end where nodes of the tree do: then bits do not depend on the number of ranks."""
        return self.whole_chunks or self.tiles > 1

    @functools.cached_property
    def tiles(self) -> int:
        """How many leaves of the tree of sums a chunk is: its tiles where some pieces end at these, else one."""
        ends = (border % self.chunk_length % _TILE == 0 or border == self.n for border in self.borders)
        return 1 if self.whole_chunks or self.on_device or not all(ends) else -(-self.chunk_length // _TILE)

    @functools.cached_property
    def cuts(self) -> list[int]:
        """Rank r has leaves ``cuts[r]`` to ``cuts[r + 1]``; pieces of any size have trees of their own parts."""
        if self.tiles == 1:
            return [0, *np.cumsum([self._parts_of(rank) for rank in range(len(self.borders) - 1)]).tolist()]
        length = self.chunk_length
        return [border // length * self.tiles - -(border % length) // _TILE for border in self.borders]

    def _parts_of(self, rank: int) -> int:
        """Return how many chunks a rank has, and parts of such."""
        begin, end = self.borders[rank : rank + 2]
        return -(-end // self.chunk_length) - begin // self.chunk_length if end > begin else 0

    @functools.cached_property
    def chunk_starts(self) -> np.ndarray:
        """Where this rank's chunks begin, within its piece; of a chunk of which it has tiles, the nodes of these."""
        if self.tiles == 1:
            parts = np.arange(self._parts_of(self.rank))
            return np.maximum(parts * self.chunk_length - self.before, 0)
        rows = np.array(self.tree().rows, dtype=np.int64)
        return rows // self.tiles * self.chunk_length + rows % self.tiles * _TILE - self.begin

    @property
    def chunks(self) -> int:
        """How many chunks this rank has, nodes of some of their tiles included: a row of sums is made of each."""
        return len(self.chunk_starts)

    def tree(self) -> _core.RankTree:
        """Return the tree over the chunks of all ranks."""
        return _core.RankTree(self.rank, self.cuts, self.tiles)

    @functools.cached_property
    def _tile_starts(self) -> tuple[np.ndarray, np.ndarray]:
        """Where this rank's tiles begin, and how many each of its chunks has."""
        counts = -(-np.diff(self.chunk_starts, append=self.end - self.begin) // _TILE)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.repeat(self.chunk_starts, counts) + _TILE * within, counts

    def chunk_sums(self, values: Array) -> Array:
        """Return the sum over each of this rank's chunks of an array with one value for each of its elements.

        It is what an objective may return as its value where f is a sum over the variables. Of an array on a GPU the
        sums stay there.
        """
        if is_cuda(values):
            from stepwell.distributed.device_sums import device_chunk_sums

            size = self.end - self.begin
            return device_chunk_sums(values, size, self._parts_of(self.rank), self.chunk_length, self.before)
        array = read_host_array("values", values).reshape(-1)
        require(array.size == self.end - self.begin, "values", array.size, f"{self.end - self.begin} numbers")
        if not array.size:
            return np.zeros(0)
        starts, counts = self._tile_starts
        sums: np.ndarray = _core.add_tiles(np.add.reduceat(array, starts), counts)
        return sums

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


def split(
    n: int,
    comm: Any,
    align: int = 1,
    *,
    chunk: int | None = None,
    whole_chunks: bool = False,
    timeout: float | None = None,
) -> Layout:
    """Spread n variables over the ranks of a communicator, with the same bits on any number of them.

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
        `align`. Shorter ones can be dealt out more evenly where pieces must end with chunks; a row of sums is made of
        each. Bits are the same on any number of ranks for one length, and others for another.
    whole_chunks : bool
        Let pieces end with chunks, as those of runs on GPUs must for the same bits on any number of ranks. By default
        they end inside chunks where the largest piece would else be above 1.05 of the mean, or a rank be left without
        variables: at multiples of 256 from where a chunk begins that are multiples of `align`, too.
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
        one. It can be so on more than n / 4,096 ranks, with an `align` that has no common multiple with 256 within a
        chunk, and with `whole_chunks`. Of fewer than 8,192 variables nothing is said.

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
    whole_chunks = read_switch("whole_chunks", whole_chunks)
    if chunk is not None:
        length = asked = read_whole("chunk", chunk, min(_TILE, n), multiple=align)
    borders = borders_of(n, length, ranks, align, whole_chunks=whole_chunks)
    if communicator.rank == 0 and n >= _WORTH_RANKS:
        _warn_of_balance(n, align, length, borders, whole_chunks)
    return Layout(borders, length, int(communicator.rank), communicator, align, asked)


def borders_of(n: int, length: int, ranks: int, align: int = 1, *, whole_chunks: bool = False) -> tuple[int, ...]:
    """Return where the pieces of n variables in chunks of a length begin and end.

    Examples
    --------
    >>> borders_of(10_000, 4096, 2)
    (0, 5120, 10000)
    >>> borders_of(10_000, 4096, 2, whole_chunks=True)
    (0, 4096, 10000)
    """
    chunks = -(-n // length)
    at_chunks = tuple(min(cut * length, n) for cut in cut_chunks(chunks, ranks))
    if whole_chunks or (chunks >= ranks and _imbalance(at_chunks) <= _NEAR):
        return at_chunks
    # That leaves fewer ranks without variables, or has the smaller pieces.
    at_tiles = _borders_at_tiles(n, length, ranks, align)
    return min(at_chunks, at_tiles, key=lambda borders: (-len(set(borders)), _imbalance(borders)))


def _borders_at_tiles(n: int, length: int, ranks: int, align: int) -> tuple[int, ...]:
    """Return even borders that may lie inside chunks, but at rounder places of their trees where these are near."""
    near, unit = (_IMBALANCE - 1) / 2 * n / ranks, math.lcm(align, _TILE)
    step = unit << max(int(2 * near) // unit, 1).bit_length() - 1
    rank = np.arange(1, ranks)
    even = n // ranks * rank + n % ranks * rank // ranks
    begin = even // length * length
    end = np.minimum(begin + length, n)
    inside = np.minimum(begin + (even - begin + step // 2) // step * step, end)
    borders = np.where(even - begin <= near, begin, np.where(end - even <= near, end, inside))
    return (0, *borders.tolist(), n)


def _imbalance(borders: Sequence[int]) -> float:
    """Return the largest piece by the mean."""
    return max(end - begin for begin, end in itertools.pairwise(borders)) * (len(borders) - 1) / borders[-1]


def _warn_of_balance(n: int, align: int, length: int, borders: tuple[int, ...], whole_chunks: bool) -> None:
    ranks, most = len(borders) - 1, _imbalance(borders)
    if most <= _WORTH_SAYING:
        return
    # Ten chunks a rank are within a tenth; longer ones may be, and have fewer rows of sums.
    unit = math.lcm(align, _TILE) if 10 * ranks * math.lcm(align, _TILE) <= n else align
    longest = max(n // (10 * ranks) // unit, 1) * unit
    advice = "; give fewer ranks, or a smaller align"
    after = borders_of(n, longest, ranks, align, whole_chunks=whole_chunks)
    if longest >= _TILE and _imbalance(after) <= _WORTH_SAYING:
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
