"""The C++ of the Voronoi diagram under the sanitizers: many threads against one, a team of four against one."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from stepwell.apps.voronoi import assign, cvt_energy

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.native


@pytest.fixture(
    scope="module",
    params=[
        ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
        ["-O1", "-fsanitize=thread"],
    ],
    ids=["address", "thread"],
)
def program(request, tmp_path_factory):
    compiler = next(filter(None, map(shutil.which, ("g++", "c++", "clang++"))), None)
    if compiler is None:
        pytest.skip("no C++ compiler")
    found = tmp_path_factory.mktemp("native") / "voronoi_check"
    command = [compiler, "-std=c++20", "-DSW_ISA=baseline", "-Wno-psabi", "-pthread", "-I", ROOT / "src"]
    source = ROOT / "tests/native/voronoi_check.cpp"
    out = subprocess.run([*command, *request.param, source, "-o", found], capture_output=True, text=True)
    if out.returncode and ("cannot find" in out.stderr or "unsupported option" in out.stderr):
        pytest.skip(f"no runtime for {request.param}")
    assert out.returncode == 0, out.stderr
    return found


@pytest.mark.parametrize("part", ["threads", "crew"])
def test_teams_agree_bit_for_bit_without_races(program, part):
    out = subprocess.run([program, part], capture_output=True, text=True)
    if "unexpected memory mapping" in out.stderr and shutil.which("setarch"):
        # ThreadSanitizer cannot place its shadow memory under some settings of address randomisation.
        out = subprocess.run(["setarch", "-R", program, part], capture_output=True, text=True)
    if "unexpected memory mapping" in out.stderr or "failed to disable ASLR" in out.stderr:
        pytest.skip("ThreadSanitizer cannot run with this machine's address randomisation")
    assert out.returncode == 0, out.stderr
    assert out.stderr == ""
    lines = [json.loads(line) for line in out.stdout.splitlines()]
    assert lines
    assert all(value == 1 for line in lines for value in line.values()), lines


@pytest.fixture(scope="module")
def device_program(tmp_path_factory):
    compiler = next(filter(None, map(shutil.which, ("g++", "c++", "clang++"))), None)
    if compiler is None:
        pytest.skip("no C++ compiler")
    found = tmp_path_factory.mktemp("native") / "voronoi_device"
    command = [compiler, "-std=c++20", "-O1", "-Wno-psabi", "-I", ROOT / "src"]
    out = subprocess.run(
        [*command, ROOT / "tests/native/voronoi_device.cpp", "-o", found], capture_output=True, text=True
    )
    if out.returncode and "ucontext.h" in out.stderr:
        pytest.skip("no ucontext.h")
    assert out.returncode == 0, out.stderr
    return found


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
