"""What the parts share: clocks, the copy, the closing table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import stepwell

M = 8
BYTES = {"float64": 8, "float32": 4, "bfloat16": 2}
ENDLESS = dict(gtol=0.0, ftol=0.0, maxfun=10**6)
BEGAN = time.perf_counter()
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
        result = None  # its memory serves the next
        torch.cuda.synchronize()
        start = time.perf_counter()
        result = run()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds, result


def keep_busy(seconds: float) -> None:
    """Copy within the device for a while: a GPU that was idle runs at a fraction of its clock at first."""
    source = torch.rand(2**26, device="cuda", dtype=torch.float64)
    target = torch.empty_like(source)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(16):
            target.copy_(source)
        torch.cuda.synchronize()


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


def torsion_problem(nx: int, ny: int, dtype: str = "float64") -> Any:
    return stepwell.problems.get("torsion", nx=nx, ny=ny, xp=torch, dtype=getattr(torch, dtype), device="cuda")
