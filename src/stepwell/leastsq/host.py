"""NNLS on the CPU: hands a batch to the compiled core in parts, and wraps up what comes back."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwell import _core, arrays
from stepwell.leastsq.batch import CHAIN, COSTS, UPDATE_CODES, Batch
from stepwell.leastsq.result import NNLSResult, NNLSStatus
from stepwell.settings import default_threads

#: A part of a batch that has to be copied (another memory order) takes at most this many bytes.
COPY_BYTES = 1 << 28


def solve(batch: Batch) -> NNLSResult:
    """Solve a checked batch of host arrays."""
    matrix, b = arrays.host_view(batch.matrix), arrays.host_view(batch.b)
    _refuse_non_finite(batch, matrix, b)
    systems, n = batch.systems, batch.columns
    x = np.empty((systems, n), b.dtype)
    dual = np.empty((systems, n), b.dtype)
    active = np.empty((systems, n), np.uint8)
    reals = np.empty((2, systems))
    counts = np.empty((6, systems), np.int32)
    costs = np.empty((systems, 4), np.int64)
    if batch.shared:
        matrix = np.ascontiguousarray(matrix)
    if batch.rows == 0:
        x[...], dual[...], active[...], reals[...], counts[...], costs[...] = 0, 0, 0, 0, 0, 0
        return wrap(batch, x, dual, active.view(bool), reals, counts, costs)
    done = 0
    for start, stop in _parts(batch, matrix):
        part_counts = np.empty((6, stop - start), np.int32)
        part_reals = np.empty((2, stop - start))
        _core.nnls_solve(
            a=matrix if batch.shared else _rows_contiguous(matrix[start:stop]),
            b=_rows_contiguous(b[start:stop]),
            convolution=batch.convolution,
            rows=batch.rows,
            columns=n,
            origin=batch.origin,
            tolerance=batch.tolerance,
            damping=batch.damping,
            most_solves=batch.max_iter,
            update=UPDATE_CODES[batch.update],
            guarded=batch.guarded,
            form_gram=batch.form_gram,
            chain=batch.chain,
            threads=batch.threads or default_threads(),
            warm_values=_warm_part(batch.warm_x, start, stop),
            warm_marks=_warm_part(batch.warm_set, start, stop),
            x=x[start:stop],
            dual=dual[start:stop],
            active=active[start:stop],
            reals=part_reals,
            counts=part_counts,
            costs=costs[start:stop],
        )
        reals[:, start:stop] = part_reals
        counts[:, start:stop] = part_counts
        done += stop - start
        if batch.progress:
            batch.progress(done, systems)
    return wrap(batch, x, dual, active.view(bool), reals, counts, costs)


def _refuse_non_finite(batch: Batch, matrix: np.ndarray, b: np.ndarray) -> None:
    """Raise for a lone system or a shared matrix that is not finite; systems of a batch get a status instead."""
    if batch.shared and not np.all(np.isfinite(matrix)):
        raise ValueError("A must be finite, got NaN or infinity")
    if batch.lone and not np.all(np.isfinite(b)):
        raise ValueError("b must be finite, got NaN or infinity")


def _needs_copy(array: np.ndarray) -> bool:
    """Whether the core cannot read an array as it is: rows contiguous, all strides positive."""
    item = array.itemsize
    fine = array.strides[-1] == item and all(s > 0 and s % item == 0 for s in array.strides)
    return not (fine and array.flags.aligned)


def _rows_contiguous(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array) if _needs_copy(array) else array


def _parts(batch: Batch, matrix: np.ndarray) -> list[tuple[int, int]]:
    systems = size = batch.systems
    if systems and not batch.shared and _needs_copy(matrix):
        size = max(1, COPY_BYTES // max(matrix[0].nbytes, 1))
    if batch.progress:
        size = min(size, max(64, -(-systems // 100)))
    size = max(CHAIN, size // CHAIN * CHAIN) if batch.chain else size  # a chain does not end where a part does
    return [(start, min(start + size, systems)) for start in range(0, systems, size or 1)]


def _warm_part(warm: Any, start: int, stop: int) -> np.ndarray | None:
    if warm is None:
        return None
    view = arrays.host_view(warm)
    view = view.astype(np.uint8) if view.dtype == bool else view
    return np.ascontiguousarray(view if view.shape[0] == 1 else view[start:stop])


def wrap(
    batch: Batch,
    x: np.ndarray,
    dual: np.ndarray,
    active: np.ndarray,
    reals: np.ndarray,
    counts: np.ndarray,
    costs: np.ndarray,
) -> NNLSResult:
    """Put the arrays of a batch into a result of the caller's kind; a lone system's into vectors and numbers."""
    template = batch.b
    escalated = counts[5].astype(bool)
    if batch.lone:
        return NNLSResult(
            x=arrays.in_kind(x[0], template),
            residual=float(reals[0, 0]),
            dual=arrays.in_kind(dual[0], template),
            violation=float(reals[1, 0]),
            active=arrays.in_kind(active[0], template),
            insertions=int(counts[1, 0]),
            removals=int(counts[2, 0]),
            solves=int(counts[3, 0]),
            passes=int(counts[4, 0]),
            status=NNLSStatus(int(counts[0, 0])),
            escalated=bool(escalated[0]),
            costs={name: int(costs[0, k]) for k, name in enumerate(COSTS)},
            method=batch.method,
            choice=batch.choice,
        )
    return NNLSResult(
        x=arrays.in_kind(x, template),
        residual=arrays.in_kind(reals[0].astype(x.dtype), template),
        dual=arrays.in_kind(dual, template),
        violation=arrays.in_kind(reals[1].astype(x.dtype), template),
        active=arrays.in_kind(active, template),
        insertions=arrays.in_kind(counts[1], template),
        removals=arrays.in_kind(counts[2], template),
        solves=arrays.in_kind(counts[3], template),
        passes=arrays.in_kind(counts[4], template),
        status=arrays.in_kind(counts[0], template),
        escalated=arrays.in_kind(escalated, template),
        costs={name: arrays.in_kind(np.ascontiguousarray(costs[:, k]), template) for k, name in enumerate(COSTS)},
        method=batch.method,
        choice=batch.choice,
    )
