"""The family on a CUDA device against the CPU: same status, same residual, answers within conditioning."""

from __future__ import annotations

import numpy as np
import pytest
from device_arrays import on_device, on_host
from lsq_cases import decays

import stepwell
from stepwell import Convolution

pytestmark = pytest.mark.cuda

RNG = np.random.default_rng(31)
A, B = RNG.standard_normal((24, 9)), RNG.standard_normal((200, 24))
OWN = RNG.standard_normal((200, 24, 9))
WIDE = RNG.standard_normal((90, 60)), RNG.standard_normal((40, 90))  # solved by blocks
FEATURES = {
    "bounds": dict(bounds=(-0.1, 0.2)),
    "free": dict(bounds=(np.r_[np.zeros(5), np.full(4, -np.inf)], np.inf)),
    "sum": dict(bounds=(0, np.inf), sum_bounds=(1, 1)),
    "range": dict(bounds=(0, 0.5), sum_bounds=(0.3, 0.8)),
    "weights": dict(bounds=(0, np.inf), weights=RNG.random((200, 24))),
    "mask": dict(bounds=(-1, 1), mask=RNG.random((200, 9)) < 0.7),
    "lam": dict(bounds=(0, np.inf), lam=RNG.random(200), L=np.eye(9) - np.eye(9, k=1)),
    "chi2": dict(bounds=(0, np.inf), lam="chi2"),
    "lcurve": dict(bounds=(0, np.inf), lam="lcurve"),
    "gcv": dict(bounds=(0, np.inf), lam="gcv"),
    "variance": dict(bounds=(0, np.inf), uncertainty="variance"),
}


def moved(library, value):
    return on_device(library, value) if isinstance(value, np.ndarray) else value


def placed(library, options):
    bounds = tuple(moved(library, end) for end in options["bounds"])
    return {name: moved(library, value) for name, value in options.items()} | {"bounds": bounds}


def check_parity(matrix, b, options, library="torch", atol=1e-9):
    device = stepwell.lsq_linear(moved(library, matrix), on_device(library, b), **placed(library, options))
    host = stepwell.lsq_linear(matrix, b, **options)
    np.testing.assert_array_equal(on_host(device.status), host.status)
    np.testing.assert_allclose(on_host(device.residual), host.residual, rtol=1e-6)
    np.testing.assert_allclose(on_host(device.x), host.x, atol=1e-4 if isinstance(options.get("lam"), str) else atol)
    if "lam" not in options:
        np.testing.assert_array_equal(on_host(device.state), host.state)
    if options.get("uncertainty") == "variance":
        np.testing.assert_allclose(on_host(device.variance), host.variance, rtol=1e-6, atol=1e-12)
    return device, host


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize("shared", [True, False])
def test_features(torch, name, shared):
    check_parity(A if shared else OWN, B, FEATURES[name])


@pytest.mark.parametrize("name", ["bounds", "gcv"])
def test_single_precision(torch, name):
    """Kernels read doubles of what the caller gives as numbers, whatever b is made of."""
    check_parity(A.astype(np.float32), B.astype(np.float32), FEATURES[name], atol=1e-5)


def test_every_library(library):
    check_parity(A, B, FEATURES["range"], library)
    check_parity(A, B, FEATURES["mask"], library)


@pytest.mark.parametrize("options", [dict(bounds=(-0.02, 0.02)), dict(bounds=(0, np.inf), sum_bounds=(-np.inf, 0.1))])
def test_systems_of_a_block(torch, options):
    check_parity(*WIDE, options)


@pytest.mark.parametrize("rule", ["chi2", "gcv", "lcurve"])
def test_rules_on_decays(torch, rule):
    matrix, b = decays(300, np.random.default_rng(1))
    device, host = check_parity(matrix, b, dict(bounds=(0, np.inf), lam=rule))
    np.testing.assert_allclose(on_host(device.lam), host.lam, rtol=1e-3)


def test_a_dictionary_of_matrices(torch):
    matrix, b = decays(300, np.random.default_rng(2))
    which = np.random.default_rng(3).integers(0, 5, 300)
    matrices = np.stack([matrix**p for p in (0.8, 0.9, 1.0, 1.1, 1.2)])
    check_parity(matrices, b, dict(bounds=(0, np.inf), which=which, lam="chi2"))


def test_convolutions(torch):
    pulse = np.exp(-0.5 * ((np.arange(9) - 4) / 2.0) ** 2)
    b = RNG.random((20, 64))
    host = stepwell.lsq_linear(Convolution(pulse, 64, origin=4), b, (0, 0.2))
    wave = Convolution(on_device("torch", pulse), 64, origin=4)
    device = stepwell.lsq_linear(wave, on_device("torch", b), (0, 0.2))
    np.testing.assert_allclose(on_host(device.residual), host.residual, rtol=1e-6)


def test_warm_starts_and_chains(torch):
    cold, _ = check_parity(A, B, dict(bounds=(-0.1, 0.2)))
    warm = stepwell.lsq_linear(on_device("torch", A), on_device("torch", B), (-0.1, 0.2), warm_start=cold.state)
    np.testing.assert_allclose(on_host(warm.x), on_host(cold.x), atol=1e-10)
    check_parity(A, B, dict(bounds=(0, np.inf), lam="chi2", warm_start="chain"))


@pytest.mark.parametrize("n", [9, 70, 300])
def test_normal_equations(torch, n):
    matrix, b = RNG.standard_normal((50, 2 * n, n)), RNG.standard_normal((50, 2 * n))
    G, c = np.einsum("kij,kil->kjl", matrix, matrix), np.einsum("kij,ki->kj", matrix, b)
    for options in (dict(bounds=(-0.1, 0.2)), dict(bounds=(0, np.inf), sum_bounds=(1, 1))):
        host = stepwell.lsq_gram(G, c, **options)
        device = stepwell.lsq_gram(on_device("torch", G), on_device("torch", c), **options)
        np.testing.assert_allclose(on_host(device.x), host.x, atol=1e-10)


@pytest.mark.parametrize("bounds", [(0.0, np.inf), (-0.01, 0.02), (-np.inf, np.inf)])
def test_large_normal_equations(torch, bounds):
    """By a cluster of blocks each, where there are clusters: cold, warm, with dependent columns, one not finite."""
    matrix, b = RNG.standard_normal((3, 800, 600)), RNG.standard_normal((3, 800))
    matrix[:, :, 1:] += 0.7 * matrix[:, :, :-1]
    matrix[1, :, 300] = matrix[1, :, 7]
    G, c = np.einsum("kij,kil->kjl", matrix, matrix), np.einsum("kij,ki->kj", matrix, b)
    c[2, 5] = np.nan
    host = stepwell.lsq_gram(G, c, bounds)
    put = on_device("torch", G), on_device("torch", c)
    cold = stepwell.lsq_gram(*put, bounds)
    warm = stepwell.lsq_gram(*put, bounds, warm_start=cold.state)
    again = stepwell.lsq_gram(*put, bounds)
    assert np.array_equal(on_host(again.x), on_host(cold.x), equal_nan=True)
    assert on_host(cold.status).tolist() == host.status.tolist() == on_host(warm.status).tolist()
    size = np.nanmax(np.abs(host.x))
    for found in map(on_host, (cold.x, warm.x)):
        np.testing.assert_allclose(found[0], host.x[0], atol=1e-10 * size)
        # Of two equal columns either may have what both have together.
        np.testing.assert_allclose(matrix[1] @ found[1], matrix[1] @ host.x[1], atol=1e-9 * size * 600**0.5)
        assert np.isnan(found[2]).all()


def test_equalities(torch):
    rows, d = RNG.standard_normal((2, 9)), np.array([0.1, -0.1])
    host = stepwell.lsq_linear(A, B, (-1, 1), equality=(rows, d))
    put = [on_device("torch", value) for value in (A, B, rows, d)]
    device = stepwell.lsq_linear(put[0], put[1], (-1, 1), equality=(put[2], put[3]))
    np.testing.assert_allclose(on_host(device.x), host.x, atol=1e-9)
