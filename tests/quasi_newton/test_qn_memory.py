"""Memory: what the engine holds is what the documented formula says, and the process grows by no more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stepwell
from stepwell import LBFGSB
from stepwell.quasi_newton.state import kept_bytes, memory_words, thread_bytes


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "m"), [(20_000, 1), (20_000, 8), (50_000, 64), (100_000, 17)])
def test_bytes_held_are_those_of_the_formula(n, m, dtype, bounded, weighted):
    bounds = (np.zeros(n, dtype), np.full(n, 2, dtype)) if bounded else None
    opt = LBFGSB(np.ones(n, dtype), bounds, m=m, h0=np.ones(n) if weighted else None)
    assert opt.nbytes == opt._run.target.nbytes
    words = memory_words(n, m, bounded=bounded, weighted=weighted)
    threads = min(stepwell.common.threads.default_threads(), -(-n // 4096))
    products = kept_bytes(n, m) if bounded and not weighted else 0
    expected = words * np.dtype(dtype).itemsize + threads * thread_bytes(m) + products
    assert opt.nbytes == pytest.approx(expected, rel=0.02)
    # A number for each pair of the 2m rows and eight for each row, for each 256 variables.
    assert products <= 8 * (m * (2 * m + 17) + 5) * (n / 256 + n / 4096 + 2)
    # The formula itself: 2m + 4 vectors, two of bounds, one of the diagonal, and terms without n.
    vectors = (2 * m + 4 + 2 * bounded + weighted) * n
    assert vectors <= words <= vectors + 3 * m * m + 100


def test_the_list_of_a_long_walk_has_a_sixteenth_of_the_variables():
    """And no more than it must where fewer are crossed; it is told."""
    n, m = 600_000, 4
    sign = np.random.default_rng(0).integers(0, 2, n) * 2 - 1.0
    opt = LBFGSB(0.01 * np.random.default_rng(1).normal(size=n), (-1.0, 1.0), m=m, maxiter=6, threads=1)
    before = opt.nbytes
    while not opt.done:
        opt.tell(float((np.logaddexp(0, -sign * opt.x)).sum()), -sign / (1 + np.exp(sign * opt.x)))
    assert opt.state["cauchy_walks"] > 0
    assert 0 < opt.nbytes - before <= 8 * (2 * m + 3) * n / 16 + 2**20


def test_memory_of_threads():
    """A long history takes a hundred megabytes a thread: only threads that have something to do, and all of it told."""
    one = LBFGSB(np.ones(100), m=512, threads=4)
    assert one.nbytes == pytest.approx(8 * memory_words(100, 512) + thread_bytes(512), rel=0.02)
    four = LBFGSB(np.ones(20_000), m=512, threads=4)
    assert four.nbytes == pytest.approx(8 * memory_words(20_000, 512) + 4 * thread_bytes(512), rel=0.02)
    small, large = thread_bytes(10), thread_bytes(512)
    assert small < 300_000 < 20_000_000 < large < 130_000_000


LEFT = """
import numpy as np, resource
from stepwell import minimize_batch

def mapped():
    with open("/proc/self/status") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith("VmSize:"))

def solve(m, threads):
    options = dict(maxcor=m, threads=threads)
    minimize_batch(lambda x: ((x * x).sum(1), 2 * x), np.ones((2, 10)), jac=True, options=options)

solve(3, 2)
before = mapped()
resource.setrlimit(resource.RLIMIT_AS, (before + 600_000_000, -1))
for _ in range(3):
    try:
        solve(512, 64)
        raise SystemExit("64 threads had room")
    except MemoryError:
        pass
print(mapped() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc/self/status")
def test_nothing_stays_after_a_memory_error():
    out = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr + out.stdout
    assert int(out.stdout) < 100_000_000


GROWTH = """
import numpy as np
from stepwell import LBFGSB
from stepwell.quasi_newton.state import kept_bytes, memory_words

n, m, bounded, dtype = {n}, 8, {bounded}, np.dtype("{dtype}")

def resident():
    with open("/proc/self/smaps_rollup") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith("Anonymous:"))

def evaluate(x, g):
    np.subtract(x, 1, out=g)
    g *= scale
    return 0.5 * (float(g @ x) - float(g.sum()))

scale = np.linspace(1, 50, n, dtype=dtype)
g = np.ones(n, dtype)
warm = LBFGSB(np.ones(1000, dtype), (0.0, 2.0) if bounded else None, m=m)  # imports and first allocations
for _ in range(2):
    warm.tell(float(warm.x.sum()), np.ones(1000, dtype))
del warm
x0 = np.full(n, 0.5, dtype)
bounds = (np.zeros(n, dtype), np.full(n, 2, dtype)) if bounded else None
before = resident()
opt = LBFGSB(x0, bounds, m=m, gtol=0, ftol=0)
while not opt.done and opt.state["pairs"] < m:
    opt.tell(evaluate(opt.x, g), g)
assert opt.state["pairs"] == m
print(resident() - before, memory_words(n, m, bounded=bounded) * dtype.itemsize + bounded * kept_bytes(n, m))
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc/self/smaps_rollup")
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n", [400_000, pytest.param(2_000_000, marks=pytest.mark.slow)])
def test_the_process_grows_by_the_formula(n, dtype, bounded):
    """Pages of data before and after a run that has filled its history, in a process of its own.

    (Pages of files are code that ran for the first time, as many as the system reads at once.) Two per cent, and a
    megabyte that does not grow with n: stacks of threads, tile buffers, the allocator's slack.
    """
    code = GROWTH.format(n=n, bounded=bounded, dtype=dtype)
    # Every large array gets pages of its own, which go back when it is freed: what is left is what is held.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert out.returncode == 0, out.stderr
    grown, formula = map(int, out.stdout.split())
    assert abs(grown - formula) <= 0.02 * formula + 2**20
