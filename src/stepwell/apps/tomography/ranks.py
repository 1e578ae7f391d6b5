"""Commands under ``mpiexec``: one rank prints and writes, all share the work and its errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from stepwell.distributed import Ranks

#: What launchers set for the processes that they start: MPICH and Intel MPI, Open MPI, PMIx.
_LAUNCHED = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK")


class World:
    """All ranks that a launcher has started, or this process alone."""

    def __init__(self) -> None:
        self.comm: Any = None
        if any(name in os.environ for name in _LAUNCHED):
            from mpi4py import MPI

            self.comm = MPI.COMM_WORLD if MPI.COMM_WORLD.Get_size() > 1 else None
        self.ranks = Ranks("self" if self.comm is None else self.comm)

    @property
    def first(self) -> bool:
        """Whether this rank prints and writes."""
        return self.ranks.rank == 0

    @property
    def spread(self) -> bool:
        """Whether there is more than one rank."""
        return self.comm is not None

    def gathered(self, value: Any) -> list[Any]:
        """Return the values of all ranks, on the first one."""
        if self.comm is None:
            return [value]
        return self.comm.gather(value) or []

    def pieces(self, piece: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the pieces of all ranks in their order, one at a time, on the first one; the others send theirs."""
        if not self.first:
            self.comm.send(piece, dest=0)
            return
        yield piece
        for rank in range(1, self.ranks.size):
            yield self.comm.recv(source=rank)


def write_stack(file: IO[bytes], count: int, pieces: Iterator[np.ndarray]) -> None:
    """Write pieces of a stack of so many arrays as one ``.npy`` file, without ever having it as a whole."""
    begun = False
    for piece in pieces:
        if not begun:
            header = {"descr": np.lib.format.dtype_to_descr(piece.dtype), "fortran_order": False}
            np.lib.format.write_array_header_1_0(file, header | {"shape": (count, *piece.shape[1:])})
            begun = True
        file.write(np.ascontiguousarray(piece).data)
