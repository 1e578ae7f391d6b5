"""Jacobians of NumPy and CuPy functions by differences at points inside the bounds, all problems at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepwell.arrays import Array, namespace_of
from stepwell.fit.problem import own_rows
from stepwell.quasi_newton.differences import SCHEMES

#: Numbers above which the moved points of one parameter are a call of their own.
ONE_CALL = 1 << 16


class JacobianByDifferences:
    """J (k, m, n) of a function of (k, n) points and rows.

    Parameters
    ----------
    scheme : {"2-point", "3-point", "cs"}
    call : callable
        ``call(points, rows)`` returns (k, m).
    low, high : array, (1 or problems, n)
        Points stay inside.
    typical : array, (problems, n)
        Sizes of the parameters, below which steps do not shrink with them.
    relative : number or array of n numbers, optional
        Step relative to abs(x), as SciPy's ``diff_step``.
    """

    def __init__(
        self, scheme: str, call: Callable[[Any, Any], Any], low: Array, high: Array, typical: Array, relative: Any
    ) -> None:
        self._scheme, self._call = scheme, call
        self._low, self._high, self._typical = low, high, typical
        self._relative = relative
        xp = namespace_of(typical)
        self._movable = [bool(free) for free in xp.any(low < high, axis=0)]
        self._shared = low.shape[0] == 1

    def __call__(self, x: Array, rows: Any, values: Array) -> Array:
        """Return J at x, where the function has these values; parameters of equal bounds have columns of zeros."""
        xp = namespace_of(x)
        low, high = own_rows(self._low, rows), own_rows(self._high, rows)
        epsilon = max(float(xp.finfo(x.dtype).eps), float(xp.finfo(values.dtype).eps))
        best = epsilon ** SCHEMES[self._scheme]
        size = xp.maximum(xp.abs(x), self._typical[rows])
        step = size * (best if self._relative is None else self._relative)
        step = xp.where(x + step == x, best * size, step)
        if self._scheme == "cs":
            return self._quotients(x, rows, values, [(1j * step, step)], imaginary=True)
        forward, backward = x + step <= high, x - step >= low
        if self._scheme == "2-point":
            room = xp.where(high - x >= x - low, high - x, low - x)
            return self._quotients(
                x, rows, values, [self._moved(x, xp.where(forward, step, xp.where(backward, -step, room)))]
            )
        # To both sides or, at a bound, twice to one: the parabola through three points.
        aside = xp.where(high - x >= x - low, xp.minimum(step, (high - x) / 2), -xp.minimum(step, (x - low) / 2))
        both = forward & backward
        first = self._moved(x, xp.where(both, step, aside))
        second = self._moved(x, xp.where(both, -step, 2 * aside))
        return self._quotients(x, rows, values, [first, second])

    @staticmethod
    def _moved(x: Array, step: Array) -> tuple[Array, Array]:
        """Return steps as they are after rounding, twice: what is added, and what to divide by."""
        there = x + step
        return there - x, there - x

    def _quotients(
        self, x: Array, rows: Any, values: Array, steps: list[tuple[Array, Array]], imaginary: bool = False
    ) -> Array:
        xp = namespace_of(x)
        k, n = x.shape
        m = values.shape[1]
        out = xp.zeros((n, k, m), dtype=values.dtype)
        moved = [j for j in range(n) if self._movable[j]]
        gains: list[Any] = [[] for _ in steps]
        together = n * k * m <= ONE_CALL and len(moved) > 0
        for at, (add, _) in enumerate(steps):
            if together:
                points = xp.asarray(xp.broadcast_to(x, (len(moved), k, n)), dtype=add.dtype, copy=True)
                for place, j in enumerate(moved):
                    points[place, :, j] += add[:, j]
                tiled = xp.broadcast_to(rows, (len(moved), k)).reshape(-1)
                found = self._call(points.reshape(-1, n), tiled).reshape(len(moved), k, m)
                gains[at] = list(found)
            else:
                points = xp.asarray(x, dtype=add.dtype, copy=True)
                for j in moved:
                    points[:, j] = x[:, j] + add[:, j]
                    gains[at].append(self._call(points, rows))
                    points[:, j] = x[:, j]
        for place, j in enumerate(moved):
            h = [division[:, j : j + 1] for _, division in steps]
            if imaginary:
                out[j] = gains[0][place].imag / h[0]
            elif len(steps) == 1:
                out[j] = (gains[0][place] - values) / h[0]
            else:
                a, b = h
                up, down = gains[0][place] - values, gains[1][place] - values
                out[j] = (up * (b / a) - down * (a / b)) / (b - a)
        return xp.moveaxis(out, 0, 2)
