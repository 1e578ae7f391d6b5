"""The C++ of the Voronoi diagram under the sanitizers: many threads against one, a team of four against one."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

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
