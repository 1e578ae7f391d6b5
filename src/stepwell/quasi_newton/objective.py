"""The caller's objective, in whatever form it was given, as one function of the trial points.

``jac`` may be a callable, ``True`` (fun returns value and gradient), or missing: then PyTorch and JAX differentiate,
and NumPy and CuPy functions are differenced at points inside the bounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import (
    Array,
    copy_to_device_of,
    is_cuda,
    namespace_of,
    refusing_writes,
    value_and_gradient,
    wait_for_values,
)
from stepwell.checks import require, require_function
from stepwell.quasi_newton.differences import Differences, rounding_of
from stepwell.quasi_newton.target import Box
from stepwell.quasi_newton.variables import Points, Variables

_DIFFERENCES = ("2-point", "3-point")
_PAIR = "fun returned a pair; did you mean jac=True?"


class Objective:
    """Evaluates f and its gradient at trial points and counts what it does.

    Parameters
    ----------
    fun, jac, args
        As in `stepwell.minimize`.
    variables : Variables
        What `fun` is called with.
    box : Box or None
        Finite differences stay inside.
    relative_step, absolute_step : optional
        Of finite differences.
    zero_copy : bool
        Hand out views, which the solver overwrites, instead of copies.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        jac: Any,
        args: tuple[Any, ...],
        variables: Variables,
        box: Box | None,
        *,
        relative_step: Any = None,
        absolute_step: Any = None,
        zero_copy: bool = False,
    ) -> None:
        require_function("fun", fun, optional=False)
        good = jac is None or isinstance(jac, bool | np.bool_) or callable(jac)
        good = good or (isinstance(jac, str) and jac in _DIFFERENCES)  # an array would be compared element by element
        require(good, "jac", jac, "None, True, a callable, '2-point' or '3-point'")
        self._variables = variables
        self._points = Points(variables, zero_copy)
        self._fun: Callable[[Any], Any] = (lambda x: fun(x, *args)) if args else fun
        self._jac: Any = (lambda x: jac(x, *args)) if args and callable(jac) else jac
        if zero_copy or variables.on_device:
            self._fun = refusing_writes(self._fun, "fun", variables.template)
            if callable(self._jac):
                self._jac = refusing_writes(self._jac, "jac", variables.template)
        self.nfev = self.njev = 0
        self.seconds = 0.0
        self._pair = self._choose(box, relative_step, absolute_step)
        #: Whether the gradient is made of many evaluations.
        self.differenced = self._pair == self._by_differences

    def __call__(self, trial: Array) -> tuple[Any, Array]:
        """Return f (a float, or an array of one value a problem) and g (an array), checked, at trial points."""
        start = time.perf_counter()
        self.nfev += 1
        f, g = self._pair(trial)
        f = self._variables.read_values(f)
        g = self._variables.read_gradient(g)
        if self._variables.on_device:
            wait_for_values(g)  # the turn would wait for it anyway; so its time counts as the objective's
        self.seconds += time.perf_counter() - start
        return f, g

    def spent(self, maxfun: float) -> bool:
        """Whether differences have used up the calls allowed; the engine counts points, of which each takes several."""
        return self.differenced and self.nfev >= maxfun

    @property
    def calls_a_point(self) -> int:
        """How often `fun` was called for one value and gradient: more than once where it is differenced."""
        return self.nfev // self.njev if self.differenced and self.njev else 1

    def _choose(self, box: Box | None, relative: Any, absolute: Any) -> Callable[[Array], tuple[Any, Any]]:
        jac = self._jac
        if callable(jac):
            return self._separately
        if jac is not None and not isinstance(jac, str) and bool(jac):
            return self._together
        batch, template = self._variables.is_batch, self._variables.template
        derivative = None if jac in _DIFFERENCES else value_and_gradient(self._value, template, batch=batch)
        if derivative is not None:
            self._derivative = derivative
            return self._by_library
        central = self._jac == "3-point"
        self._differences = Differences(self._at, central=central, box=box, relative=relative, absolute=absolute)
        return self._by_differences

    def _separately(self, x: Array) -> tuple[Any, Any]:
        point = self._points(x)
        value = self._fun(point)
        self.njev += 1
        return value, self._jac(point)

    def _together(self, x: Array) -> tuple[Any, Any]:
        self.njev += 1
        out = self._fun(self._points(x))
        try:
            value, gradient = out
        except (TypeError, ValueError):
            raise TypeError(
                f"fun returned {type(out).__name__}; with jac=True it must return a pair (f, gradient)"
            ) from None
        return value, gradient

    def _value(self, point: Array) -> Any:
        """Return what fun alone returns at a point, which is not a pair."""
        value = self._fun(point)
        if isinstance(value, tuple | list) and len(value) == 2:
            raise TypeError(_PAIR)
        return value

    def _by_library(self, x: Array) -> tuple[Any, Any]:
        self.njev += 1
        return self._derivative(self._points(x))

    def _by_differences(self, x: Array) -> tuple[Any, Any]:
        self.njev += 1
        found = self._value(self._points(x))
        value = self._variables.read_values(found)
        rows = namespace_of(x).reshape(x, (self._variables.problems, self._variables.size))
        gradient = self._differences.gradient(rows, self._comparable(value), rounding_of(found, self._variables.dtype))
        return value, namespace_of(gradient).reshape(gradient, self._variables.shape)

    def _at(self, rows: Array) -> Any:
        self.nfev += 1
        return self._comparable(self._variables.read_values(self._value(self._points(rows))))

    def _comparable(self, values: Any) -> Any:
        """Return checked values in a form that can be subtracted and divided by (B,) arrays of the points' library."""
        if is_cuda(values):
            return namespace_of(values).reshape(values, (-1,))
        if self._variables.on_device and isinstance(values, np.ndarray):
            return copy_to_device_of(values, self._variables.template)
        return values
