"""Fits by compiled models on the CPU: arrays in the order that the core reads, one call, and what it filled."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from stepwell import _core
from stepwell.arrays.together import unstacked
from stepwell.fit.models.job import COUNTS, REALS, Arrays, Described, Settings, across_of, answers, make_job, read_x


def _address(array: np.ndarray | None) -> int:
    return 0 if array is None else int(array.ctypes.data)


#: Whoever watches is told so often, of ranges of so many fits at least.
TOLD, RANGE = 50, 4096


def fit(model: Described, problem: Any) -> dict[str, Any]:
    """Fit a batch (`stepwell.fit.problem.FitProblem`) and return its ends; in ranges where somebody watches."""
    if problem.progress is None or problem.problems == 0:
        return _fit(model, problem)
    count, parts = problem.problems, []
    size = max(RANGE, -(-count // TOLD))
    for first in range(0, count, size):
        parts.append(_fit(model, _of_range(problem, slice(first, first + size))))
        problem.progress(min(first + size, count), count)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _of_range(problem: Any, some: slice) -> Any:
    own = {
        name: rows[some]
        for name in ("x0", "low", "high", "y", "weights")
        if (rows := getattr(problem, name)) is not None and len(rows) == problem.problems
    }
    x = problem.x[..., some, :] if problem.own_x else problem.x
    return dataclasses.replace(problem, x=x, **own)


def _fit(model: Described, problem: Any) -> dict[str, Any]:
    dtype = np.float32 if problem.single else np.float64
    options = problem.options(float(np.finfo(dtype).eps))
    threads = options.pop("threads")
    problems, n = problem.problems, model.n
    if problem.parameters != n:
        raise ValueError(f"p0 has {problem.parameters} parameters; allowed for {model!r}: {n}")
    y = np.ascontiguousarray(problem.y, dtype=dtype)
    points = y.shape[-1]
    x = read_x(model, problem.x, problem.own_x, points, dtype)
    arrays = Arrays(
        x=x,
        y=y,
        weights=None if problem.weights is None else np.ascontiguousarray(problem.weights, dtype=dtype),
        start=np.ascontiguousarray(problem.x0, dtype=dtype),
        low=np.ascontiguousarray(problem.low, dtype=np.float64),
        high=np.ascontiguousarray(problem.high, dtype=np.float64),
        **{
            name: None if one is None else np.empty(*one)
            for name, one in answers(problems, n, dtype, problem.uncertainty).items()
        },
    )
    job = make_job(model, arrays, Settings(**options), across_of(model, x), _address, problems)
    with np.errstate(all="ignore"):
        _core.fit_compiled(bytes(job), threads)
    return ends_of(arrays)


def ends_of(arrays: Arrays) -> dict[str, Any]:
    """Return the arrays that a fit filled by the names of ``FitBatch.ends``."""
    ends = {"x": arrays.values, "active_mask": arrays.active}
    ends |= zip(REALS, unstacked(arrays.reals), strict=True)
    ends |= zip(COUNTS, unstacked(arrays.counts), strict=True)
    if arrays.variances is not None:
        ends["variances"] = arrays.variances
    if arrays.covariance is not None:
        ends["pcov"] = arrays.covariance
    return ends


def rows(model: Described, x: Any, *params: Any) -> np.ndarray:
    """Return derivatives and value at every point, (m, n + 1), or (problems, m, n + 1) where parameters are columns."""
    if len(params) != model.n:
        raise TypeError(f"{model!r} got {len(params)} parameters; allowed: {', '.join(model.parameters)}")
    given = np.broadcast_arrays(*(np.asarray(p, dtype=np.float64) for p in params))
    start = np.stack([p.reshape(-1) for p in given], axis=-1)
    problems, points = start.shape[0], int(np.shape(x)[-1])
    single = all(np.asarray(p).dtype == np.float32 for p in params) and np.asarray(x).dtype == np.float32
    dtype = np.float32 if single else np.float64
    x = read_x(model, x, False, points, dtype)
    nothing = np.zeros((1, points), dtype)
    empty: Any = None
    arrays = Arrays(x, nothing, None, np.ascontiguousarray(start, dtype), *([empty] * 8))
    settings = Settings(0, 0, 0, 0, 0, 0, single, False, 0, 1.0, False)
    job = make_job(model, arrays, settings, across_of(model, x), _address, problems)
    out = np.empty((problems, points, model.n + 1), dtype)
    _core.fit_rows(bytes(job), _address(out))
    return out[0] if given[0].ndim == 0 else out
