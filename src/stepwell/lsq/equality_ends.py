"""How systems with equalities end, measured in the caller's units: who is done, who has no x, and who needs more work.

Multipliers finish nearly all systems of a batch (`stepwell.lsq.equalities`). Of the others, those have no x for which
the least ‖Cx − d‖ within the bounds is not zero: the residual y of that problem is the proof, since yᵀ(d − Cx) ≥ yᵀy
for every x within the bounds. What is left goes through the active-set method, one by one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell import arrays
from stepwell.arrays import Array
from stepwell.lsq.covariance import covariance_of
from stepwell.lsq.faces import Found, solve_on_faces
from stepwell.lsq.result import LSQResult, NNLSStatus

#: |Cx − d| over |d| + |C||x| of equalities that are met, and beyond which a residual is a proof that none are.
MET, MISSED = 1e-12, 1e-9
#: |C||x| over |d| beyond which x is not counted on.
HIDDEN = 1e6
ROUNDING = 4 * float(np.finfo(float).eps)
#: How far a sum may be from an end to be at it, over Σ|x|: as the core has it.
AT_END = 64 * float(np.finfo(float).eps)
#: The largest violation of a system that has converged, and beyond which the active-set method is to improve it.
OPTIMAL, IMPROVED = 1e-10, 1e-12
#: Entries of matrices that are looked at in one go, where systems have their own.
CHUNK = 1 << 24


def product(xp: Any, matrices: Array, vectors: Array) -> Array:
    """Return products of one matrix, (1, p, n), or one for each system, with a vector for each.

    One by one: then their bits do not depend on how many there are.
    """
    return xp.matmul(matrices, vectors[:, :, None])[:, :, 0]


def norms_of(xp: Any, vectors: Array) -> Array:
    """Return the length of each vector, whose squares may be beyond the largest or the smallest number."""
    top = xp.max(xp.abs(vectors), axis=-1) if 0 not in vectors.shape else xp.sum(vectors, axis=-1)
    unit = xp.where((top > 0) & xp.isfinite(top), top, 1.0)[:, None]
    return unit[:, 0] * xp.sqrt(xp.sum((vectors / unit) ** 2, axis=-1))


def _sizes(xp: Any, d: Array, terms: Array) -> Array:
    """Return |d| and the terms |C||x|, where an x that hides d in its rounding counts no more."""
    most = HIDDEN * xp.max(xp.abs(d), axis=-1, keepdims=True)
    return xp.abs(d) + xp.where((most > 0) & (terms > most), most, terms)


@dataclasses.dataclass(frozen=True)
class Equalities:
    """A batch with equalities: arrays with a row for each system, or one row for all, doubles unless said."""

    A: Array  # (m, n), (systems, m, n), or (matrices, m, n) with `which`
    b: Array  # (systems, m)
    C: Array  # (k, n)
    d: Array  # (systems, k)
    lower: Array  # (rows, n)
    upper: Array
    sum_low: Array | None  # (rows,)
    sum_high: Array | None
    mask: Array | None  # (rows, n), bytes
    weights: Array | None  # (rows, m)
    which: Array | None  # (systems,), int32
    lam: Array  # (rows,)
    L: Array | None  # (p, n)

    ROWS = ("b", "d", "lower", "upper", "sum_low", "sum_high", "mask", "weights", "which", "lam")

    @property
    def xp(self) -> Any:
        """The namespace of the arrays."""
        return arrays.namespace_of(self.A, self.b)

    @property
    def columns(self) -> int:
        """The number of unknowns."""
        return int(self.C.shape[-1])

    def on_host(self) -> Equalities:
        """Return the same in NumPy's arrays."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return Equalities(**{name: None if one is None else arrays.host_copy(one) for name, one in fields.items()})

    def of(self, name: str, system: int) -> Any:
        """Return what one system has of a field."""
        rows = getattr(self, name)
        return None if rows is None else rows[system if len(rows) > 1 else 0]

    def rows(self, name: str, systems: np.ndarray | slice) -> Any:
        """Return what some systems have of a field."""
        rows = getattr(self, name)
        return rows if rows is None or len(rows) == 1 else rows[systems]

    def matrix(self, system: int) -> Any:
        """Return the matrix of one system."""
        return self.A if self.A.ndim == 2 else self.A[system if self.which is None else int(self.which[system])]

    def misses(self, x: Array) -> tuple[Array, Array]:
        """Return the largest |Cx − d| of each system, and the largest over what its terms are made of.

        These are |d| + |C||x|, and what MET makes rounding errors of the largest entry of x.
        """
        xp = self.xp
        off = xp.abs(self.d - product(xp, self.C[None], x))
        least = xp.max(xp.abs(self.C), axis=-1) * xp.max(xp.abs(x), axis=-1, keepdims=True)
        size = _sizes(xp, self.d, product(xp, xp.abs(self.C)[None], xp.abs(x)) + ROUNDING / MET * least)
        return xp.max(off, axis=-1), xp.max(off / xp.where(size > 0, size, 1.0), axis=-1)

    def one(self, system: int) -> Equalities:
        """Return one system."""
        rows = {name: self.rows(name, slice(system, system + 1)) for name in self.ROWS}
        return dataclasses.replace(self, A=self.matrix(system), **(rows | {"which": None}))

    def measured(self, x: Array, state: Array, multipliers: Array, outside: Array) -> dict[str, Array]:
        """Return the residual, the dual, the multipliers, the violation and the error of equalities, from A and b.

        Multipliers of rounds have lost digits to heavy rows: they are brought to what fits variables between bounds.
        `outside` says how far the sum is outside its bounds.
        """
        xp, k = self.xp, int(self.C.shape[0])
        multipliers = self._with_signs(x, multipliers)
        rest, pull, lengths = self._products(x)
        dual = pull - self._penalty(x) + product(xp, self.C.T[None], multipliers[:, -k:])
        if int(multipliers.shape[1]) > k:
            dual = dual + multipliers[:, :1]
        # Least squares in the units of the violation.
        each = xp.where(state == 0, 1.0 / xp.where(lengths > 0, lengths, 1.0), 0.0)
        rows = self.C[None] * each[:, None, :]
        square = xp.matmul(rows, xp.matrix_transpose(rows))
        right = xp.matmul(rows, (each * dual)[:, :, None])
        sound = xp.isfinite(xp.sum(square, axis=(-1, -2)) + xp.sum(right, axis=(-1, -2)))[:, None, None]
        change = -xp.matmul(xp.linalg.pinv(xp.where(sound, square, 0.0)), xp.where(sound, right, 0.0))[:, :, 0]
        trial = dual + product(xp, self.C.T[None], change)
        moved = xp.concat([multipliers[:, :-k], multipliers[:, -k:] + change], axis=-1)
        before, after = (self._violation(x, w, state, mu, lengths) for w, mu in ((dual, multipliers), (trial, moved)))
        better = (after < before)[:, None]
        return dict(
            residual=norms_of(xp, rest),
            dual=xp.where(better, trial, dual),
            multipliers=xp.where(better, moved, multipliers),
            violation=xp.where(after < before, after, before),
            equality_error=xp.maximum(self.misses(x)[0], outside),
        )

    def _with_signs(self, x: Array, multipliers: Array) -> Array:
        """Return multipliers of which that of a sum is ≥ 0 at its lower end, ≤ 0 at its upper, and 0 between.

        (A sum that is held, or let go, by the wrong end is seen in the duals then.)
        """
        if self.sum_low is None or self.sum_high is None:
            return multipliers
        xp, sums, mu = self.xp, self.xp.sum(x, axis=-1), multipliers[:, :1]
        room = AT_END * xp.sum(xp.abs(x), axis=-1)
        at_low, at_high = sums <= self.sum_low + room, sums >= self.sum_high - room
        mu = xp.where(at_low[:, None], mu, xp.clip(mu, None, 0.0))
        mu = xp.where(at_high[:, None], mu, xp.clip(mu, 0.0, None))
        return xp.concat([mu, multipliers[:, 1:]], axis=-1)

    def _products(self, x: Array) -> tuple[Array, Array, Array]:
        """Return W(b − Ax), AᵀW of that, and the lengths of columns with weights and λ, of each system."""
        xp, systems = self.xp, int(self.b.shape[0])
        heavy = None if self.weights is None else xp.broadcast_to(self.weights, self.b.shape)
        parts = []
        step = systems if self.A.ndim == 2 else max(1, CHUNK // max(1, int(self.A.shape[-1] * self.A.shape[-2])))
        for begin in range(0, systems, max(1, step)):
            part = slice(begin, begin + step)
            A = self.A[None]
            if self.A.ndim > 2:
                A = self.A[part] if self.which is None else xp.take(self.A, self.which[part], axis=0)
            rest = self.b[part] - product(xp, A, x[part])
            w = xp.ones_like(rest) if heavy is None else heavy[part]
            rest = xp.where(w > 0, w * rest, 0.0)
            turned = xp.matrix_transpose(A)
            parts.append((rest, product(xp, turned, w * rest), product(xp, turned * turned, w * w)))
        rest, pull, squares = (xp.concat(each, axis=0) for each in zip(*parts)) if parts else (self.b, x, x)
        penalty = 1.0 if self.L is None else xp.sum(self.L * self.L, axis=0)
        return rest, pull, xp.sqrt(squares + self.lam[:, None] ** 2 * penalty)

    def _penalty(self, x: Array) -> Array:
        if self.L is not None:
            x = product(self.xp, self.L.T[None], product(self.xp, self.L[None], x))
        return self.lam[:, None] ** 2 * x

    def _violation(self, x: Array, dual: Array, state: Array, multipliers: Array, lengths: Array) -> Array:
        """Return the largest breach of the conditions on the dual, over what its terms are made of.

        These are ‖a_j‖(‖b‖ + Σ‖a_j‖abs(x_j)) and, of the multipliers, Σ abs(C_ij μ_i).
        """
        xp = self.xp
        breach = xp.where(state == 0, xp.abs(dual), xp.where(state < 0, dual, -dual))
        breach = xp.where((state == 2) | (breach < 0), xp.zeros_like(breach), breach)
        b = self.b if self.weights is None else xp.where(self.weights > 0, self.b * self.weights, 0.0)
        size = norms_of(xp, b) + xp.sum(lengths * xp.abs(x), axis=-1)
        k = int(self.C.shape[0])
        terms = product(xp, xp.abs(self.C).T[None], xp.abs(multipliers[:, -k:]))
        if int(multipliers.shape[1]) > k:
            terms = terms + xp.abs(multipliers[:, :1])
        scale = lengths * size[:, None] + terms
        return xp.max(breach / xp.where(scale > 0, scale, 1.0), axis=-1)


def finish(problem: Equalities, r: LSQResult, limit: int, solve: Callable[..., LSQResult]) -> LSQResult:
    """Return a result of systems along one axis with a status that its own numbers bear out.

    `solve` is ``lsq_linear`` without equalities; `limit` what the caller allows of turns.
    """
    measured: dict[str, Any] = problem.measured(r.x, r.state, r.multipliers, r.equality_error)
    r = dataclasses.replace(r, **measured)
    status = arrays.host_copy(r.status)
    status[(status == NNLSStatus.CONVERGED) & ~np.isfinite(arrays.host_copy(r.residual))] = NNLSStatus.STALLED
    able = (status == NNLSStatus.CONVERGED) | (status == NNLSStatus.STALLED) | (status == NNLSStatus.DEPENDENT)
    relative = arrays.host_copy(problem.misses(r.x)[1])
    good = (relative <= MET) & (arrays.host_copy(r.violation) <= IMPROVED)
    open_ends = np.flatnonzero(able & ~(good & (status == NNLSStatus.CONVERGED)))
    if not open_ends.size:
        return r
    host, fields = problem.on_host(), {name: _rows(getattr(r, name)) for name in _CHANGED if _has(r, name)}
    fields["status"] = status
    starts = _feasible(host, open_ends, fields, solve)
    for system, start in starts.items():
        _finish_one(host, system, start, fields, limit, solve)
        if "variance" in fields:
            x, state, sigma = fields["x"][system], fields["state"][system], float(arrays.host_copy(r.sigma)[system])
            whole = covariance_of(r._problem, system, x, state, float(host.of("lam", system)), sigma)
            fields["variance"][system] = np.diag(whole)
    back: dict[str, Any] = {
        name: arrays.copy_to_device_of(one, r.x) if arrays.is_cuda(r.x) else one for name, one in fields.items()
    }
    return dataclasses.replace(r, **back)


#: Fields of a result that may change here.
_CHANGED = (
    "x", "dual", "state", "residual", "violation", "equality_error", "multipliers", "seminorm", "variance", "solves",
)  # fmt: skip
#: Those that a system without an x has none of.
_UNKNOWN = ("x", "dual", "residual", "violation", "multipliers", "seminorm", "variance")


def _has(r: LSQResult, name: str) -> bool:
    return arrays.is_array(getattr(r, name))


def _rows(array: Array) -> np.ndarray:
    return arrays.host_copy(array)


def _feasible(
    host: Equalities, systems: np.ndarray, fields: dict[str, np.ndarray], solve: Callable[..., LSQResult]
) -> dict[int, np.ndarray]:
    """Return an x with the equalities for each system that has one; the status of the others says why not."""
    starts = {int(s): x for s in systems if (x := _corrected(host, int(s), fields["x"][s])) is not None}
    left = np.array([s for s in systems if int(s) not in starts], int)
    if not left.size:
        return starts
    size = np.abs(host.C).max(axis=1)
    size = np.where(size > 0, size, 1.0)
    options: dict[str, Any] = {"bounds": (host.rows("lower", left), host.rows("upper", left))}
    if host.sum_low is not None:
        options["sum_bounds"] = host.rows("sum_low", left), host.rows("sum_high", left)
    if host.mask is not None:
        mask = host.rows("mask", left) != 0
        options["mask"] = mask[0] if len(mask) == 1 else mask
    nearest = solve(host.C / size[:, None], host.d[left] / size, **options)
    x = nearest.x
    off = np.abs(host.d[left] - x @ host.C.T) / size
    scale = _sizes(np, host.d[left] / size, np.abs(x) @ np.abs(host.C).T / size).max(axis=1)
    missed = off.max(axis=1) / np.where(scale > 0, scale, 1.0)
    for k, system in enumerate(left):
        if nearest.status[k] in (NNLSStatus.INFEASIBLE, NNLSStatus.NON_FINITE):
            fields["status"][system] = nearest.status[k]
        elif nearest.status[k] == NNLSStatus.CONVERGED and missed[k] > MISSED:
            fields["status"][system] = NNLSStatus.INFEASIBLE
            fields["state"][system], fields["equality_error"][system] = 0, (off[k] * size).max()
            for name in set(_UNKNOWN) & set(fields):
                fields[name][system] = np.nan
        else:
            starts[int(system)] = x[k]
    return starts


def _corrected(host: Equalities, system: int, x: np.ndarray) -> np.ndarray | None:
    """Return x with the equalities to rounding, if those of its variables that are between bounds can see to that."""
    one = _system(host, system)
    x = np.append(x, np.clip(x.sum(), one.lower[-1], one.upper[-1])) if one.slack else x
    for _ in range(3):
        missing = one.e - one.E @ x
        size = _sizes(np, one.e, np.abs(one.E) @ np.abs(x))
        if np.all(np.abs(missing) <= MET * size):
            return x[: host.columns]
        free = (x > one.lower) & (x < one.upper)
        rows = one.E / np.where(size > 0, size, 1.0)[:, None]
        step = np.zeros_like(x)
        step[free] = np.linalg.lstsq(rows[:, free], missing / np.where(size > 0, size, 1.0), rcond=1e-10)[0]
        x = x + step
        if not np.all((x >= one.lower) & (x <= one.upper)):
            return None
    return None


@dataclasses.dataclass(frozen=True)
class _System:
    """One system as the active-set method takes it; a sum within a range is a variable more, its slack."""

    M: np.ndarray
    f: np.ndarray
    E: np.ndarray
    e: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    slack: bool


def _system(host: Equalities, s: int) -> _System:
    M, f, lam = host.matrix(s), host.b[s], float(host.of("lam", s))
    weights = host.of("weights", s)
    if weights is not None:
        M, f = M[weights > 0] * weights[weights > 0, None], f[weights > 0] * weights[weights > 0]
    n = host.columns
    if lam > 0:
        L = np.eye(n) if host.L is None else host.L
        M, f = np.vstack([M, lam * L]), np.concatenate([f, np.zeros(len(L))])
    lower, upper, E, e = host.of("lower", s), host.of("upper", s), host.C, host.d[s]
    mask = host.of("mask", s)
    if mask is not None:
        lower, upper = np.where(mask != 0, lower, 0.0), np.where(mask != 0, upper, 0.0)
    if host.sum_low is None:
        return _System(M, f, E, e, lower, upper, False)
    low, high = host.of("sum_low", s), host.of("sum_high", s)
    E = np.vstack([np.append(np.ones(n), -1.0), np.column_stack([E, np.zeros(len(E))])])
    M, e = np.column_stack([M, np.zeros(len(M))]), np.append(0.0, e)
    return _System(M, f, E, e, np.append(lower, low), np.append(upper, high), True)


def _finish_one(
    host: Equalities, s: int, x: np.ndarray, fields: dict[str, np.ndarray], limit: int, solve: Callable[..., LSQResult]
) -> None:
    """Go on from a feasible x; what was found stays if it is better than what was there."""
    one, n = _system(host, s), host.columns

    def project(A: np.ndarray, b: np.ndarray, bounds: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        found: np.ndarray = solve(A, b, bounds=bounds).x
        return found

    start = np.append(x, np.clip(x.sum(), one.lower[-1], one.upper[-1])) if one.slack else x
    # The residual is as large as f; units do not matter then.
    unit = float(np.abs(one.M).max(initial=0.0)) or 1.0
    found = solve_on_faces(one.M / unit, one.f / unit, one.E, one.e, one.lower, one.upper, start, project, limit)
    found = found._replace(multipliers=found.multipliers * unit * unit)
    _take(host, s, one, found, fields, n, limit)


def _take(
    host: Equalities, s: int, one: _System, found: Found, fields: dict[str, np.ndarray], n: int, limit: int
) -> None:
    """Write the fields of one system."""
    x, state, mu = found.x[:n], found.state[:n], found.multipliers
    alone = host.one(s)
    outside = max(0.0, float(one.lower[-1] - x.sum()), float(x.sum() - one.upper[-1])) if one.slack else 0.0
    measured = alone.measured(x[None], state[None], mu[None], np.array([outside]))
    good = measured["violation"][0] <= OPTIMAL and alone.misses(x[None])[1][0] <= MET
    good &= bool(np.isfinite(measured["residual"][0]))
    tired = found.turns >= limit
    fields["status"][s] = NNLSStatus.CONVERGED if good else NNLSStatus.LIMIT if tired else NNLSStatus.STALLED
    new = {name: value[0] for name, value in measured.items()} | {"x": x, "state": state}
    new |= dict(solves=fields["solves"][s] + found.turns, seminorm=np.linalg.norm(x if host.L is None else host.L @ x))
    for name, value in new.items():
        if name in fields:
            fields[name][s] = value
