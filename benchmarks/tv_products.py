"""Total variation: products per slice to a proven gap, and inner sweeps. Counts do not depend on the machine's load.

    python benchmarks/tv_products.py [--quick]

A product is one application of A and one of its adjoint to one vector, set-up and the last check included, counted by
an operator that wraps the matrix. x >= 0, λ = σ‖A‖_F/√n unless said. The measured scan is read from the folder that
STEPWELL_DATA names; without it that row is left out. ``--quick`` leaves out the phantom's 102 slices.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import save, table
from scipy.sparse.linalg import LinearOperator

import stepwell
from stepwell.apps import tomography

#: Where the measured scan may be, beside the repository.
BESIDE = Path(__file__).parents[2] / "shared" / "data"


class Counted(LinearOperator):
    """A sparse matrix that counts its products."""

    def __init__(self, A: sp.csr_matrix) -> None:
        super().__init__(A.dtype, A.shape)
        self.A, self.At, self.count = A, A.T.tocsr(), 0.0

    def _matmat(self, X: np.ndarray) -> np.ndarray:
        self.count += 0.5 * X.shape[1]
        return self.A @ X

    def _rmatmat(self, Y: np.ndarray) -> np.ndarray:
        self.count += 0.5 * Y.shape[1]
        return self.At @ Y

    def _matvec(self, x: np.ndarray) -> np.ndarray:
        self.count += 0.5
        return self.A @ x

    def _rmatvec(self, y: np.ndarray) -> np.ndarray:
        self.count += 0.5
        return self.At @ y


def scan(size: int, angles: np.ndarray, noise: float, slices: list[int], seed: int = 4) -> tuple[Any, ...]:
    """Return A, noisy sinograms of slices of the phantom, and σ of a datum of each."""
    A = sp.csr_matrix(tomography.parallel_beam(size, angles=angles))
    B = np.asarray(A @ tomography.shepp_logan_3d(size)[slices].reshape(len(slices), -1).T)
    error = np.random.default_rng(seed).standard_normal(B.shape)
    norms = np.linalg.norm(B, axis=0)
    error *= noise * norms / np.linalg.norm(error, axis=0)
    return A, B + error, np.linalg.norm(error, axis=0) / np.sqrt(B.shape[0])


def measured() -> tuple[sp.csr_matrix, np.ndarray] | None:
    """Return A and the sinograms of slices 40, 60 and 80 of a measured scan, or None where it is not at hand."""
    path = Path(os.environ.get("STEPWELL_DATA", BESIDE)) / "i13_parallel_beam.npz"
    if not path.exists():
        return None
    with np.load(path) as file:
        data = {name: file[name] for name in file.files}
    dark = data["dark"].astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        light = np.clip((data["projections"] - dark) / (data["flat"] - dark), 1e-3, None)
    light /= np.median(np.concatenate([light[:, :, :5], light[:, :, -5:]], axis=2), axis=2, keepdims=True)
    A = tomography.parallel_beam(160, angles=data["angles_deg"], detectors=160, center=float(data["center_column"]))
    return sp.csr_matrix(A), np.stack([-np.log(light)[:, row].reshape(-1) for row in (40, 60, 80)], axis=1)


def blurred(size: int = 128) -> tuple[sp.csr_matrix, np.ndarray]:
    """Return a Gaussian blur of two pixels, and a blurred slice with 2 % noise."""
    reach = np.arange(-9, 10)
    weights = np.exp(-0.5 * (reach / 2.0) ** 2)
    weights /= weights.sum()
    line = sp.diags([np.full(size - abs(k), w) for k, w in zip(reach, weights)], list(reach))
    A = sp.csr_matrix(sp.kron(line, line))
    b = A @ tomography.shepp_logan_3d(size)[size // 2].ravel()
    error = np.random.default_rng(0).standard_normal(b.shape)
    return A, (b + 0.02 * np.linalg.norm(b) / np.linalg.norm(error) * error)[:, None]


def cases(quick: bool) -> Iterator[tuple[str, Any, np.ndarray, Any, dict[str, Any], str]]:
    """Name, A, B, λ, arguments and the goal of every row."""

    def lam(A: sp.csr_matrix, sigma: np.ndarray) -> np.ndarray:
        return sigma * np.sqrt(A.power(2).sum() / A.shape[1])

    A, B, sigma = scan(128, np.arange(0, 180, 4.0), 0.02, [64])
    for tol, goal in ((1e-2, 23), (1e-3, 27), (1e-4, 31)):
        yield f"128², 45 angles, 2 %, to {tol:g}", A, B, lam(A, sigma), {"tol": tol}, str(goal)
    for size, step, noise in (
        (96, 3.0, 0.002), (96, 3.0, 0.01), (96, 3.0, 0.1), (128, 9.0, 0.002), (128, 9.0, 0.05), (128, 9.0, 0.1),
        (128, 2.0, 0.002), (128, 2.0, 0.1),
    ):  # fmt: skip
        A, B, sigma = scan(size, np.arange(0, 180, step), noise, [size // 2])
        name = f"{size}², {round(180 / step)} angles, {100 * noise:g} %, to 1e-3"
        yield name, A, B, lam(A, sigma), {}, "40"
    found = measured()
    if found is not None:
        yield "measured scan, 160², slices 40, 60, 80, to 1e-3", *found, 0.161, {}, "22"
        yield "measured scan, 160², slice 60, to 1e-3", found[0], found[1][:, 1:2], 0.161, {}, "12"
    A, B, sigma = scan(128, np.arange(0, 120, 2.0), 0.02, [64])
    yield "128², limited angle 0 to 120°, 2 %, to 1e-3", A, B, lam(A, sigma), {}, "150"
    A, B = blurred()
    yield "128², deblurring, 2 %, λ = 1e-3, to 1e-3", A, B, 1e-3, {}, ""
    yield "128², deblurring, 2 %, λ = 1e-3, x free, to 1e-3", A, B, 1e-3, {"bounds": None}, ""
    if not quick:
        full = np.flatnonzero(tomography.shepp_logan_3d(128).any(axis=(1, 2))).tolist()
        A, B, sigma = scan(128, np.arange(0, 180, 2.0), 0.01, full)
        yield f"128², 90 angles, 1 %, {len(full)} slices, to 1e-3", A, B, lam(A, sigma), {}, "median 29, worst 45"


def main() -> None:
    rows, kept = [], []
    for name, A, B, lam, given, goal in cases("--quick" in sys.argv):
        side = round(A.shape[1] ** 0.5)
        counted = Counted(A)
        arguments = {"bounds": (0, None), "tol": 1e-3} | given
        result = stepwell.tv(counted, B, lam, shape=(side, side), **arguments)
        each = np.sort(result.products)
        total = counted.count / B.shape[1]
        said = f"{total:.1f}" if B.shape[1] == 1 else f"{total:.1f}; median {np.median(each):.1f}, worst {each[-1]:.1f}"
        rows.append([name, said, goal, f"{result.sweeps.mean():.0f}", f"{result.gap.max():.1e}", str(result.success)])
        kept.append({
            "name": name, "products": total, "median": float(np.median(each)), "worst": float(each[-1]), "goal": goal,
            "sweeps": float(result.sweeps.mean()), "gap": float(result.gap.max()), "proved": bool(result.success),
        })  # fmt: skip
        print(f"{name}: {said}", file=sys.stderr, flush=True)
    table(["problem", "products per slice", "goal", "sweeps per slice", "gap", "proved"], rows)
    if "--quick" not in sys.argv:
        save("tv_products", "products", kept)


if __name__ == "__main__":
    main()
