"""Problems whose variables are spread over ranks and lie on a CUDA device; one line of JSON each under mpiexec."""

from __future__ import annotations

import functools
import hashlib
import json
import sys

import numpy as np
from device_arrays import on_device, on_host
from rank_problems import PAIRS, rosenbrock

import stepwell
from stepwell.arrays import namespace_of
from stepwell.distributed import split

#: Pieces as a GPU sweeps them.
split_whole = functools.partial(split, whole_chunks=True)


def device_rosenbrock(layout, dtype=np.float64, library="torch"):
    """Return what `rosenbrock` does, on a device: function (values a chunk, gradient), start, bounds and diagonal."""
    _, start, bounds, diagonal = rosenbrock(layout, dtype)

    def fun(x):
        xp = namespace_of(x)
        wide = xp.reshape(xp.astype(x, xp.float64), (-1, 2))
        a, b = wide[:, 0], wide[:, 1]
        rise = b - a * a
        each = xp.stack([100 * rise * rise + (1 - a) * (1 - a), 0 * a], axis=1)
        gradient = xp.stack([-400 * rise * a - 2 * (1 - a), 200 * rise], axis=1)
        return layout.chunk_sums(xp.reshape(each, (-1,))), xp.astype(xp.reshape(gradient, (-1,)), x.dtype)

    placed = [on_device(library, array) for array in (start, *bounds, diagonal)]
    return fun, placed[0], (placed[1], placed[2]), placed[3]


def solve_on_device(
    comm,
    *,
    dtype=np.float64,
    library="torch",
    weighted=False,
    bounds="arrays",
    fun=None,
    callback=None,
    layout=None,
    **options,
):
    """Minimise the Rosenbrock problem over ranks on a device; `fun` may stand between solver and function."""
    layout = split_whole(PAIRS, comm, align=2) if layout is None else layout
    value, start, arrays, diagonal = device_rosenbrock(layout, dtype, library)
    options = {"ftol": 0, "gtol": 1e-6, "maxiter": 25} | options
    if weighted:
        options["h0"] = (lambda x: diagonal) if weighted == "callable" else diagonal
    box = {"arrays": arrays, "numbers": (-2.0, 0.9), "none": None, "lower": (arrays[0], None)}[bounds]
    return stepwell.minimize(
        value if fun is None else fun(value, layout),
        start,
        jac=True,
        bounds=box,
        callback=callback,
        comm=layout,
        options=options,
    )


def digest_on_device(results):
    """Return a text that tells apart what runs found, from the results of all ranks."""
    digest = hashlib.sha256()
    for name in ("x", "jac"):
        digest.update(np.concatenate([on_host(r[name]).ravel() for r in results]).tobytes())
    first = results[0]
    for r in results:
        assert (r.fun, r.nit, r.nfev, r.status) == (first.fun, first.nit, first.nfev, first.status)
    return f"{digest.hexdigest()[:16]} {first.fun!r} {first.projected_gradient!r} {first.nit} {first.nfev}"


#: What is run under mpiexec.
CASES = {
    "exact": {},
    "first-interval, float32": {"cauchy": "first-interval", "dtype": np.float32},
    "none, no bounds": {"cauchy": "none", "bounds": "none"},
    "diagonal": {"weighted": True, "maxcor": 5},
    "cupy": {"library": "cupy"},
}


def main():
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    for name, case in CASES.items():
        result = solve_on_device(comm, **case)
        pieces = comm.gather((on_host(result.x), on_host(result.jac)))
        if pieces is not None:
            joined = np.concatenate([array for k in (0, 1) for array in (piece[k] for piece in pieces)])
            bits = hashlib.sha256(joined.tobytes()).hexdigest()[:16]
            found = f"{bits} {result.fun!r} {result.projected_gradient!r} {result.nit} {result.nfev}"
            sys.stdout.write(json.dumps({"case": name, "found": found}) + "\n")


if __name__ == "__main__":
    main()
