"""The rules themselves, with NumPy: against differences of solutions, exact arithmetic and the adjoint identity."""

from __future__ import annotations

import numpy as np
import pytest
from exact_arithmetic import exact_solution

import stepwell
from stepwell.derivatives import least_squares
from stepwell.derivatives.matrices import Dense, Pulses
from stepwell.derivatives.normal_equations import solve_free, solve_free_with_rows

random = np.random.default_rng(5)


def solver(matrix, free, lam):
    shape = None if isinstance(matrix, Dense) else (matrix.m, matrix.n, matrix.origin)
    return lambda g: solve_free(matrix.entries, free, np.asarray(lam), g, shape)


def away_from_kinks(result, distance=1e-2):
    return np.min(np.where(result.x > 0, result.x, -result.dual)) > distance


def draw(make):
    """A problem of which no unknown is near a kink."""
    for _ in range(100):
        matrix, b, lam = make()
        A = matrix.entries if isinstance(matrix, Dense) else convolution(matrix)
        result = stepwell.nnls(A, b, lam=lam)
        if away_from_kinks(result):
            return matrix, b, lam, result.x
    raise AssertionError("no such problem")


def convolution(matrix):
    return stepwell.Convolution(matrix.entries, matrix.n, m=matrix.m, origin=matrix.origin)


def solution(matrix, entries, b, lam):
    other = matrix.like(entries)
    return stepwell.nnls(other.entries if isinstance(other, Dense) else convolution(other), b, lam=lam).x


PROBLEMS = {
    "lone": lambda: (Dense(random.normal(size=(8, 5))), random.normal(size=8), 0.3),
    "wide": lambda: (Dense(random.normal(size=(4, 6))), random.normal(size=4), 0.5),
    "shared": lambda: (Dense(random.normal(size=(7, 4))), random.normal(size=(3, 7)), 0.0),
    "own": lambda: (Dense(random.normal(size=(3, 7, 4))), random.normal(size=(3, 7)), 0.2),
    "pulse": lambda: (Pulses(np.abs(random.normal(size=3)), 7, 6, 1), random.normal(size=7) + 0.5, 0.4),
    "pulses": lambda: (Pulses(np.abs(random.normal(size=(2, 3))), 6, 4, 2), random.normal(size=(2, 6)), 0.1),
    "far origin": lambda: (Pulses(np.abs(random.normal(size=6)), 5, 3, 5), random.normal(size=(2, 5)), 0.1),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_rules_of_nnls_agree_with_differences(name):
    """Central differences with a step h have an error of h² |x'''| + rounding / h: 1e-8 and less at h = 1e-5."""
    matrix, b, lam, x = draw(PROBLEMS[name])
    solve = solver(matrix, (x > 0).astype(float), lam)
    e, db, dlam = random.normal(size=matrix.entries.shape), random.normal(size=b.shape), 0.7
    h = 1e-5
    ahead = solution(matrix, matrix.entries + h * e, b + h * db, lam + h * dlam if lam else 0.0)
    behind = solution(matrix, matrix.entries - h * e, b - h * db, lam - h * dlam if lam else 0.0)
    tangent = least_squares.forward(matrix, b, lam, x, solve, matrix_dot=e, b_dot=db, lam_dot=dlam if lam else None)
    np.testing.assert_allclose(tangent, (ahead - behind) / (2 * h), atol=1e-6 * (1 + np.abs(tangent).max()))
    g = random.normal(size=x.shape)
    back = least_squares.reverse(matrix, b, lam, x, solve(g))
    flow = np.sum(back.matrix * e) + np.sum(back.b * db) + (back.lam * dlam if lam else 0.0)
    np.testing.assert_allclose(flow, np.sum(g * tangent), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", PROBLEMS)
def test_rules_of_the_solve_agree_with_differences(name):
    matrix, _, lam, x = draw(PROBLEMS[name])
    free = (x > 0).astype(float)
    g, e, dg, dlam = (
        random.normal(size=x.shape),
        random.normal(size=matrix.entries.shape),
        random.normal(size=x.shape),
        0.3,
    )
    solve = solver(matrix, free, lam)
    u, h = solve(g), 1e-6
    ahead = solver(matrix.like(matrix.entries + h * e), free, lam + h * dlam)(g + h * dg)
    behind = solver(matrix.like(matrix.entries - h * e), free, lam - h * dlam)(g - h * dg)
    tangent = least_squares.forward_of_solve(matrix, lam, u, solve, matrix_dot=e, lam_dot=dlam, g_dot=dg)
    np.testing.assert_allclose(tangent, (ahead - behind) / (2 * h), atol=1e-7 * (1 + np.abs(tangent).max()))
    weight = random.normal(size=x.shape)
    v = solve(weight)
    own, shrink = least_squares.reverse_of_solve(matrix, lam, u, v)
    flow = np.sum(own * e) + shrink * dlam + np.sum(v * dg)
    np.testing.assert_allclose(flow, np.sum(weight * tangent), rtol=1e-9, atol=1e-10)


def test_the_factor_is_not_that_of_a_gram_matrix():
    """With condition κ the error of u is of order κ ε for images A u, as QR has it, not κ² ε."""
    columns, _ = np.linalg.qr(random.normal(size=(12, 6)))
    turned, _ = np.linalg.qr(random.normal(size=(6, 6)))
    for condition in (1e4, 1e7):
        A = columns * np.geomspace(1, 1 / condition, 6) @ turned
        g = A.T @ random.normal(size=12)
        want = exact_solution(A, g)
        u = solve_free(A, np.ones(6), np.asarray(0.0), g)
        error = np.linalg.norm(A @ (u - want)) / np.linalg.norm(A @ want)
        assert error < 100 * condition * np.finfo(float).eps
        gram = np.linalg.norm(A @ (np.linalg.solve(A.T @ A, g) - want)) / np.linalg.norm(A @ want)
        assert condition < 1e6 or error < gram / 10
        # Systems that share A share its triangle.
        both = solve_free(A, np.ones((2, 6)), np.zeros(()), np.stack([g, 2 * g]))
        for factor, u in zip((1, 2), both):
            error = np.linalg.norm(A @ (u - factor * want)) / np.linalg.norm(A @ (factor * want))
            assert error < 100 * condition * np.finfo(float).eps


@pytest.mark.parametrize("size", [(20, 8), (150, 60), (60, 90)])
def test_large_random_solves(size):
    m, n = size
    A, g = random.normal(size=(4, m, n)), random.normal(size=(4, 3, n))
    free = (random.random((4, n)) < 0.4).astype(float)
    lam = np.array([0.0, 0.1, 1.0, 10.0])
    u = solve_free(A, free, lam, np.moveaxis(g, 1, 0))  # the axis of three is that of right-hand sides
    for k in range(4):
        chosen = free[k] > 0
        H = A[k][:, chosen].T @ A[k][:, chosen] + lam[k] ** 2 * np.eye(chosen.sum())
        np.testing.assert_allclose(u[:, k][:, chosen], np.linalg.solve(H, g[k][:, chosen].T).T, rtol=1e-8, atol=1e-10)
        assert (u[:, k][:, ~chosen] == 0).all()


def test_leading_axes_and_shared_matrices():
    A, free, g = random.normal(size=(5, 3)), np.ones((2, 1, 3)), random.normal(size=(4, 2, 6, 3))
    u = solve_free(A, free, np.asarray(0.1), g)
    np.testing.assert_allclose(u, np.linalg.solve(A.T @ A + 0.01 * np.eye(3), g[..., None])[..., 0], rtol=1e-10)
    own = random.normal(size=(6, 5, 3))
    v = solve_free(own, np.ones(3), np.full((2, 1), 0.1), g)
    H = np.swapaxes(own, 1, 2) @ own + 0.01 * np.eye(3)
    np.testing.assert_allclose(v, np.linalg.solve(H, g[..., None])[..., 0], rtol=1e-9)


def test_normal_equations_and_rows_that_bind():
    """Against the whole matrix [H Cᵀ; C 0] of the free unknowns; the last system has no free unknown in a row."""
    A, g, t = random.normal(size=(3, 9, 6)), random.normal(size=(3, 6)), random.normal(size=(3, 2))
    C = random.normal(size=(3, 2, 6))
    free = np.array([[1, 1, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0.0]])
    C[2, 1, :3] = 0
    lam, gram = np.array([0.0, 0.5, 1.0]), np.swapaxes(A, 1, 2) @ A
    for entries, given in ((A, False), (gram, True)):
        found = solve_free_with_rows(entries, free, lam, g, C, t, None, gram=given)
        alone = solve_free(entries, free, lam, g, gram=given)
        for k in range(3):
            F, rows = free[k] > 0, slice(0, 1 if k == 2 else 2)
            H = gram[k][np.ix_(F, F)] + lam[k] ** 2 * np.eye(F.sum())
            np.testing.assert_allclose(alone[k][F], np.linalg.solve(H, g[k][F]), rtol=1e-9)
            bound = C[k][rows][:, F]
            whole = np.block([[H, bound.T], [bound, np.zeros((len(bound),) * 2)]])
            want = np.linalg.solve(whole, np.concatenate([g[k][F], t[k][rows]]))
            np.testing.assert_allclose(found[k][:6][F], want[: F.sum()], rtol=1e-8, atol=1e-10)
            np.testing.assert_allclose(found[k][6:][rows], want[F.sum() :], rtol=1e-8)
            assert (found[k][:6][~F] == 0).all()
    assert found[2, 7] == 0


def test_systems_without_solution_free_columns_or_independence():
    A, g = random.normal(size=(3, 5, 3)), np.ones((3, 3))
    A[2, :, 2] = A[2, :, 0] + A[2, :, 1]
    u = solve_free(A, np.array([[0, 0, 0], [np.nan] * 3, [1, 1, 1]]), np.asarray(0.0), g)
    assert (u[0] == 0).all()
    assert np.isnan(u[1]).all()
    assert np.isfinite(u[2]).all()  # the last of the dependent columns has no say
    assert u[2, 2] == 0
    assert solve_free(A[:0], np.ones((0, 3)), np.asarray(0.0), g[:0]).shape == (0, 3)


def test_single_precision_comes_back_as_it_came():
    A, g = random.normal(size=(5, 3)).astype(np.float32), np.ones(3, np.float32)
    u = solve_free(A, np.ones(3, np.float32), np.asarray(0.0), g)
    assert u.dtype == np.float32
    np.testing.assert_allclose(u, np.linalg.solve(A.T.astype(float) @ A, g), rtol=1e-5)
