"""Units in which A and b are near one, by powers of two: exact, so nothing else changes.

Rows of sums and equalities are squared beside those of A. Of entries of A beyond 1e±60 these squares are no numbers.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from stepwell import arrays
from stepwell.arrays import Array
from stepwell.lsq.result import LSQResult

#: Exponents of two beyond which units change.
_EXTREME = 200
#: Most entries that are looked at, of some systems of a batch: one unit is for all of them.
_LOOKED_AT = 1 << 18


def _times(value: Any, exponent: int) -> Any:
    """Return numbers times a power of two, in two steps: the power itself may be no number."""
    if value is None or isinstance(value, str):
        return value
    numbers = np.asarray(value, float) if isinstance(value, list | tuple) else value
    half = exponent // 2
    with np.errstate(over="ignore"):
        return numbers * math.ldexp(1.0, half) * math.ldexp(1.0, exponent - half)


def _bound_times(value: Any, exponent: int) -> Any:
    """Return bounds times a power of two; those that are numbers remain so."""
    given = np.asarray(value, float) if isinstance(value, list | tuple | float | int) else value
    xp, scaled = arrays.namespace_of(given), _times(given, exponent)
    most = float(np.finfo(float).max)
    return xp.where(xp.isfinite(given), xp.clip(scaled, -most, most), scaled)


def _exponent(array: Array) -> int:
    """Return the exponent of the largest finite entry; 0 without one."""
    xp = arrays.namespace_of(array)
    if array.ndim > 1 and math.prod(array.shape) > _LOOKED_AT:
        array = array[:: -(-math.prod(array.shape) // _LOOKED_AT)]
    finite = xp.where(xp.isfinite(array), xp.abs(array), xp.zeros_like(array))
    largest = 0.0 if 0 in array.shape else float(xp.max(finite))
    return math.frexp(largest)[1] if largest > 0 else 0


@dataclasses.dataclass(frozen=True)
class Units:
    """A is in units of 2**of_A, b in units of 2**of_b; so x is in units of 2**(of_b − of_A)."""

    of_A: int
    of_b: int

    def applied(self, A: Array, b: Array, options: dict[str, Any]) -> tuple[Array, Array, dict[str, Any]]:
        """Return the arguments of ``lsq_linear`` in these units."""
        of_x, given = self.of_A - self.of_b, dict(options)
        for name in ("bounds", "sum_bounds"):
            if given.get(name) is not None:
                given[name] = tuple(_bound_times(end, of_x) for end in given[name])
        if given.get("equality") is not None:
            given["equality"] = given["equality"][0], _times(given["equality"][1], of_x)
        powers = {"lam": -self.of_A, "noise": -self.of_b}
        given |= {name: _times(given[name], powers[name]) for name in powers if name in given}
        start: Any = given.get("warm_start")
        if arrays.is_array(start) and arrays.namespace_of(start).isdtype(start.dtype, "real floating"):
            given["warm_start"] = _times(start, of_x)
        return _times(A, -self.of_A), _times(b, -self.of_b), given

    def undone(self, r: LSQResult) -> LSQResult:
        """Return a result in the caller's units."""
        of_x, of_w = self.of_b - self.of_A, self.of_A + self.of_b
        powers = dict.fromkeys(("x", "equality_error", "seminorm"), of_x) | {"lam": self.of_A, "variance": 2 * of_x}
        powers |= {"dual": of_w, "multipliers": of_w, "residual": self.of_b, "sigma": self.of_b, "gap": 2 * self.of_b}
        changed = {name: _times(getattr(r, name), powers[name]) for name in powers}
        if isinstance(r.multipliers, list):
            changed["multipliers"] = changed["multipliers"].tolist()
        return dataclasses.replace(r, **changed)


def units_of(A: Array, b: Array) -> Units | None:
    """Return units for a batch whose A is extreme; else None."""
    of_A = _exponent(A)
    return Units(of_A, _exponent(b)) if abs(of_A) > _EXTREME else None
