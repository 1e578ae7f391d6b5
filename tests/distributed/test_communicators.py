"""Messages between ranks: the same rows everywhere, and trouble on one rank is trouble on all."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rank_problems
from mpi_runner import run_ranks

from stepwell.distributed import RankError, Ranks, local_piece, read_comm, run_threads
from stepwell.distributed.ranks import NOTHING, STOP, TIME


def rows_of(comm):
    """Return what a rank gets of rows of different lengths, one of them empty."""
    ranks = Ranks(comm)
    rows = ranks.exchange(np.full(ranks.rank, ranks.rank + 0.5), range(ranks.size))
    return [row.tolist() for row in rows]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_rank_gets_the_rows_of_all(size):
    assert run_threads(size, rows_of) == [[[rank + 0.5] * rank for rank in range(size)]] * size


def outcome(comm, failing, error):
    """Return what an exchange raises on each rank when one of them holds an error."""
    ranks = Ranks(comm)
    with ranks.holding():
        if ranks.rank == failing:
            raise error
    raised = None
    try:
        ranks.exchange(np.zeros(3))
    except BaseException as caught:
        raised = caught
    assert ranks.exchange(np.ones(1))[-1] == 1  # messages go on afterwards
    return raised


@pytest.mark.parametrize("size", [1, 3])
def test_an_error_on_one_rank_is_raised_on_all(size):
    error = ValueError("no gradient hère")
    found = run_threads(size, lambda comm: outcome(comm, size - 1, error))
    assert found[-1] is error
    for other in found[:-1]:
        assert isinstance(other, RankError)
        assert (str(other), other.rank) == (f"rank {size - 1}: ValueError: no gradient hère", size - 1)


def test_an_interrupt_on_one_rank_is_one_on_all():
    found = run_threads(3, lambda comm: outcome(comm, 1, KeyboardInterrupt()))
    assert [type(one) for one in found] == [KeyboardInterrupt] * 3
    assert str(found[0]) == "rank 1 was interrupted"


def test_the_highest_wish_of_all_ranks_holds_once():
    def program(comm):
        ranks = Ranks(comm)
        if ranks.rank:
            ranks.ask(STOP if ranks.rank == 1 else TIME)
        ranks.check()
        first = ranks.told
        ranks.check()
        return first, ranks.told

    assert run_threads(3, program) == [(TIME, NOTHING)] * 3


def test_ranks_that_disagree_are_told_so():
    def digests(comm):
        with pytest.raises(RankError, match="ranks 0 and 2 hold different states"):
            Ranks(comm).exchange(np.zeros(2), digest=float(comm.rank == 2))

    def arguments(comm):
        with pytest.raises(ValueError, match=r"gtol is 0.5 on rank 0 and 0.25 on rank 1; allowed: the same on all"):
            Ranks(comm).agree_all({"ftol": 0.0, "gtol": 2.0 ** -(1 + comm.rank)})

    run_threads(3, digests)
    run_threads(2, arguments)


def test_a_rank_that_does_not_come_is_an_error_for_the_others():
    def program(comm):
        if comm.rank == 0:
            Ranks(comm).check()

    with pytest.raises(TimeoutError, match="a rank among 2 threads has not come"):
        run_threads(2, program, timeout=0.2)


@pytest.mark.parametrize("comm", [3, "all", object(), np.zeros(3)])
def test_what_is_no_communicator_is_refused(comm):
    with pytest.raises(TypeError, match=r"^comm is .*; allowed: None, 'self', an mpi4py communicator"):
        read_comm(comm)
    assert read_comm(None) is None
    assert (read_comm("self").rank, read_comm("self").size) == (0, 1)


def test_an_array_over_ranks_is_read_by_its_local_part():
    class Distributed:
        local_array, base_comm = np.arange(3.0), "self"

    local, comm = local_piece(Distributed(), None)
    assert local is Distributed.local_array
    assert comm == "self"
    assert local_piece(local, None) == (local, None)


MPI_PROGRAM = """
import numpy as np
from mpi4py import MPI
from stepwell.distributed import Ranks, RankError, read_comm
world = MPI.COMM_WORLD
ranks = Ranks(world)
assert read_comm(world)._comm is ranks.communicator._comm  # duplicated once
assert ranks.communicator._comm != world
own = world.Dup()
assert Ranks(own).communicator._comm != ranks.communicator._comm
for length in (*range(1, 20), 19, 19, 1, 1, 0, 0):  # exchanges of lengths seen before are prepared, old ones forgotten
    rows = Ranks(own).exchange(np.full(length, ranks.rank))
    assert [row.tolist() for row in rows] == [[rank] * length for rank in range(ranks.size)]
own.Free()  # and the duplicate with it
for again in range(3):
    kept = rows
    rows = ranks.exchange(np.full(ranks.rank, ranks.rank + again), range(ranks.size))
    assert [row.tolist() for row in rows] == [[rank + again] * rank for rank in range(ranks.size)]
assert kept[2][0] == 3  # what was received stays as it was
try:
    with ranks.holding():
        if ranks.rank == 1:
            raise ValueError("mine")
    ranks.check()
    said = "nothing"
except (ValueError, RankError) as error:
    said = f"{type(error).__name__}: {error}"
said = world.gather(said)
if ranks.rank == 0:
    print(said)
"""


@pytest.mark.slow
def test_ranks_of_mpi(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(MPI_PROGRAM)
    others = "'RankError: rank 1: ValueError: mine'"
    assert run_ranks(3, program).strip() == f"[{others}, 'ValueError: mine', {others}]"


GLOO_PROGRAM = """
import sys, numpy as np, torch.distributed as dist
from stepwell.distributed import Ranks, RankError
rank, store = int(sys.argv[1]), dist.FileStore(sys.argv[2], 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
ranks = Ranks(dist.group.WORLD)
rows = ranks.exchange(np.full(3 * rank, 0.5), [0, 3])
assert [row.tolist() for row in rows] == [[], [0.5] * 3]
import hashlib
from rank_problems import solve_rosenbrock
found = solve_rosenbrock(dist.group.WORLD)
pieces = [None] * 2
dist.all_gather_object(pieces, found.x)
print(hashlib.sha256(np.concatenate(pieces).tobytes()).hexdigest(), found.fun)
import stepwell.distributed.ranks
stepwell.distributed.ranks.HOPS_FROM = 2
assert solve_rosenbrock(dist.group.WORLD).fun == found.fun
with ranks.holding():
    if rank == 1:
        raise ValueError("mine")
try:
    ranks.check()
except (ValueError, RankError) as error:
    print(f"{type(error).__name__}: {error}")
dist.destroy_process_group()
"""


def test_process_groups_of_torch(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("PYTHONPATH", str(Path(rank_problems.__file__).parent))
    # (Unbuffered: what was said stays said where the group's own threads do not outlive their end.)
    command = [sys.executable, "-u", "-c", GLOO_PROGRAM]
    started = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "store")], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    said = [process.communicate(timeout=120)[0].splitlines() for process in started]
    alone = rank_problems.solve_rosenbrock("self")
    bits = f"{hashlib.sha256(alone.x.tobytes()).hexdigest()} {alone.fun}"
    assert said == [[bits, "RankError: rank 1: ValueError: mine"], [bits, "ValueError: mine"]]
