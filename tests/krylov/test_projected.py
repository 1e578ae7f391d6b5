"""Projected conjugate gradients: kept directions, their conjugacy, the budget, and the formula that diverges."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from krylov_oracle import assert_solves, normal_matrix
from published_projection import lost_conjugacy, naive_augmented_projection, plain_directions

import stepwell
from stepwell.apps import tomography
from stepwell.krylov.projected import conjugacy_error
from stepwell.krylov.systems import TikhonovSystem
from stepwell.operators import as_operator


@pytest.fixture(scope="module")
def phantom():
    """The published test problem: 128 x 128 pixels, 90 angles, 185 bins; slices 64 to 66."""
    A = as_operator(tomography.parallel_beam(128, angles=np.arange(0, 180, 2.0), detectors=185))
    images = tomography.shepp_logan_3d(128)[63:66].reshape(3, -1).T
    return A, tomography.add_noise(A.forward(images), 0.01), 0.01 * tomography.largest_singular_value(A)


def residual_of(A, b, lam, x):
    rhs = A.adjoint(b[:, None])
    gap = rhs - A.adjoint(A.forward(x[:, None])) - lam**2 * x[:, None]
    return np.linalg.norm(gap) / np.linalg.norm(rhs)


def test_the_printed_formula_diverges_where_ours_does_not(phantom):
    A, B, lam = phantom
    system = TikhonovSystem(A, None, np.array([lam]), B[:, :1])
    directions, products = plain_directions(system, 60)
    rhs = A.adjoint(B[:, 1:2])
    assert lost_conjugacy(directions[:, :5], products[:, :5]) < 1e-8
    assert lost_conjugacy(directions, products) > 0.1
    left = {}
    for count in (10, 30, 60):
        _, residual = naive_augmented_projection(directions[:, :count], products[:, :count], rhs)
        left[count] = np.linalg.norm(residual) / np.linalg.norm(rhs)
    assert left[10] < left[30] < left[60]
    assert left[60] > 1.0  # worse than the zero vector

    solver = stepwell.ProjectedCG(A, lam, augmented=True)
    solver.solve(B[:, 0], tol=1e-6)
    assert solver.directions > 60
    assert conjugacy_error(solver) < 1e-10
    result = solver.solve(B[:, 1], tol=1e-4)
    assert result.success
    assert residual_of(A, B[:, 1], lam, result.x) <= 1.0001e-4
    assert conjugacy_error(solver) < 1e-10


def test_a_neighbouring_slice_takes_fewer_products(phantom):
    A, B, lam = phantom
    for augmented in (False, True):
        solver = stepwell.ProjectedCG(A, lam, augmented=augmented)
        solver.solve(B[:, 0], tol=1e-5)
        near = solver.solve(B[:, 1], tol=3e-3)
        cold = stepwell.tikhonov(A, B[:, 1], lam, method="cgls", tol=3e-3)
        assert near.products == 1  # the projection alone is within the tolerance
        assert cold.products >= 8 * near.products


def small():
    random = np.random.default_rng(2)
    return random.normal(size=(90, 60)), random.normal(size=(90, 6))


def test_both_projections_give_the_same_answers():
    A, B = small()
    L = np.diff(np.eye(60), axis=0)
    for penalty in (None, L):
        H = normal_matrix(A, 0.5, penalty)
        for augmented in (False, True):
            solver = stepwell.ProjectedCG(A, 0.5, penalty, augmented=augmented)
            for j in range(6):
                result = solver.solve(B[:, j], tol=1e-10)
                assert result.success
                assert_solves(result.x, H, A.T @ B[:, j], 1e-10)
            assert solver.directions <= 60  # independent, as they are conjugate


def test_the_budget_holds_at_all_times():
    A, B = small()
    per_direction = 2 * 60 * 8
    solver = stepwell.ProjectedCG(A, 0.5, memory=20 * per_direction + 7, augmented=True)
    held = []
    for j in range(6):
        result = solver.solve(B[:, j], tol=1e-9, callback=lambda p: held.append(solver.bytes_held) and False)
        assert result.success
    assert max(held) <= solver.memory
    assert max(held) > 10 * per_direction
    assert conjugacy_error(solver) < 1e-10
    with pytest.raises(ValueError, match=r"memory is 100; allowed: \d+ bytes or more"):
        stepwell.ProjectedCG(A, 0.5, memory=100).solve(B[:, 0])


def test_save_and_load(tmp_path):
    A, B = small()
    solver = stepwell.ProjectedCG(A, 0.5, augmented=True)
    solver.solve(B[:, 0], tol=1e-10)
    solver.save(tmp_path / "space.npz")
    solver.save(tmp_path / "space")  # a file of that very name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["space", "space.npz"]
    assert stepwell.ProjectedCG.load(tmp_path / "space", A).directions == solver.directions
    again = stepwell.ProjectedCG.load(tmp_path / "space.npz", sp.csr_matrix(A))
    assert again.directions == solver.directions
    assert again.augmented
    assert again.solve(B[:, 0], tol=1e-9).products == 1
    with pytest.raises(ValueError, match="not the operators"):
        stepwell.ProjectedCG.load(tmp_path / "space.npz", 2 * A)
    with pytest.raises(ValueError, match="unknowns"):
        stepwell.ProjectedCG.load(tmp_path / "space.npz", A[:, :50])
    fresh = stepwell.ProjectedCG(A, 0.5)
    fresh.save(tmp_path / "empty.npz")
    assert stepwell.ProjectedCG.load(tmp_path / "empty.npz", A).directions == 0


def test_bad_arguments_are_named():
    A, B = small()
    with pytest.raises(ValueError, match="lam"):
        stepwell.ProjectedCG(A, -1.0)
    with pytest.raises(ValueError, match="b has 6 columns; allowed: one"):
        stepwell.ProjectedCG(A, 1.0).solve(B)
    with pytest.raises(ValueError, match="tol"):
        stepwell.ProjectedCG(A, 1.0).solve(B[:, 0], tol=-1)


def test_zero_right_hand_sides_and_starts():
    A, B = small()
    solver = stepwell.ProjectedCG(A, 0.5)
    assert not solver.solve(np.zeros(90)).x.any()
    x = solver.solve(B[:, 0], tol=1e-10).x
    again = solver.solve(B[:, 0], tol=1e-6, x0=x)
    assert again.iterations == 0
    np.testing.assert_allclose(again.x, x, atol=1e-9)


@pytest.mark.parametrize("size", [64, pytest.param(128, marks=pytest.mark.slow)])
@pytest.mark.parametrize("augmented", [False, True])
def test_single_precision_on_noisy_slices(augmented, size):
    """Directions stay conjugate to a few rounding errors, and every slice converges, as with plain CGLS."""
    from stepwell.apps import tomography

    A = tomography.parallel_beam(size, angles=np.arange(0, 180, 6.0)).astype(np.float32)
    slices = tomography.shepp_logan_3d(size)[np.array([50, 54, 58, 62, 66, 70]) * size // 128].reshape(6, -1).T
    clean = A.astype(float) @ slices
    noise = 0.01 * np.abs(clean).max() * np.random.default_rng(0).standard_normal(clean.shape)
    B = (clean + noise).astype(np.float32)
    solver = stepwell.ProjectedCG(A, 1.0, augmented=augmented)
    for k in range(6):
        result = solver.solve(B[:, k], tol=1e-5)
        assert result.success
        gradient = A.astype(float).T @ (B[:, k] - A.astype(float) @ result.x) - result.x
        assert np.linalg.norm(gradient) <= 2e-5 * np.linalg.norm(A.astype(float).T @ B[:, k].astype(float))
    assert conjugacy_error(solver) < 1e3 * np.finfo(np.float32).eps
