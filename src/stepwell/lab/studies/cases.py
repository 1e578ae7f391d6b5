"""Systems that studies, benchmarks and tests of non-negative least squares share."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from scipy.linalg import toeplitz

from stepwell.apps.waveform import load_shots
from stepwell.lsq import Convolution

Systems = tuple[np.ndarray, np.ndarray]

_SHOTS = "gedi_l1b_150shots.npz"


def lidar(count: int, m: int = 432) -> Systems:
    """Pulses 25 samples wide, twelve returns, noise on a constant: what Table 7.1 of Luo & Duraiswami is about.

    Examples
    --------
    >>> A, b = lidar(2, 64)
    >>> A.shape, b.shape
    ((2, 64, 64), (2, 64))
    """
    rng = np.random.default_rng(0)
    t = np.arange(m)
    A, b = np.zeros((count, m, m)), np.zeros((count, m))
    for s in range(count):
        A[s] = toeplitz(np.exp(-0.5 * ((t - 12) / rng.uniform(3, 4.5)) ** 2) * (t <= 25), np.zeros(m))
        x = np.zeros(m)
        x[rng.choice(m - 40, 12, replace=False)] = rng.uniform(10, 200, 12)
        b[s] = A[s] @ x + np.abs(rng.normal(0, 3, m)) + 14
    return A, b


def gaussians(count: int, m: int = 512) -> Systems:
    """Mean-shifted Gaussians, sigma 4.32, one matrix for all: Table 7.2."""
    t = np.arange(m)
    return np.exp(-0.5 * ((t[:, None] - t[None]) / 4.32) ** 2), np.random.default_rng(1).random((count, m))


def uniform(count: int, m: int = 512) -> Systems:
    """Uniform random matrices and right-hand sides: Table 7.3."""
    rng = np.random.default_rng(2)
    return rng.random((count, m, m)), rng.random((count, m))


def decays(count: int, echoes: int = 56, times: int = 40) -> Systems:
    """Sums of a few exponential decays, one matrix of nearly dependent columns: T2 mapping."""
    rng = np.random.default_rng(3)
    A = np.exp(-np.arange(1, echoes + 1)[:, None] * 7e-3 / np.logspace(-2, 0.3, times)[None])
    x = np.maximum(rng.normal(size=(count, times)), 0) * (rng.random((count, times)) < 0.1)
    return A, x @ A.T + 1e-3 * rng.normal(size=(count, echoes))


def find_gedi() -> Path | None:
    """Return the file of real GEDI shots: in ``$STEPWELL_DATA``, else in shared/data beside the checkout; or None."""
    given = os.environ.get("STEPWELL_DATA")
    folders = [Path(given)] if given else [above / "shared" / "data" for above in Path.cwd().resolve().parents]
    return next((folder / _SHOTS for folder in folders if (folder / _SHOTS).is_file()), None)


def gedi(path: Path, count: int) -> tuple[Convolution, np.ndarray]:
    """Return real lidar shots from a file, each with its own pulse, their background taken off."""
    shots = load_shots(path)
    matrix = Convolution(shots.pulses[:count], 512, origin=shots.origin)
    return matrix, (shots.waveforms - shots.background[:, None])[:count]


def worst_violation(A: np.ndarray, b: np.ndarray, x: np.ndarray) -> float:
    """Return the largest scaled violation of optimality over all systems, from A, b and x alone.

    It is w_j/(‖a_j‖‖b‖) with w = Aᵀ(b − Ax), in absolute value where x_j > 0.

    Examples
    --------
    >>> worst_violation(np.eye(2), np.array([[1.0, -1.0]]), np.array([[1.0, 0.0]]))
    0.0
    """
    worst = 0.0
    for s in range(len(b)):
        matrix = A[s] if A.ndim == 3 else A
        w = matrix.T @ (b[s] - matrix @ x[s]) / (np.linalg.norm(matrix, axis=0) * np.linalg.norm(b[s]))
        worst = max(worst, float(w.max()), float(np.abs(w[x[s] > 0]).max(initial=0)))
    return worst
