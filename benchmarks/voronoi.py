"""Centroidal Voronoi tessellation on the CPU: evaluations against SciPy's k-d tree, L-BFGS-B against Lloyd.

    python benchmarks/voronoi.py [--quick] [--json FILE]

An evaluation is energy and gradient from the sites alone. Beside it: `cKDTree(sites).query` of all pixel centres, which
is only the assignment, with as many workers as cores; and jump flooding. All are timed in turn within one run, at sites
that have moved a few times towards their centroids.
"""

from __future__ import annotations

import argparse
import collections
import functools
import json
import pathlib
import statistics
import sys
import time

import numpy as np
from common import interleave, machine, table, wall
from scipy.spatial import cKDTree

from stepwell.apps.voronoi import HEXAGONAL_BOUND, VoronoiEnergy, assign, centroidal, draw_sites
from stepwell.common.threads import default_threads


def settled(energy, sites, steps=3):
    """Sites after a few of Lloyd's steps."""
    for _ in range(steps):
        _, g = energy.evaluate(sites)
        sites = sites - g / (2 * energy.masses()[:, None])
    return sites


def evaluations(count, side, repeats, flooding):
    """Median seconds of an evaluation, of SciPy's query and of jump flooding."""
    energy = VoronoiEnergy(1.0, count, resolution=side)
    alone = VoronoiEnergy(1.0, count, resolution=side, threads=1)
    flood = VoronoiEnergy(1.0, count, resolution=side, method="jump-flooding")
    sites = settled(energy, draw_sites(count, resolution=side))
    rows, columns = np.divmod(np.arange(side * side), side)
    centres = np.stack([columns + 0.5, rows + 0.5], axis=1) / side
    runs = {
        "evaluation": wall(lambda: energy.evaluate(sites)),
        "one thread": wall(lambda: alone.evaluate(sites)),
        "k-d tree": wall(lambda: cKDTree(sites).query(centres, workers=default_threads())),
    }
    if flooding:
        runs["jump flooding"] = wall(lambda: flood.evaluate(sites))
    energy.evaluate(sites)
    seen = interleave(repeats, **runs)
    figures = {name: statistics.median(values) for name, values in seen.items()}
    row = {"sites": count, "side": side, **{f"{name} ms": 1e3 * value for name, value in figures.items()}}
    row["times faster than the k-d tree"] = figures["k-d tree"] / figures["evaluation"]
    if flooding:
        row["misassigned by flooding"] = assign(sites, (side, side), method="jump-flooding", check=True).misassigned
    return row


def convergence(count, side):
    """L-BFGS-B against 500 iterations of Lloyd from the same start."""
    lloyd = centroidal(count, resolution=side, method="lloyd", maxiter=500, ftol=0.0, gtol=0.0)
    run = centroidal(count, resolution=side)
    best = np.minimum.accumulate(run.history)

    def evaluations_to(energy):
        reach = np.flatnonzero(best <= energy)
        return int(reach[0]) + 1 if reach.size else None

    needed = evaluations_to(lloyd.energy)
    times = None
    if needed is not None:  # as many iterations as take it there, and no more
        short = centroidal(count, resolution=side, maxiter=needed)
        times = lloyd.seconds["total"] / short.seconds["total"]
    early = {
        f"evaluations to Lloyd's F after {steps}": evaluations_to(lloyd.history[steps - 1])
        for steps in (10, 20, 50, 100)
        if steps <= len(lloyd.history)
    }
    return {
        "sites": count,
        "side": side,
        "L-BFGS-B iterations": run.iterations,
        "evaluations": run.evaluations,
        "seconds": run.seconds["total"],
        "solver ms an iteration": 1e3 * run.seconds["solver"] / run.iterations,
        "F over bound": run.normalized_energy / HEXAGONAL_BOUND,
        "Lloyd iterations": lloyd.iterations,
        "Lloyd F over bound": lloyd.normalized_energy / HEXAGONAL_BOUND,
        **early,
        "evaluations to Lloyd's F": needed,
        "times faster than Lloyd to its F": times,
        "message": run.message,
    }


def spent(repeats, *calls):
    """Least seconds of processor time of each of some calls, taken in turn."""
    found = [[] for _ in calls]
    for _ in range(repeats):
        for call, times in zip(calls, found):
            began = time.process_time()
            call()
            times.append(time.process_time() - began)
    return [min(times) for times in found]


def counts(count, side, name, density, seeds=3, repeats=3):
    """What L-BFGS-B takes to what Lloyd has after some iterations: medians over several starts.

    Evaluations, by no clock; how many times faster whole calls are, on one thread; and beside it the floor, how many
    times faster they would be if nothing but evaluations on the image itself took time.
    """
    steps = (10, 20, 50, 100)
    lloyd_run = functools.partial(centroidal, count, density, method="lloyd", ftol=0.0, gtol=0.0, threads=1)
    quick_run = functools.partial(centroidal, count, density, threads=1)
    evaluations, faster, floor, ends = (collections.defaultdict(list) for _ in range(4))
    for seed in range(seeds):
        lloyd = lloyd_run(maxiter=500, seed=seed)
        quick = quick_run(seed=seed)
        best = np.minimum.accumulate(quick.history)
        ends["Lloyd's"].append(len(lloyd.history))
        for at in (*(step for step in steps if step <= len(lloyd.history)), "its last"):
            last = len(lloyd.history) if at == "its last" else at
            needed = int(np.flatnonzero(best <= lloyd.history[last - 1])[0]) + 1
            evaluations[at].append(needed)
            if at == "its last":
                continue
            slow, fast = spent(
                repeats,
                functools.partial(lloyd_run, maxiter=last - 1, seed=seed),
                functools.partial(quick_run, maxiter=needed - 1, ftol=0.0, seed=seed),
            )
            faster[at].append(slow / fast)
            floor[at].append(last / needed)
    row = {"sites": count, "side": side, "density": name, "Lloyd's evaluations": statistics.median(ends["Lloyd's"])}
    for title, found in (("evaluations to", evaluations), ("times faster to", faster), ("floor of", floor)):
        keys = (*steps, "its last") if found is evaluations else steps
        row |= {f"{title} {at}": statistics.median(found[at]) if found[at] else "" for at in keys}
    return row


def densities(side):
    """A uniform square, and one with a peak in its middle."""
    x = (np.arange(side) + 0.5) / side - 0.5
    return {"uniform": np.ones((side, side)), "one peak": 0.05 + np.exp(-20 * (x[:, None] ** 2 + x**2))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    default = pathlib.Path(__file__).parent / "raw" / "voronoi.json"
    parser.add_argument("--json", type=pathlib.Path, default=default)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, smaller sizes for the runs to convergence")
    options = parser.parse_args()
    about = machine()
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    began = time.perf_counter()
    repeats = 3 if options.quick else 7
    sizes = (
        [(20_000, 2048), (2_000, 1024)]
        if options.quick
        else [(200, 512), (2_000, 1024), (20_000, 2048), (100_000, 2048)]
    )
    first = [evaluations(count, side, repeats, flooding=side <= 1024 or not options.quick) for count, side in sizes]
    names = list(max(first, key=len))
    table(names, [[row.get(name, "") for name in names] for row in first])
    sizes = [(2_000, 512)] if options.quick else [(2_000, 1024), (20_000, 2048), (100_000, 2048)]
    second = [convergence(count, side) for count, side in sizes]
    table(list(second[0]), [list(row.values()) for row in second])
    third = [
        counts(count, side, name, density)
        for count, side in ((800, 512), (5_000, 512), (5_000, 1024))
        for name, density in densities(side).items()
    ]
    print("L-BFGS-B to the energy that Lloyd has after so many evaluations")
    table(list(third[0]), [list(row.values()) for row in third])
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(
        json.dumps({"about": about, "evaluations": first, "runs": second, "counts": third}, indent=1) + "\n"
    )
    print(f"wrote {options.json} after {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
