"""The fused kernel of compiled models: it compiles for every architecture, decides as the host does, and on a device
finds what the host finds."""

from __future__ import annotations

import ctypes
import json

import numpy as np
import pytest
from device_arrays import on_device, on_host
from native_programs import ROOT, build_once, output_of

import stepwell
from stepwell import _core, models
from stepwell.cuda import nvrtc
from stepwell.cuda.layouts import structure
from stepwell.fit.models import cuda
from stepwell.fit.models.graph import ONE, TWO

KERNELS = {
    "decays": (models.exponentials(2), False, 32, {}),
    "spots": (models.gaussian2d(), True, 25, {"across": 5}),
    "large spots": (models.gaussian2d(elliptical=True), True, 400, {"across": 20}),
    "waveforms": (models.gaussians(3), True, 200, {}),
    "weights, own points": (models.ivim(), False, 16, {"weighted": True, "own_x": True}),
    "many points": (models.lorentzians(1, offset=True), False, 5000, {"weighted": True}),
    "robust": (models.tofts(extended=True), False, 40, {"loss": 2}),
    "counts": (models.pseudo_voigts(1), True, 64, {"loss": 5}),
    "polynomial": (models.polynomial_peak(2), False, 64, {}),
    "expression": (models.expression("a*exp(-k*t)*erf(w*t) + abs(c)**b", "t"), True, 32, {}),
}


@pytest.mark.kernels
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("name", KERNELS)
def test_the_kernel_compiles_without_a_device(name, architecture, tmp_path, monkeypatch):
    if architecture != "sm_90" and name not in ("decays", "expression"):
        pytest.skip("one architecture is enough for the models themselves")
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path))
    model, single, points, more = KERNELS[name]
    try:
        code = nvrtc.compile_kernel("fit_model", cuda.kernel_defines(model, single, points, **more), architecture)
    except ImportError as error:
        pytest.skip(str(error))
    except Exception as error:
        if "DynamicLibNotFound" in type(error).__name__:
            pytest.skip(f"NVRTC is not installed: {error}")
        raise
    assert b"fit_model" in code


def test_the_launch_has_the_layout_that_the_kernel_reads():
    launch = structure("FitLaunch")
    assert launch.queue.offset == ctypes.sizeof(structure("FitModelJob"))


def test_models_and_operations_have_the_core_s_numbers():
    assert set(cuda.TEMPLATES) == set(_core.FIT_MODELS)
    assert set(_core.FIT_OPERATIONS) == {*ONE, *TWO}
    assert sorted(_core.FIT_OPERATIONS.values()) == list(range(len(ONE) + len(TWO)))


def test_data_are_staged_where_two_blocks_have_room():
    assert cuda.staged_bytes(True, 25, False) == 25 * 32 * 4
    assert cuda.staged_bytes(False, 5000, True) == 0
    for single, points in ((True, 200), (False, 100)):
        assert 2 * (cuda.staged_bytes(single, points, False) * cuda.THREADS // 32 + 1024) <= 228 * 1024


@pytest.mark.native
def test_the_kernel_decides_as_the_turn_of_one_problem(tmp_path_factory):
    """The CUDA source itself, run thread by thread: every problem is drawn and written, and ends as it does alone."""
    pytest.importorskip("resource", reason="no ucontext.h outside Unix")
    program = build_once(tmp_path_factory, [ROOT / "tests/native/fit_device.cpp"], ["-O1", "-I", ROOT / "tests/native"])
    found = json.loads(output_of(program))
    assert found["unwritten"] == 0
    assert found["status"] == 0
    assert found["converged"] == 302  # 30 have a NaN, one has no points
    assert found["at_bounds"] > 50
    # Sums in another order change a few counts, and costs by the tolerance.
    assert found["evaluations"] <= 10
    assert found["cost"] < 1e-9


def decays(problems=500):
    rng = np.random.default_rng(8)
    t = np.linspace(0, 3, 32)
    p = rng.uniform([0.3, 0.3, 0.3, 3.0], [1.0, 1.0, 1.2, 8.0], (problems, 4))
    y = models.exponentials(2)(t, *(p[:, k : k + 1] for k in range(4))) + 0.01 * rng.standard_normal((problems, 32))
    return t, y, np.array([0.5, 0.5, 0.5, 5.0])


@pytest.mark.cuda
@pytest.mark.parametrize("library", ["torch", "cupy", "jax"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_device_finds_what_the_host_finds(library, dtype):
    pytest.importorskip(library)
    if library == "jax" and dtype == np.float64:
        pytest.skip("needs x64")
    t, y, start = decays()
    t, y, start = t.astype(dtype), y.astype(dtype), start.astype(dtype)
    y[3, 4] = np.nan
    box = ([0, 0, 0.01, 0.01], [5, 5, 50, 50])
    model = models.exponentials(2)
    found = stepwell.curve_fit(model, t, on_device(library, y), start, bounds=box)
    wanted = stepwell.curve_fit(model, t, y, start, bounds=box)
    status = on_host(found.status)
    assert status[3] == wanted.status[3] == stepwell.FitStatus.NON_FINITE_START
    both = (status > 0) & (wanted.status > 0)
    assert both.mean() > 0.97
    tolerance = 1e-9 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(on_host(found.cost)[both], wanted.cost[both], rtol=tolerance)
    np.testing.assert_allclose(on_host(found.stderr)[both], wanted.stderr[both], rtol=0.05)


@pytest.mark.cuda
@pytest.mark.parametrize(
    "how",
    [
        {"sigma": np.linspace(0.5, 2, 32)},
        {"mask": np.arange(32) % 4 != 1},
        {"loss": "huber", "f_scale": 0.02},
        {"fixed": ["k1"]},
        {"uncertainty": None},
        {"nan_policy": "omit"},
    ],
    ids=lambda how: " ".join(how),
)
def test_options_on_a_device(how):
    pytest.importorskip("torch")
    t, y, start = decays()
    y[5, :3] = np.nan
    model = models.expression("a*exp(-k1*t) + b*exp(-k2*t)", "t")
    start, box = start[[0, 2, 1, 3]], ([0, 0.01, 0, 0.01], [5, 50, 5, 50])
    found = stepwell.curve_fit(model, t, on_device("torch", y), start, bounds=box, **how)
    wanted = stepwell.curve_fit(model, t, y, start, bounds=box, **how)
    status = on_host(found.status)
    np.testing.assert_array_equal(status > 0, wanted.status > 0)
    good = status > 0
    np.testing.assert_allclose(on_host(found.cost)[good], wanted.cost[good], rtol=1e-8)
    np.testing.assert_array_equal(on_host(found.active_mask)[good], wanted.active_mask[good])
