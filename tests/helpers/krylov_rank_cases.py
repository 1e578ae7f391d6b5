"""A sparse least-squares problem spread over ranks that are threads, and its exact solution."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from spread_operators import SpreadMatrix, gathered

import stepwell
from stepwell.distributed import run_threads

random = np.random.default_rng(5)
M, N, K = 360, 240, 5
A = sp.random(M, N, 0.04, random_state=1, format="csr", data_rvs=random.standard_normal)
L = sp.diags([np.ones(N), -np.ones(N - 1)], offsets=[0, 1], format="csr")
B = random.standard_normal((M, K))
B[:, 1] = B[:, 0] + 1e-3 * B[:, 2]
#: A tolerance that is reached before rounding errors have grown far.
LAM, TOL = 1.0, 1e-5
EXACT = np.linalg.solve((A.T @ A).toarray() + LAM**2 * np.eye(N), A.T @ B)
#: Error of x for a residual of TOL: the condition of AᵀA + λ² times it.
CONDITION = np.linalg.cond((A.T @ A).toarray() + LAM**2 * np.eye(N))


def on_ranks(size, program, **options):
    """Run a program of a communicator and a spread A on ranks that are threads."""
    return run_threads(size, lambda comm: program(comm, SpreadMatrix(A, comm)), **options)


def solved(comm, spread, method, b=B, **options):
    """Solve on one rank of many; return the whole of x beside this rank's result."""
    result = stepwell.tikhonov(spread.operator, b[spread.rows], LAM, method=method, tol=TOL, comm=comm, **options)
    return gathered(comm, result.x.reshape(-1, b.shape[1]), N), result


def assert_about_the_same_steps(found, expected):
    """Sums over other pieces are rounded otherwise, which may decide about a step, or one in a hundred of many."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert np.all(np.abs(found - expected) <= 1 + 0.01 * expected), (found, expected)
