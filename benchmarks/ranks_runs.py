"""Bounded problems over ranks, and runs of them in processes of their own, for benchmarks/ranks.py."""

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
        self.lower = -self.upper
        self.padded = np.zeros((self.rows + 2, nx + 2))
        self.curved, self.terms = np.empty((self.rows, nx)), np.empty((self.rows, nx))

    def start(self, number: int) -> np.ndarray:
        """Return where a run begins: on the upper bounds or, of numbers above 0, inside by a thousandth or less."""
        if number == 0:
            return self.upper.copy()
        begin, end = self.layout
        noise = np.random.default_rng(number).random(self.nx * self.nx)[begin:end]
        return self.upper * (1 - 1e-3 * noise)

    def fetch_rows(self, v: np.ndarray) -> None:
        """Fetch the rows beside this rank's from its neighbours."""
        if self.comm is not None and self.comm.size > 1:
            rank, size = self.comm.rank, self.comm.size
            above, below = (rank - 1 if rank else -2), (rank + 1 if rank + 1 < size else -2)
            if above >= 0:
                self.comm.Sendrecv(v[1].copy(), above, recvbuf=v[0], source=above)
            if below >= 0:
                self.comm.Sendrecv(v[-2].copy(), below, recvbuf=v[-1], source=below)

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return values a chunk and the gradient."""
        v, point = self.padded, x.reshape(self.rows, self.nx)
        v[1:-1, 1:-1] = point
        self.fetch_rows(v)
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


class Surface(Torsion):
    """The smallest surface over an obstacle, with a wave as its border: no quadratic. Rows over ranks, as `Torsion`.

    A cell has the area h sqrt(h^2 + a^2 + b^2), with the rises a and b along its upper and its left side. It belongs
    to the variable at its upper left corner; where that is the border's, to the variable beside it.
    """

    def __init__(self, nx: int, comm: Any, layout: Any) -> None:
        super().__init__(nx, comm, layout)
        begin = layout.begin // nx
        y, x = ((np.arange(first, last) * self.h) for first, last in ((begin, begin + self.rows + 2), (0, nx + 2)))
        border = 0.2 * np.sin(2 * np.pi * (x[None] + y[:, None]))
        self.padded[...] = border
        distance = (x[None, 1:-1] - 0.5) ** 2 + (y[1:-1, None] - 0.5) ** 2
        self.lower = np.where(distance < 0.04, 0.6 - 6 * distance, -10.0).ravel()
        self.upper = np.full(self.rows * nx, 10.0)
        self.ends = layout.end == layout.n
        shape = (self.rows + 1, nx + 1)
        self.across, self.down, self.area = (np.empty(shape) for _ in range(3))

    def start(self, number: int) -> np.ndarray:
        """Return where a run begins: the obstacle or zero and, of numbers above 0, above it by a thousandth or less."""
        begin, end = self.layout
        flat = np.maximum(self.lower, 0.0)
        if number == 0:
            return flat
        return flat + 1e-3 * np.random.default_rng(number).random(self.nx * self.nx)[begin:end]

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return values a chunk and the gradient."""
        v = self.padded
        v[1:-1, 1:-1] = x.reshape(self.rows, self.nx)
        self.fetch_rows(v)
        # By cells: sides along their upper edge and along their left one, which stand for both of each.
        across, down, area, h = self.across, self.down, self.area, self.h
        np.subtract(v[:-1, 1:], v[:-1, :-1], out=across)
        np.subtract(v[1:, :-1], v[:-1, :-1], out=down)
        np.multiply(across, across, out=area)
        area += down * down
        area *= 1 / (h * h)
        area += 1
        np.sqrt(area, out=area)
        across /= area
        down /= area
        # The point (i, j) is the left end of cell (i, j), the right one of (i, j - 1), the lower one of (i - 1, j).
        self.curved[...] = across[1:, :-1] - across[1:, 1:] + down[:-1, 1:] - down[1:, 1:]
        area *= h * h
        terms = self.terms
        terms[...] = area[1:, 1:]
        terms[:, 0] += area[1:, 0]
        if self.layout.begin == 0 and self.rows:
            terms[0] += area[0, 1:]
        found = self.layout.chunk_sums(terms), self.curved.ravel()
        if self.comm is not None and self.comm.size > 1:
            self.comm.Barrier()
        return found


PROBLEMS = {"torsion": Torsion, "surface": Surface}


# ---- cases ----------------------------------------------------------------------------------------------------------


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Run a case in processes of its own, and again while others are busy; return what the first rank found."""
    mpiexec = os.environ.get("STEPWELL_MPIEXEC", os.path.join(sysconfig.get_path("scripts"), "mpiexec"))
    start = [] if case["ranks"] == "none" else [mpiexec, "-n", str(case["ranks"])]
    command = [*start, sys.executable, str(Path(__file__).with_name("ranks.py")), "--worker", json.dumps(case)]
    environment = dict(os.environ, OPENBLAS_NUM_THREADS="1")
    for _ in range(case.get("tries", TRIES)):
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
