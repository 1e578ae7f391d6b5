"""What the API does before any work: check the arguments, agree on library, device and dtype, and give back in kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from stepwell.arrays import (
    Array,
    as_user_array,
    copy_to_device_of,
    describe_home,
    dtype_name,
    flushes_small_numbers,
    holds_double,
    host_view,
    is_array,
    is_bfloat16,
    is_cuda,
    namespace_of,
    same_library,
    to_host,
    without_graph,
)
from stepwell.arrays.checks import read_array, require_each, require_finite, require_one_home, require_real
from stepwell.common.checks import WrongKind, read_axis, read_whole, require_kind, require_shape
from stepwell.krylov.reductions import WHOLE, Extent, Sums
from stepwell.krylov.results import LinearResult, LinearStatus
from stepwell.krylov.rounds import MAX_DATA, SOUND_SIZES, OutOfRange, SolveStats, scale_columns
from stepwell.operators import Operator, as_operator, in_library_of
from stepwell.operators.error_state import callers_arithmetic
from stepwell.operators.matrices import power_near, scaled

#: Solutions of a sound problem times such powers of two stay within the range of their dtype.
PLAIN_POWERS = {"float32": 40, "float64": 400}


@dataclass
class LinearProblem:
    """Operators and right-hand sides in one library, on one device, in one dtype.

    ``B`` and ``x0`` are blocks whose columns were divided by ``scale`` (all ones unless ``scaled``); ``given`` is what
    the caller gave as B, as columns (``rows``: they were rows, and so are solutions to be). ``square``: A itself is the
    positive definite matrix, of any size. ``A`` was divided by
    ``unit``: λ is to be, too, and the unknowns were multiplied by it. Where ``sums`` go over ranks, all arrays are this
    rank's pieces, and ``unknowns`` and ``equations`` say of what.
    """

    A: Operator
    L: Operator | None
    B: Array
    x0: Array | None
    scale: Array
    scaled: bool
    given: Array
    size: int
    sums: Sums
    unknowns: Extent
    equations: Extent
    unit: float = 1.0
    rows: bool = False
    square: bool = False

    @property
    def copied(self) -> bool:
        """Whether ``B`` is a copy of what the caller gave: scaled, or in another dtype or library."""
        same = same_library(self.B, self.given) and self.B.dtype == self.given.dtype
        return self.scaled or not same

    @property
    def columns(self) -> int:
        """Number of right-hand sides."""
        return int(self.B.shape[1])

    def share_of(self, memory: int) -> int:
        """Return this rank's share of what all ranks together may take."""
        whole = self.unknowns.whole + self.equations.whole
        return (
            memory if not self.sums.spread else memory * (self.unknowns.local + self.equations.local) // max(1, whole)
        )

    def rescaled(self, found: OutOfRange) -> LinearProblem:
        """Return the same problem with A divided by a power of two: near its size, or that of λ beside it.

        An A that is tiny beside λ would vanish; it is left at least so large that its entries keep all their bits.
        """
        dtype = _dtype_name(self.B)
        most = 120 if dtype == "float32" else 1000
        unit = power_near(found.size, most)
        if found.operator > 0:
            unit = min(unit, power_near(found.operator, most) * 2.0 ** MAX_DATA[dtype])
        return self.in_units(scaled(self.A, 1 / unit), unit)

    def in_units(self, A: Operator, unit: float) -> LinearProblem:
        """Return the same problem, given A divided by a number."""
        return replace(self, A=A, x0=None if self.x0 is None else self.x0 * unit, unit=unit)

    def of_columns(self, values: Any) -> Any:
        """Return what every column has one of as the caller expects it: of a vector the one value."""
        if len(self.given.shape) != 1:
            return values
        return values[0].item() if isinstance(values, np.ndarray) else values[0]

    def result(self, stats: SolveStats, **facts: Any) -> LinearResult:
        """Bring the solutions back to the caller's scale, library, dtype and shape."""
        x = self._in_given_units(stats)
        if len(self.given.shape) == 1:
            x = x[:, 0]
        elif self.rows:
            x = x.T
        if not same_library(x, self.given):
            x = as_user_array(host_view(x), self.given)
        exchanges, bytes_sent = self.sums.sent
        if facts["lam"] is not None:
            facts["lam"] = self.of_columns(facts["lam"])
        return LinearResult(
            x=x,
            status=self.of_columns(stats.status),
            residual=stats.residual,
            iterations=stats.iterations,
            products=stats.products,
            history=stats.history,
            exchanges=exchanges,
            bytes_sent=bytes_sent,
            **facts,
        )

    def _in_given_units(self, stats: SolveStats) -> Array:
        """Return the solutions in the caller's units; those that leave the range of the dtype get their status."""
        x, lift = stats.x, stats.lift
        scale = to_host(self.scale).ravel()
        fraction, power = np.frexp(scale)
        power = power - round(math.log2(self.unit)) - (0 if lift is None else np.round(np.log2(lift)).astype(int))
        dtype = _dtype_name(x)
        plain = bool((np.abs(power) <= PLAIN_POWERS[dtype]).all())
        if self.scaled or self.unit != 1 or lift is not None:
            with np.errstate(over="ignore", under="ignore"):
                if plain:
                    x = x * copy_to_device_of(np.ldexp(fraction, power)[None, :], x)
                else:
                    x = _times_powers(x * copy_to_device_of(fraction[None, :], x), power, dtype)
        if plain and self.unit == 1 and lift is None and not self.square:
            return x
        found, largest = self.sums.largest(stats.x), self.sums.largest(x)
        limits = np.finfo(dtype)
        # Below the smallest normal number digits are lost: by columns that lie there as a whole and, where such numbers
        # become zeros, by those that lose more than rounding would take.
        small = largest < float(limits.tiny)
        if flushes_small_numbers(x):
            xp = namespace_of(x)
            flushed = xp.where(xp.abs(x) < float(limits.tiny), stats.x, xp.zeros_like(x))
            small |= self.sums.largest(flushed) > float(limits.eps) * found
        gone = ~np.isfinite(largest) | ((found > 0) & small)
        kept = [status not in (LinearStatus.CONVERGED, LinearStatus.STAGNATED) for status in stats.status]
        gone &= ~(np.array(kept, dtype=bool) & np.isfinite(largest))
        stats.status = [
            LinearStatus.OUT_OF_RANGE if out else status for status, out in zip(stats.status, gone.tolist())
        ]
        return x


def _times_powers(x: Array, powers: np.ndarray, dtype: str) -> Array:
    """Return columns times powers of two, in factors that the dtype holds."""
    while powers.any():
        step = np.clip(powers, -PLAIN_POWERS[dtype], PLAIN_POWERS[dtype])
        x = x * copy_to_device_of(np.exp2(step)[None, :], x)
        powers = powers - step
    return x


def prepare(
    A: Any,
    B: Any,
    L: Any = None,
    x0: Any = None,
    *,
    name: str = "A",
    square: bool = False,
    axis: int = 1,
    sums: Sums = WHOLE,
) -> LinearProblem:
    """Check operators and blocks against each other and bring them to a common kind.

    The work is done in the library of A (a pair of functions takes that of B), in the dtype of all of them together
    (see :func:`working_dtype`). Over ranks all of it is about this rank's pieces, and what one rank finds wrong is
    raised on all.
    """
    read: Any = None
    with sums.holding():
        read = read_operands(A, B, L, x0, name, square, axis)
    sums.check()
    operator, penalty, block, start, given, in_rows = read
    given_or_not = {"L": penalty, "x0": start}
    sums.agree_all(
        {"the dtype": _dtype_name(block), "the number of columns of B": int(block.shape[1])}
        | {name: "None" if value is None else "given" for name, value in given_or_not.items()}
    )
    unknowns, equations = sums.extents(int(operator.shape[1]), int(block.shape[0]))
    scaled, scale = scale_columns(block, sums)
    if start is not None:
        start = start / scale
        with sums.holding():
            require_finite("x0", start)
        sums.check()
    return LinearProblem(
        sums.held_operator(operator),
        None if penalty is None else sums.held_operator(penalty),
        scaled,
        start,
        scale,
        scaled is not block,
        given,
        unknowns.local,
        sums,
        unknowns,
        equations,
        rows=in_rows,
        square=square,
    )


def soundly_scaled(problem: LinearProblem) -> LinearProblem:
    """Return a positive definite system with its matrix divided by a power of two where that is extreme.

    That is for single precision, of whose range squares of small residuals times such a matrix have nothing left; it
    takes a product with one column.
    """
    if _dtype_name(problem.B) != "float32" or not problem.columns:
        return problem
    column = problem.B[:, :1]
    data, image = (float(problem.sums.largest(block)[0]) for block in (column, problem.A.forward(column)))
    size = image / data if data > 0 else 0.0
    least, most = (bound**2 for bound in SOUND_SIZES["float32"])
    if not 0 < size < np.inf or least <= size <= most:
        return problem
    return problem.rescaled(OutOfRange(size))


def read_operands(
    A: Any,
    B: Any,
    L: Any,
    x0: Any,
    name: str,
    square: bool,
    axis: int,
    *,
    data: str = "B",
    start_name: str = "x0",
) -> tuple[Operator, Operator | None, Array, Array | None, Array, bool]:
    """Return operators, blocks, and B as it was given, as columns, and whether it was rows.

    ``data`` and ``start_name`` are what the caller's function calls B and x0.
    """
    given = read_array(data, B)
    in_rows = read_axis(axis) == 0
    block_shape = "(columns, m)" if in_rows else "(m, columns)"
    require_shape(len(given.shape) in (1, 2), data, given, f"(m,), a vector, or {block_shape}, a block")
    in_rows = in_rows and len(given.shape) == 2
    given = given.T if in_rows else given
    dtype = working_dtype(A, given, L, x0)
    width = 1 if len(given.shape) == 1 else int(given.shape[1])
    operator = as_operator(A, dtype, name=name, columns=width)
    template = given if operator.home is None else operator.home
    block = _in_common(given, template, dtype, data, name)
    # (Beside the block, not B itself: L is not to be rounded to half precision or to integers.)
    penalty = None if L is None else as_operator(_beside(L, block), dtype, name="L", columns=width)
    if penalty is not None and penalty.home is not None:
        require_one_home("L", penalty.home, name, template, library=False)

    rows, size = operator.shape
    _require_rows(rows, given, in_rows, f"as {name} of shape {operator.shape} has", data)
    require_shape(not square or size in (None, block.shape[0]), name, operator, "as many columns as rows")
    if size is None:
        size = int(block.shape[0]) if square else int(operator.adjoint(block[:, :1]).shape[0])
        operator.shape = (int(block.shape[0]), size)
    if penalty is not None:
        require_shape(penalty.shape[1] in (None, size), "L", penalty, f"{size} columns, one an unknown")
    if penalty is not None and penalty.shape[1] is None:
        image = penalty.forward(copy_to_device_of(np.zeros((size, 1)), block))
        penalty.shape = (int(image.shape[0]), size)

    start = None
    if x0 is not None:
        expected = (size,) if len(given.shape) == 1 else (size, block.shape[1])
        start = read_array(start_name, x0)
        expected = expected[::-1] if in_rows else expected
        require_shape(tuple(start.shape) == tuple(expected), start_name, start, tuple(expected))
        start = _in_common(start.T if in_rows else start, template, dtype, start_name, name)
    return operator, penalty, block, start, given, in_rows


def _require_rows(rows: int | None, given: Array, in_rows: bool, reason: str, name: str) -> None:
    """Raise unless the right-hand sides have so many entries; where they would have them turned, the error says so."""
    if rows in (None, given.shape[0]):
        return
    turned = len(given.shape) == 2 and given.shape[1] == rows
    other = f"axis={int(in_rows)}, if its {'columns' if in_rows else 'rows'} are the right-hand sides"
    allowed = f"{rows} {'columns' if in_rows else 'rows'}, {reason}{f'; or {other}' if turned else ''}"
    require_shape(False, name, given.T if in_rows else given, allowed)


def working_dtype(*parts: Any) -> str:
    """Return the dtype that NumPy's ``result_type`` finds for all parts that have one, where it is float32.

    In all other cases (float64, integers alone, half precision alone) that is float64. Functions have no dtype;
    lists are NumPy arrays; bfloat16 counts as float16. Where the first part is an array of JAX, not of float64, and JAX
    holds no float64 (``jax_enable_x64``), it is float32.

    Examples
    --------
    >>> import numpy as np
    >>> single, double, small = np.ones(2, np.float32), np.ones(2), np.ones(2, np.int8)
    >>> working_dtype(single, None, single), working_dtype(single, double), working_dtype(single, small)
    ('float32', 'float64', 'float32')
    """
    homes = [part.home if isinstance(part, Operator) else part for part in parts]
    arrays = [_listed(part) if isinstance(part, list) and not any(map(callable, part)) else part for part in homes]
    typed: list[Any] = [array for array in arrays if getattr(array, "dtype", None) is not None]
    dtypes = [np.dtype(np.float16) if is_bfloat16(array) else _as_numpy_dtype(array.dtype) for array in typed]
    if not dtypes:
        return "float64"
    first = getattr(typed[0], "home", typed[0])  # of an operator that tells it
    only_single = dtypes[0] != np.float64 and not holds_double(first)
    return "float32" if only_single or np.result_type(*dtypes) == np.float32 else "float64"


def _listed(part: list[Any]) -> np.ndarray | None:
    try:
        return np.asarray(part)
    except ValueError:  # rows of different lengths, which whoever reads this argument refuses by its name
        return None


def _as_numpy_dtype(dtype: Any) -> np.dtype:
    try:
        found = np.dtype(dtype_name(dtype))
    except TypeError:  # of another library
        return np.dtype(np.float64)
    return found if found.kind in "biufc" else np.dtype(np.float64)  # dates and texts are refused elsewhere


def as_preconditioner(preconditioner: Any, problem: LinearProblem) -> Callable[[Array], Array]:
    """Return the function that applies a preconditioner to a block: operator, function of a block, or a diagonal."""
    if preconditioner is None:
        return lambda block: block
    apply: Any = None
    with problem.sums.holding():
        apply = _read_preconditioner(preconditioner, problem)
    problem.sums.check()
    return problem.sums.held(apply, problem.size)


def _read_preconditioner(preconditioner: Any, problem: LinearProblem) -> Callable[[Array], Array]:
    if callable(preconditioner) and not hasattr(preconditioner, "shape"):

        def precondition(block: Array) -> Array:
            own = namespace_of(block).asarray(block, copy=True)  # which the function may write into
            with callers_arithmetic():
                image = preconditioner(own)
            return _preconditioned(image, block)

        return precondition
    if is_array(preconditioner) and len(preconditioner.shape) == 1:
        require_real("preconditioner", preconditioner)
        require_shape(preconditioner.shape[0] == problem.size, "preconditioner", preconditioner, (problem.size,))
        diagonal = _in_common(preconditioner, problem.B, _dtype_name(problem.B), "preconditioner", "A")
        return lambda block: diagonal * block
    operator = as_operator(preconditioner, _dtype_name(problem.B), name="preconditioner")
    square = (problem.size, problem.size)
    require_shape(operator.shape == square, "preconditioner", operator, square)
    return operator.forward


def as_diagonal(preconditioner: Any, problem: LinearProblem) -> np.ndarray | None:
    """Return a preconditioner that is a diagonal in the problem's units, on the host; refuse any other kind."""
    if preconditioner is None:
        return None
    array = preconditioner if is_array(preconditioner) and len(preconditioner.shape) == 1 else None
    allowed = "with bounds, the diagonal of an approximate inverse as a vector"
    require_kind(array is not None, "preconditioner", preconditioner, allowed)
    values = to_host(array) * problem.unit**2
    require_each(np.isfinite(values) & (values > 0), "preconditioner", values, "finite numbers above 0, with bounds")
    return values


def _preconditioned(image: Any, block: Array) -> Array:
    """Check what a preconditioner that is a function has made of a block."""
    argument, shape = "what preconditioner returned", tuple(block.shape)
    image = without_graph(image) if hasattr(image, "shape") else read_array(argument, image)
    require_shape(tuple(image.shape) == shape, argument, image, shape)
    return image


def iteration_limit(maxiter: int | None, size: int, bounded: bool = False) -> int:
    """Return the limit, twice the unknowns and at least 100 by default; within bounds at least 1000."""
    if maxiter is None:
        return max(1000 if bounded else 100, 2 * size)
    return read_whole("maxiter", maxiter, 0, as_float=True)


def column_numbers(problem: LinearProblem, least_squares: bool) -> int:
    """Numbers that one column at work takes, where it is longest: when λ²LᵀL joins AᵀA, or when the state advances."""
    size, rows = problem.size, int(problem.B.shape[0])
    copies = max(size, rows) if problem.A.copies_blocks else 0
    if not least_squares:
        return 7 * size + copies
    if problem.L is None:
        return max(8 * size + 2 * rows, 7 * size + 3 * rows) + copies
    penalties = problem.L.shape[0] or 0
    return copies + max(8 * size + 2 * rows + 2 * penalties, 5 * size + 3 * rows + 3 * penalties)


def bytes_per_number(block: Array) -> int:
    """Bytes of one number of the block."""
    return 4 if "float32" in str(block.dtype) else 8


def _dtype_name(block: Array) -> str:
    return "float32" if "float32" in str(block.dtype) else "float64"


def _beside(L: Any, template: Array) -> Any:
    """Return L in the library of the template, where both are on the host; what cannot be brought there is refused."""
    if is_cuda(template) or isinstance(L, tuple | Operator) or (callable(L) and not hasattr(L, "shape")):
        return L
    if sp.issparse(L):
        return L if isinstance(template, np.ndarray) else in_library_of(L, template)
    if same_library(getattr(L, "home", L), template):
        return L
    if isinstance(L, np.ndarray):
        return copy_to_device_of(L, template)
    raise WrongKind(f"L is a {type(L).__name__}, while B is {describe_home(template)}; allowed: one library")


def _in_common(array: Array, template: Array, dtype: str, argument: str, name: str) -> Array:
    """Bring an array on the same device to the template's library and the working dtype, as a block of columns."""
    require_one_home(argument, array, name, template, library=False)
    array = without_graph(array)
    if not same_library(array, template):
        array = as_user_array(np.array(host_view(array)), template)
    xp = namespace_of(array)
    block = xp.astype(array, getattr(xp, dtype), copy=False)
    if argument == "preconditioner" or len(block.shape) == 1:
        return xp.reshape(block, (-1, 1))
    return block
