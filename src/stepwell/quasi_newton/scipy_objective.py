"""Values and gradients as `scipy.optimize` takes them for L-BFGS-B.

Its differences are not those of `stepwell.minimize`: ``eps`` is an absolute step, ``finite_diff_rel_step`` is relative
to abs(x) alone, there is a complex step, and the points may be evaluated by workers.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

#: The schemes and the power of the rounding error that is their best relative step.
SCHEMES = {"2-point": 1 / 2, "3-point": 1 / 3, "cs": 1 / 2}


class Scalar:
    """The caller's function of a copy of the point, whose value must be one number. Workers get it pickled."""

    def __init__(self, fun: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.fun, self.args = fun, args

    def __call__(self, x: np.ndarray) -> Any:
        """Return the value at x."""
        return one_number(self.fun(x.copy(), *self.args))


def one_number(value: Any) -> Any:
    """Return a value that is one number, of whatever type or shape; the error has SciPy's words."""
    if np.isscalar(value):
        return value
    try:
        return np.asarray(value).item()
    except (TypeError, ValueError) as error:
        raise ValueError("The user-provided objective function must return a scalar value.") from error


class Evaluation:
    """Value and gradient at a point, counted as SciPy counts them: every point once, differences one by one."""

    def __init__(
        self,
        fun: Callable[..., Any],
        jac: Any,
        args: tuple[Any, ...],
        box: tuple[np.ndarray, np.ndarray] | None,
        eps: Any,
        relative: Any,
        workers: Any,
    ) -> None:
        self._args = args = args if isinstance(args, tuple) else (args,)
        fixed = None if box is None else box[0] == box[1]
        self._fixed = fixed if fixed is not None and fixed.any() else None
        self._points = self.njev = 0
        self.seconds = 0.0
        self.differences: Differences | None = None
        self._pair = self._pair_of(fun, jac)
        self._jac = jac
        self._fun = Scalar(fun, args)
        if self._pair is None and not callable(jac):
            named = isinstance(jac, str) and jac in SCHEMES
            self.differences = Differences(
                self._fun,
                jac if named else "2-point",
                box,
                absolute=None if named else eps,
                relative=relative,
                workers=workers,
            )

    @staticmethod
    def _pair_of(fun: Any, jac: Any) -> Callable[..., Any] | None:
        """Return the function that returns value and gradient, if there is one.

        With ``jac=True``, SciPy hands on an object that remembers the pair at its last point, and its method: asked
        directly, the function spares a copy and a comparison of each point.
        """
        pair: Any = None
        if isinstance(jac, bool | np.bool_):
            pair = fun if jac else None
        elif type(fun).__name__ == "MemoizeJac" and getattr(jac, "__self__", None) is fun:
            pair = getattr(fun, "fun", None)
        return pair if callable(pair) else None

    @property
    def nfev(self) -> int:
        """How often the function was called, or the pair."""
        return self._points + (0 if self.differences is None else self.differences.calls)

    def __call__(self, x: np.ndarray) -> tuple[Any, np.ndarray]:
        """Return value and gradient at a point, which is copied."""
        began = time.perf_counter()
        self._points += 1
        self.njev += 1
        x = np.array(x)
        if self._pair is not None:
            pair = self._pair(x, *self._args)
            f, g = one_number(pair[0]), pair[1]
        else:
            f = self._fun(x)
            g = self._jac(x, *self._args) if self.differences is None else self.differences(x, f)
        gradient = np.asarray(g)
        if gradient.shape != x.shape and gradient.size == x.size:
            gradient = gradient.reshape(x.shape)
        if self._fixed is not None and gradient.shape == x.shape:
            # What is not known along a variable that cannot move is not needed either.
            gradient = np.array(gradient, dtype=float)
            gradient[self._fixed & ~np.isfinite(gradient)] = 0.0
        self.seconds += time.perf_counter() - began
        return f, gradient

    def unknown(self, gradient: np.ndarray) -> np.ndarray:
        """Return a gradient with NaN for what differences have left out."""
        if self.left_out:
            gradient[self._fixed] = np.nan
        return gradient

    @property
    def left_out(self) -> bool:
        """Whether differences have left out fixed variables."""
        return self.differences is not None and self._fixed is not None

    def close(self) -> None:
        """End what was started for differences."""
        if self.differences is not None:
            self.differences.close()


class Differences:
    """The gradient of a function by differences along the variables that are not fixed.

    Parameters
    ----------
    fun : Scalar
        The function.
    scheme : {"2-point", "3-point", "cs"}
        Forward (or backward) differences, central ones, or complex steps.
    bounds : (lower, upper) or None
        Real points stay inside.
    absolute, relative : float or array, optional
        The step, or the step divided by abs(x); without either the best one for the scheme. Where a step is lost in
        rounding, that one is taken, too.
    workers : int or callable
        A map, or the number of processes (-1: as many as there are cores).
    """

    def __init__(
        self,
        fun: Scalar,
        scheme: str,
        bounds: tuple[np.ndarray, np.ndarray] | None,
        *,
        absolute: Any = None,
        relative: Any = None,
        workers: Any = None,
    ) -> None:
        self._fun, self._scheme, self._bounds = fun, scheme, bounds
        self._absolute, self._relative = absolute, relative
        self._pool, self._map = _as_map(workers)
        self.calls = 0

    def close(self) -> None:
        """End the processes that were started here."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()

    def __call__(self, x: np.ndarray, f: Any) -> np.ndarray:
        """Return the gradient at x, where the value is f; zero along fixed variables."""
        step = self._steps(x, f)
        free = np.arange(x.size)
        if self._bounds is None:
            low, high = np.full(x.size, -np.inf), np.full(x.size, np.inf)
        else:
            low, high = self._bounds
            free = np.flatnonzero(low < high)
        if self._scheme == "cs":
            offsets = 1j * step[None]
        elif self._scheme == "2-point":
            offsets = _one_sided(x, step, low, high)[None]
        else:
            offsets = _two_sided(x, step, low, high)

        def points() -> Iterator[np.ndarray]:
            for j in free:
                for offset in offsets:
                    moved = x.astype(offset.dtype) if offset.dtype.kind == "c" else x.copy()
                    moved[j] += offset[j]
                    yield moved

        values = np.array(list(self._map(self._fun, points()))).reshape(free.size, len(offsets)).T
        self.calls += values.size
        gradient = np.zeros(x.size)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # the engine deals with what is not finite
            if self._scheme == "cs":
                gradient[free] = values[0].imag / step[free]
            else:
                moved = [(x[free] + offset[free]) - x[free] for offset in offsets]  # what rounding leaves of the steps
                gradient[free] = _slope(float(f), moved, values)
        return gradient

    def _steps(self, x: np.ndarray, f: Any) -> np.ndarray:
        """Return the step along each variable, before it meets the bounds."""
        rounding = np.finfo(x.dtype).eps
        if getattr(f, "dtype", x.dtype).kind == "f":
            rounding = max(rounding, np.finfo(getattr(f, "dtype", x.dtype)).eps)
        sign = np.where(x >= 0, 1.0, -1.0)
        size = np.abs(x)
        best: np.ndarray = float(rounding) ** SCHEMES[self._scheme] * sign * np.maximum(1.0, size)
        if self._absolute is not None:
            step = np.broadcast_to(np.asarray(self._absolute, dtype=float), x.shape)
        elif self._relative is not None:
            step = np.asarray(self._relative, dtype=float) * sign * size
        else:
            return best
        return np.where((x + step.astype(x.dtype)) - x == 0, best, step)


def _as_map(workers: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the processes started, if any, and a map over them."""
    if workers is None:
        return None, map
    if callable(workers):
        return None, workers
    count = int(workers)
    if count == 1:
        return None, map
    if count == 0 or count < -1:
        raise RuntimeError(f"workers is {workers!r}; allowed: -1, a whole number of at least 1, or a map")
    pool = multiprocessing.Pool(None if count == -1 else count)
    return pool, pool.map


def _one_sided(x: np.ndarray, step: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Turn a step that would leave the bounds; where neither side has its length, go to the farther bound."""
    below, above = x - low, high - x
    outside = (x + step < low) | (x + step > high)
    fits = np.abs(step) <= np.maximum(below, above)
    farther = np.where(above >= below, above, -below)
    return np.where(fits, np.where(outside, -step, step), farther)


def _two_sided(x: np.ndarray, step: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Two offsets each: to both sides, or h and 2h to one side where that allows the longer step."""
    step = np.abs(step)
    below, above = x - low, high - x
    nearer = np.minimum(below, above)
    aside = np.minimum(step, np.maximum(below, above) / 2)
    central = nearer >= aside
    reach = np.where(central, np.minimum(step, nearer), np.where(above >= below, aside, -aside))
    return np.array([reach, np.where(central, -reach, 2 * reach)])


def _slope(f: float, moved: list[np.ndarray], values: np.ndarray) -> np.ndarray:
    """Return the derivative at 0 of the line or the parabola through f at 0 and the values at the offsets."""
    if len(moved) == 1:
        return np.asarray((values[0] - f) / moved[0])
    a, b = moved
    # Where b = -a, the parabola's slope is the central difference: that formula does not touch f.
    central = (values[0] - values[1]) / (a - b)
    parabola = ((values[0] - f) * b / a - (values[1] - f) * a / b) / (b - a)
    return np.asarray(np.where(np.sign(a) == np.sign(b), parabola, central))
