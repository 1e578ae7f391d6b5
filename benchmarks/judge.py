"""What it costs to judge the end of every system: the same solves by a core that judges and by one that does not.

    python benchmarks/judge.py CORE_WITHOUT [--core CORE_WITH] [--repeats 15]

CORE_WITHOUT is a `_core` built with `-DSTEPWELL_JUDGE=OFF`: small systems then end without `is_certified` and without
what is measured for it alone (`src/core/lsq/small/answer.hpp`). Each core has a process; they take turns on one core
with one thread, and the line is seconds of that thread. Answers of both are the same bits. Raw figures:
benchmarks/raw/judge.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import time

import numpy as np
from common import medians, save, table
from threadpoolctl import threadpool_limits

LINES = ("unmixing", "damped", "own matrices", "bounds")


def load(core):
    spec = importlib.util.spec_from_file_location("stepwell._core", core)
    module = importlib.util.module_from_spec(spec)
    sys.modules["stepwell._core"] = module
    spec.loader.exec_module(module)


def work():
    """The lines: pixels of one matrix, T2 decays with a damping, systems with matrices of their own, and bounds."""
    from nnls_small import DAMPING, VOXELS, scene

    import stepwell
    from stepwell.lab.studies.cases import decays

    A, b = scene()
    T2, signals = decays(VOXELS)
    lam = DAMPING * float(np.linalg.norm(T2, 2))
    rng = np.random.default_rng(0)
    own, data = rng.random((2000, 30, 8)), rng.random((2000, 30))
    return {
        "unmixing": lambda: stepwell.nnls(A, b),
        "damped": lambda: stepwell.nnls(T2, signals, lam=lam),
        "own matrices": lambda: stepwell.nnls(own, data),
        "bounds": lambda: stepwell.lsq_linear(A, b, bounds=(0.05, 0.6)),
    }


def answer_questions():
    """In a process of its own: for each name that is read, seconds of a run and a number that stands for x."""
    from stepwell.common.threads import threads_at_most

    with threadpool_limits(1), threads_at_most(1):
        runs = work()
        for name in map(str.strip, sys.stdin):
            start = time.thread_time()
            result = runs[name]()
            seconds = time.thread_time() - start
            print(seconds, hash(np.asarray(result.x).tobytes()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("without")
    parser.add_argument("--core")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.answer:
        load(options.without)
        return answer_questions()
    from stepwell import _core

    cores = {"with": options.core or _core.__file__, "without": options.without}
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    command = [sys.executable, __file__, "--answer"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    children = {name: subprocess.Popen([*command, core], env=environment, **pipes) for name, core in cores.items()}
    rows = []
    for line in LINES:
        seen = {name: [] for name in cores}
        bits = set()
        for repeat in range(options.repeats + 2):
            for name in sorted(cores, reverse=bool(repeat % 2)):
                child = children[name]
                child.stdin.write(line + "\n")
                child.stdin.flush()
                seconds, found = child.stdout.readline().split()
                bits.add(found)
                if repeat > 1:
                    seen[name].append(float(seconds))
        assert len(bits) == 1, f"{line}: other answers without the judge"
        part = medians(seen)
        share = 1 - np.quantile(seen["without"], 0.1) / np.quantile(seen["with"], 0.1)  # the machine has other work
        save("judge", line, {"seconds": seen, "medians": part, "share": float(share)})
        rows.append([line, *(f"{1e3 * part[name]:.2f}" for name in cores), f"{100 * share:.1f} %"])
    for child in children.values():
        child.stdin.close()
        child.wait()
    table(["line", "ms with", "ms without", "the judge"], rows)


if __name__ == "__main__":
    main()
