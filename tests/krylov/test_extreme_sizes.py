"""Operators whose squares over- or underflow: min ‖sAx − b‖² + (sλ)²‖Lx‖² has the solution of s = 1, divided by s."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator

import stepwell
from stepwell.krylov import LinearStatus as Status

random = np.random.default_rng(3)
A, B = random.normal(size=(30, 20)), random.normal(size=(30, 3))
L = np.diff(np.eye(20), axis=0)
H = A.T @ A + np.eye(20)
METHODS = ["cgls", "pseudo-block", "block", "prcg", "aprcg", "direct", "auto"]
SIZES = {"float64": [1e-300, 1e-160, 1e-90, 1e90, 1e160, 1e300], "float32": [1e-30, 1e-12, 1e12, 1e30]}
# tol bounds the residual relative to ‖Aᵀb‖: an error of at most cond(AᵀA + λ²LᵀL) times that in x.
TOL = {"float64": 1e-10, "float32": 1e-5}


def expected(penalty):
    P = np.eye(20) if penalty is None else penalty
    return np.linalg.solve(A.T @ A + 0.25 * P.T @ P, A.T @ B)


def assert_solved(result, size, penalty, dtype):
    P = np.eye(20) if penalty is None else penalty
    assert result.success, result.message
    exact = expected(penalty)
    bound = 10 * TOL[dtype] * np.linalg.cond(A.T @ A + 0.25 * P.T @ P)
    found = np.asarray(result.x, dtype=np.float64) * size
    assert np.linalg.norm(found - exact) <= bound * np.linalg.norm(exact)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("penalty", [None, L], ids=["identity", "differences"])
@pytest.mark.parametrize(("dtype", "size"), [(dtype, size) for dtype, sizes in SIZES.items() for size in sizes])
def test_an_operator_of_any_size(method, penalty, dtype, size):
    small = None if penalty is None else penalty.astype(dtype)
    data = B.astype(dtype)
    result = stepwell.tikhonov((size * A).astype(dtype), data, 0.5 * size, small, method=method, tol=TOL[dtype])
    assert result.x.dtype == dtype
    assert_solved(result, size, penalty, dtype)
    np.testing.assert_allclose(result.lam, 0.5 * size)


@pytest.mark.parametrize("form", ["functions", "LinearOperator", "csr", "torch", "torch csr", "jax"])
@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_every_kind_of_operator(form, size):
    matrix, data = size * A, B
    given = {"LinearOperator": aslinearoperator(matrix), "csr": sp.csr_matrix(matrix)}.get(form, matrix)
    if form == "functions":
        given = (lambda x: matrix @ x, lambda y: matrix.T @ y)
    if form.startswith("torch"):
        torch = pytest.importorskip("torch")
        data = torch.as_tensor(B)
        given = stepwell.operators.in_library_of(sp.csr_matrix(matrix), data) if "csr" in form else torch.tensor(matrix)
    if form == "jax":
        jax = pytest.importorskip("jax")
        with jax.enable_x64(True):
            given, data = jax.numpy.asarray(matrix), jax.numpy.asarray(B)
            assert_solved(stepwell.tikhonov(given, data, 0.5 * size, method="block", tol=1e-10), size, None, "float64")
            return
    assert_solved(stepwell.tikhonov(given, data, 0.5 * size, method="block", tol=1e-10), size, None, "float64")


@pytest.mark.parametrize("size", [1e-300, 1e300])
@pytest.mark.parametrize("augmented", [False, True])
def test_right_hand_sides_one_by_one(size, augmented, tmp_path):
    solver = stepwell.ProjectedCG(size * A, 0.5 * size, augmented=augmented)
    x = [solver.solve(B[:, j], tol=1e-10).x for j in range(2)]
    solver.save(tmp_path / "kept.npz")
    again = stepwell.ProjectedCG.load(tmp_path / "kept.npz", size * A)
    assert again.directions == solver.directions
    last = again.solve(B[:, 2], tol=1e-10, x0=x[1])
    assert last.success
    np.testing.assert_allclose(size * np.stack([*x, last.x], axis=1), expected(None), rtol=1e-7)


@pytest.mark.parametrize("rule", ["gcv", "discrepancy", "lcurve"])
@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_rules_find_lam_in_proportion(rule, size):
    grid = np.linspace(0, 1, 60)
    blur = np.exp(-(((grid[:, None] - grid) / 0.06) ** 2))
    b = blur @ np.sin(5 * grid) + 0.1 * random.normal(size=60)
    options = {"noise": 0.1} if rule == "discrepancy" else {}
    plain = stepwell.tikhonov(blur, b, rule, **options).lam
    np.testing.assert_allclose(stepwell.tikhonov(size * blur, b, rule, **options).lam, size * plain, rtol=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e160, 1e300])
def test_a_positive_definite_system_of_any_size(method, size):
    result = stepwell.cg(size * H, B[:20], method=method, tol=1e-10)
    assert result.success
    np.testing.assert_allclose(size * result.x, np.linalg.solve(H, B[:20]), rtol=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_what_no_number_can_hold_is_a_status(method):
    """b/A of 1e400 is no number; λ² of 1e400 neither, and x of 1e-400 is none."""
    for matrix, data, lam in ((1e-200 * A, 1e200 * B, 1e-201), (A, B, 1e200)):
        result = stepwell.tikhonov(matrix, data, lam, method=method)
        assert set(result.status) == {Status.OUT_OF_RANGE}
        assert "range of the dtype" in result.message


@pytest.mark.parametrize("method", METHODS)
def test_squares_that_no_number_can_hold_do_not_matter(method):
    """Aᵀb of 1e-300 beside λ = 1 squares to nothing, but x is a number."""
    result = stepwell.tikhonov(1e-300 * A, B, 1.0, method=method)
    assert result.success
    np.testing.assert_allclose(result.x * 1e300, A.T @ B, rtol=1e-6)


def test_a_large_lam_is_as_good_as_any():
    """(AᵀA + λ²I)⁻¹Aᵀb is Aᵀb/λ² to rounding."""
    np.testing.assert_allclose(stepwell.tikhonov(A, B, 1e100, method="cgls").x, A.T @ B * 1e-200, rtol=1e-6)


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e300])
def test_the_adjoint_test_sees_through_size(size):
    assert stepwell.adjoint_error(size * A) < 1e-15
    wrong = (lambda x: size * (A @ x), lambda y: 1.1 * size * (A.T @ y))
    assert stepwell.adjoint_error(wrong, shape=A.shape) > 1e-3


@pytest.mark.parametrize("method", ["cgls", "block", "prcg", "aprcg"])
@pytest.mark.parametrize("size", [1e-152, 1e-154, 1e-155, 1e-156])
def test_squares_of_directions_at_the_edge_of_the_range(method, size):
    """λ is 1 beside a tiny A, so x is Aᵀb."""
    result = stepwell.tikhonov(size * A, B, 1.0, method=method, tol=1e-3)
    exact = (size * A).T @ B
    assert result.success
    errors = np.linalg.norm((result.x - exact) / size, axis=0) / np.linalg.norm(exact / size, axis=0)
    assert np.all(errors <= 1e-2)
