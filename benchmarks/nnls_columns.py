"""NNLS with hundreds of positive unknowns: little damping on more columns than rows, and starts with wrong signs.

    python benchmarks/nnls_columns.py [--quick]

Times over those of the same system without damping, or from a cold start, within one run; answers beside SciPy's. The
figures go to benchmarks/raw/nnls_columns.json.
"""

from __future__ import annotations

import argparse
import functools

import numpy as np
from common import interleave, medians, save, wall
from scipy.ndimage import gaussian_filter
from scipy.optimize import nnls as scipy_nnls

import stepwell


def damped_rows(m, n, repeats):
    """b is that of a half-empty x, with noise or without."""
    rows = []
    for kind, noise in (("normal", 0.0), ("normal", 0.1), ("uniform", 0.0), ("uniform", 0.1)):
        random = np.random.default_rng(0)
        A = random.standard_normal((m, n)) if kind == "normal" else random.random((m, n))
        b = A @ np.maximum(random.standard_normal(n), 0) + noise * random.standard_normal(m)
        lams = (0.0, 1e-5, 1e-3, 1.0)
        found = medians(
            interleave(repeats, **{str(lam): wall(functools.partial(stepwell.nnls, A, b, lam=lam)) for lam in lams})
        )
        results = {str(lam): stepwell.nnls(A, b, lam=lam) for lam in lams}
        peer = scipy_nnls(np.vstack([A, 1e-3 * np.eye(n)]), np.append(b, np.zeros(n)), maxiter=100 * n)[0]

        def objective(x, A=A, b=b):
            return float(np.hypot(np.linalg.norm(A @ x - b), 1e-3 * np.linalg.norm(x)))

        rows.append(
            {"entries": kind, "noise": noise, "seconds": found}
            | {"solves": {lam: int(result.solves) for lam, result in results.items()}}
            | {"1e-3 over none": found["0.001"] / found["0.0"]}
            | {"objective over SciPy's, less one": objective(results["0.001"].x) / objective(peer) - 1}
        )
        print(rows[-1], flush=True)
    return rows


def warm_rows(side, repeats):
    """A blur with a smooth prior; starts are the signs of the solution without bounds, and all columns."""
    n = side * side
    image = np.eye(n).reshape(n, side, side)
    blur = np.array([gaussian_filter(one, 1.5).ravel() for one in image])
    slopes = [np.diff(image, axis=axis).reshape(n, -1) for axis in (1, 2)]
    Q = blur @ blur.T + 1e-3 * sum(slope @ slope.T for slope in slopes) + 1e-6 * np.eye(n)
    factor = np.linalg.cholesky(Q)
    rows = []
    for share in (0.15, 0.4):
        random = np.random.default_rng(1)
        x = np.where(random.random(n) < share, 10 * random.random(n), 0)
        q = blur @ (blur.T @ x + 0.3 * random.standard_normal(n))
        A, b, free = factor.T, np.linalg.solve(factor, q), np.linalg.solve(Q, q)
        starts = {"cold": None, "signs": free > 0, "its positive part": np.maximum(free, 0), "ones": np.ones(n)}
        runs = {name: wall(functools.partial(stepwell.nnls, A, b, warm_start=start)) for name, start in starts.items()}
        found = medians(interleave(repeats, **runs))
        results = {name: stepwell.nnls(A, b, warm_start=start) for name, start in starts.items()}
        rows.append(
            {"unknowns": n, "positive": int(results["cold"].positive.sum()), "seconds": found}
            | {"solves": {name: int(result.solves) for name, result in results.items()}}
            | {"removals": {name: int(result.removals) for name, result in results.items()}}
            | {"largest difference": max(float(abs(r.x - results["cold"].x).max()) for r in results.values())}
        )
        print(rows[-1], flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller systems")
    quick = parser.parse_args().quick
    damped = damped_rows(*(150, 250) if quick else (600, 1000), 3)
    save("nnls_columns", "quick" if quick else "all", {"damped": damped, "warm": warm_rows(18 if quick else 36, 3)})


if __name__ == "__main__":
    main()
