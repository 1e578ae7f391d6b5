"""Other solvers on the torsion problem."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from common import Recorder
from scipy.optimize import Bounds
from scipy.optimize import minimize as scipy_minimize
from threadpoolctl import threadpool_limits

import stepwell
from gpu_parts.tools import M, events, say, summarise, torsion_problem


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
