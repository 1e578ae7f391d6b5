"""A small run of every CUDA kernel, to be watched by NVIDIA's compute-sanitizer.

    compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 python tests/sanitize_cuda.py
    compute-sanitizer --tool racecheck --error-exitcode 9 \\
        --kernel-name kernel_substring=stepwell --kernel-name kernel_substring=nnls python tests/sanitize_cuda.py

API errors are left out: those seen were all lookups of functions (cuGetProcAddress) by the Python bindings of CUDA.
Every path of the kernels is taken: history lengths with one, two and more blocks of rows, both dtypes, with and without
bounds and diagonals, all Cauchy policies, problems that have a block each and problems that have the whole grid, and
the least-squares kernels by each method. Needs CuPy. Answers are checked, so that a run that goes wrong says so.
"""

from __future__ import annotations

import argparse
import sys

import cupy
import numpy as np

import stepwell

#: Name, variables, problems, pairs of history, dtype, bounds, diagonal, policy.
TURNS = [
    ("grid, one block of rows", 20_000, 1, 8, "float64", True, None, "exact"),
    ("grid, single precision", 20_000, 1, 8, "float32", True, None, "exact"),
    ("grid, two blocks of rows, diagonal", 6_001, 1, 11, "float64", False, "array", "exact"),
    ("grid, many pairs, diagonal that varies", 5_003, 1, 20, "float64", True, "callable", "first-interval"),
    ("a block each", 300, 5, 8, "float64", True, None, "none"),
    ("a block each, single precision, odd length", 37, 600, 5, "float32", False, None, "exact"),
]


def quasi_newton(quick: bool) -> None:
    """Minimise a separable quartic, whose minimum inside bounds is known, for each path of the turn kernel."""
    for name, n, batch, m, dtype, bounded, diagonal, cauchy in TURNS[:2] if quick else TURNS:
        rng = np.random.default_rng(1)
        centre = cupy.asarray(2 * rng.normal(size=(batch, n)), dtype=dtype)
        scale = cupy.asarray(10.0 ** rng.uniform(-1, 1, size=(batch, n)), dtype=dtype)

        def fun(x, centre=centre, scale=scale):
            d = x - centre
            return (d * d * (0.5 + 0.25 * scale * d * d)).sum(-1), d * (1 + scale * d * d)

        options = {"maxcor": m, "cauchy": cauchy, "maxiter": 12 if quick else 40, "graph": False}
        if diagonal == "array":
            options["h0"] = 1 / (1 + scale[0])
        elif diagonal == "callable":
            options["h0"] = lambda x, centre=centre, scale=scale: 1 / (1 + 3 * scale * (x - centre) ** 2)
        bounds = (-1.0, 1.5) if bounded else None
        result = stepwell.minimize_batch(fun, cupy.zeros_like(centre), jac=True, bounds=bounds, options=options)
        best = fun(cupy.clip(centre, *bounds) if bounded else centre)[0]
        start = fun(cupy.zeros_like(centre))[0]
        left = float(((cupy.asarray(result.fun) - best) / (start - best)).max())
        say(f"turn: {name}: {int(result.nit.max())} iterations, {left:.1e} of the way left", left < 1e-2)
        if batch > 1:
            continue
        # The sweeps of a rank; of the first, chunks of 4250 variables, which begin anywhere.
        layout = stepwell.distributed.split(n, "self", align=250 if "one block" in name else 1)
        alone = stepwell.minimize(
            lambda x, fun=fun: tuple(part[0] for part in fun(x[None])),
            cupy.zeros_like(centre[0]),
            jac=True,
            bounds=bounds,
            comm=layout,
            options=options | ({"h0": lambda x, h0=options["h0"]: h0(x[None])[0]} if diagonal == "callable" else {}),
        )
        left = float((alone.fun - best[0]) / (start[0] - best[0]))
        say(f"rank: {name}: {alone.nit} iterations, {left:.1e} of the way left", left < 1e-2)


def least_squares(quick: bool) -> None:
    """Solve small systems by each method of the least-squares kernels, and compare with the host's answers."""
    rng = np.random.default_rng(2)
    shapes = [("one matrix each", (6, 40, 24)), ("one matrix for all", (40, 24))]
    for name, shape in shapes:
        A = rng.random(shape)
        b = rng.random((6, 40))
        for method in ("gram",) if quick else ("qr", "gram"):
            found = stepwell.nnls(cupy.asarray(A), cupy.asarray(b), method=method).x.get()
            error = float(np.abs(found - stepwell.nnls(A, b, method=method).x).max())
            say(f"nnls: {name}, {method}: differs from the host by {error:.1e}", error < 1e-8)
    if not quick:
        pulse = np.exp(-0.5 * (np.arange(9) - 4.0) ** 2)
        right = rng.random((3, 64))
        on_gpu = stepwell.nnls(stepwell.Convolution(cupy.asarray(pulse), 64, origin=4), cupy.asarray(right)).residual
        on_host = stepwell.nnls(stepwell.Convolution(pulse, 64, origin=4), right).residual
        error = float(np.abs(np.asarray(cupy.asnumpy(on_gpu)) - on_host).max())
        say(f"nnls: convolution: residuals differ from the host's by {error:.1e}", error < 1e-6)


def say(text: str, well: bool) -> None:
    sys.stdout.write(f"{'ok    ' if well else 'WRONG '} {text}\n")
    sys.stdout.flush()
    if not well:
        sys.exit(f"wrong answer: {text}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two paths of the turn kernel, one method")
    parser.add_argument("--kernels", choices=["all", "turn", "nnls"], default="all")
    given = parser.parse_args()
    if given.kernels != "nnls":
        quasi_newton(given.quick)
    if given.kernels != "turn":
        least_squares(given.quick)
