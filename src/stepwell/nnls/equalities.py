"""A few general equalities Cx = d around the bounded solver: multipliers, and rows that are heavy but not too much so.

Rows ωC are put below A with ω(d + ν) below b, and ν grows by what Cx misses of d (the method of multipliers; Hestenes
1969). With ω = 100 max|A| three rounds are the rule. Each starts from the set of the one before.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from stepwell import arrays
from stepwell.checks import require, require_finite, require_kind, require_shape
from stepwell.nnls.convolution import Convolution
from stepwell.nnls.family import Reader
from stepwell.nnls.result import LSQResult, NNLSStatus

#: What rows of equalities weigh, over the largest entry of A and C.
HEAVY = 100.0
MAX_EQUALITIES, MAX_ROUNDS = 4, 40
#: |Cx − d| over |d| + |C||x| at which a round is the last, and beyond which no x has the equalities.
MET, MISSED = 1e-14, 1e-8


def read_equality(value: Any, b: Any, columns: int) -> tuple[Any, Any]:
    """Return C of shape (k, n) and d of shape (1 or systems, k), where b lives."""
    require_kind(isinstance(value, tuple | list) and len(value) == 2, "equality", value, "a pair (C, d)")
    reader = Reader(b, tuple(map(int, b.shape[:-1])), False)
    C = reader.doubles(reader.home("equality (C)", value[0]))
    C = C[None] if C.ndim == 1 else C
    require_shape(C.ndim == 2 and C.shape[1] == columns, "equality (C)", C, f"(k, {columns}), as A has columns")
    count = int(C.shape[0])
    require(1 <= count <= MAX_EQUALITIES, "equality", f"{count} equalities", f"1 to {MAX_EQUALITIES}")
    d = reader.rows("equality (d)", value[1], count)
    for name, array in (("equality (C)", C), ("equality (d)", d)):
        require_finite(name, array)
    return C, d


def solve_with_equalities(A: Any, b: Any, equality: Any, options: dict[str, Any], solve: Any) -> LSQResult:
    """Solve by `solve`, which is ``lsq_linear`` without equalities."""
    require_kind(not isinstance(A, Convolution), "A", A, "an array with `equality`")
    require(not isinstance(options["lam"], str), "lam", options["lam"], "numbers with `equality`")
    told = options["uncertainty"] is None or options["noise"] is not None
    require(told, "uncertainty", options["uncertainty"], "None with `equality`, unless `noise` is given")
    if not arrays.is_cuda(b) and not isinstance(b, np.ndarray):
        found = solve_with_equalities(_on_host(A), _on_host(b), _on_host(equality), _on_host(options), solve)
        return _as_caller_has_it(found, b)
    xp = arrays.namespace_of(A, b)
    lone = b.ndim == 1
    rows = b[None] if lone else b.reshape(-1, b.shape[-1])
    C, d = read_equality(equality, rows, int(A.shape[-1]))
    systems, count = int(rows.shape[0]), int(C.shape[0])
    d = xp.broadcast_to(d, (systems, count))
    largest = float(xp.max(xp.abs(A))) if A.size else 1.0
    heavy = HEAVY * (largest or 1.0) / (float(xp.max(xp.abs(C))) or 1.0)
    below = xp.astype(heavy * C, A.dtype)
    stacked = xp.concat([A, xp.broadcast_to(below, (*A.shape[:-2], count, A.shape[-1]))], axis=-2)
    weights = options.pop("weights")
    if weights is not None:
        one = xp.ones_like(xp.broadcast_to(weights[..., :1], (*weights.shape[:-1], count)))
        weights = xp.concat([weights, one], axis=-1)
    own_matrices = A.ndim > 2 and options["which"] is None
    if own_matrices:
        stacked = stacked.reshape(-1, *stacked.shape[-2:])
    shift, warm = xp.zeros_like(d), options.pop("warm_start")
    before = None
    for _ in range(MAX_ROUNDS):
        right = xp.concat([rows, xp.astype(heavy * (d + shift), rows.dtype)], axis=-1)
        r = solve(stacked, right, weights=weights, warm_start=warm, **options)
        missing = d - xp.matmul(xp.astype(r.x, C.dtype), C.T)
        size = xp.abs(d) + xp.matmul(xp.abs(xp.astype(r.x, C.dtype)), xp.abs(C).T)
        error = xp.max(xp.where(xp.isnan(missing), 0.0, xp.abs(missing)) / xp.where(size > 0, size, 1.0), axis=-1)
        worst = float(xp.max(error)) if systems else 0.0
        if worst <= MET or (before is not None and worst >= 0.5 * before and worst < MISSED):
            break
        shift, warm, before = shift + missing, r.state, worst
    return _with_multipliers(r, xp, C, heavy, shift, missing, error, lone, tuple(b.shape[:-1]))


def _on_host(value: Any) -> Any:
    """Return NumPy's views of the host's arrays of other libraries, wherever they stand in an argument."""
    if isinstance(value, dict):
        return {name: _on_host(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return tuple(map(_on_host, value))
    return arrays.host_view(value) if arrays.is_array(value) else value


def _as_caller_has_it(r: LSQResult, b: Any) -> LSQResult:
    """Return a result of NumPy's arrays in the library of b."""
    names = [field.name for field in dataclasses.fields(r)]
    changed: dict[str, Any] = {name: getattr(r, name) for name in names if isinstance(getattr(r, name), np.ndarray)}
    changed["costs"] = r.costs
    for name, value in changed.items():
        if isinstance(value, dict):
            own = {key: arrays.as_user_array(one, b) if arrays.is_array(one) else one for key, one in value.items()}
            changed[name] = own
        else:
            changed[name] = arrays.as_user_array(np.ascontiguousarray(value), b)
    return dataclasses.replace(r, **changed)


def _with_multipliers(
    r: LSQResult, xp: Any, C: Any, heavy: float, shift: Any, missing: Any, error: Any, lone: bool, lead: Any
) -> LSQResult:
    """The result of the last round as one of the problem with equalities; the rows' part of the residual is no part."""
    # Rows ωC add ω²(d + ν − Cx) to A'(b − Ax): their multipliers. The dual has them already.
    multipliers = heavy**2 * (shift + missing)
    residual = xp.sqrt(xp.maximum(r.residual**2 - heavy**2 * xp.sum((shift + missing) ** 2, axis=-1), 0.0 * r.residual))
    bad = error > MISSED
    status = xp.where(bad, int(NNLSStatus.INFEASIBLE), r.status)
    found = xp.max(xp.abs(missing), axis=-1)
    if r.multipliers is not None:
        multipliers = xp.concat([r.multipliers, multipliers], axis=-1)
    fields = dict(
        residual=residual, status=status, multipliers=multipliers, equality_error=xp.maximum(found, r.equality_error)
    )
    r = dataclasses.replace(r, **fields)
    if lone:
        changed = {}
        for field in dataclasses.fields(r):
            value = getattr(r, field.name)
            if arrays.is_array(value):
                changed[field.name] = value[0] if value.ndim > 1 else value[0].item()
        changed["status"] = NNLSStatus(changed["status"])
        changed["costs"] = {name: int(value[0]) for name, value in r.costs.items()}
        return dataclasses.replace(r, **changed)
    if len(lead) == 1:
        return r
    shaped = {
        field.name: value.reshape(*lead, *value.shape[1:])
        for field in dataclasses.fields(r)
        if arrays.is_array(value := getattr(r, field.name))
    }
    return dataclasses.replace(r, **shaped)
