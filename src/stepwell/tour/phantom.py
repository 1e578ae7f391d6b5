"""Chapter: slices of the Shepp–Logan head from few noisy projections, many right-hand sides, beside SciPy's cg."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import scipy.sparse.linalg

from stepwell.apps.tomography import add_noise, largest_singular_value, parallel_beam, shepp_logan_3d, signal_to_noise
from stepwell.krylov import Progress, tikhonov
from stepwell.report.html import Block, Figure, Gallery, Series, Table, Text, chart, diverging, grey, png_image
from stepwell.tour.chapter import Account, Chapter, Clock, Comparison, Stage, duration

#: Pixels along a side, projections, slices, and those of them that SciPy solves too: for the tour, and a quick one.
SIZES = ((128, 90, 32, 4), (32, 24, 8, 2))
NOISE = 0.01
#: λ relative to ‖A‖.
RELATIVE_LAM = 0.01
TOL = 1e-4
#: Errors are shown up to this share of the grey scale.
ERROR_SCALE = 0.5


def run(stage: Stage) -> Account:
    """Reconstruct the middle slices together, one by one, and a few with SciPy."""
    side, angles, count, few = SIZES[stage.quick]
    stage.tell("projection matrix", 0.0)
    matrix = parallel_beam(side, angles=np.arange(angles) * 180.0 / angles)
    first = (side - count) // 2
    truth = shepp_logan_3d(side)[first : first + count]
    data = add_noise(matrix @ truth.reshape(count, -1).T, NOISE)
    lam = RELATIVE_LAM * largest_singular_value(matrix)
    A, B = stage.place.send_sparse(matrix), stage.place.send(data)
    block = _solve(stage, A, B, lam, "block", 0.2)
    single = _solve(stage, A, B, lam, "cgls", 0.4)
    stage.tell("SciPy's cg", 0.8)
    peer_seconds, peer_x, peer_products = run_scipy(matrix, data[:, :few], lam)
    x = stage.place.fetch(block.x)
    # The objective φ at a point with the residual r of the normal equations is above its minimum by rᵀH⁻¹r with
    # H = AᵀA + λ² >= λ², and the residuals of both are at most TOL ‖Aᵀb‖.
    ours, theirs = (_objective(matrix, data[:, :few], lam, found) for found in (x[:, :few], peer_x))
    adjoint = np.linalg.norm(matrix.T @ data[:, :few], axis=0)
    gap = float(np.max(np.abs(ours - theirs) / theirs))
    bound = float(np.max((TOL * adjoint / lam) ** 2 / theirs))
    comparison = Comparison(
        f"reconstruction of a {side} × {side} slice, one of {count}",
        block.seconds / count,
        f"minima differ by {gap:.0e}; relative residuals at most {float(block.residual.max()):.1e}",
        bool(block.success) and gap <= bound,
        "SciPy cg",
        peer_seconds / few,
    )
    rows = [
        (
            name,
            f"{np.mean(products):.1f}",
            f"{calls:,}",
            duration(seconds / number),
        )
        for name, products, calls, seconds, number in (
            ("block, all slices together", block.products, block.calls, block.seconds, count),
            ("one slice after the other", single.products, single.calls, single.seconds, count),
            (f"SciPy cg, {few} of the slices", peer_products, int(np.sum(peer_products)), peer_seconds, few),
        )
    ]
    volume = np.ascontiguousarray(x.T).reshape(count, side, side)
    quality = [signal_to_noise(image, real) for image, real in zip(volume, truth)]
    blocks: list[Block] = [
        Text(
            f"A head of {side}³ voxels, {angles} projections over half a turn with {NOISE:.0%} noise. Every slice is "
            f"the minimiser of ‖Ax − b‖² + λ²‖x‖² with the same A ({matrix.shape[0]:,} × {matrix.shape[1]:,}, "
            f"{matrix.nnz:,} entries), λ = {RELATIVE_LAM:g} ‖A‖, to a relative residual of {TOL:g}. Slices that are "
            f"solved together search in one common space, so each needs fewer products with AᵀA."
        ),
        Gallery(_pictures(truth, volume, first), small=True),
        Figure(
            chart(
                [
                    Series("block", np.arange(first, first + count), block.products, 0, "dots"),
                    Series("one after the other", np.arange(first, first + count), single.products, 1, "dots"),
                ],
                f"Products a slice: {np.mean(block.products):.1f} on average for the block of all slices, "
                f"{np.mean(single.products):.1f} one after the other.",
                x_label="slice",
                y_label="products",
                y_from_zero=True,
            ),
            "Products with AᵀA + λ² for each slice, shared ones counted by their share. Signal to noise against the "
            f"truth: {min(quality):.1f} to {max(quality):.1f} dB.",
        ),
        Table(
            ("method", "products a slice", "operator calls", "time a slice"),
            rows,
            "All stop by the same rule. Ours include a last product that checks the residual.",
            numbers=True,
        ),
    ]
    return Account([comparison], blocks)


def _solve(stage: Stage, A: Any, B: Any, lam: float, method: str, share: float) -> Any:
    def told(progress: Progress) -> None:
        done = 1 - progress.active / max(1, progress.columns)
        stage.tell(f"{method}: {progress.active} of {progress.columns} slices at work", share + 0.2 * done)

    return tikhonov(A, B, lam, method=method, tol=TOL, callback=told)


def run_scipy(matrix: Any, data: np.ndarray, lam: float) -> tuple[float, np.ndarray, np.ndarray]:
    """Return SciPy's seconds, solutions and products, column by column; its rule is ours: ‖r‖ <= tol ‖Aᵀb‖."""
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
    return clock.seconds, solutions, products


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
            f"Reconstruction, {signal_to_noise(image, real):.1f} dB",
        ),
        Figure(
            png_image(
                diverging(error, ERROR_SCALE * high), f"Error of slice {number}: small inside, largest along the skull"
            ),
            f"Error: blue too low, red too high, full colour at ±{ERROR_SCALE * high:g}",
        ),
    ]


CHAPTER = Chapter("phantom", "Slices of a head", run)
