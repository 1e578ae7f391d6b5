"""The experiment of Lin and Renaut (2010): four slices of a phantom, projected on the directions of a seed slice.

Their table gives the cost (seconds on a Tesla C1060) and the signal-to-noise ratio of slices 65 to 68 of a 128-cube
Shepp–Logan phantom, with slice 64 as seed. Cost here is counted in products with AᵀA + λ²I, the true residual at the
end included, and in seconds; block conjugate gradients, a warm start and a dense factor stand beside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.apps.tomography.phantom import shepp_logan_3d
from stepwell.apps.tomography.projector import parallel_beam
from stepwell.apps.tomography.simulate import add_noise, largest_singular_value, signal_to_noise
from stepwell.krylov import ProjectedCG, tikhonov
from stepwell.krylov.results import LinearResult
from stepwell.operators import as_operator

#: Slice -> (cost of CG, PrCG, APrCG in seconds, their signal-to-noise ratios in dB, speed-up of APrCG over CG).
POSTER = {
    65: ((17.41, 2.16, 2.06), (13.67, 13.67, 13.67), 8.45),
    66: ((16.34, 2.74, 2.58), (13.80, 13.83, 13.83), 6.33),
    67: ((14.35, 3.11, 2.81), (13.91, 13.95, 13.95), 5.11),
    68: ((13.03, 3.53, 3.46), (13.80, 13.83, 13.83), 3.77),
}
SEED_SLICE = 64
METHODS = ("CG", "PrCG", "APrCG", "CG from previous", "block CG", "direct")


@dataclass
class Row:
    """One slice by one method."""

    tol: float
    slice: int
    method: str
    products: float
    seconds: float
    quality: float
    residual: float


@dataclass
class Study:
    """The rows, the cost of the seed, and what they were made with."""

    rows: list[Row]
    lam: float
    relative_lam: float
    noise: float
    seed_tol: float
    seed_products: float
    seed_directions: int

    def find(self, tol: float, number: int, method: str) -> Row | None:
        """Return the row of one slice by one method at one tolerance."""
        for row in self.rows:
            if (row.tol, row.slice, row.method) == (tol, number, method):
                return row
        return None

    def ratios(self, tol: float, cost: str = "products") -> list[float]:
        """Cost of CG over that of APrCG, slice by slice: ``"products"`` or ``"seconds"``."""
        pairs = [(self.find(tol, number, "CG"), self.find(tol, number, "APrCG")) for number in POSTER]
        return [getattr(cold, cost) / getattr(ours, cost) for cold, ours in pairs if cold and ours]

    def reaches_poster(self, tol: float, cost: str = "products") -> bool:
        """Whether every ratio is at least the poster's."""
        published = [speed_up for _, _, speed_up in POSTER.values()]
        return all(ours >= theirs for ours, theirs in zip(self.ratios(tol, cost), published, strict=True))


def projected_cg_study(
    tolerances: Sequence[float] = (1e-2, 5e-3, 3e-3, 2e-3, 1e-3),
    *,
    relative_lam: float = 0.01,
    noise: float = 0.01,
    seed_tol: float = 1e-6,
    direct: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> Study:
    """Run the experiment.

    Parameters
    ----------
    tolerances : sequence of float
        Tolerances for the four slices.
    relative_lam : float, default 0.01
        λ relative to ‖A‖.
    noise : float, default 0.01
        Norm of the noise relative to that of the data.
    seed_tol : float, default 1e-6
        Tolerance of the seed slice, whose directions all others are projected on.
    direct : bool, default False
        Factor the dense matrix as well: 4.3 GB and about a minute on two cores.
    tell : callable, optional
        Told what is going on.

    Returns
    -------
    Study
    """
    tell("projection matrix")
    matrix = parallel_beam(128, angles=np.arange(0, 180, 2.0), detectors=185)
    images = shepp_logan_3d(128).reshape(128, -1).T
    data = add_noise(matrix @ images, noise)
    A = as_operator(matrix)
    lam = relative_lam * largest_singular_value(A)
    study = Study([], lam, relative_lam, noise, seed_tol, 0.0, 0)
    tell("seed slice")
    seeded = ProjectedCG(A, lam)
    study.seed_products = float(seeded.solve(data[:, SEED_SLICE - 1], tol=seed_tol).products[0])
    study.seed_directions = seeded.directions
    numbers = list(POSTER)
    columns = [number - 1 for number in numbers]  # the poster counts slices from 1

    def book(tol: float, number: int, method: str, result: LinearResult, place: int | None = None) -> None:
        """Add the row of one slice; a block's seconds are shared evenly."""
        x = result.x if place is None else result.x[:, place]
        seconds = result.seconds if place is None else result.seconds / len(numbers)
        column = place or 0
        quality = signal_to_noise(x, images[:, number - 1])
        products, residual = float(result.products[column]), float(result.residual[column])
        study.rows.append(Row(tol, number, method, products, seconds, quality, residual))

    for tol in tolerances:
        tell(f"tolerance {tol:g}: CG")
        for number, column in zip(numbers, columns):
            book(tol, number, "CG", tikhonov(A, data[:, column], lam, method="cgls", tol=tol))
        for name in ("PrCG", "APrCG"):
            tell(f"tolerance {tol:g}: {name}")
            solver = seeded.copy()
            solver.augmented = name == "APrCG"
            for number, column in zip(numbers, columns):
                book(tol, number, name, solver.solve(data[:, column], tol=tol))
        tell(f"tolerance {tol:g}: CG from previous")
        previous = tikhonov(A, data[:, SEED_SLICE - 1], lam, method="cgls", tol=tol).x
        for number, column in zip(numbers, columns):
            result = tikhonov(A, data[:, column], lam, method="cgls", tol=tol, x0=previous)
            previous = result.x
            book(tol, number, "CG from previous", result)
        tell(f"tolerance {tol:g}: block CG")
        together = tikhonov(A, data[:, columns], lam, method="block", tol=tol)
        for place, number in enumerate(numbers):
            book(tol, number, "block CG", together, place)
    if direct:
        tell("dense Cholesky")
        together = tikhonov(A, data[:, columns], lam, method="direct", tol=min(tolerances))
        for place, number in enumerate(numbers):
            book(min(tolerances), number, "direct", together, place)
    return study
