"""Units in which A and b of a batch with equalities are near one, by powers of two: exact, so nothing else changes.

The method of multipliers squares what it is given several times over. Of entries beyond 1e±60 these squares are no
numbers.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from stepwell import arrays
from stepwell.arrays import Array
from stepwell.lsq.equality_ends import Equalities
from stepwell.lsq.result import LSQResult

#: Exponents of two beyond which units change.
_EXTREME = 200


def _times(value: Any, exponent: int) -> Any:
    """Return a value times a power of two, in two steps: the power itself may be no number."""
    half = exponent // 2
    return value if value is None else value * math.ldexp(1.0, half) * math.ldexp(1.0, exponent - half)


def _exponent(array: Array) -> int:
    """Return the exponent of the largest finite entry; 0 without one."""
    xp = arrays.namespace_of(array)
    finite = xp.where(xp.isfinite(array), xp.abs(array), xp.zeros_like(array))
    largest = 0.0 if 0 in array.shape else float(xp.max(finite))
    return math.frexp(largest)[1] if largest > 0 else 0


@dataclasses.dataclass(frozen=True)
class Units:
    """A is in units of 2**of_A, b in units of 2**of_b; so x is in units of 2**(of_b − of_A)."""

    of_A: int
    of_b: int

    def applied(self, problem: Equalities, options: dict[str, Any]) -> tuple[Equalities, dict[str, Any]]:
        """Return the problem, and its options, in these units."""
        if self.of_A == self.of_b == 0:
            return problem, options
        of_x = self.of_A - self.of_b
        powers = dict.fromkeys(("d", "lower", "upper", "sum_low", "sum_high"), of_x)
        powers |= {"A": -self.of_A, "lam": -self.of_A, "b": -self.of_b}
        scaled = dataclasses.replace(problem, **{name: _times(getattr(problem, name), powers[name]) for name in powers})
        given = options | {"bounds": (scaled.lower, scaled.upper), "noise": _times(options["noise"], -self.of_b)}
        given["lam"] = _times(options["lam"], -self.of_A)
        if options["sum_bounds"] is not None:
            given["sum_bounds"] = scaled.sum_low, scaled.sum_high
        start = options["warm_start"]
        if arrays.is_array(start) and arrays.namespace_of(start).isdtype(start.dtype, "real floating"):
            given["warm_start"] = _times(start, of_x)
        return scaled, given

    def undone(self, r: LSQResult) -> LSQResult:
        """Return a result in the caller's units."""
        if self.of_A == self.of_b == 0:
            return r
        of_x, of_w = self.of_b - self.of_A, self.of_A + self.of_b
        powers = dict.fromkeys(("x", "equality_error", "seminorm"), of_x) | {"lam": self.of_A, "variance": 2 * of_x}
        powers |= {"dual": of_w, "multipliers": of_w, "residual": self.of_b, "sigma": self.of_b, "gap": 2 * self.of_b}
        return dataclasses.replace(r, **{name: _times(getattr(r, name), powers[name]) for name in powers})


def units_of(problem: Equalities) -> Units:
    """Return units for a batch whose numbers are extreme; else those that it has."""
    of_A, of_b = _exponent(problem.A), _exponent(problem.b)
    return Units(of_A, of_b) if max(abs(of_A), abs(of_b)) > _EXTREME else Units(0, 0)
