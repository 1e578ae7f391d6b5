"""What ranks must agree on before a run: sizes, dtype, settings, whether there are bounds and a diagonal."""

from __future__ import annotations

import dataclasses
import math
import os
import socket
from collections.abc import Callable, Set
from typing import Any, NamedTuple, TypeVar

import numpy as np

from stepwell import _core
from stepwell.arrays import Array, as_contiguous, copy_to_device_of, namespace_of
from stepwell.common.checks import warn_caller
from stepwell.distributed import Layout, Pieces, Ranks, local_piece
from stepwell.distributed.layout import pieces_of
from stepwell.quasi_newton.ranks.values import CHUNK_VALUES, WHOLE_VALUE, PieceVariables
from stepwell.quasi_newton.settings import Settings
from stepwell.quasi_newton.target import Box
from stepwell.quasi_newton.variables import Variables

T = TypeVar("T")

ANY_RANKS = "same bits on any number of ranks"
THESE_RANKS = "same bits for these pieces"
AS_GIVEN = "as long as fun returns f with the same bits"


class Share(NamedTuple):
    """What one rank knows of a problem that it shares with others."""

    ranks: Ranks
    pieces: Pieces
    threads: int  # that this rank may use

    def mode(self, value_kinds: Set[float]) -> str:
        """Say how many ranks there are, and what is promised of the bits of a result, given the kinds of f's values."""
        count = f"{self.ranks.size} rank{'s' if self.ranks.size > 1 else ''}"
        any_ranks = self.pieces.aligned and value_kinds <= {CHUNK_VALUES}
        theirs = WHOLE_VALUE in value_kinds and self.ranks.size > 1  # f was summed by the caller
        return f"{count}; {ANY_RANKS if any_ranks else THESE_RANKS}{f', {AS_GIVEN}' if theirs else ''}"


def read_ranks(x0: Any, bounds: Any, comm: Any) -> tuple[Any, Any, Any, Ranks]:
    """Return this rank's pieces of start and bounds, the communicator, and what is made of it."""
    x0, comm = local_piece(x0, comm)
    if isinstance(bounds, tuple):
        bounds = tuple(local_piece(half, comm)[0] for half in bounds)
    return x0, bounds, comm, Ranks(comm)


def together(ranks: Ranks | None, work: Callable[[], T]) -> T:
    """Return what `work` returns; an error that it raises on one rank is raised on all."""
    if ranks is None:
        return work()
    found: list[T] = []
    with ranks.holding():
        found.append(work())
    ranks.check()
    return found[0]


def settle(
    ranks: Ranks, comm: Any, variables: Variables, box: Box | None, h0: Any, settings: Settings
) -> tuple[PieceVariables, Box | None, Share]:
    """Agree on a problem; return this rank's view of it, with bounds where any rank has some."""
    diagonal = "none" if h0 is None else "a function" if callable(h0) else "an array"
    same = {
        "the dtype of x0": str(variables.dtype),
        "the place of x0": "a GPU" if variables.on_device else "the host",
        "h0": diagonal,
        **_layout_in_words(comm),
        **settings.by_option(),
    }
    ranks.agree_all(same)
    size = variables.size
    boxed = size == 0 or (box is not None and box.boxed)
    steps = (0, 0) if box is None else box.steps
    rows = np.array(ranks.exchange(np.array([size, box is not None, boxed, *steps], dtype=float)))
    sizes = rows[:, 0].astype(int).tolist()
    pieces = dataclasses.replace(_pieces(comm, sizes, ranks.rank), on_device=variables.on_device)
    if isinstance(comm, Layout) and comm.aligned and not pieces.aligned and ranks.rank == 0:
        warn_caller(
            "pieces end inside chunks, which sweeps on a GPU do not know: bits are the same for these pieces alone; "
            "give comm=split(..., whole_chunks=True) for the same on any number of ranks"
        )
    if rows[:, 1].any():
        box = _with_bounds(box, variables)._replace(boxed=bool(rows[:, 2].all()))
        if variables.on_device:
            box = _with_steps(box, (bool(rows[:, 3].any()), bool(rows[:, 4].any())), size)
    threads = threads_of_rank(ranks, settings.thread_count(), settings.threads is not None)
    fields = {field.name: getattr(variables, field.name) for field in dataclasses.fields(Variables)}
    return PieceVariables(**fields, chunks=pieces.chunks), box, Share(ranks, pieces, threads)


def _layout_in_words(comm: Any) -> dict[str, Any]:
    """Return what all ranks must have in common of a layout, by the names of the arguments that it was made with."""
    names = ("n", "align", "chunk", "whole_chunks")
    return {f"{name} of the layout": getattr(comm, name) if isinstance(comm, Layout) else "that of no layout"
            for name in names}  # fmt: skip


def _pieces(comm: Any, sizes: list[int], rank: int) -> Pieces:
    n = sum(sizes)
    if n == 0:
        raise ValueError("x0 has no variable on any rank; allowed: at least one variable")
    if not isinstance(comm, Layout):
        return pieces_of(sizes, int(_core.chunk_length(n)), rank)
    for other, size in enumerate(sizes):
        begin, end = comm.borders[other : other + 2]
        if size != end - begin:
            raise ValueError(f"x0 has {size} variables on rank {other}; allowed: {end - begin}, as the layout says")
    return comm


def _with_bounds(box: Box | None, variables: Variables) -> Box:
    """Return bounds; infinite ones for a rank that has none where another has."""
    if box is not None:
        return box
    infinite = np.array([math.inf], variables.dtype)
    if variables.on_device:
        lower, upper = (copy_to_device_of(side, variables.template) for side in (-infinite, infinite))
        return Box(lower, upper, False)
    return Box(-infinite, infinite, False)


def _with_steps(box: Box, steps: tuple[bool, bool], size: int) -> Box:
    """Return bounds that are arrays where any rank has arrays: then all run the same kernels, to the same bits."""

    def side(bounds: Array, wide: bool) -> Array:
        if not wide or bounds.shape[0] == size:
            return bounds
        xp = namespace_of(bounds)
        return as_contiguous(xp.asarray(xp.broadcast_to(bounds, (size,)), copy=True))

    return box._replace(lower=side(box.lower, steps[0]), upper=side(box.upper, steps[1]))


def threads_of_rank(ranks: Ranks, available: int, asked: bool) -> int:
    """Return how many threads a rank uses: as asked, else those of its cores, shared with the other ranks on them."""
    if ranks.size == 1:
        return available
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    homes = ranks.gather_texts(f"{socket.gethostname()} {cores}")
    return available if asked else max(1, available // homes.count(homes[ranks.rank]))
