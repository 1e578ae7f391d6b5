"""Values and Jacobians of the caller's model as host arrays, whichever library evaluates it."""

from __future__ import annotations

import functools
from typing import Any, Protocol

import numpy as np

from stepwell.arrays import Array, copy_to_device_of, differentiating_library, of_numpy
from stepwell.common.checks import require
from stepwell.fit.differences import ONE_CALL, JacobianByDifferences
from stepwell.fit.functions import (
    Curve,
    Function,
    Residual,
    as_rows,
    called_jac,
    complex_values,
    jacobian_as_rows,
    on_host,
)
from stepwell.fit.problem import FitProblem
from stepwell.quasi_newton.differences import SCHEMES


class Evaluation(Protocol):
    """What the loop asks."""

    #: Whether rows whose derivatives are not wanted are better left out.
    picks: bool
    #: Relative error of the derivatives, beside that of the values' type.
    accuracy: float

    def values(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the model's values (k, m) at points (k, n)."""

    def jacobian(self, x: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return its derivatives (k, m, n), in any order in memory."""


class Moving(Protocol):
    """An evaluation whose derivatives are forward differences: the engine moves the points and divides."""

    #: Sizes of the parameters (1 or problems, n), below which steps do not shrink with them; None: not this way.
    typical: np.ndarray | None

    def moved_values(self, points: np.ndarray, rows: np.ndarray, columns: int) -> np.ndarray:
        """Return values (columns, k, m) at points (columns * k, n)."""


def evaluation_of(function: Function, jac: Any, problem: FitProblem, steps: Any = None) -> Evaluation:
    """Return who evaluates a model: by the library of the caller's arrays.

    `jac`: None, a scheme of differences, or a callable. `steps`: relative steps of differences.
    """
    named = isinstance(jac, str) and jac in SCHEMES
    require(named or jac is None or callable(jac), "jac", jac, "None, a callable, '2-point', '3-point' or 'cs'")
    if differentiating_library(problem.template) and not named:
        from stepwell.fit.library_evaluation import LibraryEvaluation

        return LibraryEvaluation(function, jac, problem)
    if not of_numpy(problem.template):
        return _OnDevice(function, jac, problem, steps)
    if problem.lone:
        return _Lone(function, jac, problem, steps)
    return _Batch(function, jac, problem, steps)


def typical_sizes(problem: FitProblem) -> np.ndarray:
    """Return sizes of the parameters (problems, n): of the start, or of a narrow box; 1 where nothing tells."""
    start = np.abs(problem.x0)
    if start.all():
        return np.asarray(1e-2 * start)
    with np.errstate(invalid="ignore"):
        width = np.broadcast_to(problem.high - problem.low, problem.x0.shape)
    unknown = np.where(np.isfinite(width) & (width > 0), np.minimum(1.0, width), 1.0)
    return np.where(start > 0, 1e-2 * start, unknown)


class _Batch:
    """NumPy functions of many problems."""

    picks = True

    def __init__(self, function: Function, jac: Any, problem: FitProblem, steps: Any) -> None:
        self._function, self._problem = function, problem
        self._jac = None if not callable(jac) else called_jac(function, jac)
        scheme = jac if isinstance(jac, str) else "2-point"
        self.accuracy = 0.0 if self._jac is not None or scheme == "cs" else 2.0**-26
        self._points: int | None = problem.points or None
        self._scheme, self._steps = scheme, steps
        self._moves = self._jac is None and scheme == "2-point" and steps is None

    @functools.cached_property
    def typical(self) -> np.ndarray | None:
        """Sizes of the parameters where the engine moves the points."""
        return typical_sizes(self._problem) if self._moves else None

    @functools.cached_property
    def _differences(self) -> JacobianByDifferences:
        problem = self._problem
        dtype = np.float32 if problem.single else np.float64
        low, high, typical = (part.astype(dtype) for part in (problem.low, problem.high, typical_sizes(problem)))
        return JacobianByDifferences(self._scheme, self._values, low, high, typical, self._steps)

    def moved_values(self, points: np.ndarray, rows: np.ndarray, columns: int) -> np.ndarray:
        k = len(points) // columns
        points_of_all = self._points or 1
        if len(points) * points_of_all <= ONE_CALL:
            return self._values(points, rows).reshape(columns, k, -1)
        out = None
        for j in range(columns):
            found = self._values(points[j * k : (j + 1) * k], rows[j * k : (j + 1) * k])
            if out is None:
                out = np.empty((columns, *found.shape), found.dtype)
            out[j] = found
        assert out is not None
        return out

    def _values(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return as_rows(self._function(x, rows), len(x), self._points, self._function.told)

    def values(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        found = self._values(x, rows)
        if found.dtype.kind == "c":
            raise complex_values(self._function.told)
        self._points = found.shape[1]
        return found

    def jacobian(self, x: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        if self._jac is not None:
            return jacobian_as_rows(self._jac(x, rows), values, x.shape[1])
        return np.asarray(self._differences(x, rows, values))


#: Numbers of a problem's values and differences up to which they are taken in one call.
AHEAD = 1 << 12


class _Lone(_Batch):
    """One problem, whose function is called with numbers (``curve_fit``) or a vector, as SciPy does.

    Where a curve takes columns as well, and returns the same, derivatives by differences are one call. (It is then
    called with columns throughout: so is one problem of many, whose answer has to have the same bits.)
    """

    def __init__(self, function: Function, jac: Any, problem: FitProblem, steps: Any) -> None:
        super().__init__(function, jac, problem, steps)
        self._one_jac = jac if callable(jac) else None
        self._columns = False
        self._first = True

    @property
    def ahead(self) -> bool:
        """Whether values at a point and at those beside it are to come from one call, where the function can."""
        problem = self._problem
        small = (problem.parameters + 1) * problem.points <= AHEAD
        return small and self._moves and isinstance(self._function, Curve) and problem.y is not None

    def first_values(self, points: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return values at the first of some points or, where the function takes columns, at all of them."""
        self._first = False
        if not self._function.whole:
            return self._compared(points, rows)
        self._columns = True
        return super().values(points, rows)

    def _values(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        if self._columns:
            return as_rows(self._function(x, rows), len(x), self._points, self._function.told)
        if len(x) == 1:
            return self._alone(x[0])[None]
        return np.stack([self._alone(point) for point in x])

    def _alone(self, point: np.ndarray) -> np.ndarray:
        found = np.asarray(self._function.alone(point))
        if found.dtype.kind in "biu":
            found = found.astype(np.float64)
        if found.ndim == 0 and self._points is not None:
            found = np.full(self._points, found)
        if found.ndim != 1 or self._points not in (None, len(found)):
            wanted = "m" if self._points is None else self._points
            told = f"{self._function.told} returned shape {found.shape}"
            raise ValueError(f"{told}; allowed: ({wanted},), one value per point of ydata")
        return found

    def values(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        if self._first:
            self._first = False
            if self._function.whole and isinstance(self._function, Curve):
                self._columns = True
            elif isinstance(self._function, Curve):
                found = self._compared(x, rows)
                if len(found) == len(x):
                    return found
        return super().values(x, rows)

    def _compared(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Find out whether the function takes columns; return values at all points, or where not at the first."""
        several = np.concatenate([x, x[:1] * (1 + 2.0**-10)])
        one = super().values(x[:1], rows)
        try:
            found = np.asarray(self._function(several, np.zeros(len(several), np.int64)))
            if found.shape != (len(several), one.shape[1]) or found.dtype != one.dtype:
                return one
        except Exception:  # whatever a function does that was not written for columns: it is called with numbers
            return one
        ends, alone = found[:: len(x)], np.array([one[0], self._alone(several[-1])])
        apart, size = np.abs([ends - alone, alone]).max(axis=(1, 2))
        if not (apart <= 1e-10 * size or ((np.isnan(ends) == np.isnan(alone)).all() and apart != apart)):
            return one
        self._columns = True
        return found[:-1]

    def jacobian(self, x: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        if self._one_jac is None:
            return np.asarray(self._differences(x, rows, values))
        function = self._function
        if isinstance(function, Residual):
            found = self._one_jac(x[0], *function.args, **function.kwargs)
        elif function.whole:
            assert self._jac is not None
            found = self._jac(x, rows)
        else:
            found = self._one_jac(function.abscissa(0), *x[0])
        return jacobian_as_rows(found, values, x.shape[1])


class _OnDevice(_Batch):
    """Functions of CuPy arrays, and of tensors where differences are asked for: values come to the host."""

    def __init__(self, function: Function, jac: Any, problem: FitProblem, steps: Any) -> None:
        super().__init__(function, jac, problem, steps)
        self._template = problem.template

    def _values(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        found = self._function(self._there(x), self._there(rows))
        return as_rows(on_host(found), len(x), self._points, self._function.told)

    def jacobian(self, x: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        if self._jac is not None:
            found = on_host(self._jac(self._there(x), self._there(rows)))
            return jacobian_as_rows(found, values, x.shape[1])
        return np.asarray(self._differences(x, rows, values))

    def _there(self, array: np.ndarray) -> Array:
        return copy_to_device_of(array, self._template)
