"""Two installed versions of Stepwell side by side, interleaved: is a change slower than what it replaces?

    python benchmarks/compare_versions.py OLD NEW [--passes 3] [--cores 0,1] [-o FILE.json]

OLD and NEW are folders that hold the package (made by ``pip install --no-deps --target FOLDER .``). Each pass runs
every work once with each of them, in processes of their own; what is printed are medians and ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path


def median_ms(work, repetitions):
    work()
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def works():
    """Milliseconds of each work with the version on the path: the solver's own where there is an objective."""
    import numpy as np

    import stepwell
    from stepwell.apps import tomography

    warnings.simplefilter("ignore")
    found = {}
    for side, iterations, repetitions in ((20, 150, 9), (100, 100, 7), (400, 40, 3), (1000, 12, 3)):
        problem = stepwell.problems.get("torsion", nx=side, ny=side)
        options = {"maxcor": 8, "maxiter": iterations, "gtol": 0, "ftol": 0}
        runs = [
            stepwell.minimize(problem.fun, problem.x0, jac=True, bounds=problem.bounds, options=options)
            for _ in range(repetitions)
        ]
        name = f"torsion, n = {side * side:,}: solver, an evaluation"
        found[name] = statistics.median(1e3 * run.seconds["solver"] / run.nfev for run in runs)
    random = np.random.default_rng(1)
    centre = random.normal(size=(5000, 20))

    def many(x):
        d = x - centre
        return (d * d * d * d).sum(1), 4 * d * d * d

    runs = [stepwell.minimize_batch(many, np.zeros((5000, 20)), jac=True, bounds=(-1.0, 1.0)) for _ in range(5)]
    found["batch of 5,000, n = 20: solver"] = statistics.median(1e3 * run.seconds["solver"] for run in runs)
    A, b = random.random((300, 60, 40)), random.random((300, 60))
    found["nnls, 300 systems 60 x 40"] = median_ms(lambda: stepwell.nnls(A, b), 7)
    decays = np.exp(-7e-3 * np.arange(1, 57)[:, None] / np.geomspace(0.01, 2, 40))
    data = np.abs(random.normal(size=(20000, 40))) @ decays.T + 0.01 * random.normal(size=(20000, 56))
    found["nnls, 20,000 right-hand sides, one A 56 x 40"] = median_ms(lambda: stepwell.nnls(decays, data), 3)
    found["T2 with chi2, 5,000 voxels, 56 x 40"] = median_ms(lambda: stepwell.nnls(decays, data[:5000], lam="chi2"), 3)
    spectra = random.random((200, 8))
    pixels = random.dirichlet(np.ones(8), 100_000) @ spectra.T + 0.01 * random.normal(size=(100_000, 200))
    found["nnls, 100,000 pixels, one A 200 x 8"] = median_ms(lambda: stepwell.nnls(spectra, pixels), 5)
    kept = {"bounds": (0, np.inf), "sum_bounds": (1, 1)}
    found["sum to one, the same"] = median_ms(lambda: stepwell.lsq_linear(spectra, pixels, **kept), 5)
    own, right = random.normal(size=(20_000, 40, 10)), random.normal(size=(20_000, 40))
    found["lsq_linear, 20,000 of 40 x 10 in a box"] = median_ms(lambda: stepwell.lsq_linear(own, right, (-0.1, 0.2)), 5)
    found["lsq_linear, 300 of 60 x 40 in a box"] = median_ms(lambda: stepwell.lsq_linear(A - 0.5, b, (-0.1, 0.2)), 5)
    beam = tomography.parallel_beam(64, angles=np.arange(0, 180, 6.0))
    block = random.normal(size=(beam.shape[0], 16))
    found["tikhonov, 64² unknowns, 16 columns"] = median_ms(lambda: stepwell.tikhonov(beam, block, 1.0, tol=1e-6), 3)
    return found


def run_with(folder, cores):
    command = [sys.executable, __file__, "--works"]
    if cores:
        command = ["taskset", "-c", cores, *command]
    environment = dict(os.environ, PYTHONPATH=str(Path(folder).resolve()), OPENBLAS_NUM_THREADS="1")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd="/")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", nargs="?")
    parser.add_argument("new", nargs="?")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--cores", default="")
    parser.add_argument("-o", "--output")
    parser.add_argument("--works", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.works:
        print(json.dumps(works()))
        return
    passes = [
        {"old": run_with(given.old, given.cores), "new": run_with(given.new, given.cores)} for _ in range(given.passes)
    ]
    print("| work | old, ms | new, ms | new / old |\n|---|---|---|---|")
    for name in passes[0]["old"]:
        old, new = (statistics.median(one[which][name] for one in passes) for which in ("old", "new"))
        print(f"| {name} | {old:.4g} | {new:.4g} | {new / old:.3f} |")
    if given.output:
        record = {"machine": platform.platform(), "cores": given.cores or "all", "blas threads": 1, "passes": passes}
        Path(given.output).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
