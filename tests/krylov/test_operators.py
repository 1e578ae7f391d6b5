"""Operators: every kind maps blocks as its matrix does."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator

import stepwell
from stepwell import operators


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(0, 40),
    columns=st.integers(1, 40),
    width=st.sampled_from([1, 2, 3, 7, 8, 9, 15, 31, 33, 102, 104, 110]),
    density=st.sampled_from([0.0, 0.05, 0.4, 1.0]),
    dtype=st.sampled_from(["float64", "float32"]),
    index=st.sampled_from([np.int32, np.int64]),
)
def test_the_sparse_product_is_scipys(rows, columns, width, density, dtype, index):
    random = np.random.default_rng(rows * 41 + columns)
    A = sp.random(rows, columns, density, format="csr", dtype=dtype, random_state=random)
    A.indptr, A.indices = A.indptr.astype(index), A.indices.astype(index)
    X, Y = (random.normal(size=(n, width)).astype(dtype) for n in (columns, rows))
    operator = operators.as_operator(A)
    # A sum of at most 40 terms, each of size |a||x|, taken in another order.
    slack = 40 * np.finfo(dtype).eps
    np.testing.assert_allclose(operator.forward(X), A @ X, atol=slack * np.max(abs(A) @ abs(X), initial=1.0))
    np.testing.assert_allclose(operator.adjoint(Y), A.T @ Y, atol=slack * np.max(abs(A.T) @ abs(Y), initial=1.0))
    fortran = operator.forward(np.asfortranarray(X))
    np.testing.assert_array_equal(fortran, operator.forward(X))
    assert (operator.forward_columns, operator.adjoint_columns) == (3 * width, width)


def test_gram_of_every_kind():
    random = np.random.default_rng(0)
    A = random.normal(size=(20, 300))
    for kind in (A, sp.csr_matrix(A), aslinearoperator(A)):
        np.testing.assert_allclose(operators.as_operator(kind).gram(A), A.T @ A, atol=1e-12)


@pytest.mark.parametrize("shape", [(5,), (1, 4), (3, 4), (2, 3, 4)])
def test_gradient_takes_differences(shape):
    image = np.random.default_rng(0).normal(size=shape)
    expected = np.concatenate([np.diff(image, axis=axis).ravel() for axis in range(len(shape))])
    np.testing.assert_allclose(operators.gradient(shape) @ image.ravel(), expected)
    assert np.abs(operators.gradient(shape) @ np.ones(image.size)).max(initial=0.0) == 0


def test_adjoint_error_tells_true_adjoints_from_false_ones():
    random = np.random.default_rng(0)
    A = random.normal(size=(30, 20))
    for kind in (A, sp.csr_matrix(A), aslinearoperator(A)):
        assert stepwell.adjoint_error(kind) < 1e-14
    assert stepwell.adjoint_error((lambda v: A @ v, lambda v: A.T @ v), shape=(30, 20)) < 1e-14
    assert stepwell.adjoint_error((lambda v: A @ v, lambda v: 1.01 * A.T @ v), shape=(30, 20)) > 1e-4
    assert stepwell.adjoint_error(np.zeros((3, 2))) == 0
    with pytest.raises(ValueError, match="shape"):
        stepwell.adjoint_error((lambda v: v, lambda v: v))


def test_what_is_no_operator_is_refused():
    for wrong in ("matrix", 3.0, None, (1, 2)):
        with pytest.raises(TypeError, match=r"A is a .*; allowed: a dense or sparse matrix"):
            operators.as_operator(wrong)
    with pytest.raises(ValueError, match="shape"):
        operators.gradient(())


def test_direct_takes_wide_sparse_matrices_of_torch():
    torch = pytest.importorskip("torch")
    wide = sp.random(12, 30, density=0.4, random_state=5, format="csr")
    b = np.arange(12.0)
    expected = np.linalg.solve((wide.T @ wide).toarray() + 0.25 * np.eye(30), wide.T @ b)
    sparse = stepwell.operators.in_library_of(wide, torch.zeros(1, dtype=torch.float64))
    found = stepwell.tikhonov(sparse, torch.as_tensor(b), 0.5, method="direct")
    assert np.allclose(found.x.numpy(), expected, atol=1e-10)
