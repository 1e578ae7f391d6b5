"""The sweeps of the host: compiled kernels against array operations, in one thread and in several."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy.fft import dctn
from test_tv_device import STEPS, compare, for_the_step, random_sweep

import stepwell
from stepwell.apps import tomography
from stepwell.krylov.tv import host, kernels, solving
from stepwell.krylov.tv.cosine_tables import tables_of

CASES = [
    ((12, 10), 0, "isotropic", "none"),
    ((12, 10), 4, "isotropic", "numbers"),
    ((80, 64), 3, "isotropic", "numbers"),
    ((40, 36), 2, "anisotropic", "pixels"),
    ((4, 6, 5), 0, "huber", "problems"),
    ((20, 18, 15), 3, "isotropic", "numbers"),
    ((30,), 2, "isotropic", "none"),
    ((5000,), 2, "isotropic", "numbers"),
    ((288, 250), 2, "isotropic", "numbers"),
    ((40, 45, 40), 0, "isotropic", "none"),
    ((1, 20), 0, "isotropic", "numbers"),
]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("dims", [(2,), (45,), (12, 10), (128, 3), (36, 100), (3, 8, 5), (6, 1, 9)])
def test_transforms_are_the_cosine_transform(dims, dtype):
    images = np.random.default_rng(0).normal(size=(3, *dims)).astype(dtype)
    tables = tables_of(dims, dtype)
    found = host.transform(tables, images, False)
    near = 64 * np.finfo(dtype).eps * np.abs(images).max() * np.sqrt(images[0].size)
    np.testing.assert_allclose(found, dctn(images, axes=range(1, images.ndim), norm="ortho"), atol=near)
    np.testing.assert_allclose(host.transform(tables, found, True), images, atol=near)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("dims", "rows", "kind", "bounds"), CASES)
def test_sweeps_agree_with_array_operations(dims, rows, kind, bounds, dtype):
    sweep = random_sweep(dims, rows, kind, bounds, dtype)
    compare(host.run_sweeps(tables_of(dims, dtype), sweep), sweep, dtype)


@pytest.mark.parametrize(("dims", "rows", "kind", "bounds"), [CASES[-3], CASES[-2]])
def test_threads_do_not_change_a_bit(dims, rows, kind, bounds, monkeypatch):
    """One problem by several threads, or by one: sums over panels are added in their order."""
    sweep = random_sweep(dims, rows, kind, bounds, "float64", batch=1)
    tables, answers = tables_of(dims, "float64"), []
    for threads in (1, 3):
        monkeypatch.setattr(host, "default_threads", lambda count=threads: count)
        answers.append(host.run_sweeps(tables, sweep))
    compare(answers[0], sweep, "float64")
    for other in answers[1:]:
        for left, right in zip(answers[0], other):
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize(("dims", "rows", "kind", "bounds"), STEPS)
def test_single_precision_sweeps_for_the_step(dims, rows, kind, bounds):
    sweep = random_sweep(dims, rows, kind, bounds, "float64")
    mixed = for_the_step(sweep, np.array([True, False, True]))
    tables = tables_of(dims, "float64")
    found = host.run_sweeps(tables, mixed)
    compare(found, sweep, "float32")
    for one, other in zip(found, host.run_sweeps(tables, sweep)):
        if one is not None:  # the problem in double precision has the bits that it has alone
            k = (slice(None), 1) if one.ndim == len(dims) + 2 else 1
            np.testing.assert_array_equal(one[k], other[k])
    if bounds != "none":
        assert np.all((found[0] >= sweep.lower) & (found[0] <= sweep.upper))
        assert np.prod(dims) > np.sum(found[0][0] == np.broadcast_to(sweep.lower, found[0].shape)[0]) > 0


def test_problems_apart_by_their_precision_have_the_bits_of_all_together(monkeypatch):
    """Kernels of a GPU take problems of one precision at a time; here those of the host do."""
    A = tomography.parallel_beam(24, angles=np.arange(0, 180, 9.0))
    B = tomography.add_noise(A @ tomography.shepp_logan_3d(24)[[12, 9, 15]].reshape(3, -1).T, 0.02, 1)
    given = {"shape": (24, 24), "bounds": (0, None), "tol": 1e-6, "callback": lambda told: None}
    together = stepwell.tv(A, B, 1.0, **given)
    parts = []
    monkeypatch.setattr(kernels, "Kernels", functools.partial(kernels.Kernels, on_host=False))
    run = host.run_sweeps
    monkeypatch.setattr(host, "run_sweeps", lambda tables, sweep: parts.append(sweep.single) or run(tables, sweep))
    short = stepwell.tv(A, B, 1.0, **given)
    assert short.success
    parts.clear()
    monkeypatch.setattr(solving, "model_dtype", lambda task, single: "float64")  # as the host's are
    apart = stepwell.tv(A, B, 1.0, **given)
    assert {0 < len(part) < 3 for part in parts} == {True, False}
    assert all(part.all() or not part.any() for part in parts)
    np.testing.assert_array_equal(together.x, apart.x)


def test_sides_with_other_factors_have_no_plan():
    assert tables_of((7, 8), "float64") is None
    assert tables_of((1, 1), "float64") is None
    assert tables_of((30, 16), "float64") is not None
