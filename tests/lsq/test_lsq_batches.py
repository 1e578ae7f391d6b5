"""Batches: alone is the same bit by bit; shapes, libraries, precisions, parts, and systems that are not finite."""

from __future__ import annotations

import numpy as np
import pytest
from lsq_cases import breach

import stepwell
from stepwell import Convolution, NNLSStatus

RNG = np.random.default_rng(9)
A, B = RNG.standard_normal((24, 9)), RNG.standard_normal((50, 24))
OWN = RNG.standard_normal((50, 24, 9))
FEATURES = {
    "bounds": dict(bounds=(-0.1, 0.2)),
    "sum": dict(bounds=(0, np.inf), sum_bounds=(1, 1)),
    "range": dict(bounds=(0, 0.5), sum_bounds=(0.3, 0.8)),
    "weights": dict(bounds=(0, np.inf), weights=RNG.random((50, 24))),
    "mask": dict(bounds=(-1, 1), mask=RNG.random((50, 9)) < 0.7),
    "lam": dict(bounds=(0, np.inf), lam=RNG.random(50), L=np.eye(9) - np.eye(9, k=1)),
    "chi2": dict(bounds=(0, np.inf), lam="chi2"),
}


def some(options, chosen):
    """The options of some of the 50 systems."""
    return {
        name: value[chosen] if isinstance(value, np.ndarray) and len(value) == 50 else value
        for name, value in options.items()
    }


@pytest.mark.parametrize("name", FEATURES)
def test_alone_is_the_same_bit_by_bit(name):
    options = FEATURES[name]
    own = stepwell.lsq_linear(OWN, B, **options)
    for s in (0, 17, 49):
        alone = stepwell.lsq_linear(OWN[s], B[s], **some(options, s))
        np.testing.assert_array_equal(alone.x, own.x[s])
        assert alone.residual == own.residual[s]
    shared, part = stepwell.lsq_linear(A, B, **options), slice(11, 31)
    again = stepwell.lsq_linear(A, B[part], threads=1, **some(options, part))
    np.testing.assert_array_equal(again.x, shared.x[part])
    np.testing.assert_array_equal(again.state, shared.state[part])


def test_parts_with_progress():
    seen = []
    r = stepwell.lsq_linear(A, np.tile(B, (20, 1)), (-0.1, 0.2), progress=lambda *done: seen.append(done))
    assert len(seen) > 5
    assert seen[-1] == (1000, 1000)
    np.testing.assert_array_equal(r.x[:50], stepwell.lsq_linear(A, B, (-0.1, 0.2)).x)


def test_images_and_columns_come_back_in_their_shape():
    image = B[:48].reshape(6, 8, 24)
    r = stepwell.lsq_linear(A, image, (0, np.inf), sum_bounds=(1, 1))
    flat = stepwell.lsq_linear(A, B[:48], (0, np.inf), sum_bounds=(1, 1))
    assert r.x.shape == r.dual.shape == r.state.shape == (6, 8, 9)
    assert r.status.shape == r.residual.shape == (6, 8)
    assert r.multipliers.shape == (6, 8, 1)
    np.testing.assert_array_equal(r.x.reshape(48, 9), flat.x)
    column = stepwell.lsq_linear(A, B[0][:, None], (-0.1, 0.2))
    assert column.x.shape == (9, 1)
    np.testing.assert_array_equal(column.x[:, 0], stepwell.lsq_linear(A, B[0], (-0.1, 0.2)).x)
    weights, masks = RNG.random((6, 8, 24)), RNG.random((6, 8, 9)) < 0.7
    both = stepwell.lsq_linear(A, image, (0, 1), weights=weights, mask=masks)
    rows = stepwell.lsq_linear(A, B[:48], (0, 1), weights=weights.reshape(48, 24), mask=masks.reshape(48, 9))
    np.testing.assert_array_equal(both.x.reshape(48, 9), rows.x)


def test_a_system_that_is_not_finite_is_its_own_trouble():
    b = B.copy()
    b[3, 5] = np.nan
    r = stepwell.lsq_linear(A, b, (-0.1, 0.2))
    assert r.status[3] == NNLSStatus.NON_FINITE
    assert np.isnan(r.x[3]).all()
    np.testing.assert_array_equal(
        np.delete(r.x, 3, axis=0), np.delete(stepwell.lsq_linear(A, B, (-0.1, 0.2)).x, 3, axis=0)
    )
    with pytest.raises(ValueError, match="b is nan at index 5"):
        stepwell.lsq_linear(A, b[3])


@pytest.mark.parametrize("name", FEATURES)
def test_single_precision(name):
    options = FEATURES[name]
    r = stepwell.lsq_linear(A.astype(np.float32), B.astype(np.float32), **options)
    assert r.x.dtype == np.float32
    np.testing.assert_allclose(r.x, stepwell.lsq_linear(A, B, **options).x, atol=2e-4 if name == "chi2" else 2e-6)


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_libraries(library):
    xp = pytest.importorskip(library)
    expected = stepwell.lsq_linear(A, B, (-0.1, 0.2), mask=FEATURES["mask"]["mask"], lam=0.3)
    options = dict(dtype=xp.float64) if library == "torch" else {}
    r = stepwell.lsq_linear(
        xp.asarray(A, **options),
        xp.asarray(B, **options),
        (-0.1, 0.2),
        mask=xp.asarray(FEATURES["mask"]["mask"]),
        lam=0.3,
    )
    assert type(r.x) is type(xp.asarray(A, **options))
    np.testing.assert_allclose(np.asarray(r.x), expected.x, atol=1e-6)
    g = stepwell.lsq_gram(xp.asarray(A.T @ A, **options), xp.asarray(B @ A, **options), (-0.1, 0.2))
    np.testing.assert_allclose(np.asarray(g.x), stepwell.lsq_linear(A, B, (-0.1, 0.2)).x, atol=1e-5)


def test_convolutions_take_everything():
    pulse = np.exp(-0.5 * ((np.arange(9) - 4) / 2.0) ** 2)
    wave = Convolution(pulse, n=30, m=34, origin=4)
    b = RNG.random((6, 34))
    for options in (
        dict(bounds=(0, 0.2)),
        dict(bounds=(0, np.inf), sum_bounds=(2, 2)),
        dict(bounds=(0, np.inf), lam=0.1, L=np.eye(30) - np.eye(30, k=1), weights=RNG.random(34)),
        dict(bounds=(0, np.inf), lam="chi2"),
    ):
        short = stepwell.lsq_linear(wave, b, **options)
        dense = stepwell.lsq_linear(wave.dense(), b, **options)
        np.testing.assert_allclose(short.residual, dense.residual, rtol=1e-7)
        np.testing.assert_allclose(wave.dense() @ short.x.T, wave.dense() @ dense.x.T, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_combinations_of_features(seed):
    rng = np.random.default_rng([13, seed])
    for k in range(120):
        m, n = int(rng.integers(1, 20)), int(rng.integers(1, 12))
        matrix, b = rng.standard_normal((m, n)), rng.standard_normal(m)
        if k % 5 == 0 and n > 2:
            matrix[:, 1], matrix[:, 2] = matrix[:, 0], 0
        lower = np.where(rng.random(n) < 0.3, -np.inf, -rng.random(n))
        upper = np.where(rng.random(n) < 0.3, np.inf, rng.random(n))
        options, held = {}, {}
        if rng.random() < 0.4:
            options["lam"] = held["lam"] = float(10 ** rng.uniform(-2, 1))
            if rng.random() < 0.5:
                options["L"] = held["L"] = rng.standard_normal((int(rng.integers(1, n + 2)), n))
        if rng.random() < 0.4:
            options["weights"] = held["weights"] = rng.random(m) * (rng.random(m) < 0.8)
        if rng.random() < 0.4:
            options["mask"] = held["mask"] = rng.random(n) < 0.7
        takes = held.get("mask", np.ones(n, bool))
        if rng.random() < 0.5 and takes.any():
            ends = max(np.where(takes, lower, 0).sum(), -5), min(np.where(takes, upper, 0).sum(), 5)
            low, high = np.sort(rng.uniform(*ends, 2))
            options["sum_bounds"] = held["sums"] = [(low, low), (-np.inf, high), (low, np.inf), (low, high)][k % 4]
        method = ("auto", "gram", "qr")[k % 3]
        if k % 2:
            r = stepwell.lsq_linear(matrix, b, (lower, upper), method=method, **options)
            x, status, multipliers = r.x, int(r.status), r.multipliers
        else:
            r = stepwell.lsq_linear(matrix, np.stack([b, -b]), (lower, upper), method=method, **options)
            x, status, multipliers = r.x[0], int(r.status[0]), None if r.multipliers is None else r.multipliers[0]
        assert status == 0
        multiplier = 0.0 if multipliers is None else float(multipliers[0])
        worst, outside = breach(matrix, b, x, lower, upper, multiplier=multiplier, **held)
        assert worst < 1e-10
        assert outside < 1e-12
