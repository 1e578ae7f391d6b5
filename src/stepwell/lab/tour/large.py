"""Chapter: large work. Constrained least squares in batches, ranks, and runs that are resumed."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import optimize

from stepwell.api.lsq import lsq_linear
from stepwell.apps.unmixing import simulate
from stepwell.distributed import ThreadCommunicator, run_threads, split
from stepwell.lab.html import Block, Figure, Series, Text, chart
from stepwell.lab.tour import resume
from stepwell.lab.tour.chapter import PATIENCE, Account, Chapter, Clock, Comparison, Stage, duration
from stepwell.quasi_newton.api import minimize

#: Lines and samples of the scene, and pixels that SciPy solves too: for the tour, and for a quick one.
SCENES, FEW = ((80, 100), (8, 10)), (2000, 10)
BANDS = 120
#: Variables, and ranks over which they are spread.
VARIABLES, RANKS = (100_000, 1_000), 3


def run(stage: Stage) -> Account:
    """Unmix a scene, spread a problem over ranks, and resume a run."""
    accounts = [_unmix(stage), _spread(stage), resume.run(stage)]
    return Account(
        [one for account in accounts for one in account.comparisons],
        [one for account in accounts for one in account.blocks],
    )


def _unmix(stage: Stage) -> Account:
    """Find shares between 0 and 1 of materials in every pixel, some of them with SciPy, too."""
    lines, samples = SCENES[stage.quick]
    stage.tell("a scene", 0.0)
    scene = simulate(lines, samples, bands=BANDS, seed=5)
    A, B = scene.library.spectra.T, scene.image.reshape(-1, BANDS).astype(np.float64)
    place, count, few = stage.place, len(B), FEW[stage.quick]
    ours, theirs = place.put(A), place.put(B)
    stage.tell(f"{count:,} pixels", 0.05)
    with Clock() as clock:
        result = lsq_linear(ours, theirs, bounds=(0.0, 1.0))
        place.wait()
    x = place.fetch(result.x)
    peer_x = np.empty((few, A.shape[1]))
    with Clock() as peer_clock:
        # The fair way with one matrix: it is factored once, and each pixel is a small system.
        Q, R = np.linalg.qr(A)
        small = B[:few] @ Q
        for pixel in range(few):
            with peer_clock.pause():
                stage.tell(f"SciPy: pixel {pixel + 1} of {few}", 0.1 + 0.3 * pixel / few)
            peer_x[pixel], _ = optimize.nnls(R, small[pixel])
            if peer_clock.now() > PATIENCE:
                few = pixel + 1
                break
    within = peer_x[:few].max(axis=1) <= 1.0  # SciPy's nnls knows no upper bound
    gap = float(np.max(np.abs(x[:few] - peer_x[:few])[within]))
    converged = int(np.sum(place.fetch(result.success)))
    summed = lsq_linear(ours, theirs, bounds=(0.0, 1.0), sum_bounds=(-np.inf, 1.0))
    largest = float(np.max(place.fetch(summed.x).sum(axis=1)))
    comparison = Comparison(
        f"shares of {A.shape[1]} materials in a pixel of {BANDS} bands, one of a batch of {count:,}",
        clock.seconds / count,
        f"shares differ by {gap:.0e}",
        converged == count and gap <= 1e-8 and largest <= 1 + 1e-12,
        "SciPy nnls of the triangular factor, made once, in a loop",
        peer_clock.seconds / few,
        gap=gap,
    )
    blocks: list[Block] = [
        Text(
            "Least squares within bounds, with sums, masks, weights and λ by rule, in batches: stepwell.lsq_linear. "
            f"Here {count:,} pixels of a simulated hyperspectral image are mixtures of {A.shape[1]} materials, whose "
            f"shares lie between 0 and 1: {duration(clock.seconds)} for all of them. SciPy was given {few:,} in the "
            "best way that it has: the matrix is factored once, and nnls, compiled code and good at small systems, "
            f"solves for each pixel. It has no upper bounds; {np.sum(within):,} of its answers keep them, and are "
            "compared. (A loop over lsq_linear, which takes both bounds, is some hundred times slower.) A second call "
            f"asks for sums of at most one, which SciPy has no argument for; the largest is {largest:.3f}."
        ),
        _pixel(scene, x.reshape(lines, samples, -1)),
    ]
    return Account([comparison], blocks)


def _pixel(scene: Any, shares: np.ndarray) -> Figure:
    """Draw the spectrum of a pixel in which no material has more than it must, and what the shares make of it."""
    row, column = np.unravel_index(int(np.argmin(shares.max(axis=2))), shares.shape[:2])
    found, waves = shares[row, column], scene.library.wavelengths
    largest = np.argsort(found)[::-1][:3]
    names = ", ".join(f"{scene.library.names[place]} {found[place]:.2f}" for place in largest)
    return Figure(
        chart(
            [
                Series("measured", waves, scene.image[row, column], 0, "band"),
                Series("fit", waves, found @ scene.library.spectra, 0, "line"),
            ],
            f"Reflectance of one pixel against wavelength, and the fit by its shares: {names}.",
            x_label="wavelength (nm)",
            y_label="reflectance",
        ),
        f"One pixel, a mixture of {names}.",
    )


def _spread(stage: Stage) -> Account:
    """Minimise a long chain on one rank, and on several that are threads."""
    n = VARIABLES[stage.quick]

    def program(comm: Any) -> tuple[np.ndarray, int]:
        layout = split(n, comm, align=2)
        place = np.arange(layout.begin, layout.end)
        start = np.where(place % 2, 0.8, -1.2 + 0.5 * np.sin(place))

        def fun(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            odd, even = x[::2], x[1::2]
            step = even - odd * odd
            terms, gradient = np.empty_like(x), np.empty_like(x)
            terms[::2], terms[1::2] = (1 - odd) ** 2, 100 * step**2
            gradient[::2], gradient[1::2] = -2 * (1 - odd) - 400 * odd * step, 200 * step
            return layout.chunk_sums(terms), gradient

        found = minimize(fun, start, jac=True, bounds=(-2.0, 0.9), comm=layout)
        return found.x, found.nit

    stage.tell("one rank", 0.45)
    whole, iterations = program("self")

    def on_threads(comm: ThreadCommunicator) -> np.ndarray:
        return program(comm)[0]

    stage.tell(f"{RANKS} ranks", 0.5)
    with Clock() as clock:
        pieces = run_threads(RANKS, on_threads)
    same = bool(np.array_equal(np.concatenate(pieces), whole))
    comparison = Comparison(
        f"Rosenbrock with bounds, {n:,} variables over {RANKS} ranks",
        clock.seconds,
        "the same bits as on one rank" if same else "other bits than on one rank",
        same,
    )
    text = (
        f"One problem over many processes: {n:,} variables are dealt out to {RANKS} ranks, here threads, elsewhere "
        f"processes of MPI. Each evaluates its own piece; {iterations} iterations lead to the bits of one rank, as "
        "sums are taken in an order that follows from the number of variables alone."
    )
    return Account([comparison], [Text(text)])


CODE = """import numpy as np
import stepwell
from stepwell.apps import unmixing

scene = unmixing.simulate(80, 100)  # least squares with bounds and sums, a pixel a row
spectra, pixels = scene.library.spectra.T, scene.image.reshape(-1, scene.image.shape[2])
shares = stepwell.lsq_linear(spectra, pixels, bounds=(0, 1), sum_bounds=(0, 1)).x

layout = stepwell.distributed.split(10_000, "self")  # under mpiexec: mpi4py.MPI.COMM_WORLD
data = np.arange(*layout) % 7.0  # this rank's piece
result = stepwell.minimize(lambda x: (layout.chunk_sums((x - data) ** 2), 2 * (x - data)),
                           np.zeros(len(data)), jac=True, bounds=(0, 5), comm=layout)

problem = stepwell.problems.get("torsion", nx=100, ny=100)  # killed and called again, it goes on
result = stepwell.minimize(problem.fun, problem.x0, jac=True, bounds=problem.bounds,
                           checkpoint="run.checkpoint", checkpoint_every="60 s")"""
CHAPTER = Chapter("large", "Many pixels, many ranks, runs that resume", run, CODE, "least-squares")
