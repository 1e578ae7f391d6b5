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
import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from typing import Any

import numpy as np
from common import bare_iteration, save, table

NAME = "ranks"
ROUNDS = 5
# A run beside which other programs took more than this share of one processor is made again, so many times at most.
QUIET, TRIES = 0.05, 10


# ---- the work of one rank, in a process of its own ------------------------------------------------------------------


class Torsion:
    """The rows of one rank of the elastic-plastic torsion problem on nx by nx points."""

    def __init__(self, nx: int, comm: Any, layout: Any) -> None:
        self.nx, self.comm, self.layout = nx, comm, layout
        begin, end = layout
        self.rows, self.h = (end - begin) // nx, 1 / (nx + 1)
        near = np.minimum(np.arange(1, nx + 1.0), nx + 1 - np.arange(1, nx + 1.0)) * self.h
        self.upper = np.minimum(near[begin // nx : end // nx, None], near[None]).ravel()
        self.padded = np.zeros((self.rows + 2, nx + 2))
        self.curved, self.terms = np.empty((self.rows, nx)), np.empty((self.rows, nx))

    def start(self, number: int) -> np.ndarray:
        """Return where a run begins: on the upper bounds or, of numbers above 0, inside by a thousandth or less."""
        if number == 0:
            return self.upper.copy()
        begin, end = self.layout
        noise = np.random.default_rng(number).random(self.nx * self.nx)[begin:end]
        return self.upper * (1 - 1e-3 * noise)

    def __call__(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return values a chunk and the gradient."""
        v, point = self.padded, x.reshape(self.rows, self.nx)
        v[1:-1, 1:-1] = point
        if self.comm is not None and self.comm.size > 1:
            rank, size = self.comm.rank, self.comm.size
            above, below = (rank - 1 if rank else -2), (rank + 1 if rank + 1 < size else -2)
            if above >= 0:
                self.comm.Sendrecv(v[1].copy(), above, recvbuf=v[0], source=above)
            if below >= 0:
                self.comm.Sendrecv(v[-2].copy(), below, recvbuf=v[-1], source=below)
        # Without temporaries: their pages would be fetched anew in every evaluation, whoever the solver is. And by the
        # point itself, not its place among the neighbours: NumPy takes three times as long with rows that lie apart.
        curved, terms, load = self.curved, self.terms, 5 * self.h * self.h
        np.multiply(point, 4, out=curved)
        for near in (v[:-2, 1:-1], v[2:, 1:-1], v[1:-1, :-2], v[1:-1, 2:]):
            np.subtract(curved, near, out=curved)
        np.multiply(curved, 0.5, out=terms)
        np.subtract(terms, load, out=terms)
        np.multiply(terms, point, out=terms)
        np.subtract(curved, load, out=curved)
        found = self.layout.chunk_sums(terms), curved.ravel()
        if self.comm is not None and self.comm.size > 1:
            self.comm.Barrier()
        return found


def worker(case: dict[str, Any]) -> None:
    """Run one case on this rank; the first prints what it found."""
    import stepwell

    comm: Any = None
    if case["ranks"] != "none":
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    nx = case["nx"]
    layout = stepwell.distributed.split(nx * nx, "self" if comm is None else comm, align=nx)
    fun = Torsion(nx, comm, layout)
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
            bounds=(-fun.upper, fun.upper),
            comm=None if comm is None else layout,
            options=options | {"threads": case["threads"]} | limits,
        )

    # Once in vain, until every place of the history was written to: where memory is a guest's, a page that the host has
    # to find first costs 35 times what another one does, and who comes first pays for it. Whole solutions pay for
    # their memory, as those of others do.
    if "gtol" not in case:
        solve(maxiter=min(12, case["iterations"]))
    r = solve()
    if comm is None or comm.rank == 0:
        found = {"ms": 1e3 * r.seconds["solver"] / r.nit, "seconds": r.seconds["total"], "iterations": r.nit}
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


# ---- cases ----------------------------------------------------------------------------------------------------------


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Run a case in processes of its own, and again while others are busy; return what the first rank found."""
    mpiexec = os.environ.get("STEPWELL_MPIEXEC", os.path.join(sysconfig.get_path("scripts"), "mpiexec"))
    start = [] if case["ranks"] == "none" else [mpiexec, "-n", str(case["ranks"])]
    command = [*start, sys.executable, __file__, "--worker", json.dumps(case)]
    environment = dict(os.environ, OPENBLAS_NUM_THREADS="1")
    for _ in range(TRIES):
        began, others = time.perf_counter(), work_of_others()
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=environment)
        others = (work_of_others() - others) / (time.perf_counter() - began)
        if others < QUIET:
            break
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found | {"others": others}


def work_of_others() -> float:
    """Return seconds that processors have spent on other programs than this one and its children; 0 if nobody says."""
    if not os.path.exists("/proc/stat"):
        return 0.0
    with open("/proc/stat") as file:
        user, nice, system, _idle, _waiting, *interrupts = (int(word) for word in file.readline().split()[1:9])
    mine = os.times()
    own = mine.user + mine.system + mine.children_user + mine.children_system
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK") - own


def in_turn(cases: dict[str, dict[str, Any]], rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Run all cases once, and again, as often as asked."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            found[name].append(run(case))
    return found


def median(found: list[dict[str, Any]], field: str) -> float:
    return float(np.median([one[field] for one in found]))


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


def spread(values: list[float]) -> str:
    """Write the median and, where they differ, the least and the largest."""
    middle, least, most = (f"{value:.3g}" for value in (np.median(values), min(values), max(values)))
    return middle if least == most else f"{middle} ({least} to {most})"


def geometric_mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def petsc(starts: int, pairs: int) -> None:
    """Seconds to the same projected gradient on two ranks: ours by each policy, BLMVM (which has none) and BQNLS.

    Where a run ends hangs on last bits: 598 iterations in one version of a solver, 712 in the next. So all begin from
    several starts, the same for each, and what is compared are medians over them; and geometric means, which do not
    ask which run of the one stands beside which of the other.
    """
    if importlib.util.find_spec("petsc4py") is None:
        print("petsc: left out, there is no petsc4py here\n")
        return
    # TAO hands out views of its vectors; so do we.
    case = {"nx": 400, "iterations": 5000, "gtol": 1e-7, "ranks": 2, "threads": 1, "zero_copy": True, "pairs": pairs}
    methods = {policy: case | {"cauchy": policy} for policy in ("exact", "first-interval", "none")}
    for history in ("float32", "bfloat16"):
        methods[f"none, {history} history"] = methods["none"] | {"history": history}
    methods |= {name: case | {"tao": name} for name in ("blmvm", "bqnls")}
    if pairs % 8 == 0:  # as the floor has them
        methods |= {"floor": case | {"floor": True}}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in methods}
    for start in range(starts):
        for name, method in methods.items():
            found[name].append(run(method | {"start": start}))
    runs = {name: one for name, one in found.items() if name != "floor"}
    if "floor" in found:
        runs |= floors(found)
    rows = []
    for name, one in runs.items():
        fields = ("seconds", "iterations", "evaluations", "objective", "ms")
        rows.append([name, *(spread([of_start[field] for of_start in one]) for field in fields)])
        for peer in ("blmvm", "bqnls"):
            ratios = [theirs["seconds"] / ours["seconds"] for theirs, ours in zip(found[peer], one, strict=True)]
            other = "floor" in name and peer not in name
            rows[-1] += ["", ""] if other else [spread(ratios), geometric_mean(ratios)]
    print(f"To the same projected gradient, {pairs} pairs")
    head = ["method", "seconds", "iterations", "evaluations", "objective, s", "solver, ms an iteration"]
    table([*head, "BLMVM / it", "geometric mean", "BQNLS / it", "geometric mean"], rows)
    save(NAME, f"petsc, {pairs} pairs", found)


def floors(found: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Return what runs with the steps of TAO's would take that do no more than they have to."""
    floor = {field: median(found["floor"], field) for field in ("evaluation", "bytes", "arithmetic", "message")}
    runs = {}
    for peer in ("blmvm", "bqnls"):
        for kind in ("bytes", "arithmetic"):
            step = floor[kind] + 2 * floor["message"]
            runs[f"floor with {peer}'s steps: {kind}"] = [
                {"iterations": one["iterations"], "evaluations": one["evaluations"], "ms": 1e3 * step}
                | {"objective": one["evaluations"] * floor["evaluation"]}
                | {"seconds": one["evaluations"] * floor["evaluation"] + one["iterations"] * step}
                for one in found[peer]
            ]
    return runs


def free_along(case: dict[str, Any], fun: Torsion) -> list[np.ndarray]:
    """Return which variables of this rank are free, not held at a bound, at each point that a run of ours looks at."""
    import stepwell

    free = []

    def noted(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, g = fun(x)
        held = ((x <= -fun.upper) & (g >= 0)) | ((x >= fun.upper) & (g <= 0))
        free.append(np.packbits(~held))
        return values, g

    options = {"maxcor": case["pairs"], "gtol": case["gtol"], "ftol": 0, "maxiter": case["iterations"]}
    options |= {"maxfun": 10**6}
    bounds, x0 = (-fun.upper, fun.upper), fun.start(case["start"])
    stepwell.minimize(noted, x0, jac=True, bounds=bounds, comm=fun.layout, options=options)
    return [np.unpackbits(bits, count=x0.size).astype(bool) for bits in free]


def floor_of(case: dict[str, Any]) -> None:
    """Print the seconds of an evaluation and of a bare iteration on two ranks at once.

    A bare iteration reads rows where variables are free; it is timed with those of several iterations, evenly spread
    over a run, and their mean counts.
    """
    from mpi4py import MPI

    import stepwell

    comm, nx = MPI.COMM_WORLD, case["nx"]
    layout = stepwell.distributed.split(nx * nx, comm, align=nx)
    fun = Torsion(nx, comm, layout)
    x = 0.9 * fun.upper

    def in_step(work: Any) -> float:
        comm.Barrier()
        began = time.perf_counter()
        work()
        return comm.allreduce(time.perf_counter() - began, MPI.MAX)

    free = free_along(case, fun)
    seconds: dict[str, list[float]] = {"evaluation": [], "bytes": [], "arithmetic": [], "message": []}
    row, sums = np.ones(56), np.empty(56)
    for at in np.linspace(0, len(free) - 1, 16).astype(int):
        for kind in ("bytes", "arithmetic"):  # one after the other: caches hold as much of its memory as of a solver's
            bare = bare_iteration(free[at], case["pairs"], arithmetic=kind == "arithmetic")
            here: dict[str, list[float]] = {"evaluation": [], kind: [], "message": []}
            for _ in range(12):
                here["evaluation"].append(in_step(lambda: fun(x)))
                here[kind].append(in_step(bare))
                here["message"].append(in_step(lambda: comm.Allreduce(row, sums)))
            for name, took in here.items():
                seconds[name].append(float(np.median(took)))
    shares = comm.allreduce(np.array([one.sum() for one in free])) / (nx * nx)
    if comm.rank == 0:
        found = {kind: float(np.mean(took)) for kind, took in seconds.items()}
        found |= {"free": float(np.mean(shares)), "free at the end": float(shares[-1])}
        print(json.dumps(found))


def kept_pairs(solver: Any, petsc: Any) -> int:
    """Return how many pairs a solver of TAO keeps, of which only what it prints about itself tells."""
    with tempfile.TemporaryDirectory() as folder:
        place = os.path.join(solver.comm.tompi4py().bcast(folder), "view")
        viewer = petsc.Viewer().createASCII(place, comm=solver.comm)
        solver.view(viewer)
        viewer.destroy()
        solver.comm.barrier()
        with open(place) as file:  # (its diagonal has a history of one)
            found = max(int(line.split(":")[1]) for line in file if "Max. storage" in line)
        solver.comm.barrier()
    return found


def tao(case: dict[str, Any]) -> None:
    """Solve the same problem by TAO, to the same projected gradient, which its own test is replaced by."""
    from mpi4py import MPI
    from petsc4py import PETSc

    import stepwell

    comm, nx = MPI.COMM_WORLD, case["nx"]
    layout = stepwell.distributed.split(nx * nx, comm, align=nx)
    fun = Torsion(nx, comm, layout)
    x = PETSc.Vec().createMPI((fun.upper.size, nx * nx), comm=comm)
    lower, upper = x.duplicate(), x.duplicate()
    x.array[:], lower.array[:], upper.array[:] = fun.start(case["start"]), -fun.upper, fun.upper
    inside = [0.0, 0.0]  # seconds in the objective, and in the test
    calls = 0
    reasons = getattr(PETSc.TAO, "ConvergedReason", None) or PETSc.TAO.Reason  # as it was called up to 3.18

    def value(_tao: Any, at: Any, g: Any) -> float:
        nonlocal calls
        calls += 1
        began = time.perf_counter()
        values, gradient = fun(at.array_r)
        g.array[:] = gradient
        total: float = comm.allreduce(float(values.sum()))
        inside[0] += time.perf_counter() - began
        return total

    def converged(solver: Any) -> None:
        began = time.perf_counter()
        at, g = solver.getSolution().array_r, solver.getGradient()[0].array_r
        projected = at - np.clip(at - g, -fun.upper, fun.upper)
        norm = comm.allreduce(float(np.abs(projected).max()), MPI.MAX)
        if norm <= case["gtol"]:
            solver.setConvergedReason(reasons.CONVERGED_USER)
        inside[1] += time.perf_counter() - began

    solver = PETSc.TAO().create(comm)
    solver.setType(case["tao"])
    # By the solver's own prefix: without one PETSc takes the option, and keeps five pairs.
    PETSc.Options()[f"tao_{case['tao']}_mat_lmvm_hist_size"] = case["pairs"]
    solver.setFromOptions()
    solver.setObjectiveGradient(value, x.duplicate())
    solver.setVariableBounds(lower, upper)
    solver.setConvergenceTest(converged)
    solver.setMaximumIterations(case["iterations"])
    began = time.perf_counter()
    solver.solve(x)
    seconds = time.perf_counter() - began - inside[1]
    assert kept_pairs(solver, PETSc) == case["pairs"]
    if comm.rank == 0:
        steps = solver.getIterationNumber()
        found = {"seconds": seconds, "iterations": steps, "ms": 1e3 * (seconds - inside[0]) / max(steps, 1)}
        print(json.dumps(found | {"evaluations": calls, "objective": inside[0], "f": solver.getObjectiveValue()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("one", "two", "start", "latency", "petsc"))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--starts", type=int, default=7, help="of the part petsc")
    parser.add_argument("--pairs", type=int, help="of the part petsc; 5 and then 8 unless given")
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
            petsc(chosen.starts, pairs)


if __name__ == "__main__":
    main()
