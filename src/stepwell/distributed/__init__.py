"""One problem over many ranks: communicators, pieces of a vector, errors that end all ranks together.

Every rank calls the solver with its own piece of the variables and gets its own piece of the solution; scalars are
global and equal everywhere. ``communicators`` has what moves the bytes (MPI by mpi4py, torch.distributed, threads),
``ranks`` what every message carries besides its numbers.
"""

from __future__ import annotations

from stepwell.distributed.communicators import Communicator, local_piece, read_comm
from stepwell.distributed.ranks import RankError, Ranks
from stepwell.distributed.threads import ThreadCommunicator, run_threads, thread_communicators

__all__ = [
    "Communicator",
    "RankError",
    "Ranks",
    "ThreadCommunicator",
    "local_piece",
    "read_comm",
    "run_threads",
    "thread_communicators",
]
