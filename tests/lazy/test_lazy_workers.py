"""Workers of dask: how they divide the cores, that one may be killed, and batches in delayed pieces."""

from __future__ import annotations

import dataclasses
import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stepwell
from stepwell.arrays.over_systems import over_systems
from stepwell.common.threads import default_threads, threads_at_most

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

random = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def in_this_thread():
    """Blocks one after the other, where nothing else is said."""
    with dask.config.set(scheduler="synchronous"):
        yield


# ---- how many threads ----


def test_threads_of_the_environment_are_a_limit(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = default_threads()
    assert cores == len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores >= 1
    for text, expected in (("1", 1), ("1,4", 1), ("100000", cores), ("", cores), ("0", cores), ("many", cores)):
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        assert default_threads() == expected
    monkeypatch.delenv("OMP_NUM_THREADS")
    with threads_at_most(1):
        assert default_threads() == 1
    assert default_threads() == cores


@dataclasses.dataclass
class Asked:
    threads: np.ndarray


def ask(b):
    return Asked(np.full(len(b), default_threads()))


def test_tasks_in_processes_divide_the_cores(monkeypatch):
    monkeypatch.setattr("stepwell.common.threads.available_cores", lambda: 8)
    monkeypatch.setattr("multiprocessing.parent_process", lambda: "another")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for workers, blocks, expected in ((4, 10, 2), (4, 2, 4), (16, 10, 1)):
        with dask.config.set(num_workers=workers):
            asked = over_systems(ask, {"b": (da.zeros((10, 3), chunks=(10 // blocks, 3)), "m")}, {})
            assert set(np.asarray(asked.threads)) == {expected}


# ---- workers ----


def test_a_batch_in_delayed_pieces_has_the_bits_of_one_batch():
    starts = random.normal(size=(12, 4))

    def fun(x):
        a, b = 1 - x[:, ::2], x[:, 1::2] - x[:, ::2] ** 2
        gradient = np.empty_like(x)
        gradient[:, ::2], gradient[:, 1::2] = -2 * a - 400 * x[:, ::2] * b, 200 * b
        return (a**2 + 100 * b**2).sum(axis=1), gradient

    whole = stepwell.minimize_batch(fun, starts, jac=True)
    solve = dask.delayed(functools.partial(stepwell.minimize_batch, fun, jac=True))
    pieces = dask.compute(*(solve(part) for part in np.array_split(starts, 5)), scheduler="threads")
    np.testing.assert_array_equal(np.concatenate([piece.x for piece in pieces]), whole.x)
    np.testing.assert_array_equal(np.concatenate([piece.nit for piece in pieces]), whole.nit)


@pytest.mark.slow
def test_from_zarr_to_zarr_with_a_worker_killed():
    pytest.importorskip("distributed")
    pytest.importorskip("zarr")
    program = Path(__file__).resolve().parents[2] / "examples" / "larger_than_memory.py"
    if not program.exists():
        pytest.skip("the examples are not part of this copy")
    command = [sys.executable, str(program), "--systems", "50000", "--block", "2500"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "killed the worker" in done.stdout
    assert "same bits as a direct call: True" in done.stdout


def test_a_worker_divides_its_cores_among_its_threads(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("stepwell.common.threads.available_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=4, processes=False, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        asked = over_systems(ask, {"b": (da.zeros((10, 3), chunks=(2, 3)), "m")}, {})
        assert set(client.compute(asked.threads).result()) == {2}
