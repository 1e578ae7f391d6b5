"""Ranks of MPI: the same bits as threads have, on any number of them; errors, interrupts, a run in a folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mpi_runner import find_mpiexec, run_ranks

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "distributed-details.md"
CASES = Path(__file__).parents[1] / "helpers" / "mpi_cases.py"


def found_on(ranks, part, folder):
    lines = (json.loads(line) for line in run_ranks(ranks, CASES, part, str(folder), timeout=90).splitlines())
    return {line["case"]: line["found"] for line in lines}


def test_bits_do_not_depend_on_the_number_of_ranks(tmp_path):
    """Three ranks first, which leave a run for the others to continue."""
    expected = found_on(3, "bits", tmp_path)
    assert set(expected) == {"exact", "first-interval", "hops", "torsion", "example", "folder"}
    assert expected["hops"] == expected["exact"]
    assert "after 3 iterations" in expected["example"]
    for ranks in (1, 2, 4):
        assert found_on(ranks, "bits", tmp_path) == expected


#: Stands for the last lines of the page's program: prints the bits of all ranks and the mode of the run.
HASHED = """
import hashlib
from mpi4py import MPI
r = chain(MPI.COMM_WORLD)
x = MPI.COMM_WORLD.gather(r.x)
if x is not None:
    bits = hashlib.sha256(np.concatenate(x).tobytes()).hexdigest()
    print(bits, r.nit, r.nfev, r.fun.hex(), r.mode.partition("; ")[2])
"""


def test_the_program_of_the_page_runs(tmp_path):
    """The example with halos, as a program on one to four ranks of MPI and with threads for ranks."""
    (code,) = (
        block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "def chain" in block
    )
    head, ends, _ = code.partition("alone, spread")
    assert ends
    program = tmp_path / "chain.py"
    program.write_text(head + HASHED)
    found = {run_ranks(ranks, program, timeout=90) for ranks in (1, 2, 3, 4)}
    (line,) = found
    assert line.endswith("same bits on any number of ranks\n")


def test_trouble_on_one_rank_is_told_on_all(tmp_path):
    found = found_on(3, "faults", tmp_path)
    for case, text in (
        ("raises", "no gradient here"),
        ("raises on the way", "no gradient here"),
        ("raises before an allgather", "no gradient here"),
        ("raises early, others are slow", "early"),
    ):
        other = f"RankError: rank 2: ValueError: {text}"
        assert found[case] == [other, other, f"ValueError: {text}"]
    # Ctrl-C during evaluation 6 ends all ranks at the next message, with what they had.
    interrupted = found["interrupted"]
    assert [line.partition(":")[0] for line in interrupted] == ["Interrupted"] * 3
    assert interrupted[0].startswith("Interrupted: rank 2 was interrupted after ")
    assert len({line.rpartition(" after ")[2] for line in interrupted}) == 1
    assert [line.partition(":")[0] for line in found["interrupted while telling"]] == ["KeyboardInterrupt"] * 3


def test_what_nobody_can_free_is_ended_by_an_abort(tmp_path):
    """Others wait in a barrier of the objective's own: the error of the rank that failed ends all of them."""
    pytest.importorskip("mpi4py")
    mpiexec = find_mpiexec()
    if mpiexec is None:
        pytest.skip("there is no mpiexec beside this interpreter (pip install mpich)")
    command = [mpiexec, "-n", "2", sys.executable, "-m", "mpi4py", str(CASES), "stuck", str(tmp_path)]
    environment = dict(os.environ, OMP_NUM_THREADS="1", HYDRA_IFACE="lo")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode != 0
    assert "before the barrier" in done.stderr
    assert "raised on rank 1 alone: the other ranks did not come" in done.stderr
