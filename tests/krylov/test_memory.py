"""The memory that is stated before a run against what tracemalloc sees."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

import stepwell
from stepwell.apps import tomography
from stepwell.operators import gradient

SIZE = 64
A = tomography.parallel_beam(SIZE, angles=np.arange(0, 180, 6.0))
B = np.ascontiguousarray(A @ tomography.shepp_logan_3d(SIZE).reshape(SIZE, -1).T[:, 20:44])
PENALTIES = {"identity": None, "differences": gradient((SIZE, SIZE))}
DIRECTION = 8 * (2 * A.shape[1] + A.shape[0])
#: Beside the arrays: histories, the callers' frames, arrays of a few numbers.
SMALL = 150_000


def peak_of(work, warm=None):
    """Return what some work returns, and the most that was allocated at a time meanwhile."""
    (warm or work)()  # whatever is imported or cached once
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        result = work()
        return result, tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def beyond_the_result(work):
    """Return what SciPy takes for a moment to make a matrix, beyond that matrix; none from 1.12 or so on."""
    made, peak = peak_of(work)
    return peak - sum(part.nbytes for part in (made.data, made.indices, made.indptr))


def functions(matrix):
    return (lambda x: matrix @ x, lambda y: matrix.T @ y)


def short_recurrences():
    """Every combination; of matrices other than csr in double precision some by default, the others as slow."""
    forms = [("csr", "float64"), ("csr", "float32"), ("csc", "float64"), ("functions", "float64")]
    for form, method, columns, penalty in itertools.product(forms, ["cgls", "pseudo-block"], [1, 24], PENALTIES):
        small = form == forms[0] or (columns, penalty) == (24, "differences")
        yield pytest.param(*form, method, columns, penalty, marks=[] if small else pytest.mark.slow)


@pytest.mark.parametrize(("form", "dtype", "method", "columns", "penalty"), list(short_recurrences()))
def test_short_recurrences(form, dtype, method, columns, penalty):
    matrix = sp.csc_matrix(A, dtype=dtype) if form == "csc" else A.astype(dtype)
    given = functions(matrix) if form == "functions" else matrix
    L = PENALTIES[penalty] if PENALTIES[penalty] is None else PENALTIES[penalty].astype(dtype)
    data = B[:, 10].astype(dtype) if columns == 1 else B.astype(dtype)
    # (A few steps: short recurrences hold the same in each.)
    result, peak = peak_of(lambda: stepwell.tikhonov(given, data, 1.0, L, method=method, tol=1e-2, maxiter=4))
    passing = 0 if form == "functions" else beyond_the_result(lambda: sp.csr_matrix(sp.csr_matrix(matrix).T))
    assert result.memory >= 0.97 * (peak - passing) - SMALL
    assert peak >= 0.9 * result.memory - SMALL


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("augmented", [False, True])
@pytest.mark.parametrize("capacity", [20, 100])
def test_a_projected_solver_with_a_full_budget(penalty, augmented, capacity):
    def work(columns=(8, 12, 16, 20), tol=1e-6 if capacity > 50 else 1e-3):
        solver = stepwell.ProjectedCG(A, 1.0, PENALTIES[penalty], capacity * DIRECTION, augmented=augmented)
        return [solver.solve(B[:, j], tol=tol) for j in columns][-1]

    result, peak = peak_of(work, lambda: work((8, 12), 0.1))
    assert result.memory >= 0.97 * peak - SMALL
    assert peak >= 0.85 * result.memory - SMALL


@pytest.mark.parametrize("method", ["block", "prcg", "aprcg", "direct"])
def test_never_more_than_stated(method):
    matrix, data = A[:, :1500], B
    told = []

    def work(tol=1e-4):
        return stepwell.tikhonov(matrix, data, 1.0, method=method, tol=tol, memory=2**22, callback=told.append)

    result, peak = peak_of(work, lambda: work(0.1))
    assert result.memory >= 0.97 * peak - SMALL
    assert told[0].iteration == 0
    assert told[0].memory == result.memory


def test_a_small_problem_is_not_said_to_fill_the_budget():
    """No more directions than unknowns are conjugate, whatever the budget."""
    matrix = np.random.default_rng(0).normal(size=(30, 20))
    solved = stepwell.tikhonov(matrix, matrix[:, :2], 0.5, method="aprcg")
    assert solved.memory < 2**18
    assert stepwell.ProjectedCG(matrix, 0.5).solve(matrix[:, 0]).memory < 2**18
