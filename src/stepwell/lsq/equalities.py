"""A few general equalities Cx = d around the bounded solver: multipliers, and rows that are heavy but not too much so.

Rows ωC are put below A with ω(d + ν) below b, and ν grows by what Cx misses of d (the method of multipliers; Hestenes
1969). With ω = 100 times the largest entry of A (with weights, and of λL) three rounds are the rule. Each starts from
the set of the one before. Systems that are not done then are looked at by themselves (`stepwell.lsq.equality_ends`).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from stepwell import arrays
from stepwell.arrays.checks import require_finite
from stepwell.common.checks import require, require_kind, require_shape
from stepwell.lsq.arguments import default_limit, without_column
from stepwell.lsq.constraints import INFINITY, Reader
from stepwell.lsq.convolution import Convolution
from stepwell.lsq.equality_ends import Equalities, finish, norms_of, product
from stepwell.lsq.result import LSQResult, NNLSStatus

#: What rows of equalities weigh, over the largest entry of A and C.
HEAVY = 100.0
MAX_EQUALITIES, MAX_ROUNDS = 4, 16
#: |Cx − d| over |d| + |C||x| at which a round is the last, and below which it is where it did not halve.
EXACT, SMALL = 1e-14, 1e-11
#: By how much |d − Cx| may rise in a round.
RISE = 2.0
#: What options are that nobody has given.
_ABSENT: dict[str, Any] = {"lam": 0.0} | dict.fromkeys(
    ("mask", "weights", "which", "L", "noise", "uncertainty", "warm_start", "maxiter")
)


def read_equality(value: Any, b: Any, columns: int, lead: tuple[int, ...]) -> tuple[Any, Any]:
    """Return C of shape (k, n) and d of shape (1 or systems, k), where b lives; `lead` is the shape of the systems."""
    require_kind(isinstance(value, tuple | list) and len(value) == 2, "equality", value, "a pair (C, d)")
    reader = Reader(b, lead, False)
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
    options = _ABSENT | options
    require_kind(not isinstance(A, Convolution), "A", A, "an array with `equality`")
    require(not isinstance(options["lam"], str), "lam", options["lam"], "numbers with `equality`")
    told = options["uncertainty"] is None or options["noise"] is not None
    require(told, "uncertainty", options["uncertainty"], "None with `equality`, unless `noise` is given")
    if not arrays.is_cuda(b) and not isinstance(b, np.ndarray):
        found = solve_with_equalities(_on_host(A), _on_host(b), _on_host(equality), _on_host(options), solve)
        return _as_caller_has_it(found, b)
    single = "float32" in str(A.dtype) and "float32" in str(b.dtype)
    b, column = without_column(b, tuple(A.shape), options["which"] is not None)
    problem, options = _read(A, b, equality, options)
    r = _by_multipliers(problem, options, solve)
    limit = options["maxiter"]
    r = finish(problem, r, default_limit(problem.columns) if limit is None else int(limit), solve)
    return _shaped(r, tuple(map(int, b.shape[:-1])), single, column)


def _read(A: Any, b: Any, equality: Any, options: dict[str, Any]) -> tuple[Equalities, dict[str, Any]]:
    """Return the problem in doubles, and options for systems along one axis."""
    lead = tuple(map(int, b.shape[:-1]))
    A = arrays.as_float(A if A.ndim < 4 else A.reshape(-1, *A.shape[-2:]), "float64")
    b = arrays.as_float(b.reshape(-1, b.shape[-1]), "float64")
    m, n = map(int, A.shape[-2:])
    require_shape(int(b.shape[-1]) == m, "b", b, f"{m} entries per system, as A of shape {tuple(A.shape)} has rows")
    C, d = read_equality(equality, b, n, lead)
    reader, given = Reader(b, lead, False), dict(options)
    lower, upper = given["bounds"] = reader.bounds("bounds", options["bounds"], n)
    low = high = None
    if options["sum_bounds"] is not None:
        low, high = given["sum_bounds"] = tuple(
            end.reshape(-1) for end in reader.bounds("sum_bounds", options["sum_bounds"], None)
        )
    mask, weights, which, L = (options[name] for name in ("mask", "weights", "which", "L"))
    mask = None if mask is None else reader.mask(mask, n)
    if mask is not None:
        given["mask"] = (mask if len(mask) > 1 else mask[0]) != 0
    weights = given["weights"] = None if weights is None else reader.weights(weights, m)
    which = given["which"] = None if which is None else reader.which(which, int(A.shape[0]))
    L = given["L"] = None if L is None else reader.penalty(L, n)
    lam = reader.lam(options["lam"])
    if arrays.is_array(options["lam"]):
        given["lam"] = lam
    start = options["warm_start"]
    if arrays.is_array(start) and start.ndim > 2:
        given["warm_start"] = start.reshape(-1, n)
    xp = arrays.namespace_of(A, b)
    d = xp.broadcast_to(d, (int(b.shape[0]), int(C.shape[0])))
    return Equalities(A, b, C, d, lower, upper, low, high, mask, weights, which, lam, L), given


def _by_multipliers(problem: Equalities, options: dict[str, Any], solve: Any) -> LSQResult:
    """Solve in rounds; x, state and multipliers are those of the problem with equalities, so far as they are met.

    What a system has is from its own last round, whatever others still need.
    """
    xp, A, b = problem.xp, problem.A, problem.b
    count = int(problem.d.shape[1])
    size = xp.max(xp.abs(problem.C), axis=-1)
    size = xp.where(size > 0, size, 1.0)
    C, d = problem.C / size[:, None], problem.d / size
    heavy, rows, weights = _heaviness(problem, C)
    stacked = xp.concat([A, xp.broadcast_to(rows, (*A.shape[:-2], count, A.shape[-1]))], axis=-2)
    options = options | {"weights": weights}
    shift, warm = xp.zeros_like(d), options.pop("warm_start")
    kept: LSQResult | None = None
    at_work, before = xp.ones_like(d[:, 0]) > 0, xp.full_like(d[:, 0], INFINITY)
    missed_before = before
    for _ in range(MAX_ROUNDS):
        right = d + shift if weights is not None else heavy * (d + shift)
        r = solve(stacked, xp.concat([b, right], axis=-1), warm_start=warm, **options)
        missing = d - product(xp, C[None], r.x)
        # Rows ωC add ω²(d + ν − Cx) to A'(b − Ax): their multipliers.
        pull = heavy * (heavy * (shift + missing)) / size
        r = dataclasses.replace(
            r, multipliers=pull if r.multipliers is None else xp.concat([r.multipliers, pull], axis=-1)
        )
        # |d − Cx| never rises, as rounds are steps of the proximal-point method in ν (Rockafellar 1976): where it does,
        # rounding has done it, and that round does not count.
        missed = norms_of(xp, missing)
        at_work = at_work & ~(missed > RISE * missed_before)
        kept = r if kept is None else _newer(xp, at_work, r, kept)
        _, error = problem.misses(r.x)
        done = xp.isnan(error) | (error <= EXACT) | ((before < SMALL) & (error >= 0.5 * before))
        at_work = at_work & ~done
        if not bool(xp.any(at_work)):
            break
        shift = shift + xp.where(at_work[:, None], missing, 0.0)
        warm, before, missed_before = r.state, error, missed
    assert kept is not None
    return kept


def _newer(xp: Any, at_work: Any, new: LSQResult, old: LSQResult) -> LSQResult:
    """Return the old result with what the new one has of systems that are still at work."""

    def chosen(a: Any, b: Any) -> Any:
        return xp.where(at_work.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    names = [field.name for field in dataclasses.fields(new) if arrays.is_array(getattr(new, field.name))]
    changed: dict[str, Any] = {name: chosen(getattr(new, name), getattr(old, name)) for name in names}
    return dataclasses.replace(new, **changed)


def _heaviness(problem: Equalities, C: Any) -> tuple[Any, Any, Any]:
    """Return ω, of shape (1 or systems, 1), the rows of equalities, and the weights of all rows where these have ω.

    Of no system it depends on others: matrices of their own have their own ω, and so have weights and λ.
    """
    xp, A, weights = problem.xp, problem.A, problem.weights
    count = int(C.shape[0])
    finite = xp.where(xp.isfinite(A), xp.abs(A), xp.zeros_like(A))
    largest = xp.max(finite, axis=-1) if A.shape[-1] else finite[..., 0:0]  # (m,), (systems, m) or (matrices, m)
    penalty = 1.0 if problem.L is None else float(xp.max(xp.abs(problem.L))) if problem.L.size else 0.0
    of_lam = penalty * problem.lam[:, None]  # (1 or systems, 1)

    def heavy_of(entries: Any, of_lam: Any) -> Any:
        most = xp.max(entries, axis=-1, keepdims=True) if int(entries.shape[-1]) else 0.0 * of_lam
        most = xp.maximum(most, of_lam)
        return HEAVY * xp.where(most > 0, most, xp.ones_like(most))

    if weights is None and int(problem.lam.shape[0]) == 1:
        heavy = heavy_of(largest if A.ndim > 2 else largest[None], of_lam)
        rows = heavy[0] * C if A.ndim == 2 else heavy[:, :, None] * C
        return heavy if problem.which is None else xp.take(heavy, problem.which, axis=0), rows, None
    if weights is None:
        weights = xp.ones((1, int(A.shape[-2])), dtype=problem.b.dtype) + 0.0 * problem.lam[:1, None]
    largest = largest if problem.which is None else xp.take(largest, problem.which, axis=0)
    heavy = heavy_of(weights * (largest if A.ndim > 2 else largest[None]), of_lam)
    length = max(int(heavy.shape[0]), int(weights.shape[0]))
    parts = (xp.broadcast_to(weights, (length, weights.shape[1])), xp.broadcast_to(heavy, (length, count)))
    return heavy, C, xp.concat(parts, axis=-1)


def _shaped(r: LSQResult, lead: tuple[int, ...], single: bool, column: bool) -> LSQResult:
    """Return a result of systems along one axis in the caller's shape and precision; `column`: b has one axis more."""
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(r):
        value = getattr(r, field.name)
        if arrays.is_array(value):
            xp = arrays.namespace_of(value)
            changed[field.name] = xp.astype(value, xp.float32) if single and value.dtype == xp.float64 else value
    if lead == ():
        for name, value in changed.items():
            changed[name] = value[0] if value.ndim > 1 else value[0].item()
        changed["status"] = NNLSStatus(changed["status"])
    elif len(lead) > 1:
        changed = {name: value.reshape(*lead, *value.shape[1:]) for name, value in changed.items()}
    if column:
        names = [name for name in ("x", "dual", "state", "variance") if name in changed]
        changed |= {name: changed[name][..., None] for name in names}
    return dataclasses.replace(r, **changed)


def _on_host(value: Any) -> Any:
    """Return NumPy's views of the host's arrays of other libraries, wherever they stand in an argument."""
    if isinstance(value, dict):
        return {name: _on_host(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return tuple(map(_on_host, value))
    return arrays.host_view(value) if arrays.is_array(value) else value


def _as_caller_has_it(r: LSQResult, b: Any) -> LSQResult:
    """Return a result of NumPy's arrays in the library of b."""
    own = {field.name: getattr(r, field.name) for field in dataclasses.fields(r)}
    changed = {
        name: arrays.as_user_array(np.ascontiguousarray(value), b)
        for name, value in own.items()
        if isinstance(value, np.ndarray)
    }
    return dataclasses.replace(r, **changed)
