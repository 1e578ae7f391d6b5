"""The proven gap against Clarabel: f − f* is never above it, at any step, for every kind, bound and λ."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from tv_oracle import clarabel_least, objective

import stepwell
from stepwell.apps import tomography

SIDE = 16
#: Clarabel's own accuracy, relative to the objective.
ORACLE = 1e-8
KINDS = [("isotropic", None), ("anisotropic", None), ("huber", 0.05)]
BOUNDS = {
    "free": None,
    "nonnegative": (0, None),
    "box": (0.0, 0.25),
    "upper": (None, 0.3),
    "lower above 0": (0.05, None),
    "wide box": (-50.0, 50.0),
}


def scan(columns=1, noise=0.03, seed=0):
    A = sp.csr_matrix(tomography.parallel_beam(SIDE, angles=np.arange(0, 180, 20.0)))
    slices = [8, 6, 10][:columns]
    X = tomography.shepp_logan_3d(SIDE)[slices].reshape(columns, -1).T
    return A, tomography.add_noise(A @ X, noise, seed)


def sides(bounds):
    return (None, None) if bounds is None else bounds


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize(("kind", "eps"), KINDS)
def test_gap_holds_and_the_minimum_is_clarabels(kind, eps, bounds):
    A, B = scan()
    lower, upper = sides(BOUNDS[bounds])
    least = clarabel_least(A, B[:, 0], 0.5, (SIDE, SIDE), kind, eps, lower=lower, upper=upper)
    seen = []
    result = stepwell.tv(
        A, B, 0.5, shape=(SIDE, SIDE), kind=kind, eps=eps, bounds=BOUNDS[bounds], tol=1e-6, maxiter=400,
        callback=seen.append,
    )  # fmt: skip
    x = result.x[:, 0]
    f = objective(A, B[:, 0], x, 0.5, (SIDE, SIDE), kind, eps)
    assert result.success, result
    assert result.objective[0] == pytest.approx(f, rel=1e-12)
    assert (f - least) / f <= result.gap[0] + ORACLE
    assert result.lower[0] <= least * (1 + ORACLE)
    assert result.gap[0] <= 1e-6
    if lower is not None:
        assert x.min() >= lower
    if upper is not None:
        assert x.max() <= upper
    assert len(seen) == result.iterations[0] + 1


@pytest.mark.parametrize("bounds", [None, (0, None), (0.0, 0.25)])
@pytest.mark.parametrize("kind", ["isotropic", "anisotropic"])
def test_every_step_is_proven(kind, bounds):
    """Steps one by one: f(x) of each, by the formula, against the gap that was claimed there."""
    A, B = scan()
    lower, upper = sides(bounds)
    least = clarabel_least(A, B[:, 0], 0.5, (SIDE, SIDE), kind, lower=lower, upper=upper)
    for steps in (0, 1, 2, 3, 5, 8, 12, 20):
        result = stepwell.tv(A, B, 0.5, shape=(SIDE, SIDE), kind=kind, bounds=bounds, tol=1e-12, maxiter=steps)
        f = objective(A, B[:, 0], result.x[:, 0], 0.5, (SIDE, SIDE), kind)
        assert (f - least) / f <= result.gap[0] + ORACLE
        assert np.all(np.diff(result.history[0]) <= 1e-12)


@pytest.mark.parametrize("lam", [0.0, 1e-4, 1e-2, 0.1, 2.0, 20.0, 200.0])
@pytest.mark.parametrize("bounds", [None, (0, None), (0.0, 0.25)])
def test_every_lam(lam, bounds):
    A, B = scan()
    lower, upper = sides(bounds)
    least = clarabel_least(A, B[:, 0], lam, (SIDE, SIDE), lower=lower, upper=upper)
    # A proof for the smallest λ takes very many steps; the gap must hold after a few, too.
    result = stepwell.tv(A, B, lam, shape=(SIDE, SIDE), bounds=bounds, tol=1e-4, maxiter=300 if lam > 1e-2 else 15)
    f = objective(A, B[:, 0], result.x[:, 0], lam, (SIDE, SIDE))
    assert (f - least) / f <= result.gap[0] + ORACLE
    assert result.success or lam <= 1e-2, result
    assert np.isfinite(result.gap[0])


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize(("kind", "eps"), KINDS)
def test_denoising(kind, eps, bounds):
    noisy = tomography.shepp_logan_3d(SIDE)[8] + 0.1 * np.random.default_rng(2).normal(size=(SIDE, SIDE))
    lower, upper = sides(BOUNDS[bounds])
    one, b = sp.identity(SIDE * SIDE), noisy.ravel()
    least = clarabel_least(one, b, 0.1, (SIDE, SIDE), kind, eps, lower=lower, upper=upper)
    for tol in (0.1, 1e-3, 1e-5):
        result = stepwell.tv(
            None, noisy, 0.1, shape=(SIDE, SIDE), kind=kind, eps=eps, bounds=BOUNDS[bounds], tol=tol, maxiter=500
        )
        f = objective(one, b, result.x.ravel(), 0.1, (SIDE, SIDE), kind, eps)
        assert result.success
        assert result.objective[0] == pytest.approx(f)
        assert (f - least) / f <= result.gap[0] + ORACLE


def test_lam_beyond_the_largest_gives_the_best_constant():
    """Above λ_max the minimiser is the constant c = bᵀA1/‖A1‖²."""
    A, B = scan()
    ones = A @ np.ones(SIDE * SIDE)
    constant = ones @ B[:, 0] / (ones @ ones)
    result = stepwell.tv(A, B, 1e4, shape=(SIDE, SIDE), tol=1e-9)
    assert result.success
    np.testing.assert_allclose(result.x[:, 0], constant, rtol=1e-3)
    least = objective(A, B[:, 0], np.full(SIDE * SIDE, constant), 1e4, (SIDE, SIDE))
    assert result.lower[0] <= least * (1 + 1e-12)


def test_voxel_sizes_and_coupled_slices():
    A, B = scan(columns=3)
    result = stepwell.tv(A, B, 0.4, shape=(SIDE, SIDE), spacing=(1.0, 2.0), bounds=(0, None), tol=1e-5)
    for j in range(3):
        least = clarabel_least(A, B[:, j], 0.4, (SIDE, SIDE), weights=(1.0, 0.5), lower=0.0)
        f = objective(A, B[:, j], result.x[:, j], 0.4, (SIDE, SIDE), weights=(1.0, 0.5))
        assert (f - least) / f <= result.gap[j] + ORACLE
        assert result.gap[j] <= 1e-5
    coupled = stepwell.tv(A, B, 0.4, shape=(SIDE, SIDE), across=0.7, bounds=(0, None), tol=1e-5)
    whole, shape, weights = sp.block_diag([A] * 3), (3, SIDE, SIDE), (0.7, 1.0, 1.0)
    b, x = B.T.ravel(), coupled.x.T.ravel()
    least = clarabel_least(whole, b, 0.4, shape, weights=weights, lower=0.0)
    f = objective(whole, b, x, 0.4, shape, weights=weights)
    assert coupled.success
    assert coupled.objective == pytest.approx([f] * 3)
    assert (f - least) / f <= coupled.gap[0] + ORACLE


def test_volumes():
    random = np.random.default_rng(3)
    shape = (4, 5, 6)
    A, b = random.normal(size=(90, 120)), random.normal(size=90)
    result = stepwell.tv(A, b, 1.5, shape=shape, tol=1e-5, maxiter=400)
    least = clarabel_least(A, b, 1.5, shape)
    f = objective(A, b, result.x, 1.5, shape)
    assert result.success
    assert (f - least) / f <= result.gap[0] + ORACLE


@pytest.mark.parametrize("bounds", [None, (0, None), (0.0, 0.25), (None, 0.2)])
@pytest.mark.parametrize("seed", range(5))
def test_any_image_and_any_dual_field_are_judged_truly(bounds, seed):
    """The certificate holds for whatever it is given: random x, random p."""
    A, B = scan()
    random = np.random.default_rng(seed)
    lower, upper = sides(bounds)
    least = clarabel_least(A, B[:, 0], 0.5, (SIDE, SIDE), lower=lower, upper=upper)
    x = np.clip(random.normal(size=SIDE * SIDE), lower, upper)
    dual = random.normal(size=(2, 1, SIDE, SIDE)) * 10.0 ** random.integers(-3, 3)
    for maxiter in (0, 3):
        judged = stepwell.tv_gap(
            A, B[:, 0], x, 0.5, shape=(SIDE, SIDE), bounds=bounds, dual=dual, maxiter=maxiter, tol=1e-9
        )
        f = objective(A, B[:, 0], x, 0.5, (SIDE, SIDE))
        assert judged.objective[0] == pytest.approx(f)
        assert judged.lower[0] <= least * (1 + ORACLE)
        assert (f - least) / f <= judged.gap[0] + ORACLE


def test_another_programs_answer_is_judged():
    A, B = scan()
    near = stepwell.tv(A, B, 0.5, shape=(SIDE, SIDE), tol=1e-7).x[:, 0] + 1e-4
    judged = stepwell.tv_gap(A, B[:, 0], near, 0.5, shape=(SIDE, SIDE), tol=1e-6)
    least = clarabel_least(A, B[:, 0], 0.5, (SIDE, SIDE))
    true = 1 - least / judged.objective[0]
    assert true - ORACLE <= judged.gap[0] <= true + 2e-6
    outside = stepwell.tv_gap(A, B[:, 0], near - 1, 0.5, shape=(SIDE, SIDE), bounds=(0, None))
    assert outside.objective[0] == outside.gap[0] == np.inf


@pytest.mark.parametrize("kind", ["isotropic", "anisotropic"])
@pytest.mark.parametrize("across", [None, 0.5])
def test_two_bounds_in_denoising_prove_nothing_wrong(kind, across):
    """Any feasible image has an objective above the lower bound: here that of another run, whose bounds are wider."""
    rng = np.random.default_rng(0)
    image = np.kron(rng.random((3, 4)), np.ones((8, 6)))[:, :, None] + 0.1 * rng.normal(size=(24, 24, 2))
    B = image.reshape(-1, 2)
    given = {"shape": (24, 24), "kind": kind, "across": across}
    wide = stepwell.tv(None, B, 0.15, bounds=(0, None), tol=1e-4, **given)
    assert wide.x.max() < 1  # so that it is feasible
    both = stepwell.tv(None, B, 0.15, bounds=(0, 1), tol=1e-3, **given)
    assert both.success
    assert np.all(both.lower <= wide.objective)
    assert np.all(both.objective <= (1 + 1e-3) * wide.objective)
