"""Gradients by finite differences, at points inside the bounds, for any array library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import Array, host_copy, namespace_of, with_column
from stepwell.quasi_newton.target import Box

#: Rounding of values that are coarser than doubles, by the name of their dtype.
_ROUNDING = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


class Differences:
    """Differences of a function of (B, n) points, forward or central.

    Parameters
    ----------
    at : callable
        Maps points (B, n) to values that can be subtracted from each other, (B,) or one number.
    central : bool
        Whether to take two points a variable, on both sides.
    box : Box or None
        Points stay inside. Variables whose bounds are equal are not differenced: their derivative is called 0.
    relative, absolute : number or array of n numbers, optional
        The step, relative to max(1, abs(x)) or as it is. By default it balances truncation against rounding:
        eps^(1/2), and eps^(1/3) for central differences, relative.
    """

    def __init__(
        self,
        at: Callable[[Array], Any],
        *,
        central: bool,
        box: Box | None,
        relative: Any = None,
        absolute: Any = None,
    ) -> None:
        self._at, self._central, self._box = at, central, box
        self._relative, self._absolute = relative, absolute
        self._movable: np.ndarray | None = None

    def gradient(self, rows: Array, f: Any, epsilon: float) -> Array:
        """Return gradients (B, n) at points (B, n) with values f there, known to a relative rounding of epsilon."""
        xp = namespace_of(rows)
        step = self._steps(rows, epsilon)
        if self._box is None:
            low, high = xp.full_like(rows, -np.inf), xp.full_like(rows, np.inf)
        else:
            low, high = (xp.broadcast_to(half, rows.shape) for half in (self._box.lower, self._box.upper))
        if self._central:
            first, second = _stencil(rows, step, low, high)
        else:
            # Forward or, where the bound is near, backward; as long as the longer side at most.
            fits = (rows + step >= low) & (rows + step <= high)
            up = high - rows >= rows - low
            first = xp.clip(rows + xp.where(fits, step, xp.where(up, xp.abs(step), -xp.abs(step))), low, high)
        moved, gradient = xp.asarray(rows, copy=True), xp.zeros_like(rows)
        for j in self._columns(low, high):
            moved = with_column(moved, j, first[:, j])
            a, fa = first[:, j] - rows[:, j], self._at(moved)
            if self._central:
                moved = with_column(moved, j, second[:, j])
                b, fb = second[:, j] - rows[:, j], self._at(moved)
                slope = _parabola(f, a, fa, b, fb)
            else:
                slope = _quotient(f, a, fa)
            gradient = with_column(gradient, j, slope)
            moved = with_column(moved, j, rows[:, j])
        return gradient

    def _steps(self, rows: Array, epsilon: float) -> Array:
        xp = namespace_of(rows)
        if self._absolute is not None and self._relative is None:
            size = xp.abs(xp.asarray(self._absolute, dtype=rows.dtype)) * xp.ones_like(rows)
        else:
            relative = self._relative
            if relative is None:
                relative = epsilon ** (1 / 3 if self._central else 1 / 2)
            elif np.ndim(relative):
                relative = xp.abs(xp.asarray(relative, dtype=rows.dtype))
            size = relative * xp.maximum(xp.ones_like(rows), xp.abs(rows))
        return xp.where(rows >= 0, size, -size)

    def _columns(self, low: Array, high: Array) -> list[int]:
        """Return the variables that some problem of the batch can move."""
        if self._movable is None:
            xp = namespace_of(low)
            self._movable = np.flatnonzero(host_copy(xp.any(low < high, axis=0)))
        return [int(j) for j in self._movable]


def rounding_of(value: Any, dtype: np.dtype) -> float:
    """Relative rounding of points of a dtype or of what a function returned for them, whichever is coarser."""
    name = str(getattr(value, "dtype", "")).rpartition(".")[2]
    return max(float(np.finfo(dtype).eps), _ROUNDING.get(name, 0.0))


def _quotient(f: Any, h: Array, moved: Any) -> Array:
    xp = namespace_of(h)
    with np.errstate(invalid="ignore", over="ignore"):  # f may be infinite: the engine deals with that
        return xp.where(h != 0, (moved - f) / xp.where(h != 0, h, xp.ones_like(h)), xp.zeros_like(h))


def _stencil(at: Array, h: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Two places: at + h and at - h, or at + h and at + 2h to one side where a bound is near."""
    xp = namespace_of(at)
    h = xp.abs(h)
    both = (at - h >= low) & (at + h <= high)
    up = high - at >= at - low
    reach = xp.minimum(h, xp.maximum(high - at, at - low) / 2)
    side = xp.where(up, reach, -reach)
    first, second = xp.where(both, h, side), xp.where(both, -h, 2 * side)
    return xp.clip(at + first, low, high), xp.clip(at + second, low, high)


def _parabola(f: Any, a: Array, fa: Any, b: Array, fb: Any) -> Array:
    """Derivative at 0 of the parabola through (0, f), (a, fa), (b, fb)."""
    xp = namespace_of(a)
    safe = (a != 0) & (b != 0) & (a != b)
    a, b = xp.where(safe, a, xp.ones_like(a)), xp.where(safe, b, -xp.ones_like(b))
    with np.errstate(invalid="ignore", over="ignore"):
        slope = ((fa - f) * b / a - (fb - f) * a / b) / (b - a)
    return xp.where(safe, slope, xp.zeros_like(a))
