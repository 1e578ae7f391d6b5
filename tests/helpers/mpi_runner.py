"""Programs under mpiexec: the one beside this interpreter, with a time limit."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest


def find_mpiexec() -> str | None:
    """Return the mpiexec of this environment; another library's would not find the ranks of this one.

    The environment variable STEPWELL_MPIEXEC names one elsewhere.
    """
    named = os.environ.get("STEPWELL_MPIEXEC")
    beside = os.path.join(sysconfig.get_path("scripts"), "mpiexec")
    return named or (beside if os.path.exists(beside) else None)


def run_ranks(count: int, program: Path | str, *arguments: str, timeout: float = 60) -> str:
    """Run a program on so many ranks and return what it printed; skip the test where there is no MPI."""
    pytest.importorskip("mpi4py")
    mpiexec = find_mpiexec()
    if mpiexec is None:
        pytest.skip("there is no mpiexec beside this interpreter (pip install mpich)")
    environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", HYDRA_IFACE="lo")
    command = [mpiexec, "-n", str(count), sys.executable, "-m", "mpi4py", str(program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout
