"""One problem over many ranks: communicators, pieces of a vector, errors that end all ranks together.

Every rank calls the solver with its own piece of the variables and gets its own piece of the solution; scalars are
global and equal everywhere. ``communicators`` has what moves the bytes (MPI by mpi4py, torch.distributed, threads),
``ranks`` what every message carries besides its numbers, ``layout`` how a vector is cut, ``values`` the forms in which
an objective may return f.
"""

from __future__ import annotations

from stepwell.arrays.over_systems import block_of
from stepwell.distributed.communicators import Communicator, local_piece, read_comm
from stepwell.distributed.layout import Layout, Pieces, split
from stepwell.distributed.ranks import Ranks
from stepwell.distributed.rescue import RankError
from stepwell.distributed.threads import ThreadCommunicator, run_threads, thread_communicators
from stepwell.distributed.values import Part, part

__all__ = [
    "Communicator",
    "Layout",
    "Part",
    "Pieces",
    "RankError",
    "Ranks",
    "ThreadCommunicator",
    "block_of",
    "local_piece",
    "part",
    "read_comm",
    "run_threads",
    "split",
    "thread_communicators",
]
