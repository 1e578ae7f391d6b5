"""A linear problem in working form: operators and blocks of one library, their scales, and results in the caller's."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stepwell.arrays import (
    Array,
    as_user_array,
    copy_to_device_of,
    flushes_small_numbers,
    host_view,
    namespace_of,
    same_library,
    to_host,
    without_graph,
)
from stepwell.arrays.checks import require_one_home
from stepwell.krylov.reductions import Extent, Sums
from stepwell.krylov.results import LinearResult, LinearStatus
from stepwell.krylov.rounds import MAX_DATA, SOUND_SIZES, OutOfRange, SolveStats
from stepwell.operators import Operator
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
        dtype = name_of_dtype(self.B)
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
            residual=self.of_columns(stats.residual),
            iterations=self.of_columns(stats.iterations),
            products=self.of_columns(stats.products),
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
        dtype = name_of_dtype(x)
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


def soundly_scaled(problem: LinearProblem) -> LinearProblem:
    """Return a positive definite system with its matrix divided by a power of two where that is extreme.

    That is for single precision, of whose range squares of small residuals times such a matrix have nothing left; it
    takes a product with one column.
    """
    if name_of_dtype(problem.B) != "float32" or not problem.columns:
        return problem
    column = problem.B[:, :1]
    data, image = (float(problem.sums.largest(block)[0]) for block in (column, problem.A.forward(column)))
    size = image / data if data > 0 else 0.0
    least, most = (bound**2 for bound in SOUND_SIZES["float32"])
    if not 0 < size < np.inf or least <= size <= most:
        return problem
    return problem.rescaled(OutOfRange(size))


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


def name_of_dtype(block: Array) -> str:
    """Return the working dtype, by name."""
    return "float32" if "float32" in str(block.dtype) else "float64"


def in_common(array: Array, template: Array, dtype: str, argument: str, name: str) -> Array:
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
