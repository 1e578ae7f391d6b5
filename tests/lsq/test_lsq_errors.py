"""Every complaint of lsq_linear: the argument, what was got, what is allowed."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell

A, b = np.eye(3), np.ones((4, 3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(bounds=1), "bounds is 1; allowed: a pair"),
        (dict(bounds=(np.zeros(2), 1)), r"bounds \(lower\) has shape \(2,\); allowed: one number, \(3,\), \(4, 3\)"),
        (dict(bounds=(np.nan, 1)), r"bounds \(lower\) is nan at index \(0, 0\); allowed: numbers, or -inf for none"),
        (dict(bounds=(np.inf, np.inf)), r"bounds \(lower\) is inf"),
        (dict(sum_bounds=(0, 1, 2)), r"sum_bounds is \(0, 1, 2\); allowed: a pair"),
        (dict(mask=np.ones(3)), "mask is .*; allowed: an array of True and False"),
        (dict(mask=np.ones(2, bool)), r"mask has shape \(2,\); allowed: \(3,\) or \(4, 3\)"),
        (dict(weights=-np.ones(3)), "weights is -1.0 at index"),
        (dict(weights=np.ones((2, 3))), r"weights has shape \(2, 3\)"),
        (dict(which=np.zeros(4, int)), r"A has shape \(3, 3\); allowed: \(matrices, m, n\) with `which`"),
        (dict(lam="gvc"), "lam is 'gvc'; allowed: a finite number of at least 0, or 'chi2'"),
        (dict(lam=np.array([1.0, -1, 0, 0])), "lam is -1.0 at index 1; allowed: finite numbers of at least 0"),
        (dict(lam="discrepancy"), "noise is None; allowed: the standard deviation"),
        (dict(lam="chi2", chi2=1.0), "chi2 is 1.0; allowed: a finite number above 1"),
        (dict(lam=1.0, L=np.ones((2, 2))), r"L has shape \(2, 2\); allowed: \(rows, 3\)"),
        (
            dict(lam="gcv", weights=np.ones((4, 3))),
            "weights is 'ndarray'; allowed: one row for all systems with lam='gcv'",
        ),
        (dict(uncertainty="all"), "uncertainty is 'all'; allowed: 'variance'"),
        (dict(warm_start="hot"), "warm_start is 'hot'; allowed: an x, states"),
        (dict(equality=(np.ones((5, 3)), 0)), "equality is '5 equalities'; allowed: 1 to 4"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        stepwell.lsq_linear(A, b, **options)


@pytest.mark.parametrize("options", [{}, dict(equality=(np.ones(3), 1.0)), dict(sum_bounds=(0, 1))])
def test_A_with_one_axis_is_named(options):
    with pytest.raises(ValueError, match=r"A has shape \(3,\); allowed: \(m, n\) or \(systems, m, n\)"):
        stepwell.lsq_linear(np.ones(3), np.ones(5), **options)


def test_numbers_of_matrices():
    with pytest.raises(ValueError, match=r"which is 2.0 at index 3; allowed: 0 to 1"):
        stepwell.lsq_linear(np.stack([A, A]), b, which=np.array([0, 1, 0, 2]))
    with pytest.raises(ValueError, match=r"b has shape \(2, 4\); allowed: 3 entries per system"):
        stepwell.lsq_linear(A, np.ones((2, 4)))


@pytest.mark.parametrize("solver", [stepwell.nnls, stepwell.lsq_linear])
def test_sparse_matrices_and_operators_are_shown_the_way(solver):
    from scipy import sparse

    for matrix in (sparse.csr_matrix(A), sparse.linalg.aslinearoperator(A)):
        with pytest.raises(TypeError, match=r"A is .*; or stepwell\.tikhonov\(A, b, lam, bounds=\.\.\.\)"):
            solver(matrix, b[0])
    with pytest.raises(TypeError, match=r"stepwell\.tikhonov"):
        stepwell.lsq_linear(sparse.csr_matrix(A), b[0], equality=([1, -1, 0], 0))
