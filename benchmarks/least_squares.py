"""The family of small constrained least squares beside SciPy and plain NNLS, on the CPU and on a CUDA device.

    python benchmarks/least_squares.py [--device cuda] [--quick] [--json FILE]

Times are the least of three calls; of the three lines of pixels, which are compared with one another, medians of calls
that alternate. Beside them stands a floor of what a sum adds: the three numbers that it has for each pixel, written to
arrays just taken, on all cores. SciPy solves a sample, one after another on one thread, and its time is scaled up;
the ratio is of one thread against one thread. With `--device cuda` arrays are torch's on the device, in and out.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.optimize
from common import interleave, machine, medians, torch_gpu, wall

import stepwell


def least(function, repeats=3):
    """Least seconds of some calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def decays(systems, rng):
    A = np.exp(-7e-3 * np.arange(1, 57)[:, None] / np.geomspace(0.01, 2, 40))
    c = rng.integers(5, 35, (systems, 2))
    return A, 0.7 * A.T[c[:, 0]] + 0.3 * A.T[c[:, 1]] + 5e-3 * rng.standard_normal((systems, 56))


def chi2_by_scipy(A, b):
    """Bracketing and Brent's method over stacked rows, to 1e-3 of the difference."""
    n = A.shape[1]
    below = np.r_[b, np.zeros(n)]
    wanted = 1.02 * scipy.optimize.nnls(A, b)[1] ** 2

    def missed(t):
        x = scipy.optimize.nnls(np.vstack([A, np.exp(t) * np.eye(n)]), below, maxiter=2000)[0]
        return np.linalg.norm(A @ x - b) ** 2 - wanted

    low = high = -4.0
    while missed(low) > 0:
        low -= 1.5
    while missed(high) < 0:
        high += 1.5
    return scipy.optimize.brentq(missed, low, high, xtol=1e-3)


def side_by_side(lines, systems, repeats=7):
    """Medians of calls on the same pixels that alternate, and of the floor."""
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with ThreadPoolExecutor(threads) as pool:

        def floor():
            return list(pool.map(lambda _: np.ones((3, systems // threads)), range(threads)))

        lines = {name: wall(run) for name, run in lines.items()} | {"floor: fields of a sum": wall(floor)}
        for run in lines.values():
            run()
        seen = interleave(repeats, **lines)
    return {"seconds": seen, "medians": medians(seen)}


def workloads(scale, rng):
    """Name, goals on two cores and on an H200, the call, the same by SciPy for one system, and systems."""
    systems = int(100_000 * scale)
    A, b = decays(systems, rng)
    yield (
        "T2 56 x 40, chi2",
        1.2,
        0.1,
        dict(kind="nnls", A=A, b=b, lam="chi2"),
        lambda s: chi2_by_scipy(A, b[s]),
        systems,
    )
    systems = int(1_000_000 * scale)
    matrix = rng.random((200, 8))
    pixels = rng.dirichlet(np.ones(8), systems) @ matrix.T + 0.01 * rng.standard_normal((systems, 200))
    yield "200 x 8, NNLS", None, None, dict(kind="nnls", A=matrix, b=pixels), None, systems
    # The same with all fields that the results of the family have.
    signs = dict(bounds=(0, np.inf))
    yield "200 x 8, NNLS by lsq_linear", None, None, dict(kind="lsq", A=matrix, b=pixels, **signs), None, systems
    one = signs | dict(sum_bounds=(1, 1))
    yield "200 x 8, sum to one", 1.1, 0.025, dict(kind="lsq", A=matrix, b=pixels, **one), None, systems
    del pixels
    systems = int(10_000 * scale)
    own, right = rng.standard_normal((systems, 4000, 10)), rng.standard_normal((systems, 4000))
    box = (-0.01, 0.01)

    def bvls(s):
        return scipy.optimize.lsq_linear(own[s], right[s], box, method="bvls")

    yield "4000 x 10, own A, bounds", 0.4, 0.002, dict(kind="lsq", A=own, b=right, bounds=box), bvls, systems
    systems = int(1_000_000 * scale)
    small = rng.standard_normal((systems, 12, 10))
    G, c = np.swapaxes(small, 1, 2) @ small, rng.standard_normal((systems, 10))
    del small
    yield "Gram 10 x 10, bounds", 1.2, 0.015, dict(kind="gram", A=G, b=c, bounds=(-0.1, 0.2)), None, systems
    large = rng.standard_normal((3, 1600, 1290))
    G, c = np.swapaxes(large, 1, 2) @ large, rng.standard_normal((3, 1290))
    yield "Gram 1290, three", None, 0.03, dict(kind="gram", A=G, b=c, bounds=(0, np.inf)), None, 3
    again = dict(kind="gram", A=G, b=c, bounds=(0, np.inf), warm_start="solution")
    yield "Gram 1290, three, warm", None, 0.01, again, None, 3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the systems")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    scale = 0.02 if arguments.quick else 1.0
    rows, result, pixels = [], None, {}
    for name, goal, goal_gpu, call, other, systems in workloads(scale, np.random.default_rng(0)):
        solve = {"nnls": stepwell.nnls, "lsq": stepwell.lsq_linear, "gram": stepwell.lsq_gram}[call.pop("kind")]
        A, b = call.pop("A"), call.pop("b")
        if arguments.device == "cuda":
            import torch

            A, b = torch.as_tensor(A, device="cuda"), torch.as_tensor(b, device="cuda")

            def run(A=A, b=b, solve=solve, call=call, **more):
                result = solve(A, b, **call, **more)
                torch.cuda.synchronize()
                return result

        else:

            def run(A=A, b=b, solve=solve, call=call, **more):
                return solve(A, b, **call, **more)

        if call.get("warm_start") == "solution":  # of the row before
            call["warm_start"] = result.x
        result = run()
        row = {"name": name, "systems": systems, "seconds": least(run), "goal": goal, "goal_gpu": goal_gpu}
        row["converged"] = int(
            (np.asarray(result.status.cpu() if arguments.device == "cuda" else result.status) == 0).sum()
        )
        if other is not None and arguments.device == "cpu":
            row["one_thread"] = least(lambda run=run: run(threads=1), 1)
            sample = range(0, systems, max(1, systems // 40))
            row["scipy"] = (
                least(lambda other=other, sample=sample: [other(s) for s in sample], 1) / len(sample) * systems
            )
            row["ratio"] = row["scipy"] / row["one_thread"]
        rows.append(row)
        if name.startswith("200 x 8") and arguments.device == "cpu":
            pixels[name] = run
        if name == "200 x 8, sum to one" and pixels:
            row["alternating"] = side_by_side(pixels, systems)
            middle = row["alternating"]["medians"]
            for other in rows:
                if other["name"] in pixels:
                    other["seconds"] = middle[other["name"]]
            row["over NNLS"] = row["seconds"] / middle["200 x 8, NNLS"]
            print({key: round(value, 4) for key, value in middle.items()}, flush=True)
        print({key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}, flush=True)
        if name == "200 x 8, sum to one":
            pixels, run = {}, None
    if arguments.json:
        where = machine() | (torch_gpu() if arguments.device == "cuda" else {})
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"machine": where, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
