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
    "bare_iteration",
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

# What an iteration of a limited-memory method with m pairs and bounds cannot do without, on one thread, in whole
# vectors of the compiler's choosing. The history is read twice, since the direction needs sums over all of it.
_ITERATION = r"""
#include <algorithm>
// Every byte of 2m rows, and of six vectors more to be read and three to be written; then 2m rows again.
extern "C" double bytes(double* rows, double* vectors, long n, int pairs) {
    double total = 0;
    for (long begin = 0; begin < n; begin += 2048) {
        const long end = std::min(begin + 2048, n);
        for (int r = 0; r < 2 * pairs + 6; ++r) {
            const double* row = r < 2 * pairs ? rows + r * n : vectors + (r - 2 * pairs) * n;
            double sum = 0;
            for (long i = begin; i < end; ++i) sum += row[i];
            total += sum;
        }
        for (int r = 6; r < 9; ++r) std::fill(vectors + r * n + begin, vectors + r * n + end, 1.0);
    }
    for (long begin = 0; begin < n; begin += 2048) {
        const long end = std::min(begin + 2048, n);
        for (int r = 0; r < 2 * pairs; ++r) {
            double sum = 0;
            for (long i = begin; i < end; ++i) sum += rows[r * n + i];
            total += sum;
        }
    }
    return total;
}
// The same bytes with the arithmetic: the projected gradient, by which the end is known, and the variables that are
// free; the new pair; products of all rows with it and with the gradient over the free variables, a block of four rows
// at a time; the direction from all rows, the next point inside the bounds, and the slope towards it.
static void products(const double* rows, long n, const double* s, const double* y, const double* g, long count,
                     double* out) {
    double t[12] = {};
    const double *a = rows, *b = rows + n, *c = rows + 2 * n, *d = rows + 3 * n;
    for (long i = 0; i < count; ++i) {
        t[0] += a[i] * s[i], t[1] += b[i] * s[i], t[2] += c[i] * s[i], t[3] += d[i] * s[i];
        t[4] += a[i] * y[i], t[5] += b[i] * y[i], t[6] += c[i] * y[i], t[7] += d[i] * y[i];
        t[8] += a[i] * g[i], t[9] += b[i] * g[i], t[10] += c[i] * g[i], t[11] += d[i] * g[i];
    }
    for (int k = 0; k < 12; ++k) out[k] += t[k];
}
extern "C" double arithmetic(double* rows, double* vectors, long n, int pairs) {
    double *x = vectors, *g = x + n, *before = g + n, *d = before + n, *lower = d + n, *upper = lower + n,
           *s = upper + n, *y = s + n, *trial = y + n, out[12 * 64] = {}, largest = 0, slope = 0;
    const long block = 512;
    for (long begin = 0; begin < n; begin += block) {
        const long count = std::min(block, n - begin);
        double moving[block];
        for (long i = begin; i < begin + count; ++i) {
            const double way = x[i] - std::min(std::max(x[i] - g[i], lower[i]), upper[i]);
            largest = std::max(largest, way < 0 ? -way : way);
            moving[i - begin] = way == 0 ? 0 : g[i];
            s[i] = 0.5 * d[i], y[i] = g[i] - before[i];
        }
        for (int r = 0; r < 2 * pairs; r += 4)
            products(rows + r * n + begin, n, s + begin, y + begin, moving, count, out + 3 * r);
    }
    for (long begin = 0; begin < n; begin += block) {
        const long end = std::min(begin + block, n);
        double sum[block];
        for (long i = begin; i < end; ++i) sum[i - begin] = g[i];
        for (int r = 0; r < 2 * pairs; r += 8) {
            const double *p = rows + r * n, *c = out + r;
            for (long i = begin; i < end; ++i)
                sum[i - begin] += c[0] * p[i] + c[1] * p[n + i] + c[2] * p[2 * n + i] + c[3] * p[3 * n + i] +
                    c[4] * p[4 * n + i] + c[5] * p[5 * n + i] + c[6] * p[6 * n + i] + c[7] * p[7 * n + i];
        }
        for (long i = begin; i < end; ++i) {
            trial[i] = std::min(std::max(x[i] - sum[i - begin], lower[i]), upper[i]);
            d[i] = trial[i] - x[i];
            slope += d[i] * g[i];
        }
    }
    return largest + slope;
}
"""


def torch_gpu() -> dict[str, Any]:
    """The first GPU, with PyTorch's arrays on it."""
    return gpu_machine(open_place("torch", "cuda:0"))


def _compiled(source: str) -> ctypes.CDLL | None:
    """Return a library of C++ compiled for this very processor; None without a compiler."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return None
    folder = tempfile.mkdtemp()
    path, library = Path(folder) / "source.cpp", Path(folder) / "source.so"
    path.write_text(source)
    flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(path), "-o", str(library)], check=True)
    found = ctypes.CDLL(str(library))
    shutil.rmtree(folder)
    return found


def sweep_seconds(n: int, rows: int, threads: int) -> Callable[[], float] | None:
    """Make a function that times one bare sweep over `rows` vectors of length n; None without a C++ compiler."""
    library = _compiled(_SWEEP)
    if library is None:
        return None
    sweep = library.sweep
    sweep.restype = ctypes.c_double
    sweep.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]
    matrix, vector = np.ones((rows, n)), np.ones(n)
    return wall(lambda: sweep(matrix.ctypes.data, vector.ctypes.data, n, rows, threads))


def bare_iteration(n: int, pairs: int, *, arithmetic: bool) -> Callable[[], float]:
    """Make a function that does what no iteration with so many pairs of length n can do without, on one thread.

    It moves 4m + 9 words a variable: the history twice; the point, both gradients, the step and the bounds; the new
    pair and the next point. With `arithmetic` it also does with them what they are there for, 8m multiplications a
    variable. `pairs` is a multiple of four.
    """
    library = _compiled(_ITERATION)
    assert library is not None, "needs a C++ compiler"
    iterate = library.arithmetic if arithmetic else library.bytes
    iterate.restype = ctypes.c_double
    iterate.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_int]
    rows, vectors = np.full((2 * pairs, n), 1e-6), np.full((9, n), 1e-6)
    return lambda: float(iterate(rows.ctypes.data, vectors.ctypes.data, n, pairs))


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
