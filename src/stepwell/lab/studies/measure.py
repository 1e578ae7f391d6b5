"""Measuring, for studies and benchmarks: the machine, interleaved medians, and the time between evaluations."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from stepwell.arrays.places import Place
from stepwell.common.machine import machine_facts, version_of


def machine() -> dict[str, Any]:
    """Describe where and with what figures are taken.

    Examples
    --------
    >>> sorted(machine())[:3]
    ['compiler', 'cores', 'cpu']
    """
    about: dict[str, Any] = {
        **machine_facts(),
        "load average at start": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "date": time.strftime("%Y-%m-%d"),
    }
    about["thread libraries"] = {
        f"{lib['internal_api']} {lib['version']}": lib["num_threads"] for lib in threadpool_info()
    }
    return about


def gpu_machine(place: Place) -> dict[str, Any]:
    """Describe a CUDA device and the libraries used on it."""
    from stepwell.cuda.devices import driver_version

    about = {"gpu": place.label, "arrays": f"{place.library} {place.version}", "cuda": driver_version()}
    versions = {name: version_of(name) for name in ("cuda-core", "cuda-bindings")}
    return about | {name: version for name, version in versions.items() if version is not None}


def interleave(repeats: int, **runs: Callable[[], float]) -> dict[str, list[float]]:
    """Run every function in turn, `repeats` times round, so that a busy moment falls on all of them alike."""
    seen: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            seen[name].append(run())
    return seen


def medians(seen: dict[str, list[float]]) -> dict[str, float]:
    """Return the median of each list."""
    return {name: statistics.median(values) for name, values in seen.items()}


def wall(run: Callable[[], Any]) -> Callable[[], float]:
    """Make a function that runs `run` and returns its seconds."""

    def timed() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return timed


class Recorder:
    """An objective that notes when each call began and ended: the gaps between calls are the solver's time."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun
        self.began: list[float] = []
        self.ended: list[float] = []

    def __call__(self, *args: Any) -> Any:
        """Call the objective."""
        self.began.append(time.perf_counter())
        out = self.fun(*args)
        self.ended.append(time.perf_counter())
        return out

    @property
    def seconds(self) -> float:
        """Seconds inside the objective."""
        return sum(self.ended) - sum(self.began)

    def between(self, first: int) -> float:
        """Return the solver's time between call number `first` and the last."""
        return sum(self.began[first + 1 :]) - sum(self.ended[first:-1])


def blas_threads(count: int | None) -> Any:
    """Limit the BLAS to so many threads within a ``with`` block; None: no limit."""
    return threadpool_limits(count, user_api="blas")


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Return how steep the line through the origin is that is nearest to the points, in squares.

    Examples
    --------
    >>> slope([1.0, 2.0], [3.0, 6.0])
    3.0
    """
    return float(np.dot(x, y) / np.dot(x, x))
