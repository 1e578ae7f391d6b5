"""Messages and steps of tikhonov and ProjectedCG over ranks of MPI, and what a communicator costs on one rank.

    python benchmarks/krylov_ranks.py [--rows 6000] [--columns 4000]

Starts itself under the mpiexec beside this interpreter (or that of STEPWELL_MPIEXEC) on 1, 2 and 3 ranks. The rows of A
and the unknowns lie over ranks; the forward product gathers x, the adjoint is a reduce-scatter. Steps, messages and
bytes are exact; seconds, on ranks that share the cores of one machine, say little.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import sysconfig

import numpy as np
import scipy.sparse as sp

import stepwell

LAM, RIGHT = 1.0, 8


def problem(rows: int, columns: int):
    random = np.random.default_rng(0)
    A = sp.random(rows, columns, 0.004, random_state=1, format="csr", data_rvs=random.standard_normal)
    B = random.standard_normal((rows, RIGHT))
    B[:, 1] = B[:, 0] + 1e-3 * B[:, 2]
    return A, B


def on_this_rank(rows: int, columns: int) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    A, B = problem(rows, columns)
    pieces = [np.linspace(0, length, comm.size + 1).astype(int) for length in A.shape]
    (first, last), (begin, end) = ((cuts[comm.rank], cuts[comm.rank + 1]) for cuts in pieces)
    mine = A[first:last]
    turned = mine.T.tocsr()
    counts = np.diff(pieces[1])

    def forward(x):
        whole = np.empty((columns, x.shape[1]))
        comm.Allgatherv(np.ascontiguousarray(x), (whole, counts * x.shape[1]))
        return mine @ whole

    def adjoint(y):
        image = np.empty((end - begin, y.shape[1]))
        comm.Reduce_scatter(np.ascontiguousarray(turned @ y), image, (counts * y.shape[1]).tolist(), MPI.SUM)
        return image

    operator = stepwell.operators.from_functions(forward, adjoint, (last - first, end - begin), blocks=True)
    found = []
    for method in ("pseudo-block", "block"):
        found.append(row(method, stepwell.tikhonov(operator, B[first:last], LAM, method=method, tol=1e-8, comm=comm)))
    solver = stepwell.ProjectedCG(operator, LAM, augmented=True, comm=comm)
    for name, b in (("ProjectedCG, first", B[:, 0]), ("ProjectedCG, second", B[:, 1])):
        found.append(row(name, solver.solve(b[first:last], tol=1e-8)))
    if comm.rank == 0:
        print(json.dumps(found))


def row(name, result):
    steps = int(result.iterations.max())
    return {
        "method": name,
        "steps": steps,
        "messages a step": result.exchanges / steps,
        "bytes a step": result.bytes_sent / steps,
        "seconds": result.seconds,
    }


def main() -> int:
    from common import interleave, save, table, wall

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--columns", type=int, default=4000)
    parser.add_argument("--here", action="store_true", help="be one of the ranks")
    options = parser.parse_args()
    if options.here:
        on_this_rank(options.rows, options.columns)
        return 0
    mpiexec = os.environ.get("STEPWELL_MPIEXEC") or os.path.join(sysconfig.get_path("scripts"), "mpiexec")
    environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    figures = {}
    for ranks in (1, 2, 3):
        command = [mpiexec, "-n", str(ranks), sys.executable, "-m", "mpi4py", __file__, "--here"]
        command += ["--rows", str(options.rows), "--columns", str(options.columns)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200, check=True)
        figures[f"{ranks} ranks"] = json.loads(done.stdout)
    A, B = problem(options.rows, options.columns)
    alone = {m: stepwell.tikhonov(A, B, LAM, method=m, tol=1e-8) for m in ("pseudo-block", "block")}
    figures["without comm"] = {name: int(result.iterations.max()) for name, result in alone.items()}
    table(
        ["method", "steps on 1, 2, 3 ranks", "messages a step", "bytes a step of a rank"],
        [
            [
                rows[0]["method"],
                ", ".join(str(one["steps"]) for one in rows),
                round(rows[2]["messages a step"], 2),
                round(rows[2]["bytes a step"]),
            ]
            for rows in zip(*(figures[f"{ranks} ranks"] for ranks in (1, 2, 3)))
        ],
    )
    print("steps without a communicator:", figures["without comm"])
    runs = {
        f"{method}{name}": wall(lambda m=method, c=comm: stepwell.tikhonov(A, B, LAM, method=m, tol=1e-8, comm=c))
        for method in ("pseudo-block", "aprcg")
        for name, comm in (("", None), (", self", "self"))
    }
    seconds = interleave(15, **runs)
    best = {name: min(values) for name, values in seconds.items()}
    for method in ("pseudo-block", "aprcg"):
        print(f"{method}: one rank takes {best[f'{method}, self'] / best[method]:.3f} of the time without comm")
    figures["seconds"] = seconds
    save("krylov_ranks", f"{options.rows} x {options.columns}, {RIGHT} right-hand sides", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
