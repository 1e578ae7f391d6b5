"""The quasi-Newton engine of a rank on a GPU, one rank alone, against the single launch of a turn.

    python benchmarks/ranks_gpu.py                     # about a minute on an H200
    python benchmarks/ranks_gpu.py --sizes 4000000     # fewer variables

A quadratic with curvatures from 1 to 10^4 and two bounds for every variable, PyTorch, float64, m = 8: bounds that no
step meets, so that a turn is two sweeps; and at the first size once more with bounds that cut the path, so that half of
the turns walk along it. The time of a turn is the device's, from the end of an evaluation to where the next one may
begin, and so has the waiting for the host in it; the wall clock has the evaluations besides. Both ways in turn, medians
over the rounds. Tables go to the screen, raw figures to benchmarks/raw/ranks_gpu.json.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from common import save, table, torch_gpu

NAME = "ranks_gpu"


class Quadratic:
    """½ Σ c (x - centre)²; c and centre by the number of a variable."""

    def __init__(self, n: int, bounds: tuple[float, float]) -> None:
        import torch

        i = torch.arange(n, device="cuda", dtype=torch.float64)
        self.curvature = 10 ** (4 * torch.frac(i * 0.6180339887498949))
        self.centre = torch.sin(i)
        self.start = torch.zeros_like(i)
        self.bounds = tuple(torch.full_like(i, bound) for bound in bounds)

    def __call__(self, x: Any) -> tuple[Any, Any]:
        """Return the value, on the device, and the gradient."""
        away = x - self.centre
        gradient = self.curvature * away
        return 0.5 * away @ gradient, gradient


def measured(problem: Quadratic, comm: str | None, iterations: int) -> dict[str, float]:
    """Run once; milliseconds of a turn on the device, and of an iteration by the wall clock of another run."""
    import torch

    import stepwell

    def run(**more: Any) -> tuple[Any, float]:
        options = {"maxcor": 8, "gtol": 0, "ftol": 0, "maxiter": iterations, "graph": False} | more
        torch.cuda.synchronize()
        began = time.perf_counter()
        r = stepwell.minimize(problem, problem.start, jac=True, bounds=problem.bounds, comm=comm, options=options)
        torch.cuda.synchronize()
        return r, time.perf_counter() - began - r.seconds["setup"]

    timed, _ = run(time_objective=True)
    plain, wall = run()
    assert timed.nfev == plain.nfev
    return {
        "turn": 1e3 * timed.seconds["turns"] / timed.nfev,
        "wall": 1e3 * wall / plain.nfev,
        "iterations": plain.nit,
        "evaluations": plain.nfev,
        "walks": plain.cauchy_walks,
        "f": plain.fun,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[4_000_000, 100_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=40)
    chosen = parser.parse_args()
    rows, figures = [], {}
    wide, narrow = (-10.0, 10.0), (-0.9, 0.7)
    for n, bounds in [*((n, wide) for n in chosen.sizes), (chosen.sizes[0], narrow)]:
        problem = Quadratic(n, bounds)
        name_of = f"{n:,}{', walks' if bounds is narrow else ''}"
        ways: dict[str, str | None] = {"single launch": None, "one rank": "self"}
        found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
        for comm in ways.values():
            measured(problem, comm, 3)  # kernels are compiled
        for _ in range(chosen.rounds):
            for name, comm in ways.items():
                found[name].append(measured(problem, comm, chosen.iterations))
        median = {
            name: {field: float(np.median([one[field] for one in runs])) for field in ("turn", "wall")}
            for name, runs in found.items()
        }
        first, second = median.values()
        counts = {name: {(one["evaluations"], one["walks"]) for one in runs} for name, runs in found.items()}
        print(name_of, "evaluations and walks:", counts, flush=True)
        for field in ("turn", "wall"):
            more = 100 * (second[field] / first[field] - 1)
            rows.append([name_of, field, first[field], second[field], f"{more:+.1f} %"])
        figures[name_of] = found
        del problem
    table(["variables", "ms", "single launch", "one rank", "more"], rows)
    save(NAME, "one rank", {"gpu": torch_gpu(), "runs": figures})


if __name__ == "__main__":
    main()
