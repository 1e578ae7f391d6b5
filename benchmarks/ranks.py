"""The quasi-Newton engine over ranks of MPI: against no communicator, against threads, against PETSc/TAO.

    python benchmarks/ranks.py                # all parts, about twelve minutes on two cores
    python benchmarks/ranks.py --part one     # one of: one, two, start, latency, petsc

Bounded torsion, float64, m = 8. Solver time: between evaluations, without the objective; ranks meet in a barrier at the
end of each evaluation, so that nobody's waiting for the other's objective counts as the solver's. Each case is run
several times in turn with its counterpart, each time in a process (or mpiexec) of its own, after a short run in vain;
medians. Tables go to the screen, raw figures to benchmarks/raw/ranks.json.

The part petsc needs petsc4py with the mpi4py that it was built for (STEPWELL_MPIEXEC names its mpiexec), and is left
out elsewhere; all solvers keep as many pairs and begin from the same starts, over which it takes medians. It is done
with five pairs, TAO's default, and with eight. Beside the latter stand two floors, measured on the same ranks in the
same run: the objective as often as TAO called it and, as often as TAO iterated, a bare pass over
the bytes that an iteration with m pairs has to move where variables are free (`bare_iteration` in common.py, with the
free variables of a run from the same start), without and with its arithmetic, and the two messages that cannot be
spared: sums before the direction, and value and slope after it.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
from common import save, table
from ranks_petsc import floor_of, petsc, tao
from ranks_runs import NAME, PROBLEMS, median, run

ROUNDS = 5


def worker(case: dict[str, Any]) -> None:
    """Run one case on this rank; the first prints what it found."""
    import stepwell

    comm: Any = None
    if case["ranks"] != "none":
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    nx = case["nx"]
    layout = stepwell.distributed.split(nx * nx, "self" if comm is None else comm, align=nx)
    fun = PROBLEMS[case.get("problem", "torsion")](nx, comm, layout)
    tree, totals = layout.tree(), stepwell.distributed.Ranks("self")

    def summed(x: np.ndarray) -> tuple[float, np.ndarray]:
        values, gradient = fun(x)
        return float(layout.total(totals, values[:, None], tree)[0]), gradient

    options = {"maxcor": case.get("pairs", 8), "gtol": case.get("gtol", 0), "ftol": 0}
    options |= {"maxiter": case["iterations"], "maxfun": 10**6}
    options |= {"cauchy": case.get("cauchy", "exact"), "history": case.get("history", "float64")}
    options |= {"zero_copy": case.get("zero_copy", False)}

    def solve(**limits: int) -> Any:
        return stepwell.minimize(
            summed if comm is None else fun,
            fun.start(case.get("start", 0)),
            jac=True,
            bounds=(fun.lower, fun.upper),
            comm=None if comm is None else layout,
            options=options | {"threads": case["threads"]} | limits,
        )

    # Once in vain, until every place of the history was written to: where memory is a guest's, a page that the host has
    # to find first costs 35 times what another one does, and who comes first pays for it. Whole solutions pay for
    # their memory, as those of others do.
    if "gtol" not in case:
        solve(maxiter=min(12, case["iterations"]))
    began = time.process_time()
    r = solve()
    processor = time.process_time() - began
    if comm is None or comm.rank == 0:
        found = {"ms": 1e3 * r.seconds["solver"] / r.nit, "seconds": r.seconds["total"], "iterations": r.nit}
        found |= {"processor": processor}
        found |= {"evaluations": r.nfev, "objective": r.seconds["total"] - r.seconds["solver"]}
        found |= {"f": r.fun, "walks": r.cauchy_walks, "exchanges": r.get("exchanges", 0) / r.nit}
        print(json.dumps(found | {"bytes": r.get("bytes_sent", 0) / r.nit}))


def latency() -> None:
    """Print the time of an exchange of an ordinary message on this rank."""
    from mpi4py import MPI

    from stepwell.distributed import Ranks

    ranks = Ranks(MPI.COMM_WORLD)
    row, seconds = np.zeros(280), []
    for _ in range(3000):
        began = time.perf_counter()
        ranks.exchange(row)
        seconds.append(time.perf_counter() - began)
    if ranks.rank == 0:
        print(json.dumps({"microseconds": 1e6 * float(np.median(seconds))}))


def in_turn(cases: dict[str, dict[str, Any]], rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Run all cases once, and again, as often as asked."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            found[name].append(run(case))
    return found


def compared(part: str, sizes: dict[int, int], cases: dict[str, dict[str, Any]], rounds: int = ROUNDS) -> None:
    """Compare two cases at several sizes; the second's time over the first's."""
    rows, figures = [], {}
    first, second = cases
    for nx, iterations in sizes.items():
        here = {name: {"nx": nx, "iterations": iterations, **case} for name, case in cases.items()}
        found = in_turn(here, rounds)
        times = [median(found[name], "ms") for name in cases]
        rows.append([f"{nx * nx:,}", *times, times[1] / times[0], median(found[second], "exchanges")])
        figures[str(nx * nx)] = found
    table(["n", f"{first}, ms an iteration", second, "ratio", "exchanges"], rows)
    save(NAME, part, figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("one", "two", "start", "latency", "petsc"))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--starts", type=int, default=7, help="of the part petsc")
    parser.add_argument("--pairs", type=int, help="of the part petsc; 5 and then 8 unless given")
    parser.add_argument("--ranks", type=int, default=2, help="of the part petsc; one is counted in processor seconds")
    parser.add_argument("--methods", nargs="+", default=[], help="of the part petsc; all unless given")
    parser.add_argument("--worker")
    chosen = parser.parse_args()
    if chosen.worker:
        case = json.loads(chosen.worker)
        if case.get("latency"):
            latency()
        elif case.get("tao"):
            tao(case)
        elif case.get("floor"):
            floor_of(case)
        else:
            worker(case)
        return
    wanted = [chosen.part] if chosen.part else ["one", "two", "start", "latency", "petsc"]
    alone, ranked = {"ranks": "none", "threads": 1}, {"ranks": 1, "threads": 1}
    if "one" in wanted:
        print("One rank against no communicator, one thread")
        compared("one", {100: 300, 400: 60, 1000: 25}, {"none": alone, "one rank": ranked}, chosen.rounds)
    threads, ranks = {"ranks": "none", "threads": 2}, {"ranks": 2, "threads": 1}
    if "two" in wanted:
        print("Two ranks against two threads")
        compared("two", {400: 120, 1000: 30}, {"two threads": threads, "two ranks": ranks}, chosen.rounds)
    if "start" in wanted:
        print("The first 50 iterations from a start on the bounds")
        compared("start", {400: 50}, {"two threads": threads, "two ranks": ranks}, chosen.rounds)
    if "latency" in wanted:
        found = {str(count): run({"ranks": count, "latency": True}) for count in (2, 3, 4)}
        print("An exchange of 280 numbers")
        table(["ranks", "microseconds"], [[count, one["microseconds"]] for count, one in found.items()])
        save(NAME, "latency", found)
    if "petsc" in wanted:
        for pairs in [chosen.pairs] if chosen.pairs else [5, 8]:
            for problem in ("torsion", "surface"):
                petsc(chosen.starts, pairs, problem, chosen.ranks, chosen.methods)


if __name__ == "__main__":
    main()
