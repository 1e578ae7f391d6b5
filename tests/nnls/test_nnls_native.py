"""The solver's source under sanitizers: threads as crew members, and as lanes of the branches a device takes."""

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


@pytest.mark.parametrize(
    ("program", "sanitizer"),
    [
        ("crew_race", "thread"),
        ("crew_race", "address,undefined"),
        ("device_branches", "thread"),
        ("device_branches", "address,undefined"),
    ],
)
def test_under_a_sanitizer(program, sanitizer, tmp_path):
    binary = tmp_path / program
    options = ["-std=c++20", "-O1", "-g", f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", "-pthread"]
    options += ["-Wno-psabi", "-Wno-unknown-pragmas", f"-I{ROOT / 'src'}"]
    source = ROOT / "tests" / "nnls" / f"{program}.cpp"
    built = subprocess.run(
        [COMPILER, *options, str(source), "-o", str(binary)], capture_output=True, text=True, check=False
    )
    if built.returncode and "sanitize" in built.stderr:
        pytest.skip(f"the compiler has no -fsanitize={sanitizer}")
    assert built.returncode == 0, built.stderr
    run = subprocess.run([str(binary)], capture_output=True, text=True, check=False, timeout=120)
    if "unexpected memory mapping" in run.stderr:
        pytest.skip("ThreadSanitizer cannot map its memory on this kernel")
    assert run.returncode == 0, run.stdout + run.stderr[-4000:]
