"""Solver time per iteration on the bounded torsion problem, beside the bandwidth floor."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import torch

import stepwell
from gpu_parts.tools import (
    ENDLESS,
    M,
    copy_bandwidth,
    events,
    keep_busy,
    say,
    summarise,
    synchronised,
    torsion_problem,
)
from stepwell.quasi_newton.cuda.events import WINDOW

WORDS = 4 * M + 14  # of traffic for each variable and iteration


def turn_times(problem: Any, turns: int, bounds: Any = "arrays", history: str | None = None) -> dict[str, Any]:
    """Device seconds of each turn. The run is made twice, alike to the last bit: first looking at the state after every
    turn, then with events and without waiting. The host lets itself be at most two windows of turns ahead of the
    device, so that each window is queued behind a device that sleeps: otherwise short turns are held up by the host."""
    box = problem.bounds if isinstance(bounds, str) else bounds
    opt = stepwell.LBFGSB(problem.x0, box, m=M, history=history, **ENDLESS)
    iterations, walks = [0], [0]
    for _ in range(turns):
        opt.tell(*problem.fun(opt.x))
        iterations.append(opt.nit)
        walks.append(int(opt.state["cauchy_walks"]))
    opt = stepwell.LBFGSB(problem.x0, box, m=M, history=history, **ENDLESS)
    keep_busy(0.15)
    seconds = []
    for began in range(0, turns, WINDOW):
        pairs = [events() for _ in range(min(WINDOW, turns - began))]
        torch.cuda._sleep(int(2e9 * 0.5e-3 * WINDOW))  # half a millisecond a turn: more than the host takes
        for before, after in pairs:
            f, g = problem.fun(opt.x)
            before.record()
            opt.tell(f, g)
            after.record()
        torch.cuda.synchronize()
        seconds += [1e-3 * before.elapsed_time(after) for before, after in pairs]
    lower, upper = (-np.inf, np.inf) if box is None else box
    free = float(((opt.x > lower) & (opt.x < upper)).double().mean())
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
        "free": free,  # share of the variables that lie inside their bounds in the end
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
