"""Small C++ programs that exercise the core on its own: built with a sanitizer, run, their output checked."""

from __future__ import annotations

import contextlib
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


def build(folder, sources, flags, shared=None):
    """Compile `sources` into a program in `folder`; skips where the compiler or a sanitizer's runtime is missing.

    Each source is compiled by itself, through ccache where that is installed: what did not change is there already.
    Objects are made in the folder `shared`, where there is one, and taken from it by all programs with these flags.
    """
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), "g++", "c++", "clang++"))), None)
    if compiler is None:
        pytest.skip("no C++ compiler")
    program = folder / "program"
    command = [compiler, "-std=c++20", "-DSW_ISA=baseline", "-Wno-psabi", "-Wno-unknown-pragmas", "-pthread"]
    # Some systems' compilers check longjmp by default, which the emulated device uses between stacks.
    command += ["-U_FORTIFY_SOURCE", "-I", ROOT / "src", *flags]
    compiling = [part for part in command if part != "-shared"]
    cache = [found for found in [shutil.which("ccache")] if found]

    def run(step):
        # (In the same folder each time, which debugging symbols name.)
        out = subprocess.run(step, capture_output=True, text=True, cwd=ROOT)
        if out.returncode and ("cannot find" in out.stderr or "unsupported option" in out.stderr):
            pytest.skip(f"no runtime for {flags}")
        assert out.returncode == 0, out.stderr

    objects = []
    for source in map(Path, sources):
        made = (folder if shared is None else shared / _digest(source, flags)) / f"{source.stem}.o"
        with _alone(made.parent):
            if shared is None or not made.exists():
                run([*cache, *compiling, "-c", source, "-o", made.with_suffix(".part")])
                made.with_suffix(".part").replace(made)
        objects.append(made)
    run([*command, *objects, "-o", program])
    return program


def build_once(tmp_path_factory, sources, flags):
    """Build a program that several tests run; processes of one run of pytest share it, and objects with others."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder = base / f"program-{_digest(sources, flags)}"
    with _alone(folder):
        if not (folder / "built").exists():
            build(folder, sources, flags, base)
            (folder / "built").touch()
    return folder / "program"


def _digest(what, flags):
    return hashlib.sha256(repr([str(what), *map(str, flags)]).encode()).hexdigest()[:16]


@contextlib.contextmanager
def _alone(folder):
    """Make a folder, and be the only process that works there."""
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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
