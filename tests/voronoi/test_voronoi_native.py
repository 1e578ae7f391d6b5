"""The C++ of the Voronoi diagram under the sanitizers: many threads against one, a team of four against one."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest
from native_programs import MEMORY, POOL, ROOT, THREADS, build_once, output_of

from stepwell.apps.voronoi import assign, cvt_energy

pytestmark = pytest.mark.native


@pytest.fixture(scope="module", params=[MEMORY, THREADS], ids=["address", "thread"])
def program(request, tmp_path_factory):
    sources = [ROOT / "tests/native/voronoi_check.cpp", POOL]
    return build_once(tmp_path_factory, sources, ["-O1", *request.param])


@pytest.mark.parametrize("part", ["threads", "team"])
def test_teams_agree_bit_for_bit_without_races(program, part):
    lines = [json.loads(line) for line in output_of(program, part).splitlines()]
    assert lines
    assert all(value == 1 for line in lines for value in line.values()), lines


@pytest.fixture(scope="module")
def device_program(tmp_path_factory):
    pytest.importorskip("resource", reason="no ucontext.h outside Unix")
    return build_once(tmp_path_factory, [ROOT / "tests/native/voronoi_device.cpp"], ["-O1"])


@pytest.mark.parametrize(
    ("height", "width", "count", "spread"),
    [
        (5, 9, 1, 1.0),
        (13, 17, 221, 1.0),
        (40, 61, 90, 1.0),
        (70, 33, 1500, 1.0),
        (50, 40, 200, 0.05),
        (30, 30, 40, 0.0),
    ],
)
def test_the_kernels_of_a_device_agree_with_the_cpu(device_program, height, width, count, spread):
    """The CUDA source itself, run thread by thread: owners and energies are the CPU's, gradients to rounding."""
    rng = np.random.default_rng(count)
    shape, side = (height, width), max(height, width)
    sites = rng.random((count, 2)) * np.array([width, height]) / side * spread
    image = rng.integers(0, 2**24, shape) * (rng.random(shape) < 0.7)
    data = np.array([*shape, count], np.int64).tobytes() + sites.tobytes() + image.astype(np.float32).tobytes()
    out = subprocess.run([device_program], input=data, capture_output=True, check=True).stdout
    pixels, offset = height * width, 0
    for method in ("exact", "jump-flooding"):
        owners = np.frombuffer(out, np.int32, pixels, offset).reshape(shape)
        energy = np.frombuffer(out, np.float64, 1, offset + 4 * pixels)[0]
        gradient = np.frombuffer(out, np.float64, 2 * count, offset + 4 * pixels + 8).reshape(count, 2)
        offset += 4 * pixels + 8 + 16 * count
        np.testing.assert_array_equal(owners, assign(sites, shape, method=method).owners)
        f, g = cvt_energy(sites, image, method=method)
        assert energy / side**4 == pytest.approx(f, rel=1e-14)
        np.testing.assert_allclose(gradient / side**3, g, rtol=0, atol=1e-14 * np.abs(g).max())
        kept = np.frombuffer(out, np.float64, 2, len(out) - 16)
        assert energy in kept


def test_sites_that_are_nowhere_own_nothing_on_a_device(device_program):
    """No pixel has an owner, the energy is not a number, and nothing is written where no site has its moments."""
    height, width, count = 20, 30, 3
    data = np.array([height, width, count], np.int64).tobytes() + np.full((count, 2), np.nan).tobytes()
    data += np.ones((height, width), np.float32).tobytes()
    out = subprocess.run([device_program], input=data, capture_output=True, check=True).stdout
    for offset in (0, 4 * height * width + 8 + 16 * count):
        assert np.all(np.frombuffer(out, np.int32, height * width, offset) == -1)
        assert np.isnan(np.frombuffer(out, np.float64, 1, offset + 4 * height * width)[0])
