"""A rank that never calls: the others wait as long as they were told to, and say for whom."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
from mpi_runner import run_ranks

import stepwell
from stepwell.distributed import Ranks, run_threads, split
from stepwell.distributed.waiting import TIMEOUT_VARIABLE

N = 12_000


def minimized(layout, slow=0.0):
    """Minimise a sum of squares over ranks; an evaluation takes so many seconds."""

    def fun(x):
        time.sleep(slow)
        return layout.chunk_sums((x - 1) ** 2), 2 * (x - 1)

    begin, end = layout
    return stepwell.minimize(fun, np.zeros(end - begin), jac=True, comm=layout)


def tikhonov(comm):
    A = np.eye(3)
    return stepwell.tikhonov(A, np.ones(3), 1.0, method="cgls", comm=comm)


@pytest.mark.parametrize("solver", ["minimize", "tikhonov"])
def test_a_rank_that_never_calls(solver):
    def program(comm):
        layout = split(N, comm, timeout=0.3)
        if comm.rank == 1:
            return None
        with pytest.raises(TimeoutError) as caught:
            minimized(layout) if solver == "minimize" else tikhonov(layout)
        return str(caught.value)

    said = run_threads(2, program)[0]
    assert said.startswith("a rank among 2 threads has not come to an exchange within 0.3 s: rank 0 waits there with")
    assert "allowed: every rank calls the solver" in said
    assert TIMEOUT_VARIABLE in said


def test_who_comes_in_time_is_not_disturbed(monkeypatch):
    monkeypatch.setenv(TIMEOUT_VARIABLE, "20")
    found = run_threads(2, lambda comm: minimized(split(N, comm), 0.02 * comm.rank))
    assert all(result.success for result in found)


def test_the_limit_of_the_environment(monkeypatch):
    monkeypatch.setenv(TIMEOUT_VARIABLE, "0.25")

    def program(comm):
        if comm.rank == 0:
            with pytest.raises(TimeoutError, match=r"within 0.25 s"):
                Ranks(comm).check()

    run_threads(2, program)
    monkeypatch.setenv(TIMEOUT_VARIABLE, "soon")
    with pytest.raises(ValueError, match=r"STEPWELL_RANK_TIMEOUT is 'soon'; allowed: a finite number of seconds above"):
        run_threads(1, Ranks)


def test_wrong_limits():
    class Own:
        rank, size = 0, 1

        def allgather(self, row, counts):
            return row

    for wrong in (0, -1, np.nan, np.inf, "1"):
        with pytest.raises((ValueError, TypeError), match=r"^timeout is .*; allowed: "):
            run_threads(1, lambda comm: split(N, comm, timeout=wrong))  # noqa: B023
    with pytest.raises(ValueError, match=r"timeout is 1.*; allowed: None with a communicator of your own"):
        split(N, Own(), timeout=1)
    assert split(N, Own()).communicator.size == 1


MPI_PROGRAM = """
import os, sys, time
import numpy as np, stepwell
from mpi4py import MPI
from stepwell.distributed import split
comm, when = MPI.COMM_WORLD, sys.argv[1]
n, said = 12000, None
def fun(layout, calls):
    def value(x):
        calls.append(1)
        if comm.rank == 1 and when == "later" and len(calls) == 5:
            time.sleep(600)
        return layout.chunk_sums((x - 1) ** 4 + x * x), 4 * (x - 1) ** 3 + 2 * x
    return value
if comm.rank == 1 and when == "never":
    time.sleep(600)
try:
    layout = split(n, comm, timeout=1.5)
    begin, end = layout
    stepwell.minimize(fun(layout, []), np.zeros(end - begin), jac=True, comm=layout)
except TimeoutError as error:
    print(f"TimeoutError: {error}", flush=True)  # in one piece, before all are ended
    comm.Abort(3)
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["never", "later"])
def test_ranks_of_mpi(tmp_path, when):
    program = tmp_path / "program.py"
    program.write_text(MPI_PROGRAM)
    with pytest.raises(AssertionError, match=r"TimeoutError: (rank 1 has|other ranks have) not come within 1.5 s"):
        run_ranks(2, program, when)


GLOO_PROGRAM = """
import sys, time, numpy as np, torch.distributed as dist
from stepwell.distributed import Ranks, split
rank, store = int(sys.argv[1]), dist.FileStore(sys.argv[2], 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
ranks = Ranks(split(1000, dist.group.WORLD, timeout=1.0))
ranks.check()
if rank == 1:
    time.sleep(6)
else:
    try:
        ranks.check()
    except TimeoutError as error:
        print(error, flush=True)
import os
os._exit(0)
"""


def test_process_groups_of_torch(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    started = [
        subprocess.Popen(
            [sys.executable, "-u", "-c", GLOO_PROGRAM, str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [process.communicate(timeout=120)[0] for process in started]
    assert said[0].startswith("other ranks have not come within 1 s: rank 0 waits there with message 2 of its call")
    assert said[1] == ""
