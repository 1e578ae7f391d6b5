"""Starts: a fresh process with no kernel on disk, and one with the kernels there."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gpu_parts.tools import say, summarise

_START = """
import sys, time
began = time.perf_counter()
library = sys.argv[1]
xp = __import__(library)
if library == "torch":
    x = xp.full((1000,), 2.0, device="cuda", dtype=xp.float64)
    wait = xp.cuda.synchronize
else:
    x = xp.full((1000,), 2.0)
    wait = xp.cuda.runtime.deviceSynchronize
fun = lambda x: ((x * x).sum(), 2 * x)
f, g = fun(x)
wait()
ready = time.perf_counter()
import stepwell
stepwell.LBFGSB  # imported only now
imported = time.perf_counter()
opt = stepwell.LBFGSB(x, (-3.0, 3.0), m=8)
made = time.perf_counter()
opt.tell(f, g)
wait()
turned = time.perf_counter()
print(ready - began, imported - ready, made - imported, turned - made)
"""


#: The first use of a kernel, as a user meets it: the array library is there and has used the device.
_FIRST = """
import pathlib, sys, time
import torch
import stepwell
import stepwell.cuda.nvrtc
name = sys.argv[1]
if len(sys.argv) > 2:
    stepwell.cuda.nvrtc.shipped_folder = lambda: pathlib.Path(sys.argv[2])
double = name != "free float32"
x = torch.full((100000,), 2.0, device="cuda", dtype=torch.float64 if double else torch.float32)
f, g = (x * x).sum(), 2 * x
shape = {"nnls, one A": (56, 40), "nnls, own A": (1000, 200, 8), "lsq_linear, own A": (1000, 200, 8)}
A = torch.rand(shape.get(name, (64, 60, 30)), device="cuda", dtype=torch.float64)
b = torch.rand(A.shape[0] if A.ndim == 3 else 1000, A.shape[-2], device="cuda", dtype=torch.float64)
torch.cuda.synchronize()
began = time.perf_counter()
if name.startswith("nnls"):
    stepwell.nnls(A, b)
elif name.startswith("lsq_linear"):
    stepwell.lsq_linear(A, b, bounds=(-0.1, 0.2))
else:
    opt = stepwell.LBFGSB(x, (-3.0, 3.0) if double else None, m=10 if double else 5)
    opt.tell(f, g)
torch.cuda.synchronize()
print(time.perf_counter() - began)
"""


#: What every use of a kernel through cuda.core waits for: its import, beside a library that has used the device.
_BINDINGS = """
import time
import torch
torch.ones(10, device="cuda").sum().item()
began = time.perf_counter()
import cuda.core
from cuda.bindings import driver
cuda.core.Device().set_current()
print(time.perf_counter() - began)
"""


def first_use(name: str, cache: Path, *shipped: str) -> float | None:
    """Seconds of a kernel's use in a fresh process; None where it failed."""
    # The compiler has a cache of its own.
    environment = os.environ | {"STEPWELL_CACHE": str(cache), "CUDA_CACHE_DISABLE": "1"}
    command = [sys.executable, "-c", _FIRST, name, *shipped]
    out = subprocess.run(command, capture_output=True, text=True, env=environment)
    if out.returncode:
        say(f"{name}: first use left out: {out.stderr.strip().splitlines()[-1]}")
        return None
    return float(out.stdout)


def first_uses() -> dict[str, Any]:
    """Seconds of the first use in a fresh process: compiled there, with the kernel on disk, and with an empty cache
    where the kernel is part of the installation (`stepwell info --warm --ship` writes there what a cache holds)."""
    command = [sys.executable, "-c", _BINDINGS]
    outs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(3)]
    bindings = min(map(float, outs))
    figures: dict[str, Any] = {"import of cuda.core": bindings}
    say(f"import of cuda.core: {bindings:.3f} s")
    small = ("nnls, one A", "nnls, own A", "lsq_linear, own A")
    for name in ("bounded float64", "free float32", *small, "nnls, all sizes"):
        with tempfile.TemporaryDirectory() as folder:
            cache, shipped = Path(folder) / "cache", Path(folder) / "_kernels"
            runs = [first_use(name, cache) for _ in range(3)]
            if None in runs:
                continue
            shutil.copytree(cache, shipped)
            both = [first_use(name, Path(folder) / f"empty{k}", str(shipped)) for k in range(2)]
        first, second, installed = runs[0], min(runs[1:]), min(both)
        figures[name] = {"first": first, "second": second, "first, kernel of the installation": installed}
        summarise(f"first use, {name}, compiled", first, "3 s", met=first < 3)
        summarise(f"first use, {name}, kernel of the installation", installed, "3 s", met=installed < 3)
        summarise(f"second use, {name}", second, "0.25 s", fraction=bindings / second, met=second < 0.25)
        say(
            f"{name}: first use {first:.2f} s, of a kernel of the installation {installed:.3f} s, second {second:.3f} s"
        )
    return figures


def start(quick: bool) -> dict[str, Any]:
    """A fresh process with the kernels on disk: seconds for the array library, the import, the set-up, the turn.

    The set-up is everything between the call and the first turn: cuda.core, checks, the kernel from disk, memory.
    """
    figures: dict[str, Any] = {"first use": first_uses()}
    for library in ("torch", "cupy"):
        runs = []
        for _ in range(2 if quick else 4):
            out = subprocess.run([sys.executable, "-c", _START, library], capture_output=True, text=True)
            if out.returncode:
                say(f"{library}: start left out: {out.stderr.strip().splitlines()[-1]}")
                break
            runs.append([float(word) for word in out.stdout.split()])
        if len(runs) < 2:
            continue
        parts = dict(zip(("library", "import", "set-up", "first turn"), map(statistics.median, zip(*runs[1:]))))
        own = parts["set-up"] + parts["first turn"]
        figures[library] = {"runs": runs, "parts": parts, "own": own}
        text = f"second start, {library} array: call to first turn (import {1e3 * parts['import']:.0f} ms)"
        summarise(text, own, "300 ms", met=own <= 0.3)
        say(f"start with {library}: " + ", ".join(f"{key} {1e3 * value:.0f} ms" for key, value in parts.items()))
    return figures
