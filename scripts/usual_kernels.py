#!/usr/bin/env python3
"""Compile the GPU kernels of usual calls into an installation while it is built; CMake calls it (docs/gpu.md).

    python scripts/usual_kernels.py build FOLDER [WHICH]    # WHICH: auto (default), off, or sm_90 sm_100
    python scripts/usual_kernels.py list                    # after a change of what is usual: usual_kernels.json anew

A build knows neither NumPy nor CUDA's Python packages, so this needs the standard library alone: kernels are those of
usual_kernels.json, and the compiler is NVRTC's library, or nvcc. Architectures are those of the GPUs that nvidia-smi
lists. A kernel that is not compiled, or not in time, is compiled at its first use; nothing here fails a build.
STEPWELL_KERNELS in the environment is WHICH, STEPWELL_KERNELS_SECONDS how long all may take (60).
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIST = Path(__file__).with_suffix(".json")
#: Solvers whose kernels are compiled first, should time not suffice for all.
FIRST = ("quasi_newton", "nnls_small", "nnls_share", "tv_sweeps", "tv_resident", "sparse_product")
#: Compilers at a time: one takes half a gigabyte.
MOST = 16

sys.path.insert(0, str(ROOT / "src/stepwell/cuda"))
import entries  # noqa: E402


def usual_kernels() -> list[list[Any]]:
    """Return the common kernels, each a source and its definitions, in the order of the list: asks Stepwell."""
    sys.path.pop(0)
    from stepwell.cli.warming import common_kernels

    place = {name: number for number, name in enumerate(FIRST)}
    return [list(kernel) for kernel in sorted(common_kernels(), key=lambda kernel: place.get(kernel[0], len(FIRST)))]


# ---- compilers ------------------------------------------------------------------------------------------------------


def toolkits() -> list[Path]:
    """Return folders in which CUDA may be installed."""
    nvcc = shutil.which("nvcc")
    named = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    named += [str(Path(nvcc).resolve().parent.parent) if nvcc else None, "/usr/local/cuda"]
    return [Path(name) for name in named if name]


def nvrtc_libraries() -> list[str]:
    """Return where NVRTC may be: in toolkits, in packages of this Python's environment, where the loader looks."""
    packages = {*sys.path, sysconfig.get_path("purelib")}
    places = [str(toolkit / "lib64") for toolkit in toolkits()]
    places += [f"{package}/nvidia/{part}/lib" for package in packages for part in ("cu13", "cuda_nvrtc")]
    found = [path for place in places for path in sorted(glob.glob(f"{place}/libnvrtc.so.1[0-9]"))]
    return [*found, "libnvrtc.so.13", "libnvrtc.so.12"]


def load_nvrtc(path: str) -> tuple[ctypes.CDLL, str] | None:
    """Return the library and its version."""
    try:
        nvrtc = ctypes.CDLL(path)
    except OSError:
        return None
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return nvrtc, f"{major.value}.{minor.value}"


def find_compiler() -> tuple[str, str] | None:
    """Return NVRTC's library or nvcc, and its version."""
    for path in nvrtc_libraries():
        loaded = load_nvrtc(path)
        if loaded is not None:
            return path, loaded[1]
    for nvcc in (shutil.which("nvcc"), *(str(toolkit / "bin/nvcc") for toolkit in toolkits())):
        if nvcc and os.access(nvcc, os.X_OK):
            said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=20).stdout
            version = re.search(r"V(\d+\.\d+)", said)
            if version:
                return nvcc, version[1]
    return None


def architectures_here() -> list[str]:
    """Return the architectures of the GPUs that are here, such as ``sm_90``."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    asked = [command, "--query-gpu=compute_cap", "--format=csv,noheader"]
    said = subprocess.run(asked, capture_output=True, text=True, timeout=20).stdout
    return sorted({f"sm_{major}{minor}" for major, minor in re.findall(r"^\s*(\d+)\.(\d+)\s*$", said, re.MULTILINE)})


# ---- one kernel, in a process of its own ----------------------------------------------------------------------------


def options_of(defines: dict[str, Any], architecture: str) -> list[str]:
    """Return the options that NVRTC and nvcc have in common."""
    macros = [f"-D{key}={value}" for key, value in defines.items()]
    return [f"-std={entries.STANDARD}", f"-arch={architecture}", f"-I{ROOT / 'src'}", *macros]


def compile_by_nvrtc(library: str, name: str, defines: dict[str, Any], architecture: str, out: str) -> None:
    """Compile one kernel by NVRTC's library; raises where it cannot."""
    loaded = load_nvrtc(library)
    assert loaded is not None
    nvrtc, _ = loaded

    def checked(error: int) -> None:
        if error:
            raise RuntimeError(f"NVRTC's error {error}")

    options = [*options_of(defines, architecture), "--device-as-default-execution-space"]
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    source = entries.source_of(name, ROOT / "src").read_bytes()
    checked(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"kernel.cu", 0, None, None))
    array = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    checked(nvrtc.nvrtcCompileProgram(program, len(options), array))
    checked(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
    code = ctypes.create_string_buffer(size.value)
    checked(nvrtc.nvrtcGetCUBIN(program, code))
    Path(out).write_bytes(code.raw)


def command_of(compiler: str, job: tuple[str, dict[str, Any], str], out: str) -> list[str]:
    """Return the command that compiles one kernel."""
    name, defines, architecture = job
    if "nvrtc" in Path(compiler).name:
        return [sys.executable, __file__, "one", compiler, json.dumps([name, defines, architecture]), out]
    source = str(entries.source_of(name, ROOT / "src"))
    return [compiler, "-cubin", *options_of(defines, architecture), "-o", out, source]


# ---- all of them ----------------------------------------------------------------------------------------------------


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_until(until: float, command: list[str]) -> None:
    """Run a command to its end, or end it and the processes that it has started in time."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, start_new_session=True, **quiet) as process:
        try:
            error = process.wait(until - time.monotonic())
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if error:
        raise subprocess.CalledProcessError(error, command)


def build(folder: Path, which: str) -> str:
    """Compile kernels into a folder; returns what was done, or why nothing was."""
    if which == "off":
        return "none, as asked for"
    architectures = re.findall(r"sm_\d+[af]?", which) or architectures_here()
    if not architectures:
        return "none: there is no GPU here (STEPWELL_KERNELS=sm_90 names one)"
    found = find_compiler()
    if found is None:
        return "none: neither NVRTC nor nvcc is here; each is compiled at its first use"
    compiler, version = found
    began = time.monotonic()
    until = began + float(os.environ.get("STEPWELL_KERNELS_SECONDS", "60"))
    jobs = [(name, defines, target) for name, defines in json.loads(LIST.read_text()) for target in architectures]

    def compile_one(job: tuple[str, dict[str, Any], str]) -> bool:
        if time.monotonic() >= until:
            return False
        name, defines, architecture = job
        source = entries.source_of(name, ROOT / "src").read_text()
        entry = f"{entries.entry_name(name, defines, architecture, source, ROOT / 'src')}-{version}.cubin"
        with tempfile.TemporaryDirectory() as work:
            out = Path(work) / "code"
            run_until(until, command_of(compiler, job, str(out)))
            code = out.read_bytes()
        part = folder / f"{entry}.part"  # whole, or not there
        part.write_bytes(code + entries.checksum(entry, code))
        part.rename(folder / entry)
        return True

    folder.mkdir(parents=True, exist_ok=True)
    done = 0
    with concurrent.futures.ThreadPoolExecutor(min(processors(), MOST)) as pool:
        for waiting in [pool.submit(compile_one, job) for job in jobs]:
            try:
                done += waiting.result()
            except (OSError, ValueError, subprocess.SubprocessError):
                continue
    seconds = time.monotonic() - began
    return f"{done} of {len(jobs)} for {', '.join(architectures)} by {compiler} {version}, {seconds:.0f} s"


def main() -> int:
    """Do what the command line says."""
    what, *given = sys.argv[1:]
    if what == "one":
        library, job, out = given
        compile_by_nvrtc(library, *json.loads(job), out)
    elif what == "list":
        lines = ",\n".join(json.dumps(kernel) for kernel in usual_kernels())
        LIST.write_text(f"[\n{lines}\n]\n")
    else:
        which = "".join(given[1:]) or os.environ.get("STEPWELL_KERNELS") or "auto"
        try:
            print("GPU kernels in the installation:", build(Path(given[0]), which), flush=True)
        except Exception as error:  # whatever it is, a build does without
            print(f"GPU kernels in the installation: none ({error!r})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
