"""Least squares with any number of leading axes, as one batch, and its result as arrays alone.

What a transformation such as ``vmap`` makes of systems. An argument that lacks an axis, or has it as a one, is shared
along it: a matrix without any is the one matrix of all systems, whose Gram matrix is formed once. L and the equalities
are one for all systems in a batch, and so is λ where x ≥ 0 is all that is asked; where a transformation maps over them,
it is a loop.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from stepwell.arrays import Array, namespace_of, on_device_of
from stepwell.common.checks import require
from stepwell.derivatives.bounded import AXES, ProblemArrays
from stepwell.derivatives.matrices import GRAM, Kind
from stepwell.lsq import solving
from stepwell.lsq.batch import COUNTS
from stepwell.lsq.convolution import Convolution
from stepwell.lsq.result import LSQResult

REALS = ("residual", "violation", "equality_error", "lam")


class Spec(NamedTuple):
    """Everything but arrays that a call is made of: plain values, which compiled programs keep."""

    rows: int  # these three: the kind of the matrix
    columns: int
    origin: int
    rule: str  # that chooses λ; empty: λ is given
    chain: bool
    maxiter: int | None
    tol: float | None
    threads: int | None
    # Of calls with A; with G nobody reads them.
    method: str = "gram"
    insertion: str = ""
    chi2: float = 0.0

    @staticmethod
    def of_call(kind: Kind, rule: str, options: dict[str, Any]) -> Spec:
        """Return what a traced call has beside arrays, or say which of it cannot be."""
        for name in ("progress", "noise", "uncertainty", "bb"):
            value = options.get(name)
            require(value is None, name, value, "None where the call is compiled, transformed or traced")
        start = options["warm_start"]
        require(not isinstance(start, str) or start == "chain", "warm_start", start, "an x, states (int8), or 'chain'")
        own = {name: options[name] for name in (*_OPTIONS, *_WITH_A) if name in options}
        return Spec(*kind, rule=rule, chain=isinstance(start, str), **own)

    @property
    def kind(self) -> Kind:
        """The kind of the matrix."""
        return (self.rows, self.columns, self.origin)

    @property
    def options(self) -> dict[str, Any]:
        """The options by name, as solvers take them."""
        names = _OPTIONS if self.kind == GRAM else (*_OPTIONS, *_WITH_A)
        return {name: getattr(self, name) for name in names}

    @property
    def axes(self) -> ProblemArrays:
        """Axes of one system of each array of a problem."""
        return AXES._replace(entries=2 if self.rows < 0 else 1)


#: Options that are plain values: of every call, and of those with A.
_OPTIONS, _WITH_A = ("maxiter", "tol", "threads"), tuple(Spec._field_defaults)


class Outcome(NamedTuple):
    """A result as arrays alone, each with the leading axes of the systems first."""

    x: Array  # (..., n)
    dual: Array  # (..., n)
    state: Array  # (..., n)
    reals: Array  # (..., 4 + k): REALS, then multipliers
    counts: Array  # (..., 6), in the order of COUNTS


def columns_of(problem: ProblemArrays, spec: Spec) -> int:
    """How many unknowns a system has."""
    return int(problem.entries.shape[-1]) if spec.rows < 0 else spec.columns


def multipliers_of(problem: ProblemArrays) -> int:
    """How many sums and equalities there are."""
    return (problem.sum_low is not None) + (0 if problem.C is None else int(problem.C.shape[-2]))


def leads_of(problem: ProblemArrays, spec: Spec) -> list[tuple[int, ...]]:
    """Return the leading axes of each array, of equal number; of one that is missing ones."""
    leads = [
        () if array is None else tuple(map(int, array.shape[: array.ndim - core]))
        for array, core in zip(problem, spec.axes)
    ]
    rank = max(map(len, leads))
    return [(1,) * (rank - len(lead)) + lead for lead in leads]


def solve_folded(problem: ProblemArrays, spec: Spec) -> Outcome:
    """Solve systems with any leading axes; a system that is not finite is a status, alone too."""
    xp = namespace_of(problem.entries, problem.b)
    leads = leads_of(problem, spec)
    whole: tuple[int, ...] = np.broadcast_shapes(*leads)
    named = dict(zip(ProblemArrays._fields, leads))

    def flat(array: Array | None, lead: tuple[int, ...], core: int, keep: bool = False) -> Any:
        if array is None:
            return None
        block = tuple(array.shape[array.ndim - core :])
        if math.prod(lead) == 1 and not keep:
            return xp.reshape(array, block)
        wide = xp.broadcast_to(xp.reshape(array, (*lead, *block)), (*whole, *block))
        return xp.reshape(wide, (math.prod(whole), *block))

    more = (problem.lower, problem.sum_low, problem.weights, problem.mask, problem.L, problem.C)
    # The faster solver of x ≥ 0 alone takes one λ: as many calls as values.
    own_lam = math.prod(named["lam"]) > 1 and not spec.rule and all(array is None for array in more)
    if own_lam or math.prod(named["L"]) * math.prod(named["C"]) > 1:
        every = [flat(array, lead, core, keep=True) for array, lead, core in zip(problem, leads, spec.axes)]
        parts = [
            _solve_rows(ProblemArrays(*(None if array is None else array[k] for array in every)), spec)
            for k in range(math.prod(whole))
        ]
        found = Outcome(*(xp.concat(arrays, axis=0) for arrays in zip(*parts)))
    else:
        broken = not bool(xp.all(xp.isfinite(problem.entries)))  # of a batch, no error but a status
        keep = {"b": True, "entries": broken}
        flats = [
            flat(array, lead, core, keep.get(name, False))
            for name, array, lead, core in zip(ProblemArrays._fields, problem, leads, spec.axes)
        ]
        found = _solve_rows(ProblemArrays(*flats), spec)
    return Outcome(*(xp.reshape(array, (*whole, *array.shape[1:])) for array in found))


def _solve_rows(problem: ProblemArrays, spec: Spec) -> Outcome:
    """Solve systems along one axis, or one system, which comes back with an axis of its own."""
    if problem.b.ndim == 1:
        problem = problem._replace(b=problem.b[None])
    p = problem
    options: dict[str, Any] = dict(
        bounds=None if p.lower is None else (p.lower, p.upper),
        sum_bounds=None if p.sum_low is None else (p.sum_low, p.sum_high), mask=p.mask, L=p.L, lam=spec.rule or p.lam,
        warm_start="chain" if spec.chain else p.warm, **spec.options,
    )  # fmt: skip
    if spec.kind == GRAM:
        result = solving.solve_gram(p.entries, p.b, **options)
    else:
        A = p.entries if spec.rows < 0 else Convolution(p.entries, spec.columns, m=spec.rows, origin=spec.origin)
        options |= dict(weights=p.weights)
        options |= {} if p.C is None else {"equality": (p.C, p.d)}
        result = solving.solve_linear(A, p.b, **options)
    xp = namespace_of(result.x)
    systems = tuple(result.x.shape[:-1])
    like: dict[str, Any] = {"dtype": result.x.dtype, **on_device_of(result.x)}
    reals = [xp.broadcast_to(xp.asarray(getattr(result, name), **like), systems) for name in REALS]
    reals = [one[..., None] for one in reals]
    if result.multipliers is not None:
        reals.append(xp.astype(result.multipliers, result.x.dtype))
    return Outcome(
        result.x,
        result.dual,
        result.state,
        xp.concat(reals, axis=-1),
        xp.stack([xp.astype(getattr(result, name), xp.int32) for name in COUNTS], axis=-1),
    )


def as_result(outcome: Outcome, spec: Spec) -> LSQResult:
    """Return a result made of arrays alone: numbers of one system, too, where they have no values yet."""
    counts = {name: outcome.counts[..., k] for k, name in enumerate(COUNTS)}
    fields: dict[str, Any] = {name: outcome.reals[..., k] for k, name in enumerate(REALS)} | counts
    fields["escalated"] = counts["escalated"] != 0
    return LSQResult(
        x=outcome.x,
        dual=outcome.dual,
        state=outcome.state,
        multipliers=outcome.reals[..., len(REALS) :] if outcome.reals.shape[-1] > len(REALS) else None,
        method="gram" if spec.kind == GRAM else spec.method,
        choice="chosen when the systems are known, as they are traced",
        **fields,
    )


def shaped_as(result: LSQResult, lead: tuple[int, ...], column: bool) -> LSQResult:
    """Return a result of systems along one axis in the shape in which the caller has them."""
    if len(lead) < 2 and not column:
        return result

    def reshaped(value: Array, vectors: bool) -> Array:
        if len(lead) > 1:
            value = value.reshape(*lead, *value.shape[1:])
        return value[..., None] if vectors and column else value

    changed: dict[str, Any] = {name: reshaped(getattr(result, name), True) for name in ("x", "dual", "state")}
    if len(lead) > 1:
        names = ("residual", "violation", "equality_error", "lam", "multipliers", *COUNTS)
        changed |= {name: reshaped(value, False) for name in names if (value := getattr(result, name)) is not None}
    return dataclasses.replace(result, **changed)
