"""Centroidal Voronoi tessellation on a CUDA device, beside Table 2 of Fei, Rong, Wang & Wang (2014).

    python benchmarks/voronoi_gpu.py [--quick] [--json FILE]

An evaluation is energy and gradient with everything on the device, the median of several synchronised bursts of ten.
The solver's time per iteration is the device's own, from events around each turn of a run of at most 312 iterations.
What that run takes more than one of 24, less the evaluations among them, stands beside it: host and gaps included.
Needs torch with CUDA, cuda-core and NVRTC.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
import time

import torch
from common import machine, torch_gpu

from stepwell.apps.voronoi import HEXAGONAL_BOUND, VoronoiEnergy, assign, centroidal, draw_sites

#: Sites, side of the image: iterations, milliseconds of an evaluation and of an L-BFGS-B iteration, GTX 580.
PAPER = {
    (60_000, 2048): (28, 44.97, 4.06),
    (40_000, 2048): (34, 43.96, 3.18),
    (20_000, 2048): (55, 42.43, 2.19),
    (10_000, 2048): (69, 41.92, 1.71),
    (8_000, 2048): (72, 41.87, 1.60),
    (6_000, 2048): (71, 41.84, 1.53),
    (4_000, 2048): (106, 41.38, 1.40),
    (4_000, 1024): (48, 8.85, 1.33),
    (2_000, 1024): (61, 8.76, 1.24),
    (1_000, 1024): (74, 8.70, 1.16),
    (500, 512): (56, 2.38, 1.13),
    (200, 512): (59, 2.39, 1.09),
}


def burst(function, repeats=5, length=10):
    """Median seconds of a call among several in a row, with the device idle before and after."""
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(length):
            function()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / length)
    return statistics.median(times)


def captured(function):
    """Put one call into a CUDA graph, as `stepwell.minimize` does with its turns."""
    graph = torch.cuda.CUDAGraph()
    function()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def measure(count, side, like):
    """One row of the table: evaluations and the solver's turns by the device's events, and whole runs."""
    runs = {}
    for most in (3, 24, 312, 24, 312, 24, 312):  # the first compiles
        run = centroidal(count, resolution=side, like=like, maxiter=most, ftol=0.0, gtol=0.0)
        runs.setdefault(most, []).append(run)
    run = runs[312][-1]
    row = {"sites": count, "side": side, "iterations": run.iterations, "evaluations": run.evaluations, "mode": run.mode}
    more = run.evaluations - runs[24][-1].evaluations
    longer, shorter = (statistics.median(r.seconds["total"] for r in runs[most]) for most in (312, 24))
    row["turn_ms"] = 1e3 * (longer - shorter) / more
    row["run_ms"] = 1e3 * longer
    start = draw_sites(count, resolution=side, like=like)
    energy = VoronoiEnergy(1.0, count, resolution=side, like=like)
    row["evaluation_ms"] = 1e3 * burst(captured(lambda: energy.evaluate(run.sites)))
    row["evaluation_launched_ms"] = 1e3 * burst(lambda: energy.evaluate(run.sites))
    row["evaluation_at_start_ms"] = 1e3 * burst(captured(lambda: energy.evaluate(start)))
    flood = VoronoiEnergy(1.0, count, resolution=side, like=like, method="jump-flooding")
    row["flooding_ms"] = 1e3 * burst(captured(lambda: flood.evaluate(run.sites)), length=3)
    row["misassigned"] = assign(run.sites, (side, side), method="jump-flooding", check=True).misassigned
    row["beside_evaluations_ms"] = row["turn_ms"] - row["evaluation_ms"]
    timed = [
        centroidal(count, resolution=side, like=like, maxiter=312, ftol=0.0, gtol=0.0, time_parts=True)
        for _ in range(3)
    ]
    row["solver_ms"] = 1e3 * statistics.median(r.seconds["solver"] / r.iterations for r in timed)
    row["energy_over_bound"] = run.normalized_energy / HEXAGONAL_BOUND
    paper = PAPER.get((count, side))
    print(
        f"  {count:8d} {side:5d}²  evaluation {row['evaluation_ms']:7.3f} ms (launched one by one "
        f"{row['evaluation_launched_ms']:.3f}, start {row['evaluation_at_start_ms']:.3f}, flooding "
        f"{row['flooding_ms']:.3f}, wrong {row['misassigned']:.1e})  solver {row['solver_ms']:6.3f} ms an iteration"
        f" (with gaps {row['beside_evaluations_ms']:.3f})"
        f"  run of {run.iterations}: {row['run_ms']:7.1f} ms  F/bound {row['energy_over_bound']:.4f}"
        + (f"  paper {paper[1]:.1f} / {paper[2]:.2f} ms" if paper else ""),
        flush=True,
    )
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path(__file__).parent / "raw" / "voronoi_gpu.json")
    parser.add_argument("--quick", action="store_true", help="only the sizes that have a goal")
    options = parser.parse_args()
    about = machine() | torch_gpu()
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    like = torch.empty(0, device="cuda")
    sizes = [(60_000, 2048), (20_000, 2048)] if options.quick else list(PAPER)
    rows = [measure(count, side, like) for count, side in [*sizes, (1_000_000, 4096)]]
    whole = []
    for count, side in [(20_000, 2048), (1_000_000, 4096)]:
        best = centroidal(count, resolution=side, like=like)
        lloyd = centroidal(count, resolution=side, like=like, method="lloyd", maxiter=500, ftol=0.0)
        reach = next((k for k, f in enumerate(best.history, 1) if f <= lloyd.energy), None)
        whole.append(
            {
                "sites": count,
                "side": side,
                "iterations": best.iterations,
                "evaluations": best.evaluations,
                "seconds": best.seconds,
                "energy_over_bound": best.normalized_energy / HEXAGONAL_BOUND,
                "lloyd_iterations": lloyd.iterations,
                "lloyd_energy_over_bound": lloyd.normalized_energy / HEXAGONAL_BOUND,
                "evaluations_to_lloyds": reach,
                "message": best.message,
            }
        )
        print("  whole run", whole[-1], flush=True)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"about": about, "sizes": rows, "runs": whole}, indent=1) + "\n")
    print(f"wrote {options.json}")


if __name__ == "__main__":
    sys.exit(main())
