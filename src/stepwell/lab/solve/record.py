"""A run as plain data, for JSON."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import stepwell
from stepwell.lab.problems import Problem
from stepwell.lab.solve.history import Iteration
from stepwell.quasi_newton.settings import Settings


def run_record(
    problem: Problem,
    bounded: bool,
    settings: Settings,
    kind: dict[str, str],
    result: Any,
    seconds: dict[str, float],
    iterations: list[Iteration],
) -> dict[str, Any]:
    """Return problem, settings, result, times and history as one dict that JSON can hold.

    A number that JSON cannot write (an infinite target, a NaN) becomes None.
    """
    search = settings.line_search
    constants = {name: search.constants()[name] for name in ("ftol", "gtol", "xtol", "stpmin", "stpmax", "maxls")}
    chosen = {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(settings)
        if field.name not in ("line_search", "threads")
    }
    record = {
        "stepwell": stepwell.__version__,
        "command": "solve",
        "problem": {
            "name": problem.name,
            "n": problem.n,
            "parameters": dict(problem.parameters),
            "bounded": bounded,
            "minimum": problem.minimum,
        },
        "settings": {
            **chosen,
            "line_search": {"preset": search.preset, **constants},
            "threads": settings.thread_count(),
            **kind,
        },
        "result": {
            "fun": float(result.fun),
            "projected_gradient": float(result.projected_gradient),
            "nit": int(result.nit),
            "nfev": int(result.nfev),
            "success": bool(result.success),
            "status": int(result.status),
            "reason": result.reason.name,
            "info": int(result.info),
            "message": result.message,
            **{name: int(result[name]) for name in ("cauchy_walks", "truncations", "resets", "skipped")},
        },
        "seconds": seconds,
        "history": [dataclasses.asdict(iteration) for iteration in iterations],
    }
    plain: dict[str, Any] = _finite(record)
    return plain


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
