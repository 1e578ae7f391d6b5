"""Starts: a fresh process with no kernel on disk, and one with the kernels there."""

from __future__ import annotations

import json
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


#: Uses of kernels as a user meets them: PyTorch is imported and has used the device, Stepwell is imported. Each in a
#: process of its own, forked from one that has imported PyTorch and nothing else: that alone takes seconds. For each
#: line that it reads, it writes the seconds from the call until the device is done, or why there are none. Bytecode of
#: modules is kept from one process to the next, as it is wherever an installation can be written to or comes with it.
_USES = """
import json, os, pathlib, sys, tempfile, time
import torch
bytecode = tempfile.TemporaryDirectory()
sys.pycache_prefix, sys.dont_write_bytecode = bytecode.name, False

def use(name, cache, shipped):
    os.environ["STEPWELL_CACHE"] = cache
    double = name != "free float32"
    x = torch.full((100000,), 2.0, device="cuda", dtype=torch.float64 if double else torch.float32)
    f, g = (x * x).sum(), 2 * x
    shape = {"nnls, one A": (56, 40), "nnls, own A": (1000, 200, 8), "lsq_linear, own A": (1000, 200, 8)}
    A = torch.rand(shape.get(name, (64, 60, 30)), device="cuda", dtype=torch.float64)
    b = torch.rand(A.shape[0] if A.ndim == 3 else 1000, A.shape[-2], device="cuda", dtype=torch.float64)
    torch.cuda.synchronize()
    import stepwell
    import stepwell.cuda.nvrtc
    if shipped:
        stepwell.cuda.nvrtc.shipped_folder = lambda: pathlib.Path(shipped)
    began = time.perf_counter()
    if name == "nothing but the driver's bindings":
        from cuda.bindings import driver
        driver.cuInit(0)
        driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
    elif name.startswith("nnls"):
        stepwell.nnls(A, b)
    elif name.startswith("lsq_linear"):
        stepwell.lsq_linear(A, b, bounds=(-0.1, 0.2))
    else:
        opt = stepwell.LBFGSB(x, (-3.0, 3.0) if double else None, m=10 if double else 5)
        opt.tell(f, g)
    torch.cuda.synchronize()
    return time.perf_counter() - began

for line in sys.stdin:
    if os.fork():
        if os.wait()[1]:
            print(json.dumps("its process died"), flush=True)
        continue
    try:
        answer = use(*json.loads(line))
    except BaseException as error:
        answer = repr(error)
    print(json.dumps(answer), flush=True)
    os._exit(0)
"""


class Uses:
    """Asks for uses of kernels, one after the other."""

    def __init__(self) -> None:
        # The compiler has a cache of its own.
        environment = os.environ | {"CUDA_CACHE_DISABLE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _USES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def seconds(self, name: str, cache: Path, shipped: Path | None = None) -> float | None:
        """Seconds of a kernel's use in a fresh process; None where it failed."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        asked.write(json.dumps([name, str(cache), str(shipped or "")]) + "\n")
        asked.flush()
        answer = json.loads(answers.readline())
        if isinstance(answer, float):
            return answer
        say(f"{name} left out: {answer}")
        return None

    def close(self) -> None:
        self._process.communicate()


def first_uses(repeats: int) -> dict[str, Any]:
    """Seconds of the first use in a fresh process: compiled there, with the kernel on disk, and with an empty cache
    where the kernel is part of the installation (`stepwell info --warm --ship` writes there what a cache holds).

    Beside them what every use of a kernel by the driver's bindings waits for: their import.
    """
    uses = Uses()
    figures: dict[str, Any] = {}
    small = ("nnls, one A", "nnls, own A", "lsq_linear, own A")
    for name in ("bounded float64", "free float32", *small, "nnls, all sizes"):
        with tempfile.TemporaryDirectory() as folder:
            cache, shipped = Path(folder) / "cache", Path(folder) / "_kernels"
            first = uses.seconds(name, cache)
            if first is None:
                continue
            shutil.copytree(cache, shipped)
            installed = uses.seconds(name, Path(folder) / "empty", shipped)
            # Taken in turns.
            alone = "nothing but the driver's bindings"
            rounds = [(uses.seconds(name, cache), uses.seconds(alone, cache)) for _ in range(repeats)]
        if installed is None or any(None in found for found in rounds):
            continue
        second, bindings = (statistics.median(row) for row in zip(*rounds))
        figures[name] = {
            "first": first,
            "second": second,
            "first, kernel of the installation": installed,
            alone: bindings,
            "rounds": rounds,
        }
        summarise(f"first use, {name}, compiled", first, "3 s", met=first < 3)
        summarise(f"first use, {name}, kernel of the installation", installed, "3 s", met=installed < 3)
        summarise(f"second use, {name}", second, "0.25 s", fraction=bindings / second, met=second < 0.25)
        say(
            f"{name}: first use {first:.2f} s, of a kernel of the installation {installed:.3f} s, "
            f"second {second:.3f} s, the driver's bindings alone {bindings:.3f} s"
        )
    uses.close()
    return figures


def start(quick: bool) -> dict[str, Any]:
    """A fresh process with the kernels on disk: seconds for the array library, the import, the set-up, the turn.

    The set-up is everything between the call and the first turn: bindings, checks, the kernel from disk, memory.
    """
    figures: dict[str, Any] = {"first use": first_uses(3 if quick else 7)}
    for library in () if quick else ("torch", "cupy"):
        runs = []
        for _ in range(4):
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
