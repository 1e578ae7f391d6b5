"""Runs of `tv`: starts, callbacks, interruptions, what they count and take, and odd input."""

from __future__ import annotations

import os
import signal
import threading
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from tv_oracle import objective
from tv_scan import SHAPE, SIDE, scan

import stepwell
from stepwell import TVStatus

# ---- starts, callbacks, interruptions ----


def test_warm_starts_save_products():
    A, B, _ = scan()
    cold = stepwell.tv(A, B, 1.0, shape=SHAPE, bounds=(0, None), tol=1e-4)
    warm = stepwell.tv(A, B, 1.0, shape=SHAPE, bounds=(0, None), tol=1e-3, x0=cold.x, dual=cold.dual)
    assert warm.success
    assert warm.iterations.max() <= 2
    near = stepwell.tv(A, B, 1.1, shape=SHAPE, bounds=(0, None), tol=1e-3, x0=cold.x, dual=cold.dual)
    assert near.products.sum() < cold.products.sum()


def test_callbacks_are_told_and_may_stop():
    A, B, _ = scan()
    seen = []
    result = stepwell.tv(A, B, 1.0, shape=SHAPE, callback=lambda told: seen.append(told) or told.iteration >= 3)
    assert [told.iteration for told in seen] == [0, 1, 2, 3]
    assert result.status == [TVStatus.STOPPED] * 3
    assert not result.success
    assert seen[-1].products == pytest.approx(result.products.sum())
    assert seen[0].memory == result.memory > B.nbytes

    def stop(told):
        raise StopIteration

    assert stepwell.tv(A, B, 1.0, shape=SHAPE, callback=stop).status == [TVStatus.STOPPED] * 3


def test_products_are_those_that_the_operator_counts():
    A, B, _ = scan()
    count = [0.0]

    def times(matrix):
        def apply(x):
            count[0] += 0.5
            return matrix @ x

        return apply

    result = stepwell.tv((times(A), times(A.T.tocsr())), B, 1.0, shape=SHAPE, bounds=(0, None))
    # Beside them one adjoint of a column, which tells how many unknowns a pair of functions has.
    assert result.products.sum() == pytest.approx(count[0] - 0.5)


@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals go to the main thread")
def test_interrupted_runs_keep_the_best_point():
    A, B, _ = scan()
    B[:, 1] = 0.0  # this column has ended before

    def interrupt(told):
        if told.iteration == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(stepwell.Interrupted) as caught:
        stepwell.tv(A, B, 1.0, shape=SHAPE, bounds=(0, None), tol=1e-9, callback=interrupt)
    result = caught.value.result
    assert result.status == [TVStatus.STOPPED, TVStatus.CONVERGED, TVStatus.STOPPED]
    for j in (0, 2):
        f = objective(A, B[:, j], result.x[:, j], 1.0, SHAPE)
        assert f == pytest.approx(result.objective[j], rel=1e-10)
        assert f < 0.1 * 0.5 * np.sum(B[:, j] ** 2)


@pytest.mark.parametrize(("bounds", "dtype"), [(None, "float64"), ((0, None), "float64"), ((0, None), "float32")])
def test_memory_is_what_is_told(bounds, dtype):
    A, B, _ = scan(slices=(30, 26), side=64)
    A, B = A.astype(dtype), B.astype(dtype)
    stepwell.tv(A, B, 1.0, shape=(64, 64), maxiter=1, bounds=bounds)
    tracemalloc.start()
    result = stepwell.tv(A, B, 1.0, shape=(64, 64), maxiter=7, bounds=bounds)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak == pytest.approx(result.memory, rel=0.1)


# ---- odd input ----


def test_zero_data_no_columns_and_lost_columns():
    A, B, _ = scan()
    B = B.copy()
    B[:, 1] = 0.0
    B[3, 2] = np.nan
    result = stepwell.tv(A, B, 1.0, shape=SHAPE, bounds=(0, None))
    assert result.status == [TVStatus.CONVERGED, TVStatus.CONVERGED, TVStatus.NONFINITE]
    assert not result.x[:, 1].any()
    assert np.isfinite(result.x).all()
    none = stepwell.tv(A, B[:, :0], 1.0, shape=SHAPE)
    assert none.x.shape == (SIDE * SIDE, 0)
    assert none.success


def test_an_operator_that_sees_no_constants():
    """A1 = 0: the constant is free, and the certificate needs no shift."""
    random = np.random.default_rng(4)
    A = random.normal(size=(50, 64))
    A -= A.mean(axis=1, keepdims=True)
    result = stepwell.tv(A, random.normal(size=50), 0.8, shape=(8, 8), tol=1e-4, maxiter=400)
    assert result.success


@pytest.mark.parametrize("shape", [(1, 30), (30, 1), (30,), (5, 1, 6)])
def test_single_rows_and_columns(shape):
    b = np.random.default_rng(1).normal(size=30)
    result = stepwell.tv(None, b, 0.3, shape=shape, tol=1e-6, maxiter=2000)
    assert result.success
    f = objective(sp.identity(30), b, result.x.ravel(), 0.3, shape)
    assert f == pytest.approx(result.objective[0])


def test_sides_above_the_matrix_product_go_through_the_fft():
    image = np.zeros((300, 8))
    image[100:200, 2:6] = 1.0
    noisy = image + 0.1 * np.random.default_rng(0).normal(size=image.shape)
    result = stepwell.tv(None, noisy, 0.15, shape=(300, 8))
    assert result.success
    assert np.linalg.norm(result.x - image) < 0.5 * np.linalg.norm(noisy - image)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shape": (5, 5)}, "shape is .*; allowed: sides whose product is 576"),
        ({"shape": (2, 2, 2, 2)}, "shape is .*; allowed: one to three sides"),
        ({"kind": "huber"}, "eps is None; allowed: a finite number above 0 with kind='huber'"),
        ({"eps": 0.1}, "eps is 0.1; allowed: None unless kind is 'huber'"),
        ({"kind": "isotrop"}, "kind is 'isotrop'; allowed: .*did you mean 'isotropic'"),
        ({"lam": "gcv"}, "lam is 'gcv'; allowed: numbers, and the rules 'noise', 'discrepancy'"),
        ({"lam": "noise"}, "noise is None; allowed: the standard deviation"),
        ({"lam": -1.0}, "lam is -1.0; allowed: finite numbers of at least 0"),
        ({"lam": [1.0, 2.0, 3.0], "across": 1.0}, "lam is .*; allowed: one number with across"),
        ({"bounds": (1.0, 0.0)}, "bounds: the lower bound is 1.0.*; allowed: at most the upper bound"),
        ({"bounds": (np.nan, None)}, "bounds: the lower bound is nan.*; allowed: numbers other than NaN"),
        ({"spacing": (1.0, 0.0)}, "spacing is 0.0; allowed: a finite number above 0"),
        ({"across": 0.0}, "across is 0.0; allowed: a finite number above 0"),
        ({"dual": np.zeros((2, 3, 5, 5))}, r"dual has shape \(2, 3, 5, 5\); allowed: \(2, 3, 24, 24\)"),
        ({"tol": 0.0}, "tol is 0.0; allowed: a finite number above 0"),
    ],
)
def test_bad_input_is_named_before_any_work(change, said):
    A, B, _ = scan()
    called = []
    pair = stepwell.operators.from_functions(
        lambda x: called.append(1) or A @ x, lambda y: called.append(1) or A.T @ y, A.shape
    )
    with pytest.raises((TypeError, ValueError), match=said):
        stepwell.tv(**({"A": pair, "B": B, "lam": 1.0, "shape": SHAPE} | change))
    assert not called


def test_results_have_short_texts():
    A, B, _ = scan()
    result = stepwell.tv(A, B, 1.0, shape=SHAPE)
    lines = repr(result).splitlines()
    assert lines[0] == "TVResult"
    assert lines[1].split()[0] == "status:"
    assert "3 of 3: the objective is proved to be within tol of the least" in result.message
    assert result.reason == result.status
    assert repr(stepwell.tv_gap(A, B, result.x, 1.0, shape=SHAPE)).startswith("TVGap")
