"""Kernels that serve one study alone: compiled when it runs, so that nobody else's module carries them."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any


@functools.cache
def compiled(study: str, function: str) -> Any:
    """Compile ``host.cpp`` of a study's folder for this machine, in a few seconds, and return one of its functions."""
    from stepwell.cuda.nvrtc import source_folder

    compiler = next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), "c++", "g++", "clang++"))), None)
    if compiler is None:
        raise ValueError(
            f"the study {study} compiles its kernel and found no C++ compiler; allowed: g++, clang++ or $CXX"
        )
    headers = source_folder()
    native = ["-march=native", "-mprefer-vector-width=512"] if platform.machine() in ("x86_64", "AMD64") else []
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "kernel.so"
        command: list[str | Path] = [
            compiler, "-std=c++20", "-O3", *native, "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC",
            "-pthread", "-Wno-psabi", "-I", headers, Path(__file__).parent / study / "host.cpp",
            headers / "host/common/pool.cpp", "-o", library,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise ValueError(f"the study {study} could not compile its kernel with {compiler}:\n{done.stderr}")
        return getattr(ctypes.CDLL(str(library)), function)
