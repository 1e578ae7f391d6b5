"""NNLS with any number of leading axes: what a transformation such as ``vmap`` makes of systems, as one batch.

An argument that lacks an axis, or has it as a one, is shared along it: a matrix without any is the one matrix of all
systems, whose Gram matrix is formed once.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stepwell.arrays import Array, host_copy, is_cuda, namespace_of
from stepwell.arrays.over_systems import systems_of_whole
from stepwell.lsq.arguments import check
from stepwell.lsq.batch import COSTS, COUNTS, Batch
from stepwell.lsq.convolution import Convolution
from stepwell.lsq.result import NNLSResult
from stepwell.lsq.solving import solve


class Spec(NamedTuple):
    """Everything but arrays that a call of ``nnls`` is made of: plain values, which compiled programs keep."""

    rows: int  # of a convolution; -1: the matrix is dense
    columns: int
    origin: int
    method: str
    insertion: str
    update: str
    chain: bool
    maxiter: int | None
    tol: float | None
    threads: int | None

    @property
    def pulse_shape(self) -> tuple[int, int, int] | None:
        """What ``solve_free`` and ``Pulses`` need to know of a convolution; None of a dense matrix."""
        return None if self.rows < 0 else (self.rows, self.columns, self.origin)


class Outcome(NamedTuple):
    """A result as arrays alone, each with the leading axes of the systems first."""

    x: Array  # (..., n)
    dual: Array  # (..., n)
    active: Array  # (..., n)
    reals: Array  # (..., 2): residual, violation
    counts: Array  # (..., 6), in the order of COUNTS
    costs: Array  # (..., 4)


def read_systems(
    entries: Array,
    b: Array,
    lam: Array,
    warm: Array | None,
    spec: Spec,
    progress: Callable[[int, int], object] | None = None,
) -> Batch:
    """Check systems given as ``nnls`` takes them: a lone one, one matrix for all, or one for each."""
    number = float(lam.item())
    usual = all(value is None or isinstance(value, int | float | str) for value in spec)
    plain = usual and spec.rows < 0 and warm is None and progress is None and type(entries) is type(b)
    if plain and not is_cuda(b) and entries.dtype == b.dtype == namespace_of(b).float64:
        known = _known(tuple(entries.shape), tuple(b.shape), spec, number, systems_of_whole(0))
        return known.with_arrays(entries, b if b.ndim == 2 else b[None])
    matrix: Any = entries
    if spec.rows >= 0:
        matrix = Convolution(entries, spec.columns, m=spec.rows, origin=spec.origin)
    return check(matrix, b, progress=progress, warm_start="chain" if spec.chain else warm, **_options(spec, number))


def _options(spec: Spec, lam: float) -> dict[str, Any]:
    names = ("method", "insertion", "update", "maxiter", "tol", "threads")
    return {name: getattr(spec, name) for name in names} | {"lam": lam}


@functools.lru_cache(maxsize=64)
def _known(of_a: tuple[int, ...], of_b: tuple[int, ...], spec: Spec, lam: float, whole: int) -> Batch:
    """Check systems of these shapes. What is called again and again takes longer to check than a small batch to solve.

    `whole` is there for the cache: the check asks for it as well.
    """
    start = "chain" if spec.chain else None
    return check(np.broadcast_to(0.0, of_a), np.broadcast_to(0.0, of_b), warm_start=start, **_options(spec, lam))


def solve_systems(entries: Array, b: Array, lam: Array, warm: Array | None, spec: Spec) -> NNLSResult:
    """Solve systems given as ``nnls`` takes them."""
    result = solve(read_systems(entries, b, lam, warm, spec))
    assert isinstance(result, NNLSResult)
    return result


def solve_folded(entries: Array, b: Array, lam: Array, warm: Array | None, spec: Spec) -> Outcome:
    """Solve systems with any leading axes; a system that is not finite is a status, alone too."""
    xp = namespace_of(entries, b)
    core = 2 if spec.rows < 0 else 1
    leads = [tuple(entries.shape[:-core]), tuple(b.shape[:-1]), tuple(lam.shape)]
    leads.append(() if warm is None else tuple(warm.shape[:-1]))
    rank = max(map(len, leads))
    leads = [(1,) * (rank - len(lead)) + lead for lead in leads]
    whole: tuple[int, ...] = np.broadcast_shapes(*leads)
    systems = math.prod(whole)

    def spread(array: Array, lead: tuple[int, ...], keep: int) -> Array:
        block = tuple(array.shape[array.ndim - keep :])
        wide = xp.broadcast_to(xp.reshape(array, (*lead, *block)), (*whole, *block))
        return xp.reshape(wide, (systems, *block))

    rhs = spread(b, leads[1], 1)
    shared = math.prod(leads[0]) == 1 and bool(xp.all(xp.isfinite(entries)))  # of a batch, no error but a status
    own = xp.reshape(entries, tuple(entries.shape[-core:])) if shared else spread(entries, leads[0], core)
    start = None if warm is None else spread(warm, leads[3], 1)
    values = host_copy(lam).reshape(-1)
    if values.size <= 1:
        found = [solve_systems(own, rhs, lam, start, spec)]
    else:  # as many calls as values of λ
        lams = np.broadcast_to(host_copy(lam).reshape(leads[2]), whole).reshape(-1)
        found = []
        for k in range(systems):
            one = slice(k, k + 1)
            first = None if start is None else start[one]
            found.append(solve_systems(own if shared else own[one], rhs[one], lams[one], first, spec))
    parts = [_as_outcome(result) for result in found]
    joined = parts[0] if len(parts) == 1 else Outcome(*(xp.concat(arrays, axis=0) for arrays in zip(*parts)))
    return Outcome(*(xp.reshape(array, (*whole, *array.shape[1:])) for array in joined))


def _as_outcome(result: NNLSResult) -> Outcome:
    """Gather the fields of a batch's result in few arrays."""
    xp = namespace_of(result.x)
    return Outcome(
        result.x,
        result.dual,
        result.active,
        xp.stack([result.residual, result.violation], axis=-1),
        xp.stack([xp.astype(getattr(result, name), xp.int32) for name in COUNTS], axis=-1),
        xp.stack([result.costs[name] for name in COSTS], axis=-1),
    )


def as_result(outcome: Outcome, spec: Spec) -> NNLSResult:
    """Return a result made of arrays alone: numbers of one system, too, where they have no values yet."""
    counts = {name: outcome.counts[..., k] for k, name in enumerate(COUNTS)}
    return NNLSResult(
        x=outcome.x,
        residual=outcome.reals[..., 0],
        dual=outcome.dual,
        violation=outcome.reals[..., 1],
        active=outcome.active,
        insertions=counts["insertions"],
        removals=counts["removals"],
        solves=counts["solves"],
        passes=counts["passes"],
        status=counts["status"],
        escalated=counts["escalated"] != 0,
        costs={name: outcome.costs[..., k] for k, name in enumerate(COSTS)},
        method=spec.method,
        choice="chosen when the systems are known, as they are traced",
    )


def turned(result: NNLSResult) -> NNLSResult:
    """Return a result whose systems lie along the second axis."""
    return dataclasses.replace(result, x=result.x.T, dual=result.dual.T, active=result.active.T)
