"""Curve fits of many problems: compiled models and NumPy callables beside SciPy's ``curve_fit`` with bounds.

    python benchmarks/fits.py [--problems 20000] [--repeats 5] [--threads 2]

Lines alternate and take medians; SciPy fits a few problems, and its time is scaled to all. Two floors stand beside the
compiled models: the data read once with the result written once, and as many exponentials by NumPy on one thread as
the fits evaluate, over the threads. Raw figures: benchmarks/raw/fits.json.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from common import interleave, medians, save, table
from scipy.optimize import curve_fit as scipy_curve_fit
from threadpoolctl import threadpool_limits

import stepwell
from stepwell import models
from stepwell.common.threads import default_threads

B_VALUES = np.array([0, 10, 20, 30, 50, 75, 100, 150, 200, 300, 400, 500, 600, 700, 800, 1000]) / 1000
INF = np.inf


def columns(p):
    return [p[:, k : k + 1] for k in range(p.shape[1])]


def decays(problems, rng):
    """Two exponentials, 32 points, as relaxation and fluorescence have them."""
    t, model = np.linspace(0, 3.1, 32), models.exponentials(2)
    slow = np.exp(rng.uniform(np.log(0.3), np.log(1.5), problems))
    truth = np.column_stack([rng.uniform(0.3, 1, (problems, 2)), slow, slow * rng.uniform(3, 10, problems)])
    y = model(t, *columns(truth)) + 0.01 * rng.standard_normal((problems, 32))
    return model, t, y, np.array([0.5, 0.5, 0.5, 5.0]), ([0, 0, 0.01, 0.01], [5, 5, 50, 50]), 64


def ivim(problems, rng):
    """Two compartments of diffusion, 16 b-values, many ends at a bound."""
    model = models.ivim()
    truth = rng.uniform([0.9, 0.05, 5, 0.5], [1.1, 0.3, 50, 2], (problems, 4))
    y = model(B_VALUES, *columns(truth)) + rng.standard_normal((problems, 16)) / 30
    return model, B_VALUES, y, np.array([1.0, 0.1, 20.0, 1.0]), ([0.5, 0, 3, 0], [1.5, 0.7, 300, 5]), 32


def spots(problems, rng):
    """Gpufit's benchmark: 5 x 5 pixels, 5 parameters, signal to noise 10, float32."""
    model = models.gaussian2d()
    rows, across = (side.ravel() for side in np.mgrid[:5, :5].astype(np.float32))
    x = np.stack([across, rows])
    truth = rng.uniform([450, 1.7, 1.7, 0.9, 10], [550, 2.3, 2.3, 1.1, 10], (problems, 5))
    y = model(x, *columns(truth)) + 50 * rng.standard_normal((problems, 25))
    start = rng.uniform([400, 1.7, 1.7, 0.8, 8], [600, 2.3, 2.3, 1.2, 12], (problems, 5)).astype(np.float32)
    return model, x, y.astype(np.float32), start, ([0, -1, -1, 0.3, -INF], [INF, 5, 5, 4, INF]), 10


def waveforms(problems, rng):
    """Three Gaussians in 200 samples, as lidar returns have them, float32; starts near the peaks."""
    model, t = models.gaussians(3), np.arange(200, dtype=np.float32)
    centres = 20 + np.cumsum(rng.uniform(8, 40, (problems, 3)), axis=1)
    heights, widths = rng.uniform(0.2, 1, (problems, 3)), rng.uniform(3, 6, (problems, 3))
    truth = np.concatenate([heights, centres, widths], axis=1)
    y = model(t, *columns(truth)) + 0.02 * rng.standard_normal((problems, 200))
    near = centres + rng.uniform(-1.5, 1.5, centres.shape)
    start = np.concatenate([np.full_like(heights, 0.6), near, np.full_like(widths, 4)], axis=1).astype(np.float32)
    box = ([0] * 6 + [1.5] * 3, [2] * 3 + [199] * 3 + [12] * 3)
    return model, t, y.astype(np.float32), start, box, 600


#: Problems of a line over those asked for, and SciPy's.
LINES = {
    "decays": (decays, 1.0, 20),
    "ivim": (ivim, 1.0, 20),
    "spots": (spots, 1.0, 20),
    "waveforms": (waveforms, 0.1, 5),
}
#: What is aimed at, over SciPy, by all threads.
GOALS = {"decays": 1000, "ivim": 1000, "spots": 1000, "waveforms": 100}


def timed(function):
    def run():
        start = time.perf_counter()
        function()
        return time.perf_counter() - start

    return run


def measure(name, problems, repeats, threads):
    make, share, few = LINES[name]
    problems = int(share * problems)
    model, x, y, start, box, exponentials = make(problems, np.random.default_rng(3))
    low, high = (np.asarray(side, float) for side in box)

    def plain(x, *p):
        return model(x, *p)

    def by_scipy():
        for k in range(few):
            p0 = np.asarray(start if start.ndim == 1 else start[k], float)
            scipy_curve_fit(plain, x.astype(float), y[k].astype(float), p0, bounds=(low, high))

    found = stepwell.curve_fit(model, x, y, start, bounds=box, threads=threads)
    nfev = float(np.mean(found.nfev))
    numbers = np.random.default_rng(1).uniform(-20, 0, (256, exponentials)).astype(y.dtype)

    def floor_exp():
        for _ in range(max(1, round(problems * nfev / 256))):
            np.exp(numbers)

    def floor_bytes():
        return y.sum(), np.ones((problems, model.n * (model.n + 2) + 10))

    seen = interleave(
        repeats,
        compiled=timed(lambda: stepwell.curve_fit(model, x, y, start, bounds=box, threads=threads)),
        callable=timed(lambda: stepwell.curve_fit(plain, x, y, start, bounds=box, threads=threads)),
        SciPy=timed(by_scipy),
        exponentials=timed(floor_exp),
        bytes=timed(floor_bytes),
    )
    seen["SciPy"] = [value * problems / few for value in seen["SciPy"]]
    seen["exponentials"] = [value / threads for value in seen["exponentials"]]
    return {
        "problems": problems, "points": int(y.shape[1]), "parameters": model.n, "dtype": str(y.dtype),
        "threads": threads, "evaluations": nfev, "success": float(np.mean(found.success)), "seconds": seen, "medians": medians(seen),
        "goal": GOALS[name],
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--lines", nargs="*", default=list(LINES))
    options = parser.parse_args()
    rows = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in options.lines:
            part = measure(name, options.problems, options.repeats, options.threads)
            save("fits", name, part)
            ours = part["medians"]["compiled"]
            for other, seconds in part["medians"].items():
                goal = part["goal"] if other == "SciPy" else "–"
                each = 1e6 * seconds / part["problems"]
                rows.append([name, other, f"{each:.2f}", f"{seconds / ours:.2f}", goal])
    table(["line", "who", "us a fit", "over compiled", "goal"], rows)


if __name__ == "__main__":
    main()
