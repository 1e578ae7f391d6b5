"""Curve fits of many problems, and of one: compiled models, NumPy and JAX callables beside SciPy's ``curve_fit``.

    python benchmarks/fits.py [--problems 20000] [--repeats 5] [--threads 2] [--cpu]

All have bounds. Lines alternate and take medians; SciPy fits a few problems, and its time is scaled to all. The
callable is the formula in NumPy, as SciPy has it, with derivatives by differences; ``jax`` is the same as ``jax.jit``
compiled, with its own derivatives (decays alone, after a first call). Two floors stand beside the compiled models: the
data read once with the result written once, and as many exponentials by NumPy on one thread as the fits evaluate, over
the threads. ``one`` is a single fit by a NumPy callable; its floor is the calls of the model that it makes. ``--cpu``
counts the seconds of all threads in place of the time that passes, for machines that are not quiet. Raw figures:
benchmarks/raw/fits.json.
"""

from __future__ import annotations

import argparse
import importlib.util
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


def decay(t, a1, a2, k1, k2):
    return a1 * np.exp(-k1 * t) + a2 * np.exp(-k2 * t)


def perfusion(b, S0, f, fast, slow):
    return S0 * (f * np.exp(-b * fast) + (1 - f) * np.exp(-b * slow))


def spot(x, a, x0, y0, s, c):
    return a * np.exp(-((x[0] - x0) ** 2 + (x[1] - y0) ** 2) / (2 * s**2)) + c


def echoes(t, *p):
    return sum(p[j] * np.exp(-((t - p[3 + j]) ** 2) / (2 * p[6 + j] ** 2)) for j in range(3))


#: The same models as functions of NumPy.
FUNCTIONS = {"decays": decay, "ivim": perfusion, "spots": spot, "waveforms": echoes}

#: Problems of a line over those asked for, and SciPy's.
LINES = {
    "decays": (decays, 1.0, 20),
    "ivim": (ivim, 1.0, 20),
    "spots": (spots, 1.0, 20),
    "waveforms": (waveforms, 0.1, 5),
}
#: What is aimed at, over SciPy, by all threads.
GOALS = {"decays": 1000, "ivim": 1000, "spots": 1000, "waveforms": 100}


def timed(function, clock, times=1):
    def run():
        start = clock()
        for _ in range(times):
            function()
        return (clock() - start) / times

    return run


def jax_decay():
    """Return the decays as a function of jax.jit, in doubles; None without JAX."""
    if importlib.util.find_spec("jax") is None:
        return None
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax.jit(lambda t, a1, a2, k1, k2: a1 * jax.numpy.exp(-k1 * t) + a2 * jax.numpy.exp(-k2 * t))


def measure_one(repeats, clock):
    """Measure a single fit of 32 points by a NumPy callable, with bounds."""
    _, t, y, start, box, _ = decays(1, np.random.default_rng(3))
    calls = []

    def counted(t, *p):
        calls.append(np.shape(p[0]))
        return decay(t, *p)

    found = stepwell.curve_fit(counted, t, y[0], start, bounds=box)
    points = [[np.full(shape, value) if shape else value for value in start] for shape in calls]
    seen = interleave(
        10 * repeats,
        callable=timed(lambda: stepwell.curve_fit(decay, t, y[0], start, bounds=box), clock, 5),
        SciPy=timed(lambda: scipy_curve_fit(decay, t, y[0], start, bounds=box), clock),
        calls=timed(lambda: [decay(t, *p) for p in points], clock, 5),
    )
    # (The least beside the median: on a machine that is not quiet medians of a millisecond say what others do.)
    return {
        "problems": 1, "points": 32, "parameters": 4, "dtype": "float64", "threads": 1,
        "evaluations": float(found.nfev), "calls": len(calls), "success": float(found.success),
        "seconds": seen, "medians": medians(seen), "least": {who: min(values) for who, values in seen.items()},
    }  # fmt: skip


def measure(name, problems, repeats, threads, clock):
    make, share, few = LINES[name]
    problems = int(share * problems)
    model, x, y, start, box, exponentials = make(problems, np.random.default_rng(3))
    low, high = (np.asarray(side, float) for side in box)

    plain = FUNCTIONS[name]

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

    def fit(f):
        return lambda: stepwell.curve_fit(f, x, y, start, bounds=box, threads=threads)

    works = {"compiled": fit(model), "callable": fit(plain)}
    compiled_by_jax = jax_decay() if name == "decays" else None
    if compiled_by_jax is not None:
        works["jax"] = fit(compiled_by_jax)
        works["jax"]()
    works |= {"SciPy": by_scipy, "exponentials": floor_exp, "bytes": floor_bytes}
    seen = interleave(repeats, **{who: timed(work, clock) for who, work in works.items()})
    seen["SciPy"] = [value * problems / few for value in seen["SciPy"]]
    seen["exponentials"] = [value / threads for value in seen["exponentials"]]
    return {
        "problems": problems, "points": int(y.shape[1]), "parameters": model.n, "dtype": str(y.dtype),
        "threads": threads, "evaluations": nfev, "success": float(np.mean(found.success)),
        "seconds": seen, "medians": medians(seen), "goal": GOALS[name],
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--lines", nargs="*", default=list(LINES))
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    rows = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in options.lines:
            part = measure(name, options.problems, options.repeats, options.threads, clock)
            part["clock"] = "CPU" if options.cpu else "wall"
            save("fits", name, part)
            ours = part["medians"]["compiled"]
            for other, seconds in part["medians"].items():
                goal = part["goal"] if other == "SciPy" else "–"
                each = 1e6 * seconds / part["problems"]
                rows.append([name, other, f"{each:.2f}", f"{seconds / ours:.2f}", goal])
        one = measure_one(options.repeats, clock)
        one["clock"] = "CPU" if options.cpu else "wall"
        save("fits", "one", one)
        for other, seconds in one["least"].items():
            rows.append(["one", other, f"{1e6 * seconds:.0f}", f"{seconds / one['least']['callable']:.2f}", "–"])
    table(["line", "who", "us a fit", "over compiled", "goal"], rows)


if __name__ == "__main__":
    main()
