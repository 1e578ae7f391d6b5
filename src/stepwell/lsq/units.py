"""Units in which A and b are near one, by powers of two: exact, so nothing else changes.

Rows of sums and equalities are squared beside those of A. Of entries of A beyond 1e±60 these squares are no numbers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell import arrays
from stepwell.arrays import Array
from stepwell.lsq.convolution import Convolution
from stepwell.lsq.result import LSQResult

#: Exponents of two beyond which units change.
_EXTREME = 200
#: Most entries that are looked at, of some systems of a batch: one unit is for all of them.
_LOOKED_AT = 1 << 18


def _as_array(value: Any) -> Any:
    """Return numbers that are no array as one."""
    return np.asarray(value, float) if isinstance(value, list | tuple | float | int) else value


def _times(value: Any, exponent: int) -> Any:
    """Return numbers times a power of two, in two steps: the power itself may be no number."""
    if value is None or isinstance(value, str):
        return value
    numbers = np.asarray(value, float) if isinstance(value, list | tuple) else value
    half = exponent // 2
    with np.errstate(over="ignore"):
        return numbers * math.ldexp(1.0, half) * math.ldexp(1.0, exponent - half)


def _matrix_times(A: Any, exponent: int) -> Any:
    if not isinstance(A, Convolution):
        return _times(A, exponent)
    return Convolution(_times(A.pulse, exponent), A.n, m=A.m, origin=A.origin)


def _bound_times(value: Any, exponent: int) -> Any:
    """Return bounds times a power of two; those that are numbers remain so, and those that are not zero."""
    given = _as_array(value)
    xp, scaled = arrays.namespace_of(given), _times(given, exponent)
    most, least = float(np.finfo(float).max), float(np.finfo(float).tiny)
    scaled = xp.where(xp.isfinite(given), xp.clip(scaled, -most, most), scaled)
    return xp.where((given != 0) & (xp.abs(scaled) < least), least * xp.sign(given), scaled)


def _exponent(array: Array) -> int | None:
    """Return the exponent of the largest finite entry; None without one but 0."""
    xp = arrays.namespace_of(array)
    if array.ndim > 1 and math.prod(array.shape) > _LOOKED_AT:
        array = array[:: -(-math.prod(array.shape) // _LOOKED_AT)]
    finite = xp.where(xp.isfinite(array), xp.abs(array), xp.zeros_like(array))
    largest = 0.0 if 0 in array.shape else float(xp.max(finite))
    return math.frexp(largest)[1] if largest > 0 else None


@dataclasses.dataclass(frozen=True)
class Units:
    """A is in units of 2**of_A, b in units of 2**of_b; so x is in units of 2**(of_b − of_A)."""

    of_A: int
    of_b: int

    def applied(self, A: Any, b: Array, options: dict[str, Any]) -> tuple[Any, Array, dict[str, Any]]:
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
        return _matrix_times(A, -self.of_A), _times(b, -self.of_b), given

    def undone(self, r: LSQResult, columns: int, bounds: Any, mask: Any) -> LSQResult:
        """Return a result in the caller's units; x at one of the caller's bounds is the bound itself."""
        of_x, of_w = self.of_b - self.of_A, self.of_A + self.of_b
        powers = dict.fromkeys(("x", "equality_error", "seminorm"), of_x) | {"lam": self.of_A, "variance": 2 * of_x}
        powers |= {"dual": of_w, "multipliers": of_w, "residual": self.of_b, "sigma": self.of_b, "gap": 2 * self.of_b}
        changed = {name: _times(getattr(r, name), powers[name]) for name in powers}
        if isinstance(r.multipliers, list):
            changed["multipliers"] = changed["multipliers"].tolist()
        xp, shape = arrays.namespace_of(r.x), (-1, columns)
        x, state = xp.reshape(changed["x"], shape), xp.reshape(r.state, shape)
        low, high = (_rows_beside(end, x) for end in bounds)
        fixed = (state == 2) & (low == high)
        if mask is not None:
            fixed = fixed & (_rows_beside(mask, x) != 0)
        x = xp.where((state == -1) | fixed, low, xp.where(state == 1, high, x))
        changed["x"] = xp.reshape(x, tuple(r.x.shape))
        return dataclasses.replace(r, **changed, _units=None if r._problem is None else self)

    def covariance(self, of_problem: Callable[..., np.ndarray], x: np.ndarray, lam: float, sigma: float) -> np.ndarray:
        """Return the covariance, in the caller's units as x, λ and σ are, of what `of_problem` says in these."""
        given = _times(x, self.of_A - self.of_b), float(_times(lam, -self.of_A)), float(_times(sigma, -self.of_b))
        return np.asarray(_times(of_problem(*given), 2 * (self.of_b - self.of_A)))


def _rows_beside(value: Any, x: Array) -> Array:
    """Return one number, or those of each unknown of one system or of all, as rows of x's library and precision."""
    rows = value if arrays.is_array(value) and arrays.same_library(value, x) else np.asarray(value, float)
    rows = rows if arrays.same_library(rows, x) else arrays.copy_to_device_of(rows, x)
    xp = arrays.namespace_of(x)
    return xp.reshape(xp.astype(rows, x.dtype), (-1, x.shape[1] if math.prod(rows.shape) > 1 else 1))


def _exponent_of_x(options: dict[str, Any]) -> int | None:
    """Return the exponent of the largest x, or sum of x, that the options insist on; None where x = 0 will do."""
    found = []
    for name in ("bounds", "sum_bounds"):
        if options.get(name) is not None:
            low, high = (_as_array(end) for end in options[name])
            found += [_exponent(arrays.namespace_of(end).clip(end, 0.0, None)) for end in (low, -high)]
    if options.get("equality") is not None:
        of_C, of_d = (_exponent(_as_array(a)) for a in options["equality"])
        found.append(None if of_C is None or of_d is None else of_d - of_C)
    return max((exponent for exponent in found if exponent is not None), default=None)


def units_of(A: Any, b: Array, options: dict[str, Any]) -> Units | None:
    """Return units for a batch whose A is extreme; else None."""
    of_A = _exponent(A.pulse if isinstance(A, Convolution) else A) or 0
    if abs(of_A) <= _EXTREME:
        return None
    # What x has to be may be beyond the largest number in the units that are b's.
    of_b, of_x = _exponent(b), _exponent_of_x(options)
    if of_b is None:
        of_b = 0 if of_x is None else of_A + of_x
    elif of_x is not None:
        of_b = max(of_b, of_A + of_x - 2 * _EXTREME)
    return Units(of_A, of_b)
