"""Full-waveform inversion of a section between two boreholes, its rows spread over the ranks of MPI.

Sources fire along the left edge, receivers listen along the right one. The unknowns are the squared slownesses of all
points of a grid, between bounds; the misfit of the recorded waves is minimised. The wave equation is stepped through
time by finite differences, each rank with its own rows and one row of either neighbour; the gradient comes from the
adjoint of the same steps. The result has the same bits on any number of ranks.

Run: mpiexec -n 4 python -m mpi4py examples/waveform_inversion.py [ITERATIONS]
"""

from __future__ import annotations

import hashlib
import sys

import numpy as np
from mpi4py import MPI

import stepwell

ROWS, COLUMNS = 256, 64
SPACING, STEP, STEPS = 1.0, 0.2, 280  # of the grid, in metres; of time, in milliseconds
SLOWEST, FASTEST = 1.4, 2.9  # metres a millisecond
WEIGHT = 1e-3  # of the misfit: gradients of about the size of the unknowns make a sensible first step
RECEIVERS = COLUMNS - 6  # their column


class Section:
    """One rank's rows of the section, and waves in it."""

    def __init__(self, comm: MPI.Comm, shots: int) -> None:
        self.comm = comm
        self.layout = stepwell.distributed.split(ROWS * COLUMNS, comm, align=COLUMNS)
        self.first, self.last = self.layout.begin // COLUMNS, self.layout.end // COLUMNS
        self.rows = self.last - self.first
        owners = [rank for rank in range(comm.size) if self.layout.borders[rank] < self.layout.borders[rank + 1]]
        place = owners.index(comm.rank) if self.rows else None
        self.above = self.below = MPI.PROC_NULL
        if place is not None:
            self.above = owners[place - 1] if place > 0 else MPI.PROC_NULL
            self.below = owners[place + 1] if place + 1 < len(owners) else MPI.PROC_NULL
        self.padded = np.zeros((self.rows + 2, COLUMNS + 2))
        # A Ricker wavelet with a peak frequency of 0.06 kHz, at some depths on the left.
        t = STEP * np.arange(STEPS) - 16.0
        phase = (np.pi * 0.06 * t) ** 2
        self.wavelet = (1 - 2 * phase) * np.exp(-phase)
        self.shots = [(ROWS * (2 * shot + 1) // (2 * shots), 5) for shot in range(shots)]

    def laplacian(self, u: np.ndarray) -> np.ndarray:
        """Return the five-point Laplacian of a field that is zero around the section; its rows travel one step."""
        p = self.padded
        p[1:-1, 1:-1] = u
        if self.rows:
            self.comm.Sendrecv(p[1].copy(), self.above, recvbuf=(down := np.zeros(COLUMNS + 2)), source=self.below)
            self.comm.Sendrecv(p[-2].copy(), self.below, recvbuf=(up := np.zeros(COLUMNS + 2)), source=self.above)
            p[0], p[-1] = up, down
        return (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * u) / SPACING**2

    def record(self, slowness: np.ndarray, shot: int, pushes: list[np.ndarray] | None = None) -> np.ndarray:
        """Step the wave of one shot through time; return what this rank's receivers record, (STEPS, rows).

        `pushes` gets Δu + source of every step, which the gradient needs. (A larger program would keep some steps and
        repeat the others.)
        """
        row, column = self.shots[shot]
        row -= self.first
        factor = STEP**2 / slowness
        before, now = np.zeros_like(slowness), np.zeros_like(slowness)
        recorded = np.zeros((STEPS, self.rows))
        for k in range(STEPS):
            push = self.laplacian(now)
            if 0 <= row < self.rows:
                push[row, column] += self.wavelet[k]
            before, now = now, 2 * now - before + factor * push
            recorded[k] = now[:, RECEIVERS]
            if pushes is not None:
                pushes.append(push)
        return recorded

    def misfit(self, x: np.ndarray, observed: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the weighted squared misfit, one value for each chunk of this rank, and its gradient."""
        slowness = x.reshape(self.rows, COLUMNS)
        factor = STEP**2 / slowness
        value, by_factor = np.zeros_like(slowness), np.zeros_like(slowness)
        for shot in range(len(self.shots)):
            pushes: list[np.ndarray] = []
            residual = self.record(slowness, shot, pushes) - observed[shot]
            value[:, RECEIVERS] += 0.5 * WEIGHT * (residual**2).sum(0)
            after, now = np.zeros_like(slowness), np.zeros_like(slowness)
            for k in reversed(range(STEPS)):
                # Backwards through the same steps; the Laplacian is its own adjoint.
                after, now = now, 2 * now - after + self.laplacian(factor * now)
                now[:, RECEIVERS] += WEIGHT * residual[k]
                by_factor += now * pushes[k]
        return self.layout.chunk_sums(value), (-by_factor * factor / slowness).reshape(-1)


def truth(section: Section) -> np.ndarray:
    """Return the squared slownesses to be found: a fast and a slow lens in a section that gets faster with depth."""
    i, j = np.meshgrid(np.arange(section.first, section.last), np.arange(COLUMNS), indexing="ij")
    velocity = 1.8 + 0.4 * i / ROWS
    velocity += 0.3 * np.exp(-(((i - 90) / 14) ** 2) - ((j - 36) / 10) ** 2)
    velocity -= 0.2 * np.exp(-(((i - 170) / 12) ** 2) - ((j - 28) / 9) ** 2)
    return 1 / velocity**2


def invert(comm: MPI.Comm, iterations: int, shots: int = 9) -> tuple[str, stepwell.Result]:
    """Find the section from waves that were computed in it; return a line about the result, and the result."""
    section = Section(comm, shots)
    true = truth(section)
    observed = [section.record(true, shot) for shot in range(shots)]
    start = 1 / (1.8 + 0.4 * np.arange(section.first, section.last)[:, None] / ROWS + np.zeros(COLUMNS)) ** 2
    result = stepwell.minimize(
        lambda x: section.misfit(x, observed),
        start.reshape(-1),
        jac=True,
        bounds=(1 / FASTEST**2, 1 / SLOWEST**2),
        comm=section.layout,
        options={"maxiter": iterations, "maxcor": 8, "gtol": 0, "ftol": 0},
    )
    pieces = comm.gather((np.asarray(result.x), true.reshape(-1), start.reshape(-1)))
    line = ""
    if pieces is not None:
        x, wanted, first = (np.concatenate(parts) for parts in zip(*pieces))
        left = np.linalg.norm(x - wanted) / np.linalg.norm(first - wanted)
        bits = hashlib.sha256(x.tobytes()).hexdigest()[:16]
        line = f"misfit {result.fun:.6e} after {result.nit} iterations, model error {left:.3f} of the start's, {bits}"
    return line, result


if __name__ == "__main__":
    said, found = invert(MPI.COMM_WORLD, int(sys.argv[1]) if len(sys.argv) > 1 else 20)
    if MPI.COMM_WORLD.rank == 0:
        seconds = found.seconds
        print(said)
        print(f"{found.mode}; {found.exchanges} exchanges of the solver")
        print(f"{seconds['objective']:.1f} s of waves, {seconds['solver']:.2f} s of the solver")
