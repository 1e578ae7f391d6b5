"""What calls from JAX cost: handlers of jax.ffi beside callbacks, buffers that programs lend beside copies, the
hand-over of points in `minimize`, and `tikhonov` beside the least that its steps take.

    python benchmarks/jax_calls.py [--quick] [--parts handlers,buffers,hand-over,linear]

Ratios within one run. The handlers need a build with STEPWELL_JAX; without them that part is left out. The figures go
to benchmarks/raw/jax_calls.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from common import interleave, medians, save, wall

import stepwell
from stepwell.derivatives import jax_calls, jax_handlers

SHAPES = [(1, 20, 8), (100, 20, 8), (1000, 20, 8), (1, 56, 40), (200, 56, 40), (1, 200, 100), (20, 200, 100)]


def handler_rows(repeats):
    """jit(nnls), jit(lsq_linear) and gradients in b, one matrix for all, on one thread."""
    usual, rows = jax_handlers.registered, []
    if not usual():
        return rows
    ways = {
        "nnls": lambda A, b: stepwell.nnls(A, b, threads=1).x,
        "lsq_linear": lambda A, b: stepwell.lsq_linear(A, b, (0.0, 0.5), threads=1).x,
    }
    for solver, (systems, m, n) in itertools.product(ways, SHAPES):
        random = np.random.default_rng(n)
        A, b = jnp.asarray(random.random((m, n))), jnp.asarray(random.random((systems, m)))
        runs = {}
        for name, there in (("handler", True), ("callback", False)):
            jax_handlers.registered = lambda there=there: there
            solve = jax.jit(lambda b, A=A, way=ways[solver]: way(A, b))
            slope = jax.jit(jax.grad(lambda b, solve=solve: solve(b).sum()))
            given = b[0] if systems == 1 else b
            for what, function in (("x", solve), ("gradient", slope)):
                jax.block_until_ready(function(given))
                runs[f"{name}, {what}"] = wall(lambda f=function, given=given: jax.block_until_ready(f(given)))
        jax_handlers.registered = usual
        found = medians(interleave(repeats, **runs))
        rows.append(
            {"solver": solver, "shape": [systems, m, n]}
            | {"ms": {name: 1e3 * seconds for name, seconds in found.items()}}
            | {
                f"callback over handler, {w}": found[f"callback, {w}"] / found[f"handler, {w}"]
                for w in ("x", "gradient")
            }
        )
        print(rows[-1])
    return rows


def buffer_rows(repeats):
    """jit(nnls) and jit(lsq_linear) and gradients in b by the program's own buffers, and by copies to the host.

    On a GPU the former work on the program's stream; beside them, the same call with CuPy's arrays, without JAX.
    """
    usual, rows = (jax_calls.lends_buffers, jax_handlers.registered), []
    jax_handlers.registered = lambda: False
    ways = {
        "nnls": lambda A, b: stepwell.nnls(A, b).x,
        "lsq_linear": lambda A, b: stepwell.lsq_linear(A, b, (0.0, 0.5)).x,
    }
    for solver, way in ways.items():
        for systems, m, n in SHAPES:
            random = np.random.default_rng(n)
            A, b = jnp.asarray(random.random((m, n))), jnp.asarray(random.random((systems, m)))
            runs = {}
            for name, lent in (("buffers", True), ("copies", False)):
                jax_calls.lends_buffers = lambda lent=lent: lent
                solve = jax.jit(lambda b, A=A, way=way: way(A, b))
                slope = jax.jit(jax.grad(lambda b, solve=solve: solve(b).sum()))
                for what, function in (("x", solve), ("gradient", slope)):
                    jax.block_until_ready(function(b))
                    runs[f"{name}, {what}"] = wall(lambda f=function, b=b: jax.block_until_ready(f(b)))
            if jax.default_backend() == "gpu" and importlib.util.find_spec("cupy"):
                runs["CuPy alone, x"] = _of_cupy(way, np.asarray(A), np.asarray(b))
            found = medians(interleave(repeats, **runs))
            row = {"solver": solver, "shape": [systems, m, n], "platform": jax.default_backend()}
            row["ms"] = {name: round(1e3 * seconds, 4) for name, seconds in found.items()}
            for what in ("x", "gradient"):
                row[f"copies over buffers, {what}"] = found[f"copies, {what}"] / found[f"buffers, {what}"]
            rows.append(row)
            print(row)
    jax_calls.lends_buffers, jax_handlers.registered = usual
    return rows


def _of_cupy(way, A, b):
    import cupy

    there = cupy.asarray(A), cupy.asarray(b)

    def called():
        way(*there)
        cupy.cuda.get_current_stream().synchronize()

    return wall(called)


def hand_over_rows(repeats):
    """One evaluation of a compiled function of 1000 variables: alone, and as `minimize` makes it."""
    from stepwell.quasi_newton.inputs import read_start
    from stepwell.quasi_newton.objective import Objective

    def rosenbrock(x):
        return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    both, fun, jac = jax.jit(jax.value_and_grad(rosenbrock)), jax.jit(rosenbrock), jax.jit(jax.grad(rosenbrock))
    x0 = jnp.full(1000, 1.2)
    variables, start = read_start(x0)
    trial = np.array(start)
    objectives = {
        "jac=True": Objective(both, True, (), variables, None),
        "compiled fun": Objective(fun, None, (), variables, None),
        "fun and jac": Objective(fun, jac, (), variables, None),
        "jit=True, fun and jac": Objective(rosenbrock, jax.grad(rosenbrock), (), variables, None, jit=True),
    }
    runs = {"alone": wall(lambda: jax.block_until_ready(both(x0)))}
    for name, objective in objectives.items():
        objective(trial)
        runs[name] = wall(lambda objective=objective: objective(trial))
    jax.block_until_ready(both(x0))
    found = medians(interleave(100 * repeats, **runs))
    microseconds = {name: 1e6 * seconds for name, seconds in found.items()}
    print(microseconds)
    return {"microseconds an evaluation": microseconds} | {
        f"over the objective, {name}": microseconds[name] - microseconds["alone"] for name in objectives
    }


def linear_rows(repeats):
    """float32 `tikhonov` with 32 columns: the first call, later ones, and as many steps of a block at the least."""
    random = np.random.default_rng(0)
    m, n, columns = (800, 300, 32) if repeats < 10 else (4000, 1500, 32)
    given = random.standard_normal((m, n)) * np.geomspace(1, 0.02, n)
    A, B = (jnp.asarray(array, "float32") for array in (given, random.standard_normal((m, columns))))
    lam, compiled, rows = 0.02 * m**0.5, [], []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **_: compiled.append(seconds) if name.endswith("backend_compile_duration") else None
    )
    exact = np.linalg.solve(given.T @ given + lam**2 * np.eye(n), given.T @ np.asarray(B, float))
    for method in ("block", "auto", "pseudo-block", "direct"):
        jax.clear_caches()
        compiled.clear()

        def solved(method=method):
            return stepwell.tikhonov(A, B, lam, method=method, tol=1e-5)

        start = time.perf_counter()
        result = solved()
        jax.block_until_ready(result.x)
        first, programs = time.perf_counter() - start, len(compiled)
        steps = int(result.iterations.max())
        least = _steps_of_a_block(A, B, lam, steps)
        least()
        runs = {"later": wall(lambda f=solved: jax.block_until_ready(f().x)), "floor": wall(least)}
        found = medians(interleave(repeats, **runs))
        rows.append(
            {"method": result.method, "asked": method, "shape": [m, n, columns], "platform": jax.default_backend()}
            | {"success": result.success, "steps": steps, "first s": first, "programs compiled": programs}
            | {f"{name} ms": 1e3 * seconds for name, seconds in found.items()}
            | {"later over floor": found["later"] / found["floor"]}
            | {"error": float(np.linalg.norm(np.asarray(result.x) - exact) / np.linalg.norm(exact))}
        )
        print(rows[-1])
    return rows


def _steps_of_a_block(A, B, lam, steps):
    """So many steps of block conjugate gradients, but for what a host decides: a program and a transfer for each."""

    def product(left, right):
        return jnp.matmul(left, right, precision="highest")

    @jax.jit
    def step(x, residual, block, kept):
        images = product(A.T, product(A, block)) + lam**2 * block
        small = product(block.T, images), product(block.T, residual)
        x, residual = x + product(block, small[1]), residual - product(images, small[1])
        block = residual - product(kept, product(kept.T, residual))
        return x, residual, block, jnp.concatenate([*small, product(block.T, block)])

    start = product(A.T, B)
    kept = jnp.zeros((start.shape[0], 128), start.dtype)

    def all_steps():
        x = residual = block = start
        for _ in range(steps):
            x, residual, block, small = step(x, residual, block, kept)
            np.asarray(small)
        jax.block_until_ready(x)

    return all_steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few repeats")
    parser.add_argument("--parts", default="handlers,buffers,hand-over,linear")
    given = parser.parse_args()
    repeats = 5 if given.quick else 30
    jax.config.update("jax_enable_x64", True)
    parts = {"handlers": handler_rows, "buffers": buffer_rows, "hand-over": hand_over_rows, "linear": linear_rows}
    for name in given.parts.split(","):
        where = f"{name}, {jax.default_backend()}{', quick' if given.quick else ''}"
        save("jax_calls", where, {"load of the machine before": os.getloadavg()[0], "rows": parts[name](repeats)})


if __name__ == "__main__":
    main()
