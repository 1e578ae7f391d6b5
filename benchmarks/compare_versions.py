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


def quasi_newton():
    """Of the solver alone, without its objective: milliseconds an evaluation, and of batches."""
    import numpy as np

    import stepwell

    found = {}
    for side, iterations, repetitions in ((20, 150, 9), (100, 100, 7), (400, 40, 3), (1000, 12, 3)):
        problem = stepwell.problems.get("torsion", nx=side, ny=side)
        options = {"maxcor": 8, "maxiter": iterations, "gtol": 0, "ftol": 0}
        for kind, bounds in (("torsion", problem.bounds), ("torsion without bounds", None)):
            if bounds is None and side != 400:
                continue
            runs = [
                stepwell.minimize(problem.fun, problem.x0, jac=True, bounds=bounds, options=options)
                for _ in range(repetitions)
            ]
            name = f"{kind}, n = {side * side:,}: solver, an evaluation"
            found[name] = statistics.median(1e3 * run.seconds["solver"] / run.nfev for run in runs)
    centre = np.random.default_rng(1).normal(size=(5000, 20))

    def many(x):
        d = x - centre
        return (d * d * d * d).sum(1), 4 * d * d * d

    for bounds in ((-1.0, 1.0), None):
        runs = [stepwell.minimize_batch(many, np.zeros((5000, 20)), jac=True, bounds=bounds) for _ in range(5)]
        name = f"batch of 5,000, n = 20{'' if bounds else ', without bounds'}: solver"
        found[name] = statistics.median(1e3 * run.seconds["solver"] for run in runs)
    return found


def least_squares():
    """Milliseconds of calls with small systems, large ones, and what the applications ask for."""
    import numpy as np

    import stepwell

    random, found = np.random.default_rng(1), {}
    A, b = random.random((300, 60, 40)), random.random((300, 60))
    found["nnls, 300 systems 60 x 40"] = median_ms(lambda: stepwell.nnls(A, b), 7)
    decays = np.exp(-7e-3 * np.arange(1, 57)[:, None] / np.geomspace(0.01, 2, 40))
    data = np.abs(random.normal(size=(20000, 40))) @ decays.T + 0.01 * random.normal(size=(20000, 56))
    found["nnls, 20,000 right-hand sides, one A 56 x 40"] = median_ms(lambda: stepwell.nnls(decays, data), 3)
    found["T2 with lambda, 20,000 voxels, 56 x 40"] = median_ms(lambda: stepwell.nnls(decays, data, lam=0.1), 3)
    found["T2 with chi2, 5,000 voxels, 56 x 40"] = median_ms(lambda: stepwell.nnls(decays, data[:5000], lam="chi2"), 3)
    found["T2 with gcv, 300 voxels, 56 x 40"] = median_ms(lambda: stepwell.nnls(decays, data[:300], lam="gcv"), 3)
    spectra = random.random((200, 8))
    pixels = random.dirichlet(np.ones(8), 100_000) @ spectra.T + 0.01 * random.normal(size=(100_000, 200))
    found["nnls, 100,000 pixels, one A 200 x 8"] = median_ms(lambda: stepwell.nnls(spectra, pixels), 5)
    kept = {"bounds": (0, np.inf), "sum_bounds": (1, 1)}
    found["sum to one, the same"] = median_ms(lambda: stepwell.lsq_linear(spectra, pixels, **kept), 5)
    wide, few = random.random((200, 20)), random.random((5000, 200))
    found["sum to one, 5,000 of 200 x 20"] = median_ms(lambda: stepwell.lsq_linear(wide, few, **kept), 3)
    found["in a box, 5,000 of 200 x 20"] = median_ms(lambda: stepwell.lsq_linear(wide, few, (0.0, 0.06)), 3)
    gram = wide.T @ wide, few @ wide
    found["nnls of normal equations, 5,000 of 20"] = median_ms(lambda: stepwell.lsq_gram(*gram), 3)
    own, right = random.normal(size=(20_000, 40, 10)), random.normal(size=(20_000, 40))
    found["nnls, 20,000 of 40 x 10"] = median_ms(lambda: stepwell.nnls(own, right), 3)
    found["lsq_linear, 20,000 of 40 x 10 in a box"] = median_ms(lambda: stepwell.lsq_linear(own, right, (-0.1, 0.2)), 3)
    found["lsq_linear, 300 of 60 x 40 in a box"] = median_ms(lambda: stepwell.lsq_linear(A - 0.5, b, (-0.1, 0.2)), 5)
    large, one = random.random((1500, 800)), random.random(1500)
    found["nnls, one of 1,500 x 800"] = median_ms(lambda: stepwell.nnls(large, one), 3)
    rows, sides = random.normal(size=(40, 300, 150)), random.normal(size=(40, 300))
    found["nnls, 40 of 300 x 150"] = median_ms(lambda: stepwell.nnls(rows, sides), 3)
    t = np.arange(400)
    pulse = np.exp(-0.5 * ((np.arange(21) - 10) / 3.0) ** 2)
    peaks = np.exp(-0.5 * ((t - random.uniform(80, 320, (200, 1))) / 3.5) ** 2) + 0.01 * random.normal(size=(200, 400))
    of_pulse = stepwell.Convolution(pulse, 400, m=400, origin=10)
    found["nnls, 200 waveforms of 400 by a pulse"] = median_ms(lambda: stepwell.nnls(of_pulse, peaks), 3)
    return found


def fits():
    """Milliseconds of batches of curve fits, by compiled models and by a callable."""
    import numpy as np
    from fits import decay, ivim, spots, waveforms
    from fits import decays as cases

    import stepwell

    random, found = np.random.default_rng(2), {}
    for make, problems in ((cases, 5000), (ivim, 10_000), (spots, 20_000), (waveforms, 300)):
        model, x, y, start, bounds, _ = make(problems, random)
        fit = lambda: stepwell.curve_fit(model, x, y, p0=start, bounds=bounds)  # noqa: B023, E731
        found[f"curve_fit, {problems:,} {make.__name__}"] = median_ms(fit, 3)
        if make is cases:
            fit = lambda: stepwell.curve_fit(decay, x, y[:2000], p0=start, bounds=bounds)  # noqa: B023, E731
            found["curve_fit of a callable, 2,000 decays"] = median_ms(fit, 3)
    return found


def others():
    """Milliseconds of Tikhonov systems and of total variation."""
    import numpy as np
    from scipy import sparse

    import stepwell
    from stepwell.apps import tomography

    random, found = np.random.default_rng(3), {}
    beam = tomography.parallel_beam(64, angles=np.arange(0, 180, 6.0))
    block = random.normal(size=(beam.shape[0], 16))
    found["tikhonov, 64² unknowns, 16 columns"] = median_ms(lambda: stepwell.tikhonov(beam, block, 1.0, tol=1e-6), 3)
    for side in (120, 256):
        image = np.zeros((side, side))
        image[side // 4 : side // 2, side // 3 :] = 1
        noisy = (image + 0.1 * random.normal(size=image.shape)).ravel()
        same = sparse.identity(side * side, format="csr")
        found[f"tv, {side}²"] = median_ms(lambda: stepwell.tv(same, noisy, 0.1, shape=(side, side)), 3)  # noqa: B023
    return found


def works():
    """Milliseconds of each work with the version on the path."""
    warnings.simplefilter("ignore")
    return quasi_newton() | least_squares() | fits() | others()


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
