"""Threads and processes of L-BFGS-B: no number of them changes a bit, and solves beside each other do not meet."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from qn_family import Family

from stepwell import minimize, minimize_batch, problems


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("bounded", [False, True])
def test_threads_change_no_bit(dtype, bounded):
    nx = 120  # 14,400 variables: several chunks
    p = problems.get("torsion", nx=nx, ny=nx)
    x0 = p.x0.astype(dtype)

    def solve(threads):
        return minimize(
            p.fun, x0, jac=True, bounds=p.bounds if bounded else None,
            options=dict(maxcor=5, maxiter=25, threads=threads, gtol=0, ftol=0),
        )  # fmt: skip

    one, two, five = solve(1), solve(2), solve(5)
    assert one.nit == 25
    for other in (two, five):
        assert np.array_equal(one.x, other.x)
        assert np.array_equal(one.jac, other.jac)
        assert one.fun == other.fun
    family = Family(100, 12)
    rows = [minimize_batch(family, np.zeros((100, 12)), jac=True, bounds=(-1.0, 0.5), options=dict(threads=t)).x
            for t in (1, 2, 3)]  # fmt: skip
    assert np.array_equal(rows[0], rows[1])
    assert np.array_equal(rows[0], rows[2])


def test_solves_in_several_python_threads_do_not_disturb_each_other():
    """The pool serves one of them at a time; the others work alone."""
    p = problems.get("torsion", nx=100, ny=100)

    def solve(_):
        return minimize(p.fun, p.x0, jac=True, bounds=p.bounds, options=dict(maxiter=15, threads=2)).x

    alone = solve(0)
    with ThreadPoolExecutor(4) as pool:
        for x in pool.map(solve, range(8)):
            assert np.array_equal(x, alone)


FORK = """
import os, sys
import numpy as np
from stepwell import minimize, problems
p = problems.get("torsion", nx=100, ny=100)
solve = lambda: minimize(p.fun, p.x0, jac=True, bounds=p.bounds, options=dict(maxiter=10, threads=2)).x
first = solve()
child = os.fork()
same = np.array_equal(first, solve())
if child == 0:
    os._exit(0 if same else 1)
_, code = os.waitpid(child, 0)
sys.exit(0 if same and os.waitstatus_to_exitcode(code) == 0 else 1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_can_solve_too():
    """No worker thread lives in the child: its pool is made anew."""
    out = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, timeout=60)
    assert out.returncode == 0, out.stderr
