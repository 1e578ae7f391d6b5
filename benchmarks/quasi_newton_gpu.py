"""The quasi-Newton engine on one GPU: bandwidth floor, published tables, and its peers.

    python benchmarks/quasi_newton_gpu.py                # all parts, about a minute and a half on an H200
    python benchmarks/quasi_newton_gpu.py --quick        # fewer turns, no peers, no n = 40,000,000
    python benchmarks/quasi_newton_gpu.py --part torsion # one of: torsion, rosenbrock, batch, peers, start

Solver time is the device's own, between CUDA events around each turn. For n = 10,000 in a graph, what a whole iteration
takes more than an evaluation in a graph is kept beside it. The floor of an iteration is the traffic of two
sweeps over the history and of the vectors, at the speed of a device copy measured in the same run:

    (4 m + 14) n words: S and Y are read twice, but for the new pair, which absorb writes (4 m); absorb reads the trial
    point, both gradients, d and the bounds (6); aim reads the trial point, g and the bounds (4) and writes x, g, d and
    the next trial point (4). A refused trial point, whose slope is then measured by itself, is not counted.

Needs torch with CUDA; CuPy, JAX and optimistix where they are compared. Raw figures go to
benchmarks/results/quasi_newton_gpu.json, one table to the screen at the end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Recorder, gpu_machine, machine, table
from scipy.optimize import Bounds
from scipy.optimize import minimize as scipy_minimize
from threadpoolctl import threadpool_limits

import stepwell
from stepwell.studies.rosenbrock import DRIVER

RESULTS = Path(__file__).parent / "results" / "quasi_newton_gpu.json"
M = 8
ENDLESS = dict(gtol=0.0, ftol=0.0, maxfun=10**6)
#: Iteration, evaluations, f, gradient norm, step: the table of D'Amore, Arcucci, Mele, Scotti and Murli (2013).
PUBLISHED = [f"{i} {calls} {f:.6e} {g:.6e} {step:.6e}" for i, (calls, f, g, step) in DRIVER.items()]

WORDS = 4 * M + 14  # of traffic for each variable and iteration
SUMMARY: list[list[Any]] = []  # rows of the closing table: work, milliseconds, of the floor, goal


def summarise(work: str, seconds: float, goal: str = "-", *, fraction: float | None = None, met: Any = None) -> None:
    verdict = "" if met is None else ("met" if met else "missed")
    SUMMARY.append([work, 1e3 * seconds, "" if fraction is None else f"{fraction:.2f}", goal, verdict])


def say(text: str) -> None:
    print(f"[{time.perf_counter() - BEGAN:5.1f} s] {text}", flush=True)


def events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def synchronised(run: Callable[[], Any], repeats: int) -> tuple[list[float], Any]:
    """Seconds of each of several calls, with the device idle before and after; and what the last one returned."""
    seconds, result = [], None
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        result = run()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds, result


def copy_bandwidth() -> float:
    """Bytes per second, read and written, of a copy within the device: the median of ten."""
    source = torch.rand(2**27, device="cuda", dtype=torch.float64)
    target = torch.empty_like(source)
    seconds = []
    for _ in range(12):
        before, after = events()
        before.record()
        target.copy_(source)
        after.record()
        after.synchronize()
        seconds.append(1e-3 * before.elapsed_time(after))
    return 2 * source.nbytes / statistics.median(seconds[2:])


# ---- solver time per iteration on the bounded torsion problem -------------------------------------------------------


def torsion_problem(nx: int, ny: int, dtype: str = "float64") -> Any:
    return stepwell.problems.get("torsion", nx=nx, ny=ny, xp=torch, dtype=getattr(torch, dtype), device="cuda")


def turn_times(problem: Any, turns: int) -> dict[str, Any]:
    """Device seconds of each turn. The run is made twice, alike to the last bit: first looking at the state after every
    turn, then with events and without waiting, the host ahead of the device, so that no turn is held up by it."""
    opt = stepwell.LBFGSB(problem.x0, problem.bounds, m=M, **ENDLESS)
    iterations, walks = [0], [0]
    for _ in range(turns):
        opt.tell(*problem.fun(opt.x))
        iterations.append(opt.nit)
        walks.append(int(opt._state["cauchy_walks"][0]))
    opt = stepwell.LBFGSB(problem.x0, problem.bounds, m=M, **ENDLESS)
    pairs = [events() for _ in range(turns)]
    torch.cuda._sleep(int(2e9 * 1e-3 * turns))  # a millisecond a turn: more than the host takes
    for before, after in pairs:
        f, g = problem.fun(opt.x)
        before.record()
        opt.tell(f, g)
        after.record()
    torch.cuda.synchronize()
    seconds = [1e-3 * before.elapsed_time(after) for before, after in pairs]
    first = turns // 3  # the history has long been full
    accepted, walked = np.diff(iterations) > 0, np.diff(walks) > 0
    plain = [s for k, s in enumerate(seconds) if k >= first and accepted[k] and not walked[k]]
    return {
        "seconds": seconds,
        "accepted": accepted.tolist(),
        "walked": walked.tolist(),
        "median": statistics.median(plain),
        "mean": sum(seconds[first:]) / int(accepted[first:].sum()),
        "bytes": opt.nbytes,
    }


def captured_evaluation(problem: Any, count: int = 8) -> float:
    """Seconds of one evaluation among several in a CUDA graph."""
    x = problem.x0.clone()
    for _ in range(3):
        problem.fun(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            problem.fun(x)
    graph.replay()
    seconds, _ = synchronised(lambda: [graph.replay() for _ in range(30)], 5)
    return statistics.median(seconds) / (30 * count)


def small_times(problem: Any, graph: bool, first: int, last: int) -> dict[str, Any]:
    """Seconds per iteration between two iterations of `minimize`: the turns' own, and of everything."""

    def solve(iterations: int, clock: bool) -> Any:
        options = ENDLESS | dict(maxcor=M, maxiter=iterations, graph=graph, time_objective=clock)
        return stepwell.minimize(problem.fun, problem.x0, jac=True, bounds=problem.bounds, options=options)

    solve(last, False)
    turns, whole = [], []
    for _ in range(5):
        ends = [solve(k, True).seconds["turns"] for k in (first, last)]
        turns.append((ends[1] - ends[0]) / (last - first))
        both = [synchronised(lambda k=k: solve(k, False), 1) for k in (first, last)]
        whole.append((both[1][0][0] - both[0][0][0]) / (last - first))
    evaluation = captured_evaluation(problem) if graph else None
    return {
        "median": statistics.median(turns),
        "evaluation": evaluation,
        "whole": statistics.median(whole),
        "turns": turns,
        "wholes": whole,
        "mode": both[1][1].mode,
        "nfev": int(both[1][1].nfev),
    }


def torsion(quick: bool) -> dict[str, Any]:
    bandwidth = copy_bandwidth()
    say(f"copy {bandwidth / 1e12:.2f} TB/s")
    figures: dict[str, Any] = {"copy bandwidth": bandwidth, "words": WORDS, "m": M}
    problem = torsion_problem(100, 100)
    for graph, goal in ((True, 0.04e-3), (False, 0.12e-3)):
        found = small_times(problem, graph, 40, 120 if quick else 280)
        name = "in a graph" if graph else "turn by turn"
        figures[f"10,000 {name}"] = found
        text = f"torsion n = 10,000, {name} (whole iteration {1e3 * found['whole']:.3f} ms)"
        summarise(text, found["median"], f"{1e3 * goal:.2f} ms", met=found["median"] <= goal)
        say(f"{text}: {1e3 * found['median']:.4f} ms")
    goals = {10**6: 0.14e-3, 4 * 10**6: 0.45e-3}
    sizes = [(1000, 1000, "float64"), (2000, 2000, "float64"), (2000, 2000, "float32"), (6400, 6250, "float64")]
    for nx, ny, dtype in sizes[:3] if quick else sizes:
        n, word = nx * ny, 8 if dtype == "float64" else 4
        found = turn_times(torsion_problem(nx, ny, dtype), 36 if quick or n > 10**7 else 90)
        found["floor"] = WORDS * n * word / bandwidth
        found["fraction"] = found["floor"] / found["median"]
        figures[f"{n:,} {dtype}"] = found
        goal, met = "-", None
        if dtype == "float64" and n in goals:
            enough = n < 4 * 10**6 or found["fraction"] >= 0.85
            goal = f"{1e3 * goals[n]:.2f} ms" + (" and 0.85" if n == 4 * 10**6 else "")
            met = found["median"] <= goals[n] and enough
        elif dtype == "float32":
            ratio = figures[f"{n:,} float64"]["median"] / found["median"]
            found["ratio"] = ratio
            goal, met = f"1.7x float64; is {ratio:.2f}x", ratio >= 1.7
        elif n > 10**7:
            same = figures["4,000,000 float64"]["fraction"]
            goal, met = "linear: n = 4,000,000's fraction", found["fraction"] >= same
        summarise(f"torsion n = {n:,}, {dtype}", found["median"], goal, fraction=found["fraction"], met=met)
        say(
            f"n = {n:,} {dtype}: median {1e3 * found['median']:.4f} ms, mean {1e3 * found['mean']:.4f} ms, "
            f"floor {1e3 * found['floor']:.4f} ms, fraction {found['fraction']:.2f}"
        )
        torch.cuda.empty_cache()
    return figures


# ---- the published run of the extended Rosenbrock function ----------------------------------------------------------

_PAIRS = r"""
extern "C" __global__ void pairs(const double2* x, double2* g, double* partial, long long count) {
    double sum = 0;
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < count; i += gridDim.x * 256ll) {
        const double2 v = x[i];
        const double t = v.y - v.x * v.x, u = 1 - v.x;
        sum += 100 * t * t + u * u;
        g[i] = make_double2(-400 * v.x * t - 2 * u, 200 * t);
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    __shared__ double part[8];
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int k = 1; k < 8; ++k) sum += part[k];
        partial[blockIdx.x] = sum;
    }
}
"""


def fused_rosenbrock(n: int) -> tuple[Any, Any]:
    """The objective as one CUDA kernel and a sum, through CuPy; its gradient buffer serves every evaluation."""
    import cupy

    kernel = cupy.RawKernel(_PAIRS, "pairs")
    gradient, partial = cupy.empty(n), cupy.empty(512)

    def fun(x: Any) -> tuple[Any, Any]:
        kernel((512,), (256,), (x, gradient, partial, n // 2))
        return partial.sum(), gradient

    return fun, cupy.asarray(stepwell.problems.get("rosenbrock", n=n).x0)


def printed_rows(fun: Any, x0: Any, options: dict[str, Any]) -> list[str]:
    """Iterations as the published driver prints them."""
    rows: list[str] = []

    def note(intermediate_result: Any) -> None:
        r = intermediate_result
        rows.append(f"{r.nit} {r.nfev} {r.fun:.6e} {r.gradient_norm:.6e} {r.step:.6e}")

    stepwell.minimize(fun, x0, jac=True, callback=note, options=options)
    return rows


def rosenbrock(quick: bool) -> dict[str, Any]:
    n = 10**6
    options = dict(maxcor=7, line_search="va15", eps=1e-5, gtol=0.0, ftol=0.0)
    problem = stepwell.problems.get("rosenbrock", n=n, xp=torch, dtype=torch.float64, device="cuda")
    objectives: dict[str, tuple[Any, Any]] = {"torch operations": (problem.fun, problem.x0)}
    try:
        objectives["one CUDA kernel (CuPy)"] = fused_rosenbrock(n)
    except ImportError:
        say("CuPy is not installed: the fused objective is left out")
    figures: dict[str, Any] = {}
    for name, (fun, x0) in objectives.items():
        rows = printed_rows(fun, x0, options)
        alike = sum(line in rows for line in PUBLISHED)
        for graph in ("auto", False):

            def solve(graph: Any = graph, fun: Any = fun, x0: Any = x0, **more: Any) -> Any:
                return stepwell.minimize(fun, x0, jac=True, options=options | dict(graph=graph) | more)

            solve()
            seconds, result = synchronised(solve, 3 if quick else 9)
            clock = solve(time_objective=True).seconds
            how = f"{name}, {'graph' if 'CUDA graph' in result.mode else 'turn by turn'}"
            figures[how] = {
                "seconds": seconds,
                "median": statistics.median(seconds),
                "parts": clock,
                "mode": result.mode,
                "published table": alike == len(PUBLISHED),
                "published rows printed alike": f"{alike} of {len(PUBLISHED)}",
                "rows": rows,
            }
            say(
                f"rosenbrock, {how}: {1e3 * figures[how]['median']:.2f} ms, of it {1e3 * clock['turns']:.2f} in turns, "
                f"{1e3 * clock['objective']:.2f} in the objective, {1e3 * clock['setup']:.2f} before; "
                f"{alike} of {len(PUBLISHED)} published rows to the last digit"
            )
    best = min(figures, key=lambda key: figures[key]["median"])
    median, same = figures[best]["median"], figures[best]["published table"]
    rows = figures[best]["published rows printed alike"]
    goal = f"10 ms; published table: {'yes' if same else 'NO'} ({rows} rows to the last digit)"
    summarise(f"rosenbrock n = 1,000,000, m = 7, whole ({best})", median, goal, met=median < 10e-3 and same)
    return figures


# ---- a batch of bounded problems ------------------------------------------------------------------------------------


def batch(quick: bool) -> dict[str, Any]:
    """4,096 problems of 256 variables; time per iteration and problem."""
    count, n = 4096, 256
    rng = np.random.default_rng(2)
    centre, w = 2 * rng.normal(size=(count, n)), 10.0 ** rng.uniform(0, 2, size=n)
    options = dict(maxcor=M, gtol=1e-6, ftol=1e-12)

    def quartic(x: Any, c: Any, weights: Any) -> tuple[Any, Any]:
        d = x - c
        square = d * d
        return (square * (weights / 2 + square / 4)).sum(-1), d * (weights + square)

    centres, weights = torch.tensor(centre, device="cuda"), torch.tensor(w, device="cuda")
    x0 = torch.zeros_like(centres)

    def solve(**more: Any) -> Any:
        fun = lambda x: quartic(x, centres, weights)  # noqa: E731
        return stepwell.minimize_batch(fun, x0, jac=True, bounds=(-1.0, 1.0), options=options | more)

    solve()
    seconds, result = synchronised(solve, 3 if quick else 7)
    clock = solve(time_objective=True).seconds
    error = float((result.x - centres.clamp(-1, 1)).abs().max())
    steps = int(result.nit.sum())
    ours = statistics.median(seconds) / steps
    figures: dict[str, Any] = {
        "stepwell": {
            "seconds": seconds,
            "iterations": steps,
            "evaluations": int(result.nfev.sum()),
            "parts": clock,
            "mode": result.mode,
            "per iteration and problem": ours,
            "error": error,
            "converged": float(result.success.mean()),
        }
    }
    say(
        f"batch: {1e3 * statistics.median(seconds):.2f} ms for {steps} iterations ({1e9 * ours:.1f} ns each; turns "
        f"{1e3 * clock['turns']:.2f} ms, objective {1e3 * clock['objective']:.2f} ms), error {error:.1e}"
    )
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
    summarise("4,096 bounded problems, n = 256, per iteration and problem", ours)
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


# ---- other solvers on the torsion problem ---------------------------------------------------------------------------


def peers(quick: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for side in () if quick else (100, 1000, 2000):
        n = side * side
        found = torch_lbfgs(torsion_problem(side, side), 30 if side > 100 else 60)
        figures[f"torch.optim.LBFGS {n:,}"] = found
        summarise(f"torsion n = {n:,} without bounds, torch.optim.LBFGS", found["solver"])
        say(f"torch.optim.LBFGS n = {n:,}: {1e3 * found['solver']:.3f} ms an iteration")
    for side, iterations in ((100, 60),) if quick else ((100, 100), (1000, 14)):
        n, best = side * side, np.inf
        for blas in (1, None):
            best = min(best, scipy_solver_time(side, iterations, blas))
        figures[f"SciPy {n:,}"] = best
        summarise(f"torsion n = {n:,}, SciPy on the CPU", best)
        say(f"SciPy n = {n:,}: {1e3 * best:.2f} ms an iteration")
    return figures


def torch_lbfgs(problem: Any, iterations: int) -> dict[str, Any]:
    """Seconds per iteration outside the closure, by CUDA events on the stream."""
    x = problem.x0.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [x], lr=1, max_iter=iterations, max_eval=10**6, tolerance_grad=0, tolerance_change=0, history_size=M,
        line_search_fn="strong_wolfe",
    )  # fmt: skip
    calls: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def closure() -> Any:
        before, after = events()
        before.record()
        with torch.no_grad():
            f, x.grad = problem.fun(x)
        after.record()
        calls.append((before, after))
        return f

    optimizer.step(closure)  # the history fills, and libraries load
    calls.clear()
    done = optimizer.state[x]["n_iter"]
    before, after = events()
    before.record()
    optimizer.step(closure)
    after.record()
    torch.cuda.synchronize()
    inside = sum(a.elapsed_time(b) for a, b in calls)
    steps = optimizer.state[x]["n_iter"] - done
    whole = before.elapsed_time(after)
    return {"solver": 1e-3 * (whole - inside) / steps, "whole": 1e-3 * whole / steps, "iterations": steps}


def scipy_solver_time(side: int, iterations: int, blas: int | None) -> float:
    """Seconds per iteration between evaluations, once the history is full."""
    problem = stepwell.problems.get("torsion", nx=side, ny=side)
    record, calls = Recorder(problem.fun), []
    with threadpool_limits(blas):
        scipy_minimize(
            record, problem.x0, jac=True, method="L-BFGS-B", bounds=Bounds(*problem.bounds),
            callback=lambda x: calls.append(len(record.began)),
            options=dict(maxcor=M, ftol=0, gtol=1e-14, maxfun=10**6, maxiter=iterations),
        )  # fmt: skip
    return record.between(calls[M]) / (len(calls) - M - 1)


# ---- a second start -------------------------------------------------------------------------------------------------

_START = """
import sys, time
began = time.perf_counter()
library = sys.argv[1]
xp = __import__(library)
if library == "torch":
    x = xp.full((1000,), 2.0, device="cuda", dtype=xp.float64)
    wait = xp.cuda.synchronize
else:
    x = xp.full((1000,), 2.0)
    wait = xp.cuda.runtime.deviceSynchronize
fun = lambda x: ((x * x).sum(), 2 * x)
f, g = fun(x)
wait()
ready = time.perf_counter()
import stepwell
stepwell.LBFGSB  # imported only now
imported = time.perf_counter()
opt = stepwell.LBFGSB(x, (-3.0, 3.0), m=8)
made = time.perf_counter()
opt.tell(f, g)
wait()
turned = time.perf_counter()
print(ready - began, imported - ready, made - imported, turned - made)
"""


def start(quick: bool) -> dict[str, Any]:
    """A fresh process with the kernels on disk: seconds for the array library, the import, the set-up, the turn.

    The set-up is everything between the call and the first turn: cuda.core, checks, the kernel from disk, memory.
    """
    figures: dict[str, Any] = {}
    for library in ("torch", "cupy"):
        runs = []
        for _ in range(2 if quick else 4):
            out = subprocess.run([sys.executable, "-c", _START, library], capture_output=True, text=True)
            if out.returncode:
                say(f"{library}: start left out: {out.stderr.strip().splitlines()[-1]}")
                break
            runs.append([float(word) for word in out.stdout.split()])
        if len(runs) < 2:
            continue
        parts = dict(zip(("library", "import", "set-up", "first turn"), map(statistics.median, zip(*runs[1:]))))
        own = parts["set-up"] + parts["first turn"]
        figures[library] = {"runs": runs, "parts": parts, "own": own}
        text = f"second start, {library} array: call to first turn (import {1e3 * parts['import']:.0f} ms)"
        summarise(text, own, "300 ms", met=own <= 0.3)
        say(f"start with {library}: " + ", ".join(f"{key} {1e3 * value:.0f} ms" for key, value in parts.items()))
    return figures


PARTS: dict[str, Callable[[bool], dict[str, Any]]] = {
    "torsion": torsion,
    "rosenbrock": rosenbrock,
    "batch": batch,
    "peers": peers,
    "start": start,
}
BEGAN = time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--quick", action="store_true", help="fewer turns, no peers on the GPU, no n = 40,000,000")
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE", help=f"default {RESULTS.name}")
    given = parser.parse_args()
    about = machine() | gpu_machine("cuda") | {"quick": given.quick}
    say(f"{about['gpu']}, torch {about['torch']}, CUDA {about['cuda']}, stepwell {about['stepwell']}")
    kept = json.loads(given.json.read_text()) if given.json.exists() else {}
    given.json.parent.mkdir(parents=True, exist_ok=True)
    for name, part in PARTS.items():
        if given.part in (name, "all"):
            kept[name] = {"machine": about, "figures": part(given.quick)}
            given.json.write_text(json.dumps(kept, indent=1) + "\n")
    say(f"wrote {given.json}\n")
    table(["work", "ms", "of the floor", "goal", ""], SUMMARY)


if __name__ == "__main__":
    main()
