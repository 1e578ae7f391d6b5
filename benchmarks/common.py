"""What the benchmarks share: a description of the machine, interleaved medians, memory bandwidth, results as JSON."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from threadpoolctl import threadpool_info

import stepwell
from stepwell import _core

RESULTS = Path(__file__).parent / "results"

# A bare sweep: the dot products of all rows with one vector, each thread on its own range, eight partial sums a row.
_SWEEP = r"""
#include <omp.h>
extern "C" double sweep(const double* rows, const double* v, long n, int count, int threads) {
    double total = 0;
#pragma omp parallel for num_threads(threads) reduction(+ : total) schedule(static)
    for (long block = 0; block < (n + 2047) / 2048; ++block) {
        const long begin = block * 2048, end = begin + 2048 < n ? begin + 2048 : n;
        for (int r = 0; r < count; ++r) {
            const double* row = rows + r * n;
            double sum = 0;
#pragma omp simd reduction(+ : sum)
            for (long i = begin; i < end; ++i) sum += row[i] * v[i];
            total += sum;
        }
    }
    return total;
}
"""


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> dict[str, Any]:
    """Describe where and with what the figures were taken."""
    model = platform.processor()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    libraries = {f"{lib['internal_api']} {lib['version']}": lib["num_threads"] for lib in threadpool_info()}
    return {
        "cpu": model,
        "cores": cores(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "stepwell": stepwell.__version__,
        "instructions": _core.isa(),
        "thread libraries": libraries,
        "load average at start": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d"),
    }


def interleave(repeats: int, **runs: Callable[[], float]) -> dict[str, list[float]]:
    """Run every function in turn, `repeats` times round, so that a busy moment falls on all of them alike."""
    seen: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            seen[name].append(run())
    return seen


def medians(seen: dict[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in seen.items()}


def wall(run: Callable[[], Any]) -> Callable[[], float]:
    """Make a function that runs `run` and returns its seconds."""

    def timed() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return timed


class Recorder:
    """An objective that notes when each call began and ended: the gaps between calls are the solver's time."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun
        self.began: list[float] = []
        self.ended: list[float] = []

    def __call__(self, *args: Any) -> Any:
        self.began.append(time.perf_counter())
        out = self.fun(*args)
        self.ended.append(time.perf_counter())
        return out

    @property
    def seconds(self) -> float:
        return sum(self.ended) - sum(self.began)

    def between(self, first: int) -> float:
        """Return the solver's time between call number `first` and the last."""
        return sum(self.began[first + 1 :]) - sum(self.ended[first:-1])


def sweep_seconds(n: int, rows: int, threads: int) -> Callable[[], float] | None:
    """Make a function that times one bare sweep over `rows` vectors of length n; None without a C++ compiler."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return None
    folder = tempfile.mkdtemp()
    source, library = Path(folder) / "sweep.cpp", Path(folder) / "sweep.so"
    source.write_text(_SWEEP)
    flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(source), "-o", str(library)], check=True)
    sweep = ctypes.CDLL(str(library)).sweep
    sweep.restype = ctypes.c_double
    sweep.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]
    shutil.rmtree(folder)
    matrix, vector = np.ones((rows, n)), np.ones(n)
    return wall(lambda: sweep(matrix.ctypes.data, vector.ctypes.data, n, rows, threads))


def save(name: str, part: str, figures: Any) -> None:
    """Put the figures of one part into benchmarks/results/NAME.json, with the machine they come from."""
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    kept = json.loads(path.read_text()) if path.exists() else {}
    kept[part] = {"machine": machine(), "figures": figures}
    path.write_text(json.dumps(kept, indent=1) + "\n")


def table(head: list[str], rows: list[list[Any]]) -> None:
    """Print a table as Markdown, ready for docs/performance.md."""
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(f"{x:.3g}" if isinstance(x, float) else str(x) for x in row) + " |")
    print(flush=True)
