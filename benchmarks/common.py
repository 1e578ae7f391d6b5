"""What the benchmarks share: a description of the machine, interleaved medians, memory bandwidth, results as JSON."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.studies.measure import Recorder, gpu_machine, interleave, machine, medians, wall
from stepwell.studies.places import open_place

__all__ = [
    "Recorder",
    "interleave",
    "machine",
    "medians",
    "save",
    "sweep_seconds",
    "table",
    "torch_gpu",
    "wall",
]

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


def torch_gpu() -> dict[str, Any]:
    """The first GPU, with PyTorch's arrays on it."""
    return gpu_machine(open_place("torch", "cuda:0"))


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
