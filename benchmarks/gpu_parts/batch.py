"""A batch of bounded problems, beside a loop over SciPy and optimistix under vmap."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import torch
from scipy.optimize import Bounds
from scipy.optimize import minimize as scipy_minimize
from threadpoolctl import threadpool_limits

import stepwell
from gpu_parts.tools import BYTES, M, copy_bandwidth, events, say, summarise, synchronised

_QUARTIC = r"""
extern "C" __global__ void quartic(const double* x, const double* c, const double* w, double* g, double* f, int n) {
    const int problem = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    double sum = 0;
    for (int i = lane; i < n; i += 32) {
        const long long k = (long long)problem * n + i;
        const double d = x[k] - c[k], square = d * d;
        sum += square * (w[i] / 2 + square / 4);
        g[k] = d * (w[i] + square);
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (lane == 0) f[problem] = sum;
}
"""


def one_kernel(centre: np.ndarray, w: np.ndarray) -> tuple[Any, Any]:
    """The objective as one CUDA kernel, a warp a problem, through CuPy, and the start; eight problems a block."""
    import cupy

    kernel = cupy.RawKernel(_QUARTIC, "quartic")
    centres, weights = cupy.asarray(centre), cupy.asarray(w)
    gradient, values = cupy.empty_like(centres), cupy.empty(len(centre))
    count, n = centre.shape

    def fun(x: Any) -> tuple[Any, Any]:
        kernel((count // 8,), (256,), (x, centres, weights, gradient, values, np.int32(n)))
        return values, gradient

    return fun, cupy.zeros_like(centres)


def evaluation_alone(fun: Any, x: Any, count: int = 20) -> float:
    """Seconds of one evaluation of all problems with nothing else, queued behind a device that sleeps.

    The median of several, each with none of its arrays in the cache: a turn between two evaluations moves several times
    what the cache holds.
    """
    other = torch.zeros(2**25, dtype=torch.float64, device="cuda")  # 256 MB
    marks = [events() for _ in range(count)]
    torch.cuda._sleep(2 * 10**7)  # ten milliseconds: more than the host takes
    for before, after in marks:
        other += 1
        before.record()
        fun(x)
        after.record()
    torch.cuda.synchronize()
    return statistics.median(1e-3 * before.elapsed_time(after) for before, after in marks)


def batch(quick: bool) -> dict[str, Any]:
    """4,096 problems of 256 variables; time per iteration and problem, with histories of each type.

    Its floor: the traffic of an iteration's sweeps at the speed of a copy, 4 m words of the history and 10 of x for
    each variable with bounds that are numbers, and the objective's own kernels with nothing else, as often as all
    problems have to be evaluated until the last has ended.
    """
    count, n = 4096, 256
    rng = np.random.default_rng(2)
    centre, w = 2 * rng.normal(size=(count, n)), 10.0 ** rng.uniform(0, 2, size=n)
    options = dict(maxcor=M, gtol=1e-6, ftol=1e-12)

    def quartic(x: Any, c: Any, weights: Any) -> tuple[Any, Any]:
        d = x - c
        square = d * d
        return (square * (weights / 2 + square / 4)).sum(-1), d * (weights + square)

    centres, weights = torch.tensor(centre, device="cuda"), torch.tensor(w, device="cuda")
    start = torch.zeros_like(centres)
    objectives = {"torch operations": (lambda x: quartic(x, centres, weights), start)}
    compiled = torch.compile(objectives["torch operations"][0], fullgraph=True, dynamic=False)
    try:
        compiled(start)  # a compiler that works during a capture ends it
        objectives["torch.compile"] = compiled, start
    except (RuntimeError, ImportError) as error:
        say(f"the compiled objective is left out: {error}")
    try:
        objectives["one CUDA kernel (CuPy)"] = one_kernel(centre, w)
    except ImportError as error:
        say(f"the objective as one kernel is left out: {error}")
    bandwidth = copy_bandwidth()
    figures: dict[str, Any] = {"copy bandwidth": bandwidth}
    kinds = [(objective, history) for history in (None, "float32", "bfloat16") for objective in objectives]
    for objective_name, history in kinds:
        fun, x0 = objectives[objective_name]
        name = objective_name if history is None else f"{objective_name}, history {history}"
        traffic = (4 * M * BYTES[history or "float64"] + 10 * 8) * n / bandwidth
        kept = {} if history is None else {"history": history}

        def solve(fun: Any = fun, x0: Any = x0, kept: Any = kept, **more: Any) -> Any:
            return stepwell.minimize_batch(fun, x0, jac=True, bounds=(-1.0, 1.0), options=options | kept | more)

        solve()
        seconds, result = synchronised(solve, 3 if quick else 7)
        clock = solve(time_objective=True).seconds
        x = torch.from_dlpack(result.x)
        error = float((x - centres.clamp(-1, 1)).abs().max())
        steps = int(result.nit.sum())
        each = statistics.median(seconds) / steps
        # All problems are evaluated until the last has ended.
        objective = evaluation_alone(fun, x0) * int(result.nfev.max()) / steps
        figures[f"stepwell, {name}"] = {
            "seconds": seconds,
            "iterations": steps,
            "evaluations": int(result.nfev.sum()),
            "parts": clock,
            "mode": result.mode,
            "per iteration and problem": each,
            "floor": {"traffic of a turn": traffic, "objective alone": objective, "both": traffic + objective},
            "error": error,
            "converged": float(result.success.mean()),
        }
        say(
            f"batch, {name}: {1e3 * statistics.median(seconds):.2f} ms for {steps} iterations ({1e9 * each:.1f} ns "
            f"each; turns {1e9 * clock['turns'] / steps:.1f}, objective {1e9 * clock['objective'] / steps:.1f}, "
            f"set-up {1e9 * clock['setup'] / steps:.1f}; floor: traffic {1e9 * traffic:.1f}, objective alone "
            f"{1e9 * objective:.1f}), error {error:.1e}"
        )
        text = f"4,096 bounded problems, n = 256, {name}, per iteration and problem"
        summarise(text, each, "60 ns", fraction=(traffic + objective) / each, met=each <= 60e-9)
        summarise("the same, turns alone", clock["turns"] / steps, "-", fraction=traffic * steps / clock["turns"])
    ours = figures["stepwell, torch operations"]["per iteration and problem"]
    sample = 8 if quick else 40
    best = np.inf
    for blas in (1, None):
        iterations, start = 0, time.perf_counter()
        with threadpool_limits(blas):
            for c in centre[:sample]:
                iterations += scipy_minimize(
                    lambda x, c=c: quartic(x, c, w), np.zeros(n), jac=True, method="L-BFGS-B",
                    bounds=Bounds(np.full(n, -1.0), np.full(n, 1.0)), options=options,
                ).nit  # fmt: skip
        best = min(best, (time.perf_counter() - start) / iterations)
    figures["scipy"] = {"per iteration and problem": best, "ratio": best / ours, "sample": sample}
    summarise("the same, loop over SciPy", best, f"100x; is {best / ours:.0f}x", met=best / ours >= 100)
    say(f"SciPy: {1e6 * best:.1f} us per iteration and problem, {best / ours:.0f}x")
    if not quick:
        figures["optimistix"] = vmapped(centre, w, ours)
    return figures


def vmapped(centre: np.ndarray, w: np.ndarray, ours: float) -> dict[str, Any] | str:
    """The same functions without bounds by optimistix's L-BFGS under vmap and jit; a step is one evaluation."""
    try:
        import jax
        import optimistix
    except ImportError as error:
        say(f"optimistix is left out: {error}")
        return f"left out: {error}"
    if jax.default_backend() == "cpu":
        say("optimistix is left out: JAX sees no GPU")
        return "left out: JAX sees no GPU"
    jax.config.update("jax_enable_x64", True)
    weights, centres = jax.numpy.asarray(w), jax.numpy.asarray(centre)
    solver = optimistix.LBFGS(rtol=1e-8, atol=1e-8, history_length=M)

    def fun(x: Any, c: Any) -> Any:
        square = (x - c) ** 2
        return (square * (weights / 2 + square / 4)).sum()

    @jax.jit
    def solve(centres: Any) -> Any:
        def one(c: Any) -> Any:
            found = optimistix.minimise(fun, solver, jax.numpy.zeros_like(c), args=c, max_steps=1000, throw=False)
            return found.value, found.stats["num_steps"]

        return jax.vmap(one)(centres)

    jax.block_until_ready(solve(centres))
    start = time.perf_counter()
    x, steps = jax.block_until_ready(solve(centres))
    seconds = time.perf_counter() - start
    each = seconds / int(steps.sum())
    summarise(
        "the same without bounds, optimistix under vmap", each, f"10x; is {each / ours:.1f}x", met=each >= 10 * ours
    )
    say(f"optimistix: {1e9 * each:.1f} ns per step and problem, {each / ours:.1f}x")
    error = float(abs(x - centres).max())
    return {"seconds": seconds, "steps": int(steps.sum()), "per step and problem": each, "error": error}
