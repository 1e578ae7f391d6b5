"""Weights of differences and masks of pixels: Clarabel, regions that nothing connects, odd input."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from tv_oracle import clarabel_least, objective

import stepwell
from stepwell.apps import tomography

SIDE = 12
SHAPE = (SIDE, SIDE)
#: Clarabel's own accuracy, relative to the objective.
ORACLE = 1e-8
KINDS = [("isotropic", None), ("anisotropic", None), ("huber", 0.05)]
random = np.random.default_rng(0)
WEIGHTS = 10.0 ** random.uniform(-1, 0.5, size=SHAPE)
rows, columns = np.mgrid[:SIDE, :SIDE]
DISC = np.hypot(rows - 5.5, columns - 5.5) < 5.5
TWO = (abs(rows - 2) < 3) | ((abs(rows - 9) < 3) & (columns > 3))


def scan():
    A = sp.csr_matrix(tomography.parallel_beam(SIDE, angles=np.arange(0, 180, 20.0)))
    return A, tomography.add_noise(A @ tomography.shepp_logan_3d(SIDE)[6].reshape(-1, 1), 0.03, 0)


@pytest.mark.parametrize(
    ("case", "kind", "eps", "bounds"),
    [
        ("weights", "isotropic", None, (0, None)),
        ("disc", "huber", 0.05, None),
        ("two parts", "anisotropic", None, (0, None)),
        ("both", "isotropic", None, (0.0, 0.25)),
        *(
            pytest.param(case, kind, eps, bounds, marks=pytest.mark.slow)
            for case in ("weights", "disc", "two parts", "both")
            for kind, eps in KINDS
            for bounds in (None, (0, None), (0.0, 0.25))
        ),
    ],
)
def test_gap_holds_and_the_minimum_is_clarabels(kind, eps, case, bounds):
    A, B = scan()
    lower, upper = (None, None) if bounds is None else bounds
    weights = WEIGHTS if case in ("weights", "both") else None
    mask = {"weights": None, "disc": DISC, "two parts": TWO, "both": DISC}[case]
    known = {"pixel": 1.0 if weights is None else weights.ravel(), "mask": mask}
    least = clarabel_least(A, B[:, 0], 0.5, SHAPE, kind, eps, lower=lower, upper=upper, **known)
    for tol, steps in ((1e-1, 3), (1e-3, 200)):
        result = stepwell.tv(
            A,
            B,
            0.5,
            shape=SHAPE,
            kind=kind,
            eps=eps,
            bounds=bounds,
            weights=weights,
            mask=mask,
            tol=tol,
            maxiter=steps,
        )
        x = result.x[:, 0]
        f = objective(A, B[:, 0], x, 0.5, SHAPE, kind, eps, **known)
        assert result.objective[0] == pytest.approx(f, rel=1e-12)
        assert (f - least) / f <= result.gap[0] + ORACLE
        assert result.lower[0] <= least * (1 + ORACLE)
    assert result.success, result
    if mask is not None:
        assert not x[~mask.ravel()].any()


def test_a_weight_per_difference():
    A, B = scan()
    each = 10.0 ** random.uniform(-1, 0.5, size=(2, *SHAPE))
    least = clarabel_least(A, B[:, 0], 0.5, SHAPE, "anisotropic", pixel=each.reshape(2, -1))
    result = stepwell.tv(A, B, 0.5, shape=SHAPE, kind="anisotropic", weights=each, tol=1e-4, maxiter=300)
    f = objective(A, B[:, 0], result.x[:, 0], 0.5, SHAPE, "anisotropic", pixel=each.reshape(2, -1))
    assert result.success
    assert (f - least) / f <= result.gap[0] + ORACLE


def test_weights_of_one_and_a_full_mask_change_nothing_but_rounding():
    A, B = scan()
    plain = stepwell.tv(A, B, 0.5, shape=SHAPE, bounds=(0, None))
    for given in ({"weights": np.ones(SHAPE)}, {"mask": np.ones(SHAPE, dtype=bool)}, {"weights": np.full(SHAPE, 2.0)}):
        lam = 0.25 if "weights" in given and given["weights"].max() == 2 else 0.5
        other = stepwell.tv(A, B, lam, shape=SHAPE, bounds=(0, None), **given)
        assert other.success
        np.testing.assert_allclose(other.x, plain.x, atol=1e-6)


def test_zero_weights_let_an_edge_be_free():
    """An image of two constants whose border has no weight costs nothing: it is found exactly, whatever λ."""
    image = np.where(columns < 6, 1.0, 3.0)
    weights = np.where(columns == 5, 0.0, 1.0)
    result = stepwell.tv(None, image, 5.0, shape=SHAPE, weights=weights, tol=1e-6)
    np.testing.assert_allclose(result.x, image, atol=1e-3)
    assert result.objective[0] < 1e-6


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_libraries(library):
    module = pytest.importorskip(library)
    if library == "jax":
        module.config.update("jax_enable_x64", True)
    make = module.as_tensor if library == "torch" else module.numpy.asarray
    A, B = scan()
    expected = stepwell.tv(A.toarray(), B, 0.5, shape=SHAPE, weights=WEIGHTS, mask=DISC, maxiter=1)
    result = stepwell.tv(
        make(A.toarray()), make(B), 0.5, shape=SHAPE, weights=make(WEIGHTS), mask=make(DISC), maxiter=1
    )
    np.testing.assert_allclose(np.asarray(result.x), expected.x, atol=1e-8)
    np.testing.assert_allclose(result.lower, expected.lower, rtol=1e-8)


def test_other_images_are_judged():
    A, B = scan()
    x = np.where(DISC, 0.2, 0.0).ravel()
    least = clarabel_least(A, B[:, 0], 0.5, SHAPE, lower=0.0, pixel=WEIGHTS.ravel(), mask=DISC)
    judged = stepwell.tv_gap(A, B[:, 0], x, 0.5, shape=SHAPE, bounds=(0, None), weights=WEIGHTS, mask=DISC)
    f = objective(A, B[:, 0], x, 0.5, SHAPE, pixel=WEIGHTS.ravel(), mask=DISC)
    assert judged.objective[0] == pytest.approx(f)
    assert 1 - least / f - ORACLE <= judged.gap[0] <= 1 - least / f + 2e-3
    outside = stepwell.tv_gap(A, B[:, 0], x + 0.1, 0.5, shape=SHAPE, mask=DISC)
    assert outside.gap[0] == np.inf


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"weights": np.ones((3, 3))}, r"weights has shape \(3, 3\)"),
        ({"weights": np.ones((2, *SHAPE))}, "weights has shape"),
        ({"weights": -np.ones(SHAPE)}, "finite numbers of at least 0"),
        ({"weights": np.zeros(SHAPE)}, "at least one number above 0"),
        ({"mask": np.zeros(SHAPE)}, "at least one pixel inside"),
        ({"mask": np.full(SHAPE, 0.5)}, "True, False, 1 and 0"),
        ({"mask": (rows + columns) % 2 == 0}, "at most 32 regions"),
        ({"mask": DISC, "across": 1.0}, "None with across"),
    ],
)
def test_wrong_input_is_named(given, text):
    A, B = scan()
    with pytest.raises(ValueError, match=text):
        stepwell.tv(A, B, 0.5, shape=SHAPE, **given)
