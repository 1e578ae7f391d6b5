"""Gradients by finite differences, at points inside the bounds, for any array library.

Steps are SciPy's: ``eps`` is an absolute step, ``finite_diff_rel_step`` is relative to abs(x) alone, and where a step
is lost in rounding the best one for the scheme takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from stepwell.arrays import Array, copy_to_device_of, dtype_name, host_copy, namespace_of, with_column
from stepwell.quasi_newton.target import Box

#: The schemes, and the power of the rounding error that is their best relative step.
SCHEMES = {"2-point": 1 / 2, "3-point": 1 / 3, "cs": 1 / 2}
#: Rounding of values that are coarser than doubles, by the name of their dtype.
_ROUNDING = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


class Differences:
    """Differences of a function of (B, n) points.

    Parameters
    ----------
    scheme : {"2-point", "3-point", "cs"}
        One point a variable, two, or one with an imaginary step, which takes functions that NumPy evaluates.
    box : Box or None
        Points stay inside. Variables whose bounds are equal are not differenced: their derivative is called 0.
    relative, absolute : number or array of n numbers, optional
        The step, relative to abs(x) or as it is, which goes first. By default, and where that is lost in rounding, it
        balances truncation against rounding: eps^(1/2), and eps^(1/3) for two points, relative to max(1, abs(x)).
    """

    def __init__(self, scheme: str, box: Box | None, *, relative: Any = None, absolute: Any = None) -> None:
        self._scheme, self._box = scheme, box
        self._relative, self._absolute = relative, absolute
        self._movable: Any = None

    def within(self, box: Box | None) -> Differences:
        """Return the same differences inside other bounds."""
        return Differences(self._scheme, box, relative=self._relative, absolute=self._absolute)

    def gradient(self, rows: Array, rises: Callable[[Iterator[Array]], list[Any]], epsilon: float) -> Array:
        """Return gradients (B, n) at points (B, n).

        Parameters
        ----------
        rises : callable
            Maps points (B, n), of which each is overwritten when the next is asked for, to what the function gains
            there (imaginary parts for "cs"): (B,) or one number each.
        epsilon : float
            Relative rounding of the function's values.
        """
        step = self._steps(rows, epsilon)
        if self._scheme == "cs":
            places, moves = [rows + 1j * step], [step]
        else:
            places = self._places(rows, step)
            moves = [place - rows for place in places]  # what rounding and bounds leave of the steps
        movable = self._movable_of(rows)
        found = iter(rises(_points(rows, places, movable)))
        table: list[list[Any]] = [[] for _ in places]
        for free in movable:
            for column in table:
                column.append(next(found) if free else None)
        with np.errstate(invalid="ignore", over="ignore"):  # f may be infinite: the engine deals with that
            gained = [_stacked(column, rows) for column in table]
            return _quotient(moves[0], gained[0]) if len(gained) == 1 else _parabola(*moves, *gained)

    def _steps(self, rows: Array, epsilon: float) -> Array:
        """Return the steps before they meet the bounds."""
        xp = namespace_of(rows)
        size = epsilon ** SCHEMES[self._scheme] * xp.maximum(xp.ones_like(rows), xp.abs(rows))
        best = xp.where(rows >= 0, size, -size)
        if self._absolute is not None:
            step = xp.broadcast_to(_along(rows, self._absolute), rows.shape)
        elif self._relative is not None:
            step = _along(rows, self._relative) * rows
        else:
            return best
        return xp.where((rows + step) - rows == 0, best, step)

    def _bounds(self) -> tuple[Any, Any]:
        return (-math.inf, math.inf) if self._box is None else self._box[:2]

    def _places(self, rows: Array, step: Array) -> list[Array]:
        """Return the points, each with all variables moved: one or two that lie inside the bounds."""
        xp = namespace_of(rows)
        low, high = self._bounds()
        below, above = rows - low, high - rows
        length = xp.abs(step)
        if self._scheme == "2-point":
            # Where the bound is near, to the longer side; and no farther than that.
            fits = (rows + step >= low) & (rows + step <= high)
            offsets = [xp.where(fits, step, xp.where(above >= below, length, -length))]
        else:
            # To both sides, or h and 2h to one side where that allows the longer step.
            nearer, aside = xp.minimum(below, above), xp.minimum(length, xp.maximum(below, above) / 2)
            central = nearer >= aside
            first = xp.where(central, xp.minimum(length, nearer), xp.where(above >= below, aside, -aside))
            offsets = [first, xp.where(central, -first, 2 * first)]
        return [xp.clip(rows + offset, low, high) for offset in offsets]

    def _movable_of(self, rows: Array) -> list[bool]:
        """Tell of each variable whether some problem of the batch can move it."""
        if self._movable is None:
            low, high = self._bounds()
            apart = np.array(True) if self._box is None else host_copy(low < high)
            self._movable = np.any(np.broadcast_to(apart, tuple(rows.shape)), axis=0).tolist()
        movable: list[bool] = self._movable
        return movable


def rounding_of(value: Any, dtype: np.dtype) -> float:
    """Relative rounding of points of a dtype or of what a function returned for them, whichever is coarser."""
    name = dtype_name(getattr(value, "dtype", None))
    return max(float(np.finfo(dtype).eps), _ROUNDING.get(name, 0.0))


def without_fixed(gradient: Array, box: Box, shape: tuple[int, int]) -> Array:
    """Return a gradient by differences with NaN, as SciPy has it, for variables of equal bounds, which have none.

    `shape`: (B, n).
    """
    fixed = host_copy(box.lower == box.upper)
    if not fixed.any():
        return gradient
    xp = namespace_of(gradient)
    mask = copy_to_device_of(np.array(np.broadcast_to(fixed, shape)), gradient)
    return xp.where(xp.reshape(mask, tuple(gradient.shape)), xp.full_like(gradient, math.nan), gradient)


class Workers:
    """A map over points: the caller's, or that of processes, which start when they are needed.

    Parameters
    ----------
    workers : int or callable
        A map, or the number of processes (-1: as many as there are cores).
    """

    def __init__(self, workers: Any) -> None:
        self._map: Callable[..., Iterable[Any]] | None = workers if callable(workers) else None
        self._count = 1 if self._map is not None else int(workers)
        if self._count == 0 or self._count < -1:
            raise RuntimeError(f"workers is {workers!r}; allowed: -1, a whole number of at least 1, or a map")
        if self._map is None and self._count == 1:
            self._map = map
        self._pool: Any = None

    def __call__(self, fun: Callable[[Any], Any], points: Iterator[Any]) -> list[Any]:
        """Return the values of a function at points."""
        if self._map is None:
            import multiprocessing

            self._pool = multiprocessing.Pool(None if self._count == -1 else self._count)
            self._map = self._pool.map
        return list(self._map(fun, points))

    def close(self) -> None:
        """End the processes that were started here."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()
            self._pool = self._map = None


def _points(rows: Array, places: list[Array], movable: list[bool]) -> Iterator[Array]:
    """Yield points of which one variable has moved: one array, overwritten."""
    xp = namespace_of(rows)
    moved = xp.asarray(rows, dtype=places[0].dtype, copy=True)
    for j, free in enumerate(movable):
        if free:
            for place in places:
                moved = with_column(moved, j, place[:, j])
                yield moved
            moved = with_column(moved, j, rows[:, j])


def _along(rows: Array, steps: Any) -> Array:
    """Return a number or one a variable as an array of the points' library that broadcasts against (B, n)."""
    flat = np.asarray(steps, dtype=np.float64).reshape(-1)
    return flat.astype(rows.dtype) if isinstance(rows, np.ndarray) else copy_to_device_of(flat, rows)


def _stacked(column: list[Any], rows: Array) -> Array:
    """Return one value a variable, None standing for 0, of each problem as an array (B, n) of the points' dtype."""
    on_host = isinstance(rows, np.ndarray)
    if on_host or all(value is None or isinstance(value, float) for value in column):
        table = np.zeros(tuple(rows.shape))
        for j, value in enumerate(column):
            if value is not None:
                table[:, j] = value
        return table.astype(rows.dtype, copy=False) if on_host else copy_to_device_of(table, rows)
    xp = namespace_of(rows)
    nothing = xp.zeros_like(rows[:, 0])
    stacked = xp.stack([nothing if value is None else nothing + value for value in column], axis=1)
    return xp.astype(stacked, rows.dtype)


def _quotient(a: Array, gained: Array) -> Array:
    xp = namespace_of(a)
    return xp.where(a != 0, gained / xp.where(a != 0, a, xp.ones_like(a)), xp.zeros_like(a))


def _parabola(a: Array, b: Array, fa: Array, fb: Array) -> Array:
    """Derivative at 0 of the parabola through (0, 0), (a, fa), (b, fb)."""
    xp = namespace_of(a)
    safe = (a != 0) & (b != 0) & (a != b)
    a, b = xp.where(safe, a, xp.ones_like(a)), xp.where(safe, b, -xp.ones_like(b))
    slope = (fa * b / a - fb * a / b) / (b - a)
    return xp.where(safe, slope, xp.zeros_like(a))
