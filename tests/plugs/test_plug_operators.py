"""Operators of PyLops, PyLops-MPI and ASTRA, straight into the solvers; oracles are dense formulas."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator

import stepwell

random = np.random.default_rng(6)


def regularised(A, b, lam):
    return np.linalg.solve(A.T @ A + lam**2 * np.eye(A.shape[1]), A.T @ b)


def test_operators_of_pylops():
    pylops = pytest.importorskip("pylops")
    A = pylops.FirstDerivative(30, kind="centered") @ pylops.Diagonal(random.uniform(1, 2, 30))
    dense = A.todense()
    for b in (random.normal(size=30), random.normal(size=(30, 4))):
        result = stepwell.tikhonov(A, b, 0.3, tol=1e-12)
        np.testing.assert_allclose(result.x, regularised(dense, b, 0.3), atol=1e-9)
    second = pylops.SecondDerivative(30)
    found = stepwell.tikhonov(A, random.normal(size=30), 0.3, second, tol=1e-10)
    assert found.success
    bounded = stepwell.tikhonov(A, random.normal(size=30), 0.3, bounds=(0, np.inf))
    assert bounded.x.min() >= 0


class ByVectors(LinearOperator):
    """What ASTRA's OpTomo looks like: products that take vectors alone, and none with blocks."""

    def __init__(self, matrix):
        self.matrix = matrix
        super().__init__(np.float32, matrix.shape)

    def _matvec(self, x):
        assert x.ndim == 1, "vectors alone"
        return (self.matrix @ x).astype(np.float32)

    def _rmatvec(self, y):
        assert y.ndim == 1, "vectors alone"
        return (self.matrix.T @ y).astype(np.float32)

    def _transpose(self):
        return LinearOperator(self.shape[::-1], self._rmatvec, self._matvec, dtype=np.float32)

    _adjoint = _transpose


def test_operators_that_take_vectors_alone():
    """Products in single precision: so is the solution."""
    dense = random.normal(size=(20, 12))
    b = random.normal(size=(20, 3))
    found = stepwell.tikhonov(ByVectors(dense), b, 1.0, tol=1e-6)
    np.testing.assert_allclose(found.x, regularised(dense, b, 1.0), atol=1e-4)


def test_optomo_of_astra():
    astra = pytest.importorskip("astra")
    size = 16
    volume = astra.create_vol_geom(size, size)
    angles = np.linspace(0, np.pi, 24, endpoint=False)
    projector = astra.create_projector("line", astra.create_proj_geom("parallel", 1.0, 24, angles), volume)
    W = astra.OpTomo(projector)
    dense = np.stack([W.matvec(row.astype(np.float32)) for row in np.eye(size**2)], 1)
    b = dense @ random.uniform(size=size**2)
    found = stepwell.tikhonov(W, b, 1.0, tol=1e-6)
    np.testing.assert_allclose(found.x, regularised(dense, b, 1.0), atol=1e-3)
    astra.projector.delete(projector)


def test_operators_of_pylops_mpi():
    """On one rank, their local operators and arrays; ranks are tested with those of the solvers."""
    try:
        importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as reason:  # RuntimeError: there is no MPI library
        pytest.skip(f"no MPI: {reason}")
    pylops, pylops_mpi = pytest.importorskip("pylops"), pytest.importorskip("pylops_mpi")
    dense = random.normal(size=(12, 8))
    A = pylops_mpi.MPIBlockDiag([pylops.MatrixMult(dense)])
    data = pylops_mpi.DistributedArray(global_shape=12)
    data[:] = random.normal(size=12)
    found = stepwell.tikhonov(A, data, 0.4, tol=1e-12)
    x = found.x.local_array if hasattr(found.x, "local_array") else found.x
    np.testing.assert_allclose(x, regularised(dense, data.local_array, 0.4), atol=1e-9)
