"""One rule for mixed precision: NumPy's ``result_type`` of A, B, L and x0, in the work and in the result."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator

import stepwell
from stepwell.arrays import as_float
from stepwell.operators import as_operator

random = np.random.default_rng(11)
A, B = random.normal(size=(30, 20)), random.normal(size=(30, 3))
L, X0 = np.diff(np.eye(20), axis=0), random.normal(size=(20, 3))
METHODS = ["cgls", "pseudo-block", "block", "prcg", "aprcg", "direct"]
#: All single, and one of the four double.
ONE_DOUBLE = [("float32",) * 4, *(tuple(np.where(np.arange(4) == i, "float64", "float32")) for i in range(4))]


def assert_exact(x, a, b, penalty, dtype):
    """The answer of the rounded data, to what the dtype can give: a few hundred epsilons times the condition."""
    a, b, penalty = (np.asarray(part, dtype=np.float64) for part in (a, b, penalty))
    H = a.T @ a + 0.25 * penalty.T @ penalty
    exact = np.linalg.solve(H, a.T @ b)
    bound = 300 * np.finfo(dtype).eps * np.linalg.cond(H)
    assert np.linalg.norm(np.asarray(x, np.float64) - exact) <= bound * np.linalg.norm(exact)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtypes", ONE_DOUBLE)
def test_one_double_makes_all_double(method, dtypes):
    a, b, penalty, x0 = (part.astype(dtype) for part, dtype in zip((A, B, L, X0), dtypes))
    expected = np.result_type(a, b, penalty, x0)
    result = stepwell.tikhonov(a, b, 0.5, penalty, x0=x0, method=method, tol=100 * np.finfo(expected).eps)
    assert result.success, result.message
    assert result.x.dtype == expected
    assert_exact(result.x, a, b, penalty, expected)


@pytest.mark.parametrize("form", ["csr", "LinearOperator", "Operator", "Operator of functions", "functions"])
@pytest.mark.parametrize(("left", "right"), list(itertools.product(["float32", "float64"], repeat=2)))
def test_every_kind_of_operator(form, left, right):
    a, b = A.astype(left), B.astype(right)
    functions = (lambda x: a @ x, lambda y: a.T @ y)
    given = {
        "csr": sp.csr_matrix(a),
        "LinearOperator": aslinearoperator(a),
        "Operator": as_operator(a),
        "Operator of functions": stepwell.operators.from_functions(*functions, a.shape),
        "functions": functions,
    }[form]
    expected = np.dtype(right) if "functions" in form else np.result_type(a, b)
    result = stepwell.tikhonov(given, b, 0.5, method="block", tol=200 * np.finfo(expected).eps)
    assert result.x.dtype == expected
    assert_exact(result.x, a, b, np.eye(20), "float32" if "float32" in (left, right) and "fun" in form else expected)


@pytest.mark.parametrize(("left", "right"), list(itertools.product(["float32", "float64"], repeat=2)))
def test_torch(left, right):
    torch = pytest.importorskip("torch")
    a, b = torch.tensor(A.astype(left)), torch.tensor(B.astype(right))
    result = stepwell.tikhonov(a, b, 0.5, method="pseudo-block", tol=1e-5)
    assert result.x.dtype == torch.promote_types(a.dtype, b.dtype)


@pytest.mark.parametrize("library", ["numpy", "jax"])
def test_single_precision_of_jax_beside_double_of_numpy(library):
    """JAX as it comes has no float64: what it is given stays float32."""
    jax = pytest.importorskip("jax")
    a = jax.numpy.asarray(A.astype(np.float32))
    b = B if library == "numpy" else jax.numpy.asarray(B.astype(np.float32))
    result = stepwell.tikhonov(a, b, 0.5, L, method="block", tol=1e-5)
    assert result.success
    assert str(result.x.dtype) == "float32"


@pytest.mark.parametrize(("part", "expected"), [("int8", "float32"), ("int64", "float64"), ("float16", "float32")])
def test_integers_and_half_precision_follow_numpy(part, expected):
    b = np.round(10 * B).astype(part)
    assert stepwell.tikhonov(A.astype(np.float32), b, 0.5, tol=1e-4).x.dtype == expected
    assert stepwell.tikhonov(np.round(10 * A).astype(part), b, 0.5, tol=1e-4).x.dtype == np.float64


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_half_precision_of_other_libraries(library, half):
    """As NumPy's float16: alone double, beside float32 single; JAX as it comes has no double."""
    xp = pytest.importorskip({"torch": "torch", "jax": "jax.numpy"}[library])
    single = A.astype(np.float32)
    rough_a, rough_b = (as_float(xp.asarray(part.astype(np.float32)), half) for part in (A, B))
    exact_a, exact_b = (np.asarray(as_float(part, "float32")) for part in (rough_a, rough_b))
    for left, exact_left, expected in (
        (rough_a, exact_a, "float64" if library == "torch" else "float32"),
        (xp.asarray(single), single, "float32"),
        (single, single, "float32"),
        (A, A, "float64"),
    ):
        result = stepwell.tikhonov(left, rough_b, 0.5, method="block", tol=200 * np.finfo(expected).eps)
        assert str(result.x.dtype).rpartition(".")[2] == expected
        assert_exact(result.x, exact_left, exact_b, np.eye(20), expected)


def test_a_penalty_is_not_rounded_to_the_numbers_of_b():
    """A is the identity by functions, which have no dtype, so b alone says what arrays are made of."""
    torch = pytest.importorskip("torch")
    identity, penalty, b = (lambda x: x, lambda y: y), np.diff(np.eye(6), axis=0) / 3, np.arange(6.0) ** 2
    exact = np.linalg.solve(np.eye(6) + 0.25 * penalty.T @ penalty, b)
    for dtype in (torch.int64, torch.float16, torch.bfloat16):
        result = stepwell.tikhonov(identity, torch.tensor(b, dtype=dtype), 0.5, penalty, tol=1e-12)
        np.testing.assert_allclose(result.x.numpy(), exact, rtol=1e-10)


@pytest.mark.parametrize("which", ["b", "L", "x0", "none"])
def test_projected_solver(which):
    single = np.float32
    b = B[:, 0] if which == "b" else B[:, 0].astype(single)
    penalty = L if which == "L" else L.astype(single)
    x0 = X0[:, 0] if which == "x0" else X0[:, 0].astype(single)
    solver = stepwell.ProjectedCG(A.astype(single), 0.5, penalty)
    assert solver.solve(b, x0=x0, tol=1e-4).x.dtype == (np.float32 if which == "none" else np.float64)


def test_cg():
    H = (A.T @ A + np.eye(20)).astype(np.float32)
    assert stepwell.cg(H, B[:20].astype(np.float32), tol=1e-4).x.dtype == np.float32
    assert stepwell.cg(H, B[:20].astype(np.float32), x0=X0, tol=1e-4).x.dtype == np.float64
