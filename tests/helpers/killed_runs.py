"""Runs with a checkpoint, killed with SIGKILL at random moments and taken up again, until they come to their end.

    python tests/helpers/killed_runs.py minimize FOLDER --kills 200 --seed 1

The runs are forked from this process, so that a life may be as short as a moment. The end must have the bits of the run
that nobody disturbed. Prints the number of kills, of runs, and how many kills left a file half written.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import signal
import sys
import time

import numpy as np

import stepwell


def by_minimize(path):
    """A bounded run with a callback, written after every iteration."""
    p = stepwell.problems.get("torsion", nx=40, ny=40)
    options = dict(maxiter=45, gtol=1e-12, ftol=0, threads=2)
    every = dict(checkpoint=path, checkpoint_every=1) if path else {}
    r = stepwell.minimize(p.fun, p.x0, jac=True, bounds=p.bounds, options=options, **every)
    return np.concatenate([r.x, r.jac, [r.fun, r.nit, r.nfev, r.njev]])


def by_differences(path):
    """The same with differences and a diagonal that changes: counts and weights are part of the state."""

    def fun(x):
        return float(np.sum((x - 1) ** 2 * np.arange(1, 31)) + np.sum(np.cos(x)))

    options = dict(maxiter=25, gtol=1e-12, ftol=0, h0=lambda x: 1 / (2 + x * x))
    every = dict(checkpoint=path, checkpoint_every=1) if path else {}
    r = stepwell.minimize(fun, np.zeros(30), bounds=(-0.5, 3.0), options=options, **every)
    return np.concatenate([r.x, r.jac, [r.fun, r.nit, r.nfev, r.njev]])


def by_projection(path):
    """Right-hand sides one by one; solutions are put away before the next solve, as a careful program does."""
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((90, 60)), rng.standard_normal((90, 40))
    solutions = pathlib.Path(path).parent / "solutions" if path else None
    # The memory does not hold all directions: some are dropped on the way.
    every = dict(checkpoint=path, checkpoint_every=1) if path else {}
    solver = stepwell.ProjectedCG(A, 0.3, memory=45 * 8 * 210, augmented=True, **every)
    if solutions:
        solutions.mkdir(exist_ok=True)
    found = [np.load(solutions / f"{k}.npy") for k in range(solver.solved)] if solutions else []
    for k in range(solver.solved, 40):
        found.append(solver.solve(B[:, k] + 0.5 * B[:, 0], tol=1e-8).x)
        if solutions:
            with stepwell.common.files.replacing(solutions / f"{k}.npy") as file:
                np.save(file, found[-1])
    return np.concatenate(found)


RUNS = {"minimize": by_minimize, "differences": by_differences, "projected": by_projection}


def one_life(run, path, answer, life):
    """Start or take up the run in a process of its own and kill it after so many seconds; return whether it ended."""
    child = os.fork()
    if not child:
        status = 1
        try:
            x = run(str(path))
            with stepwell.common.files.replacing(answer) as file:
                np.save(file, x)
            status = 0
        finally:
            os._exit(status)
    end = time.monotonic() + life
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            if status:
                sys.exit(f"a run ended by itself with status {status}")
            return True
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            return os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0
        time.sleep(0.0002)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run", choices=RUNS)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    run, path, answer = RUNS[given.run], given.folder / "run.ckpt", given.folder / "answer.npy"
    began = time.monotonic()
    want = run(None)
    # Short enough for many kills a run, long enough to get on: from nothing to a third of what the whole takes.
    longest = max(0.02, (time.monotonic() - began) / 3)
    kills = ends = half = 0
    while kills < given.kills:
        if one_life(run, path, answer, chance.uniform(0, longest)):
            got = np.load(answer)
            if not np.array_equal(want, got):
                sys.exit(f"after {kills} kills the end differs by {np.abs(want - got).max()}")
            ends += 1
            for left in given.folder.rglob("*"):
                if left.is_file():
                    left.unlink()
        else:
            kills += 1
            half += any(given.folder.glob(".stepwell-*.tmp"))
    if not ends:
        while not one_life(run, path, answer, 60.0):
            pass
        if not np.array_equal(want, np.load(answer)):
            sys.exit("the end differs")
        ends = 1
    sys.stdout.write(f"{kills} kills, {ends} runs to the end, {half} kills while a file was being written\n")


if __name__ == "__main__":
    main()
