"""What the benchmarks share: a description of the machine, interleaved medians, memory bandwidth, results as JSON."""

from __future__ import annotations

import ctypes
import functools
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stepwell.arrays.places import open_place
from stepwell.lab.studies.measure import Recorder, gpu_machine, interleave, machine, medians, wall

__all__ = [
    "Recorder",
    "bare_iteration",
    "interleave",
    "machine",
    "medians",
    "save",
    "table",
    "torch_gpu",
    "wall",
]

RAW = Path(__file__).parent / "raw"

# What an iteration of a limited-memory method with m pairs and bounds cannot do without, on one thread. The history is
# read twice, since the direction needs sums over all of it; where all of eight neighbours are held at their bounds
# nothing of it is wanted, and only runs of the other packs of eight are read.
_ITERATION = r"""
#include <algorithm>
#if defined(__aarch64__)
#include <arm_neon.h>
#endif
#if defined(__AVX512F__)
#define WIDTH 64
#elif defined(__AVX__)
#define WIDTH 32
#else
#define WIDTH 16
#endif
typedef double V __attribute__((vector_size(WIDTH), aligned(8), may_alias));
static const long lanes = WIDTH / 8, block = 512;
static V& at(double* p) { return *reinterpret_cast<V*>(p); }
// Rows may be narrower. (By name for NEON: GCC 12 widens them one by one.)
static V at(float* p) {
#if defined(__aarch64__)
    return vcvt_f64_f32(vld1_f32(p));
#else
    typedef float F __attribute__((vector_size(WIDTH / 2), aligned(4), may_alias));
    return __builtin_convertvector(*reinterpret_cast<F*>(p), V);
#endif
}
static double total(V v) { double sum = 0; for (int i = 0; i < lanes; ++i) sum += v[i]; return sum; }
struct Runs { const long* ends; long count; };  // begin and end of each, none over the end of a block
// Every byte of 2m rows where variables are free, twice, and of six vectors to be read and three to be written.
template <class H>
static double row_sum(H* row, const Runs& runs) {  // of H itself: widening is arithmetic
    typedef H R __attribute__((vector_size(WIDTH < 32 ? WIDTH : 32), aligned(sizeof(H)), may_alias));
    const long width = sizeof(R) / sizeof(H);
    R sum = {}, other = {};
    for (long r = 0; r < runs.count; ++r)
        for (long i = runs.ends[2 * r]; i < runs.ends[2 * r + 1]; i += 8)
            for (long k = 0; k < 8; k += 2 * width) {
                sum += *reinterpret_cast<R*>(row + i + k);
                if (width < 8) other += *reinterpret_cast<R*>(row + i + k + width);
            }
    sum += other;
    double all = 0;
    for (int i = 0; i < width; ++i) all += sum[i];
    return all;
}
template <class H>
static double move(H* rows, double* vectors, long n, int pairs, const long* ends, const long* counts) {
    double sum = 0;
    for (int time = 0; time < 2; ++time) {
        const long* next = ends;
        for (long begin = 0; begin < n; begin += block) {
            const Runs runs{next, counts[begin / block]};
            const long all[2] = {begin, std::min(begin + block, n)};
            for (int r = 0; r < 2 * pairs; ++r) sum += row_sum(rows + r * n, runs);
            for (int r = 0; r < 6 && time == 0; ++r) sum += row_sum(vectors + r * n, Runs{all, 1});
            for (int r = 6; r < 9 && time == 0; ++r) std::fill(vectors + r * n + all[0], vectors + r * n + all[1], 1.0);
            next += 2 * runs.count;
        }
    }
    return sum;
}
// The same bytes with the arithmetic: the projected gradient, by which the end is known, and the variables that are
// free; the new pair; products of rows with it and with the gradient over the free variables, four rows at a time; the
// direction from all rows, the next point inside the bounds, and the slope towards it.
template <class H>
static void products(H* rows, long n, double* s, double* y, double* g, const Runs& runs, double* out) {
    V t[12] = {};
    for (long r = 0; r < runs.count; ++r)
        for (long i = runs.ends[2 * r]; i < runs.ends[2 * r + 1]; i += lanes)
            for (int k = 0; k < 4; ++k) {
                const V row = at(rows + k * n + i);
                t[k] += row * at(s + i), t[4 + k] += row * at(y + i), t[8 + k] += row * at(g + i);
            }
    for (int k = 0; k < 12; ++k) out[k] += total(t[k]);
}
template <class H>
static double iterate(H* rows, double* vectors, long n, int pairs, const long* ends, const long* counts) {
    double *x = vectors, *g = x + n, *before = g + n, *d = before + n, *lower = d + n, *upper = lower + n,
           *s = upper + n, *y = s + n, *trial = y + n, out[12 * 64] = {}, largest = 0, slope = 0;
    const long* next = ends;
    for (long begin = 0; begin < n; begin += block) {
        const long end = std::min(begin + block, n);
        double moving[block];
        for (long i = begin; i < end; ++i) {
            const double way = x[i] - std::min(std::max(x[i] - g[i], lower[i]), upper[i]);
            largest = std::max(largest, way < 0 ? -way : way);
            moving[i - begin] = way == 0 ? 0 : g[i];
            s[i] = 0.5 * d[i], y[i] = g[i] - before[i];
        }
        const Runs runs{next, counts[begin / block]};
        for (int r = 0; r < 2 * pairs; r += 4) products(rows + r * n, n, s, y, moving - begin, runs, out + 3 * r);
        next += 2 * runs.count;
    }
    next = ends;
    for (long begin = 0; begin < n; begin += block) {
        const long end = std::min(begin + block, n);
        const Runs runs{next, counts[begin / block]};
        double sum[block];
        for (long i = begin; i < end; ++i) sum[i - begin] = g[i];
        for (int r = 0; r < 2 * pairs; r += 8) {
            H* p = rows + r * n;
            double* c = out + r;
            for (long q = 0; q < runs.count; ++q)
                for (long i = runs.ends[2 * q]; i < runs.ends[2 * q + 1]; i += lanes) {
                    V add = c[0] * at(p + i);
                    for (int k = 1; k < 8; ++k) add += c[k] * at(p + k * n + i);
                    at(sum + i - begin) += add;
                }
        }
        for (long i = begin; i < end; ++i) {
            trial[i] = std::min(std::max(x[i] - sum[i - begin], lower[i]), upper[i]);
            d[i] = trial[i] - x[i];
            slope += d[i] * g[i];
        }
        next += 2 * runs.count;
    }
    return largest + slope;
}
#define ITERATION(name, work, H)                                                                                    \
    extern "C" double name(H* rows, double* vectors, long n, int pairs, const long* ends, const long* counts) {     \
        return work(rows, vectors, n, pairs, ends, counts);                                                         \
    }
ITERATION(bytes_float64, move, double)
ITERATION(bytes_float32, move, float)
ITERATION(arithmetic_float64, iterate, double)
ITERATION(arithmetic_float32, iterate, float)
"""
_BLOCK = 512


def torch_gpu() -> dict[str, Any]:
    """The first GPU, with PyTorch's arrays on it."""
    return gpu_machine(open_place("torch", "cuda:0"))


@functools.cache
def _compiled(source: str) -> ctypes.CDLL | None:
    """Return a library of C++ compiled for this very processor; None without a compiler."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return None
    folder = tempfile.mkdtemp()
    path, library = Path(folder) / "source.cpp", Path(folder) / "source.so"
    path.write_text(source)
    flags = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(path), "-o", str(library)], check=True)
    found = ctypes.CDLL(str(library))
    shutil.rmtree(folder)
    return found


def bare_iteration(
    free: np.ndarray | int, pairs: int, *, arithmetic: bool, history: str = "float64"
) -> Callable[[], float]:
    """Make a function that does what no iteration with so many pairs can do without, on one thread.

    It reads the history twice where it is wanted: in packs of eight variables of which one is `free`, a bool each (or
    how many variables there are, all of them free). Of every variable it reads the point, both gradients, the step and
    the bounds, and writes the new pair and the next point. With `arithmetic` it also does with them what they are there
    for, 8m multiplications a variable whose rows are read. `pairs` is a multiple of four (of eight with `arithmetic`).
    No masked Gram matrix is part of it. `history` is the dtype of its rows.
    """
    library = _compiled(_ITERATION)
    assert library is not None, "needs a C++ compiler"
    iterate = getattr(library, f"{'arithmetic' if arithmetic else 'bytes'}_{history}")
    iterate.restype = ctypes.c_double
    iterate.argtypes = [*[ctypes.c_void_p] * 2, ctypes.c_long, ctypes.c_int, *[ctypes.c_void_p] * 2]
    free = np.ones(free, bool) if isinstance(free, int) else free
    n = free.size // 8 * 8
    picked = free[:n].reshape(-1, 8).any(axis=1)
    ends, counts = [], []
    for begin in range(0, n, _BLOCK):
        inside = np.concatenate([[False], picked[begin // 8 : (begin + _BLOCK) // 8], [False]])
        changes = begin + 8 * np.flatnonzero(inside[1:] != inside[:-1])
        ends.append(changes)
        counts.append(changes.size // 2)
    runs, each = np.concatenate(ends).astype(np.int64), np.array(counts, np.int64)
    rows, vectors = np.full((2 * pairs, n), 1e-6, history), np.full((9, n), 1e-6)
    return lambda: float(iterate(rows.ctypes.data, vectors.ctypes.data, n, pairs, runs.ctypes.data, each.ctypes.data))


def save(name: str, part: str, figures: Any) -> None:
    """Put the figures of one part into benchmarks/raw/NAME.json, with the machine; summarize.py makes what is kept."""
    path = RAW / f"{name}.json"
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
