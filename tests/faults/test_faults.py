"""Memory, threads and files that the system refuses, one after the other, in every public call: see injected.py."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the shim is written for glibc"),
]


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), "g++", "c++", "clang++"))), None)
    if compiler is None:
        pytest.skip("no C++ compiler")
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    command = [compiler, "-std=c++20", "-O1", "-shared", "-fPIC", HERE / "faults.cpp", "-o", library, "-ldl"]
    out = subprocess.run(command, capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    return library


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        *((kind, ["--every", "9"]) for kind in ("module-memory", "array-memory", "threads", "files")),
        # A list read by nanobind, whose refused memory ended the process.
        ("module-memory", ["--all", "minimize_by_ranks"]),
    ],
    ids=["module-memory", "array-memory", "threads", "files", "ranks"],
)
def test_whatever_is_refused(kind, what, shim):
    """A selection; ``--all`` goes through each of them."""
    if "libasan" in os.environ.get("LD_PRELOAD", "") or "libtsan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("a sanitizer has an allocator of its own")
    command = [sys.executable, HERE / "injected.py", "--kind", kind, *what]
    # Faults are for Stepwell: an OpenBLAS whose threads are refused waits for them for ever.
    env = os.environ | {"LD_PRELOAD": shim, "OPENBLAS_NUM_THREADS": "1"}
    out = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert out.returncode == 0, out.stdout + out.stderr
    assert out.stdout.endswith("all hold\n")
    assert "Traceback" not in out.stderr
