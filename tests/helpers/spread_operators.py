"""Matrices whose rows and columns lie over ranks, as operators on local pieces: what an MPI user would write."""

from __future__ import annotations

import numpy as np

from stepwell import operators


def cuts(length, size, rank):
    """Begin and end of a rank's piece; of many ranks the first gets nothing."""
    shares = np.linspace(0, length, size + 1).astype(int) if size < 4 else np.linspace(0, length, size).astype(int)
    ends = shares if size < 4 else np.concatenate([[0], shares])
    return int(ends[rank]), int(ends[rank + 1])


def gathered(comm, block, length):
    """The whole of a block of which each rank has some rows."""
    k = block.shape[1]
    counts = [k * (end - begin) for begin, end in (cuts(length, comm.size, rank) for rank in range(comm.size))]
    row = np.ascontiguousarray(block, dtype=np.float64).ravel()
    return np.asarray(comm.allgather(row, counts)).reshape(length, k)


def added(comm, block):
    """The sum of a block over ranks, in their order."""
    row = np.ascontiguousarray(block, dtype=np.float64).ravel()
    return np.asarray(comm.allgather(row, [row.size] * comm.size)).reshape(comm.size, *block.shape).sum(axis=0)


class SpreadMatrix:
    """Rows of a matrix on this rank; its operator gathers x, and adds up what the adjoint gives."""

    def __init__(self, matrix, comm):
        self.m, self.n = matrix.shape
        self.rows, self.columns = (slice(*cuts(length, comm.size, comm.rank)) for length in matrix.shape)
        mine = matrix[self.rows]
        shape = (self.rows.stop - self.rows.start, self.columns.stop - self.columns.start)
        self.operator = operators.from_functions(
            lambda x: mine @ gathered(comm, x, self.n),
            lambda y: added(comm, mine.T @ y)[self.columns],
            shape,
            blocks=True,
        )
