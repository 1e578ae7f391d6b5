"""Systems and the independent certificate that every solve of the suite is held against."""

from __future__ import annotations

import os
import pathlib

import numpy as np
import pytest

import stepwell
from stepwell.arrays import host_copy
from stepwell.lab.studies import cases
from stepwell.lab.studies.cases import decays, gaussians, lidar, uniform  # noqa: F401 (for the tests)
from stepwell.lsq.solving import solve_by_update

DATA = pathlib.Path(os.environ.get("STEPWELL_DATA", pathlib.Path(__file__).parents[3] / "shared" / "data"))


def violation(A, b, x, damping=0.0):
    """Scaled optimality violation, in float64 NumPy: sign of x, dual on the zeros, dual on the positives."""
    A, b, x = (np.asarray(value, dtype=float) for value in (A, b, x))
    A, b, x = of_moderate_size(A, b, x) if not damping else (A, b, x)
    if A.shape[1] == 0 or not b.any():
        return float(np.abs(x).max(initial=0.0))
    w = A.T @ (b - A @ x) - damping**2 * x
    scale = np.sqrt((A**2).sum(axis=0) + damping**2) * np.linalg.norm(b)
    scale[scale == 0] = 1
    positive = np.abs(w / scale)[x > 0].max(initial=0.0)
    return max(0.0, -x.min(), (w / scale).max(), positive)


def rounding(A, b, x):
    """How far rounding in b - Ax can lift the scaled dual: a few hundred ulp of |b| + sum |a_j| x_j."""
    A, b, x = (np.asarray(value, dtype=float) for value in (A, b, x))
    size = np.linalg.norm(b) + (np.linalg.norm(A, axis=0) * x).sum()
    return 1e-13 * np.sqrt(max(*A.shape, 16)) * size / max(np.linalg.norm(b), 1e-300)


def of_moderate_size(A, b, x):
    """The same system with entries of at most one, by powers of two: no square of them over- or underflows."""
    columns = 2.0 ** np.frexp(np.abs(A).max(axis=0, initial=0.0))[1]
    length = 2.0 ** float(np.frexp(np.abs(b).max(initial=0.0))[1])
    return A / columns, b / length, x * (columns / length)


def certify_optimum(result, A, b, damping=0.0, tol=None, axis=0):
    """Hold x of every system that converged against A and b: any library, any form of batch."""
    dense = host_copy(A.dense() if isinstance(A, stepwell.Convolution) else A).astype(float)
    b = np.ravel(host_copy(b)) if np.ndim(result.x) == 1 else b  # (m, 1) is one right-hand side
    right, x = np.atleast_2d(host_copy(b).astype(float)), np.atleast_2d(host_copy(result.x))
    if axis % max(np.ndim(b), 1) == 1:
        right, x = right.T, x.T
    status = np.array([int(result.status)]) if np.ndim(b) == 1 else host_copy(result.status)
    finest = 1 if x.dtype == np.float64 else 2.0**29
    converged = np.flatnonzero(status == stepwell.NNLSStatus.CONVERGED)
    dampings = np.broadcast_to(np.asarray(damping, dtype=float), len(right))
    for s in converged[:: 1 + converged.size // 5000]:
        matrix, own = dense[s] if dense.ndim == 3 else dense, float(dampings[s])
        moderate = of_moderate_size(matrix, right[s], x[s].astype(float)) if not own else (matrix, right[s], x[s])
        room = max(finest * rounding(*moderate), 1.001 * (tol or 0.0))
        assert violation(*moderate, own) <= room


def solved(A, b, *, update=None, **options):
    """Solve by ``nnls``, or with another update of its factor, as studies do."""
    if update is None:
        return stepwell.nnls(A, b, **options)
    return solve_by_update(A, b, update, **{name: value for name, value in options.items() if name != "method"})


def certified(A, b, **options):
    """Solve, and hold x, the residual, the dual and the violation of every system against A and b."""
    result = solved(A, b, **options)
    dense = A.dense() if isinstance(A, stepwell.Convolution) else A
    dense, right = np.asarray(dense, dtype=float), np.asarray(b, dtype=float)
    damping = options.get("lam", 0.0)
    single = np.asarray(b).dtype == np.float32
    if right.ndim == 1:
        _certify(dense, right, result.x, result.residual, result.dual, result.violation, damping, single)
        return result
    for s in range(len(right)):
        matrix = dense[s] if dense.ndim == 3 else dense
        if int(result.status[s]) == stepwell.NNLSStatus.CONVERGED:
            fields = (result.x, result.residual, result.dual, result.violation)
            _certify(matrix, right[s], *(np.asarray(field)[s] for field in fields), damping, single)
    return result


def _certify(A, b, x, residual, dual, reported, damping, single):
    x, dual = np.asarray(x, dtype=float), np.asarray(dual, dtype=float)
    assert np.all(np.isfinite(x))
    assert x.min(initial=0.0) >= 0
    room = rounding(A, b, x) * (2.0**29 if single else 1)  # float32 has 29 bits less
    assert violation(A, b, x, damping) <= room
    assert reported <= room
    true_residual = np.linalg.norm(b - A @ x)
    tiny = np.linalg.norm(b) * room
    assert abs(residual - true_residual) <= tiny + (1e-6 * true_residual if single else 0)
    w = A.T @ (b - A @ x) - damping**2 * x
    scale = np.sqrt((A**2).sum(axis=0) + damping**2)
    assert np.all(np.abs(dual - w) <= scale * tiny + (1e-6 * np.abs(w) if single else 0))


def gedi(count):
    """Real lidar shots, each with its own pulse; skips where the data are not there."""
    path = DATA / "gedi_l1b_150shots.npz"
    if not path.exists():
        pytest.skip(f"real GEDI shots are not at {path} (set STEPWELL_DATA)")
    return cases.gedi(path, count)
