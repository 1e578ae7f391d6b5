"""Total variation and the lasso on a CUDA device prove what they prove on the host, and nothing leaves the device."""

from __future__ import annotations

import importlib
import importlib.util

import numpy as np
import pytest
import scipy.sparse as sp
from device_arrays import on_gpu, on_host
from tv_oracle import clarabel_least

import stepwell
from stepwell.apps import tomography
from stepwell.arrays import is_cuda, kind_of

LIBRARIES = on_gpu()
#: Clarabel's least objectives of both columns of `scan` with λ = 0.5 and x >= 0; Huber's with eps = 0.05.
LEAST = {
    "isotropic": (16.71228943684, 20.75764185713),
    "anisotropic": (18.75226284386, 23.73947978544),
    "huber": (14.91574304145, 18.95063069225),
}
#: JAX compiles every operation once a shape: one kind.
PLACES_AND_KINDS = [
    pytest.param(*place.values, kind, id=f"{place.id}-{kind}", marks=place.marks)
    for place in LIBRARIES
    for kind in LEAST
    if kind == "isotropic" or "jax" not in str(place.id)
]


@pytest.fixture(autouse=True)
def doubles():
    """JAX rounds to single precision where nobody asks for double; conftest puts the switch back."""
    if importlib.util.find_spec("jax"):
        importlib.import_module("jax").config.update("jax_enable_x64", True)


def scan(size=16):
    A = sp.csr_matrix(tomography.parallel_beam(size, angles=np.arange(0, 180, 12.0))).toarray()
    slices = tomography.shepp_logan_3d(size)[[size // 2, size // 2 - 2]].reshape(2, -1).T
    B = A @ slices
    return A, B + 0.02 * np.abs(B).max() * np.random.default_rng(0).normal(size=B.shape)


@pytest.mark.parametrize("kind", LEAST)
def test_least_objectives_are_clarabels(kind):
    A, B = scan()
    found = [clarabel_least(A, b, 0.5, (16, 16), kind, 0.05 if kind == "huber" else None, lower=0.0) for b in B.T]
    np.testing.assert_allclose(LEAST[kind], found, rtol=1e-9)


@pytest.mark.parametrize(("place", "kind"), PLACES_AND_KINDS)
@pytest.mark.parametrize(("dtype", "tol"), [("float64", 1e-5), ("float32", 1e-3)])
def test_the_gap_on_a_device_holds_against_an_interior_point_method(place, dtype, tol, kind):
    A, B = scan()
    eps = 0.05 if kind == "huber" else None
    there = [place(array.astype(dtype)) for array in (A, B)]
    result = stepwell.tv(*there, 0.5, shape=(16, 16), kind=kind, eps=eps, bounds=(0, None), tol=tol)
    assert result.success, result.message
    assert is_cuda(result.x)
    assert kind_of(result.x) == kind_of(there[1])
    assert str(result.x.dtype).endswith(dtype)
    # A and B as float32 move f by about this share of it: 2e-8 by Clarabel's own answers.
    rounding = 1e-8 if dtype == "float64" else 1e-5
    for least, objective, lower in zip(LEAST[kind], np.asarray(result.objective), np.asarray(result.lower)):
        assert lower <= least * (1 + rounding)
        assert least <= objective * (1 + rounding)
    judged = stepwell.tv_gap(*there, result.x, 0.5, shape=(16, 16), kind=kind, eps=eps, bounds=(0, None))
    assert np.all(np.asarray(judged.gap) < 1)


@pytest.mark.parametrize("place", LIBRARIES)
@pytest.mark.parametrize("shape", [(40, 33), (12, 10, 9)], ids=str)
def test_denoising_agrees_with_the_host(place, shape):
    image = np.zeros(shape)
    image[tuple(slice(side // 4, side // 2) for side in shape)] = 1
    noisy = image + 0.1 * np.random.default_rng(1).normal(size=shape)
    here = stepwell.tv(None, noisy, 0.1, shape=shape, tol=1e-7)
    there = stepwell.tv(None, place(noisy), 0.1, shape=shape, tol=1e-7)
    assert here.success
    assert there.success
    # f is strongly convex, with modulus 1: ½‖x − x*‖² <= f(x) − f* of both.
    room = sum(np.sqrt(2 * float(result.gap[0]) * float(result.objective[0])) for result in (here, there))
    assert np.linalg.norm(on_host(there.x) - here.x) <= room


@pytest.mark.parametrize("place", LIBRARIES)
@pytest.mark.parametrize("method", ["admm", "fista"])
def test_lasso_agrees_with_the_host(place, method):
    random = np.random.default_rng(2)
    A = random.normal(size=(40, 60))
    B = A[:, [3, 7]] - 2 * A[:, [11, 50]] + 0.01 * random.normal(size=(40, 2))
    here = stepwell.lasso(A, B, 0.5, method=method, tol=1e-8)
    there = stepwell.lasso(place(A), place(B), 0.5, method=method, tol=1e-8)
    assert here.success
    assert there.success
    assert is_cuda(there.x)
    # Both are within 1e-8 of the same least value.
    np.testing.assert_allclose(np.asarray(there.objective), here.objective, rtol=3e-8)


@pytest.mark.parametrize("place", LIBRARIES)
def test_the_lasso_in_single_precision_is_proved(place):
    random = np.random.default_rng(2)
    A = random.normal(size=(300, 900))
    B = A[:, [3, 7]] - 2 * A[:, [11, 50]] + 0.01 * random.normal(size=(300, 2))
    there = stepwell.lasso(*(place(array.astype(np.float32)) for array in (A, B)), 5.0, method="admm")
    assert there.success, there.message
    assert str(there.x.dtype).endswith("float32")
    # Both gaps are at most 1e-4.
    np.testing.assert_allclose(np.asarray(there.objective), stepwell.lasso(A, B, 5.0).objective, rtol=2e-4)
