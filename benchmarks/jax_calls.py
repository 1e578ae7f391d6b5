"""What calls from JAX cost: handlers of jax.ffi beside callbacks, and the hand-over of points in `minimize`.

    python benchmarks/jax_calls.py [--quick]

Ratios within one run. The handlers need a build with STEPWELL_JAX; without them that part is left out. The figures go
to benchmarks/results/jax_calls.json.
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from common import interleave, medians, save, wall

import stepwell
from stepwell.derivatives import jax_handlers

SHAPES = [(1, 20, 8), (100, 20, 8), (1000, 20, 8), (1, 56, 40), (200, 56, 40), (1, 200, 100), (20, 200, 100)]


def handler_rows(repeats):
    """jit(vmap(nnls)) and its gradient in b, one matrix for all, on one thread."""
    usual, rows = jax_handlers.registered, []
    if not usual():
        return rows
    for systems, m, n in SHAPES:
        random = np.random.default_rng(n)
        A, b = jnp.asarray(random.random((m, n))), jnp.asarray(random.random((systems, m)))
        runs = {}
        for name, there in (("handler", True), ("callback", False)):
            jax_handlers.registered = lambda there=there: there
            solve = jax.jit(lambda b, A=A: stepwell.nnls(A, b, threads=1).x)
            slope = jax.jit(jax.grad(lambda b, solve=solve: solve(b).sum()))
            given = b[0] if systems == 1 else b
            for what, function in (("x", solve), ("gradient", slope)):
                jax.block_until_ready(function(given))
                runs[f"{name}, {what}"] = wall(lambda f=function, given=given: jax.block_until_ready(f(given)))
        jax_handlers.registered = usual
        found = medians(interleave(repeats, **runs))
        rows.append(
            {"shape": [systems, m, n], "ms": {name: 1e3 * seconds for name, seconds in found.items()}}
            | {
                f"callback over handler, {w}": found[f"callback, {w}"] / found[f"handler, {w}"]
                for w in ("x", "gradient")
            }
        )
        print(rows[-1])
    return rows


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few repeats")
    quick = parser.parse_args().quick
    repeats = 5 if quick else 30
    jax.config.update("jax_enable_x64", True)
    figures = {"handlers": handler_rows(repeats), "hand-over": hand_over_rows(repeats)}
    save("jax_calls", "quick" if quick else "all", figures)


if __name__ == "__main__":
    main()
