"""A Convolution is an operator everywhere: products, transpose, the Krylov solvers, SciPy's protocol, libraries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import toeplitz
from scipy.sparse.linalg import aslinearoperator, lsqr

import stepwell
from stepwell.lsq.convolution import DIRECT_LENGTH
from stepwell.operators import as_operator


def dense(pulse, n, m, origin):
    """The Toeplitz matrix by SciPy: entry (i, j) is pulse[i - j + origin]."""

    def sample(k):
        return pulse[k] if 0 <= k < len(pulse) else 0.0

    first_column = [sample(i + origin) for i in range(m)]
    first_row = [sample(origin - j) for j in range(n)]
    return toeplitz(first_column, first_row)


def slack(pulse, x):
    """Rounding of sums of `length` products, or of transforms: a few ulp of the largest sum of absolute values."""
    return 32 * np.finfo(x.dtype).eps * np.abs(pulse).sum(axis=-1).max() * np.abs(x).max(initial=0.0)


@settings(max_examples=60, deadline=None)
@given(
    length=st.sampled_from([1, 2, 7, DIRECT_LENGTH, DIRECT_LENGTH + 1, 150]),
    n=st.integers(1, 90),
    m=st.integers(1, 90),
    share=st.floats(0, 1),
    columns=st.sampled_from([None, 0, 1, 3]),
)
def test_products_are_those_of_the_toeplitz_matrix(length, n, m, share, columns):
    random = np.random.default_rng(length * 100 + n)
    origin = int(share * (length - 1))
    pulse = random.normal(size=length)
    A, matrix = stepwell.Convolution(pulse, n, m=m, origin=origin), dense(pulse, n, m, origin)
    np.testing.assert_array_equal(A.dense(), matrix)
    x = random.normal(size=n if columns is None else (n, columns))
    y = random.normal(size=m if columns is None else (m, columns))
    assert (A.shape, A.T.shape, A.dtype) == ((m, n), (n, m), np.float64)
    for found, expected, given_ in ((A @ x, matrix @ x, x), (A.T @ y, matrix.T @ y, y)):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=0, atol=slack(pulse, given_) + 1e-300)


@pytest.mark.parametrize("length", [9, 100])
def test_a_batch_of_pulses_multiplies_as_a_stack_of_matrices(length):
    random = np.random.default_rng(1)
    pulses = random.normal(size=(3, length))
    A = stepwell.Convolution(pulses, 20, m=25, origin=4)
    matrix = np.stack([dense(pulse, 20, 25, 4) for pulse in pulses])
    for x in (random.normal(size=20), random.normal(size=(20, 2)), random.normal(size=(3, 20, 2))):
        np.testing.assert_allclose(A @ x, matrix @ x, rtol=0, atol=slack(pulses, x))
    assert A.T.shape == (3, 20, 25)
    with pytest.raises(ValueError, match=r"A has shape \(3, 25, 20\); allowed: two dimensions"):
        stepwell.tikhonov(A, np.ones(25), 0.1)


@pytest.mark.parametrize("length", [5, 100])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_every_library(library, dtype, length):
    random = np.random.default_rng(2)
    pulse, x = random.normal(size=length).astype(dtype), random.normal(size=(40, 3)).astype(dtype)
    if library == "numpy":
        convert = np.asarray
    elif library == "torch":
        convert = pytest.importorskip("torch").asarray
    else:
        jax = pytest.importorskip("jax")
        jax.config.update("jax_enable_x64", True)
        convert = jax.numpy.asarray
    A = stepwell.Convolution(convert(pulse), 40, m=44, origin=3)
    matrix = dense(pulse.astype(float), 40, 44, 3)
    y = random.normal(size=(44, 3)).astype(dtype)
    for found, expected, given_ in ((A @ convert(x), matrix @ x, x), (A.T @ convert(y), matrix.T @ y, y)):
        assert type(found) is type(convert(x))
        assert dtype in str(found.dtype)
        np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=slack(pulse, given_))
    assert stepwell.adjoint_error(A) < 100 * np.finfo(dtype).eps
    result = stepwell.tikhonov(A, convert(y), 0.5, tol=1e-4)
    assert type(result.x) is type(convert(x))
    assert dtype in str(result.x.dtype)
    exact = np.linalg.solve(matrix.T @ matrix + 0.25 * np.eye(40), matrix.T @ y.astype(float))
    # ‖x − exact‖ ≤ ‖residual‖ / λ², where the residual is at most tol ‖Aᵀb‖.
    bound = 1e-4 * np.linalg.norm(matrix.T @ y, axis=0).max() / 0.25
    np.testing.assert_allclose(np.asarray(result.x), exact, rtol=0, atol=2 * bound)


@pytest.mark.parametrize("method", ["cgls", "pseudo-block", "block", "prcg", "aprcg", "direct", "auto"])
def test_tikhonov_with_every_method(method):
    random = np.random.default_rng(3)
    pulse = np.exp(-0.5 * ((np.arange(25) - 12) / 4) ** 2)
    A, B = stepwell.Convolution(pulse, 120, origin=12), random.normal(size=(120, 4))
    result = stepwell.tikhonov(A, B, 0.5, method=method, tol=1e-10)
    assert result.success
    expected = stepwell.tikhonov(A.dense(), B, 0.5, method="direct", tol=1e-10)
    np.testing.assert_allclose(result.x, expected.x, atol=1e-8)
    smooth = stepwell.tikhonov(np.eye(120), B, 0.5, A, method=method, tol=1e-10)  # as the penalty
    np.testing.assert_allclose(smooth.x, np.linalg.solve(np.eye(120) + 0.25 * A.dense().T @ A.dense(), B), atol=1e-7)


def test_cg_takes_a_symmetric_convolution():
    A = stepwell.Convolution([0.2, 1.0, 0.2], 30, origin=1)
    b = np.random.default_rng(4).normal(size=30)
    np.testing.assert_allclose(stepwell.cg(A, b, tol=1e-12).x, np.linalg.solve(A.dense(), b), atol=1e-10)


def test_scipy_takes_it_as_a_linear_operator():
    random = np.random.default_rng(5)
    A = stepwell.Convolution(random.normal(size=7), 30, m=33, origin=2)
    operator, x, Y = aslinearoperator(A), random.normal(size=30), random.normal(size=(33, 2))
    np.testing.assert_allclose(operator @ x, A.dense() @ x)
    np.testing.assert_allclose(operator.T @ Y, A.dense().T @ Y)
    b = random.normal(size=33)
    ours = stepwell.tikhonov(A, b, 0.3, tol=1e-12).x
    np.testing.assert_allclose(ours, lsqr(operator, b, damp=0.3, atol=1e-14, btol=1e-14)[0], atol=1e-9)
    np.testing.assert_allclose(stepwell.tikhonov(operator, b, 0.3, tol=1e-12).x, ours, atol=1e-9)


def test_integers_and_what_does_not_fit():
    A = stepwell.Convolution(np.array([1, 2, 1]), 4, origin=1)
    assert (A @ np.arange(4)).dtype == np.float64
    np.testing.assert_array_equal(A @ np.arange(4), A.dense() @ np.arange(4))
    assert as_operator(A).home.dtype == np.float64
    with pytest.raises(ValueError, match=r"x has shape \(3,\); allowed: \(4,\) or \(4, columns\)"):
        A @ np.ones(3)
    with pytest.raises(TypeError, match="unsupported operand"):
        np.ones(4) @ A
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="x is a torch array on cpu, pulse a numpy array"):
        A @ torch.ones(4)
