"""Calls from several threads at once give the bits of one call after the other, with the GIL and without it."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import stepwell
from stepwell.apps import tomography, voronoi

CALLERS = 4


def _minimize(seed):
    target = np.random.default_rng(seed).normal(size=3000)

    def fun(x):
        difference = x - target
        return np.sum(difference**4), 4 * difference**3

    return stepwell.minimize(fun, np.zeros(3000), jac=True, bounds=(-1.0, 1.0), options={"maxiter": 20}).x


def _nnls(seed):
    rng = np.random.default_rng(seed)
    return stepwell.nnls(rng.random((30, 20)), rng.normal(size=(50, 30)), threads=2).x


def _pulses(seed):
    rng = np.random.default_rng(seed)
    pulses = rng.random((8, 9)).astype(np.float32)
    return stepwell.nnls(stepwell.Convolution(pulses, 60, origin=4), rng.random((8, 60)).astype(np.float32)).x


def _tikhonov(seed):
    A = tomography.parallel_beam(16, angles=np.arange(0, 180, 12.0))
    return stepwell.tikhonov(A, np.random.default_rng(seed).normal(size=(A.shape[0], 3)), 0.5).x


def _voronoi(seed):
    return voronoi.centroidal(30, resolution=48, seed=seed, maxiter=5).sites


@pytest.mark.parametrize("solve", [_minimize, _nnls, _pulses, _tikhonov, _voronoi])
def test_callers_do_not_disturb_each_other(solve):
    alone = [solve(seed) for seed in range(CALLERS)]
    for _ in range(3):
        with ThreadPoolExecutor(CALLERS) as callers:
            together = list(callers.map(solve, range(CALLERS)))
        for one, other in zip(alone, together):
            np.testing.assert_array_equal(one, other)


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python has a GIL")
def test_a_python_without_the_gil_stays_without_it():
    program = "import sys, stepwell._core; print(sys._is_gil_enabled())"
    run = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "False"
