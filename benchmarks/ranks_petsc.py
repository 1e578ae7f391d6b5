"""Ranks against PETSc/TAO, and floors beside it: the part petsc of benchmarks/ranks.py."""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from common import bare_iteration, save, table
from ranks_runs import NAME, PROBLEMS, Torsion, median, run


def spread(values: list[float]) -> str:
    """Write the median and, where they differ, the least and the largest."""
    middle, least, most = (f"{value:.3g}" for value in (np.median(values), min(values), max(values)))
    return middle if least == most else f"{middle} ({least} to {most})"


def geometric_mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


#: TAO's solvers as they are by default, and with the scaling that makes their iterations cheapest.
PEERS = {
    "blmvm": ("blmvm", {}),
    "blmvm, scalar scaling": ("blmvm", {"mat_lmvm_scale_type": "scalar"}),
    "bqnls": ("bqnls", {}),
    "bqnls, scalar scaling": ("bqnls", {"mat_lmvm_scale_type": "scalar"}),
}
#: Points along a side, and where a run of it ends.
SIZES = {"torsion": (400, 1e-7), "surface": (400, 1e-6)}


def petsc(starts: int, pairs: int, problem: str = "torsion", ranks: int = 2, only: Sequence[str] = ()) -> None:
    """Seconds to the same projected gradient: ours by each policy, BLMVM (which has none) and BQNLS.

    TAO's solvers are asked as they are and with the options that a user who knows them would set (`PEERS`); ratios are
    to the best BLMVM and the best BQNLS, by the geometric mean of their seconds.

    Where a run ends hangs on last bits: 598 iterations in one version of a solver, 712 in the next. So all begin from
    several starts, the same for each, and what is compared are medians over them; and geometric means, which do not
    ask which run of the one stands beside which of the other.

    One rank is compared by its processor's seconds, which do not count what others do on the machine in the meantime.
    (Ranks that wait for each other spend theirs on that.)
    """
    counted = "processor" if ranks == 1 else "seconds"
    if importlib.util.find_spec("petsc4py") is None:
        print("petsc: left out, there is no petsc4py here\n")
        return
    # TAO hands out views of its vectors; so do we.
    nx, gtol = SIZES[problem]
    case = {"nx": nx, "iterations": 5000, "gtol": gtol, "ranks": ranks, "threads": 1, "zero_copy": True, "pairs": pairs}
    case |= {"problem": problem} | ({"tries": 1} if counted == "processor" else {})
    methods = {policy: case | {"cauchy": policy} for policy in ("exact", "first-interval", "none")}
    for history in ("float32", "bfloat16"):
        methods[f"none, {history} history"] = methods["none"] | {"history": history}
    methods |= {name: case | {"tao": tao, "options": options} for name, (tao, options) in PEERS.items()}
    if pairs % 8 == 0 and problem == "torsion" and ranks == 2:  # as the floor has them
        methods |= {"floor": case | {"floor": True}}
    methods = {name: method for name, method in methods.items() if not only or name in only}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in methods}
    for start in range(starts):
        for name, method in methods.items():
            found[name].append(run(method | {"start": start}))
    runs = {name: one for name, one in found.items() if name != "floor"}
    if "floor" in found:
        runs |= floors(found)
    best = {}
    for peer in ("blmvm", "bqnls"):
        asked = [name for name in PEERS if PEERS[name][0] == peer and name in found]
        if asked:
            best[peer] = min(asked, key=lambda name: geometric_mean([one[counted] for one in found[name]]))
    rows = []
    for name, one in runs.items():
        fields = (counted, "iterations", "evaluations", "objective", "ms")
        rows.append([name, *(spread([of_start[field] for of_start in one]) for field in fields)])
        for peer in best:
            ratios = [theirs[counted] / ours[counted] for theirs, ours in zip(found[best[peer]], one, strict=True)]
            other = "floor" in name and peer not in name
            rows[-1] += ["", ""] if other else [spread(ratios), geometric_mean(ratios)]
    print(f"{problem}, to the same projected gradient, {pairs} pairs; ratios to {' and '.join(best.values())}")
    head = ["method", "seconds" if ranks > 1 else "processor, s", "iterations", "evaluations", "objective, s"]
    ratios_of = [name for peer in best for name in (f"{peer.upper()} / it", "geometric mean")]
    table([*head, "solver, ms an iteration", *ratios_of], rows)
    part = [
        f"petsc, {pairs} pairs",
        *([problem] if problem != "torsion" else []),
        *(["one rank"] if ranks == 1 else []),
    ]
    save(NAME, ", ".join(part), found)


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
        held = ((x <= fun.lower) & (g >= 0)) | ((x >= fun.upper) & (g <= 0))
        free.append(np.packbits(~held))
        return values, g

    options = {"maxcor": case["pairs"], "gtol": case["gtol"], "ftol": 0, "maxiter": case["iterations"]}
    options |= {"maxfun": 10**6}
    bounds, x0 = (fun.lower, fun.upper), fun.start(case["start"])
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
    fun = PROBLEMS[case.get("problem", "torsion")](nx, comm, layout)
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
    fun = PROBLEMS[case.get("problem", "torsion")](nx, comm, layout)
    x = PETSc.Vec().createMPI((fun.upper.size, nx * nx), comm=comm)
    lower, upper = x.duplicate(), x.duplicate()
    x.array[:], lower.array[:], upper.array[:] = fun.start(case["start"]), fun.lower, fun.upper
    part, total = np.empty(1), np.empty(1)  # a buffered reduction, which takes less time than one of objects
    inside = [0.0, 0.0, 0.0]  # seconds in the objective, in the test, and the processor's in the test
    calls = 0
    reasons = getattr(PETSc.TAO, "ConvergedReason", None) or PETSc.TAO.Reason  # as it was called up to 3.18

    def value(_tao: Any, at: Any, g: Any) -> float:
        nonlocal calls
        calls += 1
        began = time.perf_counter()
        values, gradient = fun(at.array_r)
        g.array[:] = gradient
        part[0] = values.sum()
        comm.Allreduce(part, total)
        inside[0] += time.perf_counter() - began
        return float(total[0])

    def converged(solver: Any) -> None:
        began, began_work = time.perf_counter(), time.process_time()
        at, g = solver.getSolution().array_r, solver.getGradient()[0].array_r
        projected = at - np.clip(at - g, fun.lower, fun.upper)
        norm = comm.allreduce(float(np.abs(projected).max()), MPI.MAX)
        if norm <= case["gtol"]:
            solver.setConvergedReason(reasons.CONVERGED_USER)
        inside[1] += time.perf_counter() - began
        inside[2] += time.process_time() - began_work

    solver = PETSc.TAO().create(comm)
    solver.setType(case["tao"])
    # By the solver's own prefix: without one PETSc takes the option, and keeps five pairs.
    for option, chosen in {"mat_lmvm_hist_size": case["pairs"], **case["options"]}.items():
        PETSc.Options()[f"tao_{case['tao']}_{option}"] = chosen
    solver.setFromOptions()
    solver.setObjectiveGradient(value, x.duplicate())
    solver.setVariableBounds(lower, upper)
    solver.setConvergenceTest(converged)
    solver.setMaximumIterations(case["iterations"])
    began, began_work = time.perf_counter(), time.process_time()
    solver.solve(x)
    seconds = time.perf_counter() - began - inside[1]
    processor = time.process_time() - began_work - inside[2]
    assert kept_pairs(solver, PETSc) == case["pairs"]
    if comm.rank == 0:
        steps = solver.getIterationNumber()
        found = {
            "seconds": seconds,
            "processor": processor,
            "iterations": steps,
            "ms": 1e3 * (seconds - inside[0]) / max(steps, 1),
        }
        print(json.dumps(found | {"evaluations": calls, "objective": inside[0], "f": solver.getObjectiveValue()}))
