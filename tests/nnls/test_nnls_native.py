"""The solver's source under sanitizers: a crew of threads shows races, one thread shows stray memory."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[2]
COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(not COMPILER, reason="no C++ compiler"),
    pytest.mark.skipif(not (ROOT / "src" / "core").is_dir(), reason="not a checkout: the C++ sources are elsewhere"),
]


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_crew(sanitizer, tmp_path):
    program = tmp_path / "crew_race"
    options = ["-std=c++20", "-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-pthread"]
    built = subprocess.run(
        [COMPILER, *options, f"-I{ROOT / 'src'}", str(ROOT / "tests/nnls/crew_race.cpp"), "-o", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode and "sanitize" in built.stderr:
        pytest.skip(f"the compiler has no -fsanitize={sanitizer}")
    assert built.returncode == 0, built.stderr
    run = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=120)
    if "unexpected memory mapping" in run.stderr:
        pytest.skip("ThreadSanitizer cannot map its memory on this kernel")
    assert run.returncode == 0, run.stdout + run.stderr[-4000:]
