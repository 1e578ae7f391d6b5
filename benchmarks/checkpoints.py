"""What checkpoints cost at n = 10⁶: a run without, one that writes every 10 seconds, and one that writes every time.

    python benchmarks/checkpoints.py [--n 1000000] [--folder /where/the/disk/is]

Prints seconds of one writing and reading, beside a plain numpy.save of the same bytes with a sync, and of an iteration;
the raw figures go to benchmarks/raw/checkpoints.json.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from common import save

import stepwell


def seconds(work, times=3):
    best = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        best.append(time.perf_counter() - began)
    return min(best)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    side = round(given.n**0.5)
    problem = stepwell.problems.get("torsion", nx=side, ny=side)
    path = given.folder / "stepwell-benchmark.ckpt"
    few = 25

    def run(iterations=few, **how):
        path.unlink(missing_ok=True)
        options = {"maxiter": iterations, "gtol": 0.0, "ftol": 0.0}
        return stepwell.minimize(problem.fun, problem.x0, jac=True, bounds=problem.bounds, options=options, **how)

    # By time: as many iterations as take about half a minute, so that there are several checkpoints.
    many = max(few, round(30 / (run().seconds["total"] / few)))
    plain, by_iteration, long, by_time = [], [], [], []
    for _ in range(3):
        plain.append(run().seconds["total"])
        by_iteration.append(run(checkpoint=path, checkpoint_every=1).seconds["total"])
    for _ in range(2):
        long.append(run(many).seconds["total"])
        by_time.append(run(many, checkpoint=path, checkpoint_every="10 s").seconds["total"])
    opt = stepwell.LBFGSB.load(path)
    size = path.stat().st_size
    writing = seconds(lambda: opt.save(path))
    reading = seconds(lambda: stepwell.LBFGSB.load(path))
    block = np.random.default_rng(0).random(size // 8)

    def bare():
        with open(given.folder / "stepwell-benchmark.npy", "wb") as file:
            np.save(file, block)
            file.flush()
            os.fsync(file.fileno())

    saving = seconds(bare)
    (given.folder / "stepwell-benchmark.npy").unlink()
    path.unlink()
    found = {
        "n": side * side,
        "bytes": size,
        "iterations": few,
        "seconds_without": plain,
        "seconds_every_iteration": by_iteration,
        "iterations_by_time": many,
        "seconds_without_by_time": long,
        "seconds_every_10_s": by_time,
        "seconds_of_one_writing": writing,
        "seconds_of_one_reading": reading,
        "seconds_of_numpy_save_and_sync": saving,
    }
    save("checkpoints", f"n = {side * side}", found)
    print(f"n = {side * side:,}: {size / 1e6:.0f} MB; {few} iterations take {min(plain):.2f} s")
    print(f"every 10 s {min(by_time) / min(long):.3f}, every iteration {min(by_iteration) / min(plain):.2f} of it")
    print(f"one writing {writing:.2f} s, {writing / saving:.2f} of numpy.save and a sync; reading {reading:.2f} s")


if __name__ == "__main__":
    main()
