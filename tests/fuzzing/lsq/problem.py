"""The problem that a call poses, in wide precision and the caller's units: what answers are held against.

Systems lie along the first axis everywhere, n unknowns along the last. numpy's longdouble has the exponents of 1e±4932
and 64 bits at the least where it is wider than double, so that squares of any double are what they are.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fuzzing.common import exact
from fuzzing.lsq.cases import Case

#: Whether there is an oracle: on some machines longdouble is double.
HAS_ORACLE = bool(np.finfo(np.longdouble).nmant >= 63)

INF = np.inf


@dataclasses.dataclass
class Problem:
    """min |W(Ax - b)|^2 + lam^2 |Lx|^2 within bounds, Cx between two ends; or of normal equations G and c."""

    A: np.ndarray | None  # (1 or S, m, n), weights included
    b: np.ndarray  # (S, m), weights included; of normal equations c
    G: np.ndarray | None  # (1 or S, n, n), without the penalty
    bb: np.ndarray | None  # (1 or S,)
    L: np.ndarray | None  # (p, n); None: the unit matrix
    lower: np.ndarray  # (S, n), those of masked columns are 0
    upper: np.ndarray
    C: np.ndarray  # (k, n), k may be 0
    low: np.ndarray  # (S, k): Cx is between these
    high: np.ndarray
    exact_row: bool  # C is one row with positive entries, met as a sum is
    finite: np.ndarray  # (S,): whether all of a system's numbers are
    single: bool
    rows: np.ndarray  # (S,): how many rows have a weight

    @property
    def shape(self) -> tuple[int, int]:
        return self.lower.shape  # type: ignore[return-value]

    def part(self, chosen: np.ndarray) -> Problem:
        """The same of some of the systems."""
        own = ("b", "lower", "upper", "low", "high", "finite", "rows")
        changed = {name: getattr(self, name)[chosen] for name in own}
        for name in ("A", "G", "bb"):
            value = getattr(self, name)
            if value is not None and len(value) > 1:
                changed[name] = value[chosen]
        return dataclasses.replace(self, **changed)

    def penalized(self, x: np.ndarray) -> np.ndarray:
        """Lx"""
        return x if self.L is None else x @ self.L.T

    def fit(self, x: np.ndarray) -> np.ndarray:
        """The residual W(b - Ax), (S, m)."""
        assert self.A is not None
        return self.b - times(self.A, x)

    def dual(self, x: np.ndarray, lam: np.ndarray) -> np.ndarray:
        """Minus half of the gradient, (S, n)."""
        if self.G is not None:
            w = self.b - times(self.G, x)
        else:
            assert self.A is not None
            w = times(np.swapaxes(self.A, 1, 2), self.fit(x))
        image = self.penalized(x)
        return w - lam[:, None] ** 2 * (image if self.L is None else image @ self.L)

    def objective(self, x: np.ndarray, lam: np.ndarray) -> np.ndarray:
        """What is minimised; of normal equations with bb where that is known."""
        penalty = lam**2 * (self.penalized(x) ** 2).sum(axis=1)
        if self.G is None:
            return (self.fit(x) ** 2).sum(axis=1) + penalty
        return (x * (times(self.G, x) - 2 * self.b)).sum(axis=1) + penalty

    def nearest_to_zero(self) -> np.ndarray:
        """The point within the bounds that is nearest to zero."""
        return np.minimum(np.maximum(np.zeros(self.shape, np.longdouble), self.lower), self.upper)

    def size_of_rows(self) -> np.ndarray:
        """A size that Cx has in this problem: what a row that has to be exactly 0 is rounded to."""
        norms = np.broadcast_to(self.norms(np.zeros(self.shape[0], np.longdouble)), self.shape)
        largest = np.abs(self.C).max(axis=0)
        over = (np.where((norms > 0) & (largest > 0), norms, 0) / np.where(largest > 0, largest, 1)).max(axis=1)
        unit = np.where(over > 0, self.b_norm() / np.where(over > 0, over, 1), 0)
        bounds = [np.where(np.isfinite(end), np.abs(end), 0).max(axis=1) for end in (self.lower, self.upper)]
        ends = [np.where(np.isfinite(end), np.abs(end), 0).max(axis=1) for end in (self.low, self.high)]
        return unit + np.minimum(*bounds) * np.abs(self.C).max() + np.minimum(*ends)

    def norms(self, lam: np.ndarray) -> np.ndarray:
        """The norms of the columns of A and lam L, one below the other, (S, n)."""
        if self.G is not None:
            square = np.maximum(np.diagonal(self.G, axis1=1, axis2=2), 0)
        else:
            assert self.A is not None
            square = (self.A**2).sum(axis=1)
        beneath = np.ones(self.shape[1], np.longdouble) if self.L is None else (self.L**2).sum(axis=0)
        return np.sqrt(square + lam[:, None] ** 2 * beneath)

    def b_norm(self) -> np.ndarray:
        """The norm of b, or what is known of it from normal equations."""
        if self.G is None:
            return np.sqrt((self.b**2).sum(axis=1))
        if self.bb is not None:
            return np.broadcast_to(np.sqrt(np.maximum(self.bb, 0)), self.shape[:1])
        norms = self.norms(np.zeros(self.shape[0], np.longdouble))
        return np.max(np.where(norms > 0, np.abs(self.b) / np.where(norms > 0, norms, 1), 0), axis=1, initial=0)


def times(A: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Products of one matrix or a stack of them with a stack of vectors."""
    if len(A) == 1:
        return x @ A[0].T
    return np.matmul(A, x[..., None])[..., 0]


def normal(array: np.ndarray) -> np.ndarray:
    """As doubles; subnormal numbers count as zero, as the documents say, those of float32 like others."""
    return np.where(np.abs(array) < np.finfo(array.dtype).tiny, 0, array).astype(np.float64)


def rows_of(value: Any, systems: int, length: int | None, single: bool) -> np.ndarray:
    """An argument that all systems or each have, as (systems, length) or (systems,)."""
    array = np.asarray(value, np.float64)
    if single:
        with np.errstate(over="ignore"):
            array = array.astype(np.float32).astype(np.float64)
    own = () if length is None else (length,)
    if array.shape not in ((), own):
        array = array.reshape(-1, *own)
    return np.broadcast_to(array, (systems, *own))


def read(case: Case) -> Problem:
    """The problem of a call, with its numbers as the call reads them."""
    given = case.options
    matrix, b = case.matrix(), case.turned()
    single = matrix.dtype == b.dtype == np.float32
    gram = case.function == "lsq_gram"
    n = matrix.shape[-1]
    b = b.reshape(-1, b.shape[-1])
    systems, m = b.shape
    bounds = (0.0, INF) if case.function == "nnls" else given.get("bounds", (-INF, INF))
    rounded = single and not gram  # arguments of a float32 problem are read as floats; `lsq_gram` keeps doubles
    lower, upper = (rows_of(end, systems, n, rounded).copy() for end in bounds)
    if single:  # two bounds that are one float
        with np.errstate(over="ignore"):
            upper = np.where((lower < upper) & (lower.astype(np.float32) == upper.astype(np.float32)), lower, upper)
    if given.get("mask") is not None:
        out = ~np.broadcast_to(np.asarray(given["mask"]).reshape(-1, n), (systems, n))
        lower[out] = upper[out] = 0
    if gram:  # is read as doubles, of which few are subnormal
        matrix, b = matrix.astype(np.float64), b.astype(np.float64)
    A, b = normal(matrix.reshape(-1, *matrix.shape[-2:])), normal(b)
    if given.get("which") is not None:
        A = A[np.asarray(given["which"]).reshape(-1)]
    rows = np.full(systems, m)
    finite = np.isfinite(A).all(axis=(1, 2)) & np.isfinite(b).all(axis=1)
    if given.get("weights") is not None:
        weights = rows_of(given["weights"], systems, m, rounded)
        b = np.where(weights > 0, b, 0.0)
        finite = np.isfinite(A).all(axis=(1, 2)) & np.isfinite(b).all(axis=1)
        rows = (weights > 0).sum(axis=1)
        own = weights[:1] if np.ndim(given["weights"]) == 1 else weights
        A = exact(A) * exact(own)[:, :, None]
        b = exact(b) * exact(weights)
    L = given.get("L")
    if L is not None:
        L = exact(np.asarray(L, np.float32 if rounded else np.float64))
    C, low, high = ends_of(given, systems, n, rounded)
    return Problem(
        A=None if gram else exact(A),
        b=exact(b),
        G=exact(A) if gram else None,
        bb=None if given.get("bb") is None else exact(np.asarray(given["bb"], float).reshape(-1)),
        L=L,
        lower=exact(lower),
        upper=exact(upper),
        C=C,
        low=low,
        high=high,
        exact_row=len(C) == 1 and bool((C > 0).all()),
        finite=np.broadcast_to(finite, (systems,)),
        single=single,
        rows=rows,
    )


def ends_of(given: dict[str, Any], systems: int, n: int, single: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """C and the ends of Cx: of a sum, of equalities, or of both."""
    C, low, high = [np.zeros((0, n))], [np.zeros((systems, 0))], [np.zeros((systems, 0))]
    if given.get("sum_bounds") is not None:
        C.append(np.ones((1, n)))
        for ends, end in ((low, given["sum_bounds"][0]), (high, given["sum_bounds"][1])):
            ends.append(rows_of(end, systems, None, single)[:, None])
    if given.get("equality") is not None:
        matrix = np.atleast_2d(np.asarray(given["equality"][0], float))
        # One with positive coefficients is a sum, whose numbers are floats in a float32 problem.
        as_sum = single and len(matrix) == 1 and given.get("sum_bounds") is None and bool((matrix > 0).all())
        matrix = matrix.astype(np.float32).astype(float) if as_sum else matrix
        d = rows_of(given["equality"][1], systems, len(matrix), as_sum)
        C.append(matrix)
        low.append(d)
        high.append(d)
    return exact(np.concatenate(C)), exact(np.concatenate(low, axis=1)), exact(np.concatenate(high, axis=1))
