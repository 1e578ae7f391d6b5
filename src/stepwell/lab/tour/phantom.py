"""Chapter: slices of the Shepp–Logan head from few noisy projections, many right-hand sides, beside SciPy's cg."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse.linalg

from stepwell.api.krylov import tikhonov
from stepwell.apps.tomography import add_noise, largest_singular_value, parallel_beam, shepp_logan_3d, signal_to_noise
from stepwell.krylov import LinearResult, Progress
from stepwell.krylov.options import MethodChoice
from stepwell.lab.html import Block, Figure, Gallery, Series, Table, Text, chart, diverging, grey, png_image
from stepwell.lab.tour.chapter import PATIENCE, Account, Chapter, Clock, Comparison, Stage, duration

#: Pixels along a side, projections, slices, and those of them that are also solved alone and by SciPy: for the tour,
#: and for a quick one.
SIZES = ((128, 90, 32, 6), (24, 16, 4, 2))
NOISE = 0.01
#: λ relative to ‖A‖.
RELATIVE_LAM = 0.01
TOL = 1e-4
#: Errors are shown up to this share of the grey scale.
ERROR_SCALE = 0.25


@dataclass(frozen=True)
class Peer:
    """SciPy's solutions, one a column, its products with AᵀA + λ² for each, and its seconds for all."""

    x: np.ndarray
    products: np.ndarray
    seconds: float


def run(stage: Stage) -> Account:
    """Reconstruct the middle slices together, and a few of them alone and with SciPy."""
    side, angles, count, few = SIZES[stage.quick]
    stage.tell("projection matrix", 0.0)
    matrix = parallel_beam(side, angles=np.arange(angles) * 180.0 / angles)
    first = (side - count) // 2
    truth = shepp_logan_3d(side)[first : first + count]
    data = add_noise(matrix @ truth.reshape(count, -1).T, NOISE)
    lam = RELATIVE_LAM * largest_singular_value(matrix)
    A = stage.place.put_sparse(matrix)
    alone = np.unique(np.linspace(0, count - 1, few).round().astype(int))
    block = _solve(stage, A, data, lam, "block", 0.3)
    single = _solve(stage, A, data[:, alone], lam, "cgls", 0.5)
    stage.tell("SciPy's cg", 0.8)
    peer = run_scipy(matrix, data[:, alone], lam)
    volume = np.ascontiguousarray(stage.place.fetch(block.x).T).reshape(count, side, side)
    comparison = _compare(matrix, data, lam, truth, volume, block, alone, peer)
    slices = np.arange(first, first + count)
    pictures = _pictures(truth, volume, first)
    quality = [signal_to_noise(image, real) for image, real in zip(volume, truth)]
    blocks: list[Block] = [
        Text(
            f"A head of {side}³ voxels, {angles} projections over half a turn with {NOISE:.0%} noise. Every slice is "
            f"the minimiser of ‖Ax − b‖² + λ²‖x‖² with the same A ({matrix.shape[0]:,} × {matrix.shape[1]:,}, "
            f"{matrix.nnz:,} entries), λ = {RELATIVE_LAM:g} ‖A‖, to a relative residual of {TOL:g}. Slices that are "
            f"solved together search in one common space, so each needs fewer products with AᵀA. SciPy's cg is a sound "
            "solver of one system; it is given the same operator, start and rule, slice by slice."
        ),
        Gallery(pictures, small=True),
        Figure(
            chart(
                [
                    Series("all slices together", slices, block.products, 0, "dots"),
                    Series("a slice alone", slices[alone], single.products, 1, "crosses"),
                ],
                f"Products per slice: {np.mean(block.products):.1f} on average for the block of all slices, "
                f"{np.mean(single.products):.1f} for a slice alone.",
                x_label="slice",
                y_label="products",
                y_from_zero=True,
            ),
            "Products with AᵀA + λ² for each slice, shared ones counted by their share. Signal to noise against the "
            f"truth: {min(quality):.1f} to {max(quality):.1f} dB.",
        ),
        Table(
            ("method", "products per slice", "operator calls", "time per slice"),
            [
                _row("block, all slices together", block.products, block.calls, block.seconds),
                _row("CGLS, a slice alone", single.products, single.calls, single.seconds),
                _row("SciPy cg, a slice alone", peer.products, int(np.sum(peer.products)), peer.seconds),
            ],
            "All stop by the same rule. Ours include a last product that checks the residual.",
            numbers=True,
        ),
    ]
    return Account([comparison], blocks, pictures[1])


def _compare(
    matrix: Any,
    data: np.ndarray,
    lam: float,
    truth: np.ndarray,
    volume: np.ndarray,
    block: LinearResult,
    alone: np.ndarray,
    peer: Peer,
) -> Comparison:
    alone = alone[: len(peer.products)]
    x = volume[alone].reshape(len(alone), -1).T
    # The objective at a point with the residual r of the normal equations is above its minimum by rᵀH⁻¹r with
    # H = AᵀA + λ² >= λ², and the residuals of both are at most TOL ‖Aᵀb‖.
    ours, theirs = (_objective(matrix, data[:, alone], lam, found) for found in (x, peer.x))
    bound = (TOL * np.linalg.norm(matrix.T @ data[:, alone], axis=0) / lam) ** 2
    quality = [
        np.mean([signal_to_noise(found[:, k], truth[slice_].ravel()) for k, slice_ in enumerate(alone)])
        for found in (x, peer.x)
    ]
    return Comparison(
        f"reconstruction of a {truth.shape[1]} × {truth.shape[2]} slice, one of {len(truth)}",
        block.seconds / len(truth),
        f"signal to noise {quality[0]:.1f} dB, SciPy's {quality[1]:.1f}; residuals at most {block.residual.max():.0e}",
        block.success and bool(np.all(np.abs(ours - theirs) <= bound)),
        "SciPy cg",
        peer.seconds / len(peer.products),
    )


def _row(name: str, products: np.ndarray, calls: int, seconds: float) -> tuple[str, str, str, str]:
    return name, f"{np.mean(products):.1f}", f"{calls:,}", duration(seconds / len(products))


def _solve(stage: Stage, A: Any, data: np.ndarray, lam: float, method: MethodChoice, share: float) -> LinearResult:
    def told(progress: Progress) -> None:
        done = 1 - progress.running / max(1, progress.columns)
        stage.tell(f"{method}: {progress.running} of {progress.columns} slices at work", share + 0.2 * done)

    return tikhonov(A, stage.place.put(np.ascontiguousarray(data)), lam, method=method, tol=TOL, callback=told)


def run_scipy(matrix: Any, data: np.ndarray, lam: float) -> Peer:
    """Solve column by column with SciPy, whose rule is ours: ‖r‖ <= tol ‖Aᵀb‖."""
    adjoint = matrix.T.tocsr()
    size, count = matrix.shape[1], data.shape[1]
    solutions, products = np.empty((size, count)), np.zeros(count)
    # SciPy before 1.12 has another name for it.
    rule = {"rtol" if "rtol" in inspect.signature(scipy.sparse.linalg.cg).parameters else "tol": TOL}
    with Clock() as clock:
        for column in range(count):

            def multiply(v: np.ndarray, column: int = column) -> np.ndarray:
                products[column] += 1
                return np.asarray(adjoint @ (matrix @ v) + lam**2 * v)

            normal = scipy.sparse.linalg.LinearOperator((size, size), matvec=multiply, dtype=np.float64)
            solutions[:, column], _ = scipy.sparse.linalg.cg(normal, adjoint @ data[:, column], atol=0.0, **rule)
            if clock.now() > PATIENCE:
                count = column + 1
                break
    return Peer(solutions[:, :count], products[:count], clock.seconds)


def _objective(matrix: Any, data: np.ndarray, lam: float, x: np.ndarray) -> np.ndarray:
    """Return ‖Ax − b‖² + λ²‖x‖² of every column."""
    return np.asarray(np.sum((matrix @ x - data) ** 2, axis=0) + lam**2 * np.sum(x**2, axis=0))


def _pictures(truth: np.ndarray, volume: np.ndarray, first: int) -> list[Figure]:
    middle = len(truth) // 2
    real, image = truth[middle], volume[middle]
    error = image - real
    high = float(real.max())
    number = first + middle
    return [
        Figure(png_image(grey(real, 0.0, high), f"Slice {number} of the Shepp–Logan head: the truth"), "Truth"),
        Figure(
            png_image(grey(image, 0.0, high), f"Slice {number} as reconstructed: the same head with some noise"),
            f"Solution, {signal_to_noise(image, real):.1f} dB",
        ),
        Figure(
            png_image(
                diverging(error, ERROR_SCALE * high), f"Error of slice {number}: small inside, largest along the skull"
            ),
            f"Error: blue too low, red too high, full colour at ±{ERROR_SCALE * high:g}",
        ),
    ]


CODE = """import stepwell
from stepwell.apps import tomography

A = tomography.parallel_beam(128, angles=range(0, 180, 2))
slices = tomography.shepp_logan_3d(128)[48:80]
B = tomography.add_noise(A @ slices.reshape(32, -1).T, 0.01)
result = stepwell.tikhonov(A, B, 1.0, tol=1e-4)"""
CHAPTER = Chapter("phantom", "Slices of a head", run, CODE, "krylov")
