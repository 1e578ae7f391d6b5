"""Operators without a transpose, and functions that return no vector of the right length: errors that name them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator

import stepwell
from stepwell.operators import from_functions

random = np.random.default_rng(3)
A, B = random.normal(size=(30, 20)), random.normal(size=(30, 2))
METHODS = ["cgls", "pseudo-block", "block", "prcg", "aprcg", "direct", "auto"]


class ForwardOnly(LinearOperator):
    def __init__(self):
        super().__init__(float, A.shape)

    def _matvec(self, x):
        return A @ x


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", ["function", "subclass"])
def test_a_linear_operator_without_a_transpose(form, method):
    one_way = ForwardOnly() if form == "subclass" else LinearOperator(A.shape, matvec=lambda x: A @ x, dtype=float)
    said = r"is a \w+ whose rmatvec is not implemented; allowed: one with rmatvec or rmatmat"
    with pytest.raises(TypeError, match=f"^A {said}"):
        stepwell.tikhonov(one_way, B, 0.5, method=method)
    with pytest.raises(TypeError, match=f"^L {said}"):
        stepwell.tikhonov(A, B, 0.5, one_way, method=method)
    if "prcg" in method:
        with pytest.raises(TypeError, match=f"^A {said}"):
            stepwell.ProjectedCG(one_way, 0.5, augmented=method == "aprcg").solve(B[:, 0])


def test_no_transpose_is_needed_for_cg():
    H = A.T @ A + np.eye(20)
    result = stepwell.cg(LinearOperator(H.shape, matvec=lambda x: H @ x, dtype=float), B[:20], tol=1e-10)
    np.testing.assert_allclose(H @ result.x, B[:20], atol=1e-8)


def test_an_error_in_the_callers_own_transpose_is_told_as_it_is():
    def broken(y):
        raise TypeError("mine")

    for matrix in (LinearOperator(A.shape, matvec=lambda x: A @ x, rmatvec=broken), (lambda x: A @ x, broken)):
        with pytest.raises(TypeError, match=r"^mine$"):
            stepwell.tikhonov(matrix, B, 0.5)


RETURNED = {
    "short": (lambda x: A[:7] @ x, r"has shape \(7, \d+\); allowed: \(30, \d+\), a column for each vector"),
    "column": (lambda x: (A @ x)[:, None], r"has shape \(30, 1\); allowed: one dimension, a vector"),
    "number": (lambda x: 1.0, r"has shape \(\); allowed: one dimension, a vector"),
    "None": (lambda x: None, "is None; allowed: an array of real numbers"),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("wrong", RETURNED)
def test_functions_that_return_no_vector_of_the_right_length(wrong, method):
    forward, said = RETURNED[wrong]
    with pytest.raises((TypeError, ValueError), match=f"^what A's forward returned {said}"):
        stepwell.tikhonov((forward, lambda y: A.T @ y), B, 0.5, method=method)
    if "prcg" in method:
        with pytest.raises((TypeError, ValueError), match=f"^what A's forward returned {said}"):
            stepwell.ProjectedCG((forward, lambda y: A.T @ y), 0.5, augmented=method == "aprcg").solve(B[:, 0])


def test_other_functions_are_named_too():
    short = r"returned has shape \(19, \d+\); allowed: \(20, \d+\)"
    with pytest.raises(ValueError, match=f"^what L's adjoint {short}"):
        stepwell.tikhonov(A, B, 0.5, (lambda x: x[1:], lambda y: y))
    for H in (lambda x: x[1:], (lambda x: x[1:], lambda y: y)):
        with pytest.raises(ValueError, match=f"^what H's forward {short}"):
            stepwell.cg(H, B[:20])
    for wrong, said in ((lambda x: x[1:], short), (lambda x: None, "returned is None; allowed: an array")):
        with pytest.raises((TypeError, ValueError), match=f"^what preconditioner {said}"):
            stepwell.tikhonov(A, B, 0.5, method="block", preconditioner=wrong)


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_a_sparse_matrix_whose_indices_point_elsewhere(form):
    for part, place, value in (("indices", 5, 10**7), ("indices", 5, -1), ("indptr", 3, 10**6), ("indptr", 0, 1)):
        broken = sp.random(30, 20, 0.2, format=form, random_state=0)
        getattr(broken, part)[place] = value
        with pytest.raises(ValueError, match=r"^A is a sparse matrix whose indices do not fit its shape \(30, 20\)"):
            stepwell.tikhonov(broken, B, 0.5)


def test_operators_of_blocks():
    vector = from_functions(lambda x: (A @ x)[:, 0], lambda y: A.T @ y, A.shape, blocks=True)
    with pytest.raises(ValueError, match=r"^what the operator's forward returned has shape \(30,\); .* \(30, 2\)"):
        stepwell.tikhonov(vector, B, 0.5)
    nothing = from_functions(lambda x: None, lambda y: y, (20, 20), blocks=True, name="radon")
    with pytest.raises(TypeError, match=r"^what radon's forward returned is None; allowed: an array of real numbers"):
        stepwell.tikhonov(A, B, 0.5, nothing)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_functions_that_write_into_their_arguments(method, blocks):
    def spoiling(matrix):
        def apply(x):
            image = matrix @ x
            x[...] = -7.0
            return image

        return apply

    given = B.copy()
    operator = from_functions(spoiling(A), spoiling(A.T), A.shape, blocks=blocks)
    precondition = None if method == "direct" else spoiling(0.5 * np.eye(20))
    result = stepwell.tikhonov(operator, given, 0.5, method=method, tol=1e-10, preconditioner=precondition)
    assert result.success
    exact = np.linalg.solve(A.T @ A + 0.25 * np.eye(20), A.T @ B)
    np.testing.assert_allclose(result.x, exact, atol=1e-7)
    assert np.array_equal(given, B)
