"""Bounded torsion over ranks, and runs of it in processes of their own, for benchmarks/ranks.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

import numpy as np

NAME = "ranks"
# A run beside which other programs took more than this share of one processor is made again, so many times at most.
QUIET, TRIES = 0.05, 10


# ---- the work of one rank, in a process of its own ------------------------------------------------------------------


class Torsion:
    """The rows of one rank of the elastic-plastic torsion problem on nx by nx points."""

    def __init__(self, nx: int, comm: Any, layout: Any) -> None:
        self.nx, self.comm, self.layout = nx, comm, layout
        begin, end = layout
        self.rows, self.h = (end - begin) // nx, 1 / (nx + 1)
        near = np.minimum(np.arange(1, nx + 1.0), nx + 1 - np.arange(1, nx + 1.0)) * self.h
        self.upper = np.minimum(near[begin // nx : end // nx, None], near[None]).ravel()
        self.padded = np.zeros((self.rows + 2, nx + 2))
        self.curved, self.terms = np.empty((self.rows, nx)), np.empty((self.rows, nx))

    def start(self, number: int) -> np.ndarray:
        """Return where a run begins: on the upper bounds or, of numbers above 0, inside by a thousandth or less."""
        if number == 0:
            return self.upper.copy()
        begin, end = self.layout
        noise = np.random.default_rng(number).random(self.nx * self.nx)[begin:end]
        return self.upper * (1 - 1e-3 * noise)

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return values a chunk and the gradient."""
        v, point = self.padded, x.reshape(self.rows, self.nx)
        v[1:-1, 1:-1] = point
        if self.comm is not None and self.comm.size > 1:
            rank, size = self.comm.rank, self.comm.size
            above, below = (rank - 1 if rank else -2), (rank + 1 if rank + 1 < size else -2)
            if above >= 0:
                self.comm.Sendrecv(v[1].copy(), above, recvbuf=v[0], source=above)
            if below >= 0:
                self.comm.Sendrecv(v[-2].copy(), below, recvbuf=v[-1], source=below)
        # Without temporaries: their pages would be fetched anew in every evaluation, whoever the solver is. And by the
        # point itself, not its place among the neighbours: NumPy takes three times as long with rows that lie apart.
        curved, terms, load = self.curved, self.terms, 5 * self.h * self.h
        np.multiply(point, 4, out=curved)
        for near in (v[:-2, 1:-1], v[2:, 1:-1], v[1:-1, :-2], v[1:-1, 2:]):
            np.subtract(curved, near, out=curved)
        np.multiply(curved, 0.5, out=terms)
        np.subtract(terms, load, out=terms)
        np.multiply(terms, point, out=terms)
        np.subtract(curved, load, out=curved)
        found = self.layout.chunk_sums(terms), curved.ravel()
        if self.comm is not None and self.comm.size > 1:
            self.comm.Barrier()
        return found


# ---- cases ----------------------------------------------------------------------------------------------------------


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Run a case in processes of its own, and again while others are busy; return what the first rank found."""
    mpiexec = os.environ.get("STEPWELL_MPIEXEC", os.path.join(sysconfig.get_path("scripts"), "mpiexec"))
    start = [] if case["ranks"] == "none" else [mpiexec, "-n", str(case["ranks"])]
    command = [*start, sys.executable, str(Path(__file__).with_name("ranks.py")), "--worker", json.dumps(case)]
    environment = dict(os.environ, OPENBLAS_NUM_THREADS="1")
    for _ in range(TRIES):
        began, others = time.perf_counter(), work_of_others()
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=environment)
        others = (work_of_others() - others) / (time.perf_counter() - began)
        if others < QUIET:
            break
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found | {"others": others}


def work_of_others() -> float:
    """Return seconds that processors have spent on other programs than this one and its children; 0 if nobody says."""
    if not os.path.exists("/proc/stat"):
        return 0.0
    with open("/proc/stat") as file:
        user, nice, system, _idle, _waiting, *interrupts = (int(word) for word in file.readline().split()[1:9])
    mine = os.times()
    own = mine.user + mine.system + mine.children_user + mine.children_system
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK") - own


def median(found: list[dict[str, Any]], field: str) -> float:
    return float(np.median([one[field] for one in found]))
