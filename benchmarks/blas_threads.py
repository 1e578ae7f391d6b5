"""What the waiting threads of a BLAS cost: block conjugate gradients, and an objective that calls the BLAS itself.

    python benchmarks/blas_threads.py [--repeats 3] [--busy]

Block: the same solves with the products of blocks as they are, on the package's own threads, and with NumPy's in their
place, whose BLAS has all cores or one; alternated, best of a few. ``--busy`` keeps one core busy with another process
meanwhile, as on a machine that is shared. Objective: bounded torsion-like quadratics of n = 10⁴ whose value is a
``np.vdot``, with the BLAS on all cores and on one, and without the BLAS. Raw figures:
benchmarks/raw/blas_threads.json.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import time

import numpy as np
from common import save, table
from many_rhs import phantom_system
from threadpoolctl import threadpool_info, threadpool_limits

import stepwell
from stepwell.common.threads import available_cores, threads_at_most
from stepwell.krylov import block, reductions
from stepwell.operators import as_operator


@contextlib.contextmanager
def products_of_numpy():
    """Put NumPy's products in the place of the package's own."""
    own = block.combined, block.plus_combined, reductions.inner_products
    block.combined = lambda left, right: left @ right
    reductions.inner_products = lambda left, right: left.T @ right
    block.plus_combined = lambda base, left, right, sign=1: base + left @ right if sign > 0 else base - left @ right
    try:
        yield
    finally:
        block.combined, block.plus_combined, reductions.inner_products = own


def blocks(repeats, size):
    A, B, lam = phantom_system(size)
    operator = as_operator(A)
    cores = available_cores()

    def solve(ours, blas, threads):
        with (
            threadpool_limits(blas, user_api="blas"),
            contextlib.nullcontext() if ours else products_of_numpy(),
            threads_at_most(threads),
        ):
            return stepwell.tikhonov(operator, B, lam, method="block", tol=1e-4).seconds

    runs = {
        "own products": (True, cores, cores),
        "NumPy's, BLAS on all cores": (False, cores, cores),
        "NumPy's, BLAS on one": (False, 1, cores),
        "own products, one thread": (True, 1, 1),
        "NumPy's, one thread": (False, 1, 1),
    }
    seen = {name: [] for name in runs}
    for _ in range(repeats):
        for name, how in runs.items():
            seen[name].append(solve(*how))
    return {"size": size, "columns": int(B.shape[1]), "seconds": seen}


def objectives(repeats, n=10_000):
    rng = np.random.default_rng(0)
    weights, centre = 10.0 ** rng.uniform(0, 2, n), rng.normal(size=n)

    def by_blas(x):
        d = x - centre
        g = weights * d
        return 0.5 * float(np.vdot(g, d)), g

    def by_einsum(x):
        d = x - centre
        g = weights * d
        return 0.5 * float(np.einsum("i,i", g, d)), g

    cores = available_cores()
    runs = {
        "np.vdot, BLAS on all cores": (by_blas, cores, cores),
        "the same, one thread of ours": (by_blas, cores, 1),
        "np.vdot, BLAS on one": (by_blas, 1, cores),
        "no BLAS": (by_einsum, cores, cores),
    }
    seen = {name: [] for name in runs}
    for _ in range(repeats):
        for name, (fun, blas, threads) in runs.items():
            with threadpool_limits(blas, user_api="blas"):
                options = {"maxcor": 8, "maxiter": 60, "ftol": 0, "gtol": 0, "threads": threads}
                result = stepwell.minimize(fun, np.zeros(n), jac=True, bounds=(-1.0, 1.0), options=options)
            seen[name].append(1e3 * result.seconds["solver"] / max(1, result.nit))
            time.sleep(0.3)  # threads of the last run come to rest
    return {"n": n, "ms": seen}


def spin(stop):
    while not stop.is_set():
        sum(range(10_000))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args()
    stop = multiprocessing.Event()
    other = multiprocessing.Process(target=spin, args=(stop,), daemon=True)
    if options.busy:
        other.start()
    try:
        parts = {"blocks": blocks(options.repeats, options.size), "objectives": objectives(options.repeats)}
    finally:
        stop.set()
    about = [f"{lib['internal_api']} {lib['version']}, {lib['num_threads']} threads" for lib in threadpool_info()]
    print("; ".join(about))
    for name, part in parts.items():
        save("blas_threads", name + (", busy" if options.busy else ""), {"blas": about, **part})
        values = {run: min(each) for run, each in part["seconds" if name == "blocks" else "ms"].items()}
        first = next(iter(values.values()))
        unit = "s" if name == "blocks" else "ms an iteration"
        table([name, unit, "over the first"], [[run, f"{v:.3g}", f"{v / first:.2f}"] for run, v in values.items()])


if __name__ == "__main__":
    main()
