"""Small systems of one matrix on one CPU thread: unmixing of pixels against forty lines of Numba, damped decays
against SciPy.

    python benchmarks/nnls_small.py [--repeats 7]

Both lines keep to one core and one BLAS thread, alternate, and take medians. Beside the pixels stand a floor, b read
once by a sum and as many bytes written as the result has, in memory as new as the result's; Aᵀb by one product of the
BLAS; and, by the BLAS too, all products that a certificate takes where x is known, b - Ax and its product with A
included. Numba is optional: without it that line is left out. Raw figures: benchmarks/raw/nnls_small.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time

import numpy as np
from common import interleave, medians, save, table
from scipy.optimize import nnls as scipy_nnls
from threadpoolctl import threadpool_limits

import stepwell
from stepwell.common.threads import threads_at_most
from stepwell.lab.studies.cases import decays

BANDS, MATERIALS, PIXELS = 198, 4, 10_000
VOXELS, DAMPING, SCIPY_VOXELS = 20_000, 0.005, 300


def scene():
    """Spectra like those of minerals (a slope with absorption bands), and pixels that mix one to three of them."""
    rng = np.random.default_rng(0)
    wavelength = np.linspace(0.4, 2.5, BANDS)
    A = np.empty((BANDS, MATERIALS))
    for j in range(MATERIALS):
        A[:, j] = 0.3 + 0.1 * wavelength * rng.uniform(0.5, 1.5)
        for centre in rng.uniform(0.5, 2.4, 4):
            A[:, j] -= rng.uniform(0.05, 0.2) * np.exp(-0.5 * ((wavelength - centre) / rng.uniform(0.03, 0.1)) ** 2)
    x = rng.dirichlet(np.full(MATERIALS, 0.3), PIXELS)
    return A, x @ A.T + 0.005 * rng.normal(size=(PIXELS, BANDS))


def by_numba(A, b):
    """Lawson and Hanson on the normal equations, a Cholesky factor for each passive set: what one writes oneself."""
    import numba

    @numba.njit
    def solve(A, G, b, x):
        m, n = A.shape
        w, z, L, order = np.empty(n), np.empty(n), np.empty((n, n)), np.empty(n, np.int64)
        for s in range(b.shape[0]):
            c, passive = np.zeros(n), np.zeros(n, np.bool_)
            for i in range(m):
                for j in range(n):
                    c[j] += A[i, j] * b[s, i]
            x[s] = 0.0
            for _ in range(3 * n):
                best, chosen = 1e-12, -1
                for j in range(n):
                    w[j] = c[j]
                    for k in range(n):
                        w[j] -= G[j, k] * x[s, k]
                    if not passive[j] and w[j] > best:
                        best, chosen = w[j], j
                if chosen < 0:
                    break
                passive[chosen] = True
                while True:
                    count = 0
                    for j in range(n):
                        if passive[j]:
                            order[count] = j
                            count += 1
                    for p in range(count):  # G = LLᵀ, L y = c, Lᵀ z = y
                        for q in range(p + 1):
                            v = G[order[p], order[q]]
                            for k in range(q):
                                v -= L[p, k] * L[q, k]
                            L[p, q] = np.sqrt(v) if p == q else v / L[q, q]
                        v = c[order[p]]
                        for k in range(p):
                            v -= L[p, k] * z[k]
                        z[p] = v / L[p, p]
                    for p in range(count - 1, -1, -1):
                        for k in range(p + 1, count):
                            z[p] -= L[k, p] * z[k]
                        z[p] /= L[p, p]
                    step, leaves = 1.0, False
                    for p in range(count):
                        if z[p] <= 0:
                            step, leaves = min(step, x[s, order[p]] / (x[s, order[p]] - z[p])), True
                    for p in range(count):
                        x[s, order[p]] += step * (z[p] - x[s, order[p]])
                        if leaves and x[s, order[p]] <= 1e-15:
                            x[s, order[p]], passive[order[p]] = 0.0, False
                    if not leaves:
                        break

    x = np.empty((len(b), A.shape[1]))

    def run():
        solve(A, A.T @ A, b, x)
        return x

    run()  # compiles
    return run


def timed(function):
    """Seconds of this thread: a busy machine does not count."""

    def run():
        start = time.thread_time()
        function()
        return time.thread_time() - start

    return run


def unmixing(repeats):
    A, b = scene()
    x = stepwell.nnls(A, b).x

    def certificate():
        return b @ A, (b - x @ A.T) @ A

    def floor():
        whole = [np.ones((PIXELS, MATERIALS)) for _ in ("x", "dual")]
        return b.sum(), whole, np.ones((PIXELS, 2 + 4)), np.ones((PIXELS, 6), np.int32), np.ones(x.shape, bool)

    runs = {
        "stepwell": timed(lambda: stepwell.nnls(A, b)),
        "floor: bytes": timed(floor),
        "one product by BLAS": timed(lambda: b @ A),
        "certificate by BLAS": timed(certificate),
    }
    if importlib.util.find_spec("numba"):
        numba_run = by_numba(A, b)
        gap = float(np.abs(stepwell.nnls(A, b).x - numba_run()).max())
        assert gap < 1e-9, gap
        runs["Numba"] = timed(numba_run)
    seen = interleave(repeats, **runs)
    return {"seconds": seen, "medians": medians(seen), "goal": 3}


def damped(repeats):
    A, b = decays(VOXELS)
    lam = DAMPING * float(np.linalg.norm(A, 2))
    stacked = np.vstack([A, lam * np.eye(A.shape[1])])
    below = np.zeros(A.shape[1])

    def loop():
        for row in b[:SCIPY_VOXELS]:
            scipy_nnls(stacked, np.concatenate([row, below]), maxiter=100 * A.shape[1])

    runs = {"stepwell": timed(lambda: stepwell.nnls(A, b, lam=lam)), "SciPy": timed(loop)}
    seen = interleave(repeats, **runs)
    seen["SciPy"] = [value * VOXELS / SCIPY_VOXELS for value in seen["SciPy"]]
    result = stepwell.nnls(A, b, lam=lam)
    positive = float(np.mean((result.x > 0).sum(axis=1)))
    return {"seconds": seen, "medians": medians(seen), "goal": 20, "positive unknowns": positive,
            "solves": float(np.mean(result.solves)), "passes": float(np.mean(result.passes))}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if cores:
        os.sched_setaffinity(0, {min(cores)})
    with threadpool_limits(1), threads_at_most(1):
        parts = {"unmixing": unmixing(options.repeats), "damped": damped(options.repeats)}
    if cores:
        os.sched_setaffinity(0, cores)
    rows = []
    for name, part in parts.items():
        save("nnls_small", name, part)
        ours = part["medians"]["stepwell"]
        for other, seconds in part["medians"].items():
            goal = part["goal"] if other in ("Numba", "SciPy") else "–"
            rows.append([name, other, f"{1e3 * seconds:.1f}", f"{seconds / ours:.2f}", goal])
    table(["line", "who", "ms", "over stepwell", "goal"], rows)


if __name__ == "__main__":
    main()
