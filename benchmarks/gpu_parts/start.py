"""A second start: a fresh process with the kernels on disk."""

from __future__ import annotations

import statistics
import subprocess
import sys
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


def start(quick: bool) -> dict[str, Any]:
    """A fresh process with the kernels on disk: seconds for the array library, the import, the set-up, the turn.

    The set-up is everything between the call and the first turn: cuda.core, checks, the kernel from disk, memory.
    """
    figures: dict[str, Any] = {}
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
