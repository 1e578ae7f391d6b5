"""Columns of sparse systems run in groups, one per thread: same answers, one end for errors and Ctrl-C."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import scipy.sparse as sp

import stepwell
import stepwell.krylov.tv.inputs
import stepwell.krylov.tv.solving
from stepwell import TVStatus
from stepwell.apps import tomography
from stepwell.krylov.tv import groups

SIDE = 20
ARGUMENTS = {"shape": (SIDE, SIDE), "bounds": (0, None)}


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    monkeypatch.setattr(groups, "default_threads", lambda: 2)
    monkeypatch.setattr(groups, "TOGETHER", 2)


def scan(columns=5):
    A = sp.csr_matrix(tomography.parallel_beam(SIDE, angles=np.arange(0, 180, 15.0)))
    X = tomography.shepp_logan_3d(SIDE)[6 : 6 + columns].reshape(columns, -1).T
    return A, tomography.add_noise(A @ X, 0.02, 0)


def test_groups_cover_all_columns_once():
    A, B = scan()
    given = stepwell.krylov.tv.inputs.read_problem(
        A, B, None, None, shape=(SIDE, SIDE), kind="isotropic", eps=None, bounds=None, spacing=None, across=None, axis=1
    )
    for rows in (np.arange(5), np.array([1, 4, 3]), np.array([2])):
        found = groups.groups_of(given.task, rows)
        np.testing.assert_array_equal(np.concatenate(found), rows)
        assert max(part.size for part in found) <= 2
    across = stepwell.tv(A, B, 1.0, across=0.3, **ARGUMENTS)
    assert across.success


def test_groups_change_nothing_but_rounding():
    """A callback hears of every step of all columns, which then run together."""
    A, B = scan()
    together = stepwell.tv(A, B, 1.0, callback=lambda told: None, **ARGUMENTS)
    apart = stepwell.tv(A, B, 1.0, **ARGUMENTS)
    assert together.success
    assert apart.calls == together.calls
    for name in ("products", "sweeps", "iterations"):
        np.testing.assert_array_equal(getattr(apart, name), getattr(together, name))
    # Products of few columns and of many round differently, and sweeps are in single precision.
    near = 16 * np.finfo(np.float32).eps
    np.testing.assert_allclose(apart.x, together.x, atol=near * np.abs(together.x).max())
    np.testing.assert_allclose(apart.gap, together.gap, atol=near)


def test_an_error_in_one_group_ends_all(monkeypatch):
    A, B = scan()
    work = stepwell.krylov.tv.solving.run_sweeps
    first = threading.Event()

    def fails(*arguments):
        if not first.is_set():
            first.set()
            raise MemoryError("no room")
        return work(*arguments)

    monkeypatch.setattr(stepwell.krylov.tv.solving, "run_sweeps", fails)
    before = set(threading.enumerate())  # (libraries that other tests used keep threads)
    with pytest.raises(MemoryError, match="no room"):
        stepwell.tv(A, B, 1.0, **ARGUMENTS)
    assert not [one for one in set(threading.enumerate()) - before if "ThreadPool" in one.name]


def test_ctrl_c_ends_all_groups(monkeypatch):
    A, B = scan()

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(groups, "wait", interrupted)
    with pytest.raises(stepwell.Interrupted) as caught:
        stepwell.tv(A, B, 1.0, tol=1e-9, **ARGUMENTS)
    result = caught.value.result
    assert result.x.shape == (SIDE * SIDE, 5)
    assert set(result.status) == {TVStatus.STOPPED}
    residual = A @ result.x - B
    assert np.all(result.objective >= 0.5 * np.sum(residual**2, axis=0) * (1 - 1e-12))
