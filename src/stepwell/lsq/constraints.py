"""What a small least-squares problem has beyond x >= 0 and one λ, read and checked: bounds, sums, masks, weights."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell import _core, arrays
from stepwell.arrays import Array
from stepwell.arrays.checks import read_array, require_each, require_finite, require_one_home
from stepwell.common.checks import read_choice, read_real, require, require_kind, require_shape

INFINITY = float("inf")
#: What the core calls the rules for λ.
RULES: dict[str, int] = dict(_core.NNLS_RULES)
#: Options that are plain numbers, as the core's NnlsConstraints has them by name: the default, and what is allowed.
NUMBERS: dict[str, tuple[float, dict[str, Any]]] = {"chi2": (1.02, {"above": 1})}


@dataclasses.dataclass(frozen=True)
class Constraints:
    """Checked arguments as kernels read them. Arrays have a row a system, or one row for all; doubles unless said."""

    nonnegative: bool  # bounds are (0, inf)
    lower: Array  # (rows, n)
    upper: Array  # (rows, n)
    mask: Array | None  # (rows, n), bytes: 0 where a column does not take part
    weights: Array | None  # (rows, m)
    which: Array | None  # (systems,), int32
    sum_low: Array | None  # (rows,)
    sum_high: Array | None  # (rows,)
    slack: bool  # the sum has a range
    coefficients: Array | None  # (n,): of the sum; ones without
    penalized: bool
    penalty: Array | None  # (p, n): L; without, the unit matrix
    penalty_rows: int
    lam: Array | None  # (rows,)
    given_lam: Array | None  # (rows,): λ as it was given, where it is in `penalty`
    lam_unit: float  # `penalty` is L times this, so that λ² of a rule is a number
    rule: int  # how λ is chosen, as the core says it; 0: it is given
    numbers: dict[str, float]  # see NUMBERS
    noise: Array | None  # (rows,): the standard deviation of an entry of b
    spectrum: Array | None  # (matrices, n): see `pencil_spectrum`
    pencil: Array | None  # (matrices,)
    own_spectra: bool  # these two have a row a system, whose columns take part or not each for itself
    states: bool  # the warm start is one of states
    variance: bool = False  # whether it is wanted
    # Normal equations in place of A and b.
    gram: Array | None = None  # (rows, n, n)
    penalty_in_gram: Array | None = None  # (p, n): L where `gram` has λ²LᵀL in it
    lam_in_gram: Array | None = None  # (rows,): and λ
    linear: Array | None = None  # (rows, n)
    squared_b: Array | None = None  # (rows,)
    keep_factor: bool = False  # for derivatives

    #: Fields that have a row a system.
    ROWS = (
        "lower",
        "upper",
        "mask",
        "weights",
        "which",
        "sum_low",
        "sum_high",
        "lam",
        "given_lam",
        "noise",
        "gram",
        "lam_in_gram",
        "linear",
        "squared_b",
    )

    def part(self, chosen: slice | Array) -> Constraints:
        """Return the same of some of the systems."""
        rows = (*self.ROWS, "spectrum", "pencil") if self.own_spectra else self.ROWS
        cut = {name: getattr(self, name) for name in rows}
        return dataclasses.replace(
            self, **{name: rows[chosen] for name, rows in cut.items() if rows is not None and len(rows) != 1}
        )


#: What weights and λ have to be, for `Reader.rows`.
_NOT_NEGATIVE: tuple[Callable[[Any, Array], Array], str] = (
    lambda xp, rows: xp.isfinite(rows) & (rows >= 0),
    "finite numbers of at least 0",
)


def _is_bound(sign: float, xp: Any, rows: Array) -> Array:
    return ~xp.isnan(rows) & (rows != -sign * INFINITY)


class Reader:
    """Reads arguments that are one for all systems or one for each, into the memory where b lives."""

    def __init__(self, b: Array, lead: tuple[int, ...], single: bool) -> None:
        self.b, self.lead, self.single = b, lead, single
        self.rounds_bounds = single  # to what x can hold
        self.systems = math.prod(lead)
        self.on_device = bool(arrays.is_cuda(b))

    def rows(
        self,
        name: str,
        value: Any,
        length: int | None,
        is_good: Callable[[Any, Array], Array] | None = None,
        allowed_numbers: str = "",
    ) -> Array:
        """Return numbers as doubles of shape (1 or systems, length); without a length, (1 or systems,).

        `is_good` says of a namespace's array which numbers are; what the caller gives as numbers of Python's is looked
        at before it goes to a device, where looking takes waiting.
        """
        own = () if length is None else (length,)
        if self.on_device and isinstance(value, float | int) and (is_good is None or is_good(np, np.float64(value))):
            number = self.doubles(np.float64(value))
            return arrays.double_on_device((1, *own), float(number), self.b)
        array = self.at_hand(name, value)
        shape = tuple(array.shape)
        allowed = {(): 1, own: 1, (1, *own): 1, (*self.lead, *own): self.systems, (self.systems, *own): self.systems}
        shown = [form for form in dict.fromkeys(allowed) if form != (1, *own) or self.systems == 1]
        words = ", ".join(str(form) if form else "one number" for form in shown)
        require_shape(shape in allowed, name, array, words)
        rows = allowed[shape] if shape not in ((), own) else 1
        array = self.doubles(array)
        if shape == () and length is not None:
            array = array.reshape(1, 1)
            xp = arrays.namespace_of(array)
            array = xp.broadcast_to(array, (1, length))
        array = arrays.as_contiguous(array.reshape(rows, *own))
        if is_good is not None:
            require_each(is_good(arrays.namespace_of(array), array), name, array, allowed_numbers)
        return self.brought(array)

    def at_hand(self, name: str, value: Any) -> Array:
        """Return the caller's array, which lives where b does, or his numbers as an array of the host's."""
        given = arrays.is_array(value)
        array = read_array(name, value)
        if given and (self.on_device or not isinstance(array, np.ndarray)):
            require_one_home(name, array, "b", self.b)
        if not self.on_device:
            return arrays.host_view(array)
        return array if given else np.asarray(array, np.float64)

    def brought(self, array: Array) -> Array:
        """Return an array at hand where b lives."""
        if not self.on_device or not isinstance(array, np.ndarray):
            return array
        return arrays.bytes_on_device(array, self.b)

    def home(self, name: str, value: Any) -> Array:
        """Return an array that lives where b does: the caller's, or one of his numbers."""
        return self.brought(self.at_hand(name, value))

    def doubles(self, array: Array) -> Array:
        """Return doubles; where the problem is of single precision, those that floats can hold."""
        if self.single:
            with np.errstate(over="ignore"):
                array = arrays.as_float(array, "float32")
        return arrays.as_float(array, "float64")

    def table(self, values: np.ndarray) -> Array:
        """Return numbers of the host's where b lives."""
        return arrays.bytes_on_device(values, self.b) if self.on_device else arrays.as_readable(values)

    def bounds(self, name: str, value: tuple[Any, Any], length: int | None) -> tuple[Array, Array]:
        """Return two rows of bounds, either of which may be infinite on its own side."""
        ends = []
        for end, bound, sign in (("lower", value[0], -1.0), ("upper", value[1], 1.0)):
            words = f"numbers, or {'-' if sign < 0 else ''}inf for none"
            row = self.rows(f"{name} ({end})", bound, length, functools.partial(_is_bound, sign), words)
            if self.rounds_bounds and not self.single:
                with np.errstate(over="ignore"):
                    row = arrays.as_float(arrays.as_float(row, "float32"), "float64")
            ends.append(row)
        return ends[0], ends[1]

    def mask(self, value: Any, length: int) -> Array:
        """Return which columns take part, as bytes."""
        array = self.home("mask", value)
        xp = arrays.namespace_of(array)
        require_kind(bool(xp.isdtype(array.dtype, "bool")), "mask", value, "an array of True and False")
        forms = {(length,): 1, (*self.lead, length): self.systems, (self.systems, length): self.systems}
        require_shape(tuple(array.shape) in forms, "mask", array, " or ".join(map(str, forms)))
        rows = forms[tuple(array.shape)] if array.ndim > 1 else 1
        return arrays.as_contiguous(xp.astype(array, xp.uint8).reshape(rows, length))

    def weights(self, value: Any, length: int) -> Array:
        """Return what rows are multiplied with."""
        return self.rows("weights", value, length, *_NOT_NEGATIVE)

    def which(self, value: Any, matrices: int) -> Array:
        """Return the number of each system's matrix."""
        array = self.home("which", value)
        xp = arrays.namespace_of(array)
        require_kind(bool(xp.isdtype(array.dtype, "integral")), "which", value, "an array of integers")
        require_shape(
            tuple(array.shape) in (self.lead, (self.systems,)), "which", array, f"{self.lead}, as b has systems"
        )
        require_each(
            (array >= 0) & (array < matrices), "which", array, f"0 to {matrices - 1}, as A has {matrices} matrices"
        )
        return arrays.as_contiguous(xp.astype(array, xp.int32).reshape(self.systems))

    def penalty(self, value: Any, columns: int) -> Array:
        """Return L as doubles."""
        matrix = self.home("L", value)
        require_shape(
            matrix.ndim == 2 and matrix.shape[-1] == columns, "L", matrix, f"(rows, {columns}), as A has columns"
        )
        require_finite("L", matrix)
        return arrays.as_contiguous(self.doubles(matrix))

    def lam(self, value: Any) -> Array:
        """Return λ, one or one a system."""
        if not arrays.is_array(value) and not isinstance(value, list | tuple):
            value = read_real("lam", value, at_least=0)
        return self.rows("lam", value, None, *_NOT_NEGATIVE).reshape(-1)


def is_number(value: Any) -> bool:
    """Whether a λ is one number for all systems."""
    return not isinstance(value, str | list | tuple) and getattr(value, "shape", ()) == ()


def is_one(value: Any) -> bool:
    """Whether an argument is one for all systems: a number, or the name of a rule."""
    return isinstance(value, str) or is_number(value)


def are_states(start: Any) -> bool:
    """Whether a warm start is the `state` of a result."""
    return bool(arrays.is_array(start)) and str(start.dtype).endswith("int8") and not str(start.dtype).startswith("u")


def read_numbers(given: dict[str, Any]) -> dict[str, float]:
    """Take the options that are plain numbers out of arguments, checked."""
    return {name: read_real(name, given.pop(name, default), **allowed) for name, (default, allowed) in NUMBERS.items()}


def read_constraints(
    reader: Reader,
    shape: tuple[int, int],
    *,
    bounds: Any,
    sum_bounds: Any = None,
    coefficients: Any = None,
    mask: Any = None,
    weights: Any = None,
    which: Array | None = None,
    lam: Any = 0.0,
    L: Any = None,
    noise: Any = None,
    numbers: dict[str, float],
    matrix: Array | None = None,
    warm_start: Any = None,
    uncertainty: Any = None,
    **normal: Any,
) -> Constraints:
    """Read what a problem has beyond x >= 0; `normal` is of normal equations."""
    rows, columns = shape
    nonnegative = bounds is None
    lower, upper = reader.bounds("bounds", (0.0, INFINITY) if nonnegative else bounds, columns)
    sum_low = sum_high = None
    slack = False
    if sum_bounds is not None:
        sum_low, sum_high = (end.reshape(-1) for end in reader.bounds("sum_bounds", sum_bounds, None))
        xp = arrays.namespace_of(sum_low, sum_high)
        length = len(sum_low) if len(sum_high) == 1 else len(sum_high)
        sum_low, sum_high = (arrays.as_contiguous(xp.broadcast_to(end, (length,))) for end in (sum_low, sum_high))
        slack = bool(xp.any(sum_low != sum_high))
    if coefficients is not None:
        coefficients = reader.rows("equality", coefficients, columns).reshape(columns)
    if isinstance(lam, str) and lam not in RULES:
        read_real("lam", lam, at_least=0, other=", ".join(map(repr, RULES)))
    rule = RULES[lam] if isinstance(lam, str) else 0
    penalized = bool(rule) or not (is_number(lam) and read_real("lam", lam, at_least=0) == 0)
    if rule == RULES["discrepancy"]:
        require(noise is not None, "noise", noise, "the standard deviation of b's entries with lam='discrepancy'")
    if noise is not None:
        noise = reader.rows("noise", noise, None).reshape(-1)
        require_each((noise >= 0) & (noise < INFINITY), "noise", noise, "finite numbers of at least 0")
    penalty = None if L is None or not penalized else reader.penalty(L, columns)
    if L is not None and penalty is None:
        reader.penalty(L, columns)  # a λ of zero does not excuse it
    used_lam, given_lam = reader.lam(lam) if penalized and not rule else None, None
    lam_unit = 1.0
    if used_lam is not None:
        empty = 0 in used_lam.shape
        highest = 0.0 if empty else float(arrays.namespace_of(used_lam).max(used_lam))
        if highest > 0 and not 1e-70 < highest < 1e70:  # its square would not be a number: it goes into L
            lam_unit, given_lam = highest, used_lam
            used_lam = used_lam / highest
    elif rule and matrix is not None:
        lam_unit = unit_of_lam(matrix, penalty)
    if lam_unit != 1.0:
        unit = np.eye(columns) if penalty is None else arrays.to_host(penalty)
        penalty = reader.table(unit * lam_unit)
    taking_part = None if mask is None else reader.mask(mask, columns)
    spectrum = pencil = None
    own_spectra = False
    if rule == RULES["gcv"]:
        shared = weights is None or np.ndim(weights) < 2
        kind = type(weights).__name__
        require(shared, "weights", kind, "one row for all systems with lam='gcv', whose trace is that of A with them")
        assert matrix is not None
        rows_of = matrix if weights is None else matrix * reader.doubles(reader.home("weights", weights))[:, None]
        spectrum, pencil = pencil_spectrum(reader, rows_of, penalty, taking_part, which)
        # Systems with matrices of their own have spectra of their own, which go with them into parts of a batch.
        own_spectra = int(spectrum.shape[0]) > 1 and (
            which is None or (taking_part is not None and taking_part.shape[0] > 1)
        )
    return Constraints(
        nonnegative=nonnegative,
        lower=lower,
        upper=upper,
        mask=taking_part,
        weights=None if weights is None else reader.weights(weights, rows),
        which=which,
        sum_low=sum_low,
        sum_high=sum_high,
        slack=slack,
        coefficients=coefficients,
        penalized=penalized,
        penalty=penalty,
        penalty_rows=columns if penalty is None else int(penalty.shape[0]),
        lam=used_lam,
        given_lam=given_lam,
        lam_unit=lam_unit,
        rule=rule,
        numbers=numbers,
        noise=noise,
        spectrum=spectrum,
        pencil=pencil,
        own_spectra=own_spectra,
        states=are_states(warm_start),
        variance=uncertainty is not None and read_choice("uncertainty", uncertainty, ("variance",)) == "variance",
        **normal,
    )


def unit_of_lam(matrix: Array, penalty: Array | None) -> float:
    """Return the power of two by which L is near A in size; 1 unless squares of their ratio would be no numbers."""
    sizes = []
    for array in (matrix[0] if matrix.ndim > 2 else matrix, penalty):
        empty = array is not None and 0 in array.shape
        xp = None if array is None else arrays.namespace_of(array)
        sizes.append(1.0 if xp is None else 0.0 if empty else float(xp.max(xp.abs(array))))
    of_A, of_L = sizes
    if not (0 < of_A < INFINITY and of_L > 0):
        return 1.0
    exponent = math.frexp(of_A)[1] - math.frexp(of_L)[1]
    return math.ldexp(1.0, exponent) if 180 < abs(exponent) < 1020 else 1.0


def pencil_spectrum(
    reader: Reader, matrix: Array, penalty: Array | None, mask: Array | None = None, which: Array | None = None
) -> tuple[Array, Array]:
    """Return the eigenvalues t of AᵀA in the pencil with AᵀA + αLᵀL, and α = tr AᵀA / tr LᵀL, of each matrix.

    The trace of A(AᵀA + λ²LᵀL)⁻¹Aᵀ, which cross-validation needs, is the sum of αt/(αt + λ²(1 − t)).
    Columns take part as `mask` says; with a mask for each system there is a row for each system.
    """
    A = arrays.to_host(matrix)
    A = A[None] if A.ndim == 2 else A
    L = np.eye(A.shape[-1]) if penalty is None else arrays.to_host(penalty)
    marks = np.ones((1, A.shape[-1])) if mask is None else arrays.to_host(mask).astype(float)
    if len(marks) == 1:
        spectra, alphas = _pencils(A, L, marks)
    else:
        # As many as there are different ones: masks are mostly those of a few kinds of systems.
        own = np.zeros(len(marks)) if len(A) == 1 else np.arange(len(marks)) if which is None else arrays.to_host(which)
        kinds, places = np.unique(np.column_stack([own, marks]), axis=0, return_inverse=True)
        spectra, alphas = (part[places.reshape(-1)] for part in _pencils(A[kinds[:, 0].astype(int)], L, kinds[:, 1:]))
    return reader.table(spectra), reader.table(alphas)


def _shortened(M: np.ndarray) -> np.ndarray:
    """Return M, where it is long the triangle R with RᵀR = MᵀM."""
    return np.asarray(np.linalg.qr(M, mode="r")) if M.shape[-2] > M.shape[-1] else M


def _pencils(A: np.ndarray, L: np.ndarray, marks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the eigenvalues and α of matrices with the columns that take part; eigenvalues of the others are 0."""
    # A matrix with NaN has no solution, so that its eigenvalues are never asked for.
    A = np.where(np.isfinite(A).all(axis=(1, 2), keepdims=True), A, 0.0)
    # The eigenvalues know no scale; those of A and L are taken out, so that squares are numbers.
    sizes = (np.abs(each).max(axis=(-2, -1), initial=1e-300) for each in (A, L))
    of_A, of_L = (np.exp2(-np.round(np.log2(size))) for size in sizes)
    A, L = A * of_A[:, None, None] * marks[:, None], L * of_L * marks[:, None]
    trace, of_K = ((each**2).sum(axis=(1, 2)) for each in (A, L))
    alpha = np.where(trace > 0, trace, 1.0) / np.where(of_K > 0, of_K, 1.0)
    # With A and √α L, one below the other, = USVᵀ, they are the squared singular values of the rows of U that A has.
    # (Products of columns would not have the digits of nearly dependent ones.)
    A, L = _shortened(A), np.sqrt(alpha)[:, None, None] * _shortened(L)
    stacked = np.concatenate([np.broadcast_to(A, (len(alpha), *A.shape[1:])), L], axis=1)
    U, values, _ = np.linalg.svd(stacked, full_matrices=False)
    kept = values > max(stacked.shape[1:]) * np.finfo(float).eps * values[:, :1]
    inner = np.zeros((len(alpha), A.shape[-1]))
    found = np.linalg.svd(np.where(kept[:, None, :], U[:, : A.shape[-2]], 0.0), compute_uv=False)
    inner[:, : found.shape[-1]] = found**2
    with np.errstate(over="ignore", under="ignore"):
        return np.clip(inner, 0.0, 1.0), alpha * (of_L / of_A) ** 2
