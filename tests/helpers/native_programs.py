"""Small C++ programs that exercise the core on its own: built with a sanitizer, run, their output checked."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
POOL = ROOT / "src/host/common/pool.cpp"
MEMORY = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
THREADS = ["-fsanitize=thread"]


def build(folder, sources, flags):
    """Compile `sources` into a program in `folder`; skips where the compiler or a sanitizer's runtime is missing.

    Each source is compiled by itself, through ccache where that is installed: what did not change is there already.
    """
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), "g++", "c++", "clang++"))), None)
    if compiler is None:
        pytest.skip("no C++ compiler")
    program = folder / "program"
    command = [compiler, "-std=c++20", "-DSW_ISA=baseline", "-Wno-psabi", "-Wno-unknown-pragmas", "-pthread"]
    # Some systems' compilers check longjmp by default, which the emulated device uses between stacks.
    command += ["-U_FORTIFY_SOURCE", "-I", ROOT / "src", *flags]
    libraries = [flag for flag in flags if flag == "-shared"]
    cache = [found for found in [shutil.which("ccache")] if found]
    objects = [folder / f"{Path(source).stem}.o" for source in sources]
    steps = [
        [*cache, *(part for part in command if part not in libraries), "-c", source, "-o", made]
        for source, made in zip(sources, objects)
    ]
    for step in [*steps, [*command, *objects, "-o", program]]:
        # (In the same folder each time, which debugging symbols name.)
        out = subprocess.run(step, capture_output=True, text=True, cwd=ROOT)
        if out.returncode and ("cannot find" in out.stderr or "unsupported option" in out.stderr):
            pytest.skip(f"no runtime for {flags}")
        assert out.returncode == 0, out.stderr
    return program


def build_once(tmp_path_factory, sources, flags):
    """Build a program that several tests run; processes of one run of pytest share it."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder /= "program-" + hashlib.sha256(repr([*map(str, sources), *flags]).encode()).hexdigest()[:16]
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built").exists():
            build(folder, sources, flags)
            (folder / "built").touch()
    return folder / "program"


def output_of(program, *arguments):
    """What the program prints; it must end well and say nothing on stderr."""
    out = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=900)
    if "unexpected memory mapping" in out.stderr and shutil.which("setarch"):
        # ThreadSanitizer cannot place its shadow memory under some settings of address randomisation.
        out = subprocess.run(["setarch", "-R", program, *arguments], capture_output=True, text=True, timeout=900)
    if "unexpected memory mapping" in out.stderr or "failed to disable ASLR" in out.stderr:
        pytest.skip("ThreadSanitizer cannot run with this machine's address randomisation")
    assert out.returncode == 0, out.stdout + out.stderr
    # (Programs that change stacks are fine as long as nothing else is said.)
    said = [line for line in out.stderr.splitlines() if "doesn't fully support makecontext" not in line]
    assert said == []
    return out.stdout
