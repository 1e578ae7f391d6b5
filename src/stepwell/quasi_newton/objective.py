"""The caller's objective, in whatever form it was given, as one function of the trial points.

``jac`` may be a callable, ``True`` (fun returns value and gradient), a scheme of differences, or missing: then PyTorch
and JAX differentiate, and NumPy and CuPy functions are differenced at points inside the bounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stepwell.arrays import (
    Array,
    compiled,
    copy_to_device_of,
    host_copy,
    is_compiled,
    is_cuda,
    namespace_of,
    refusing_writes,
    same_library,
    scalar_of,
    value_and_gradient,
    wait_for_values,
)
from stepwell.common.checks import require, require_function, warn_caller
from stepwell.quasi_newton.differences import SCHEMES, Differences, Workers, rounding_of
from stepwell.quasi_newton.target import Box, Target
from stepwell.quasi_newton.variables import Points, Variables, refuse_within_transformations

#: Variables from which on a gradient by differences, which nobody asked for, is worth a word.
MANY = 1000
_PAIR = "fun returned a pair; did you mean jac=True?"


def _one(value: Any) -> Any:
    """Return a value, which is not a pair."""
    if isinstance(value, tuple | list) and len(value) == 2:
        raise TypeError(_PAIR)
    return value


def _one_a_row(values: Any) -> Any:
    """Return values, which are not a pair: two values of a batch of two are none."""
    if isinstance(values, tuple | list) and len(values) == 2 and np.ndim(values[1]) > 1:
        raise TypeError(_PAIR)
    return values


def _compiled_pair(fun: Callable[[Any], Any], jac: Any, template: Array) -> tuple[Callable[[Any], Any], Any]:
    """Return a function and its gradient compiled: both together, as ``jac=True``, where both are given."""
    whole = (lambda x: (fun(x), jac(x))) if callable(jac) else fun
    function = compiled(whole, template)
    require(function is not None, "options['jit']", True, "False where x0 is no JAX array")
    assert function is not None
    return function, True if callable(jac) else jac


class WithArgs:
    """A function of the point alone, made of one that takes more arguments. Workers get it pickled."""

    def __init__(self, fun: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.fun, self.args = fun, args

    def __call__(self, x: Array) -> Any:
        """Call the function with the point and its other arguments."""
        return self.fun(x, *self.args)


def _compiles(fun: Any, template: Array) -> bool:
    return is_compiled(fun.fun if isinstance(fun, WithArgs) else fun, template)


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
        Of finite differences; where both are given, a scheme by its name takes the relative one, as in SciPy.
    workers : int or callable, optional
        Who evaluates the points of differences: processes, or a map.
    zero_copy : bool
        Hand out views, which the solver overwrites, instead of copies.
    jit : bool
        Let JAX compile what is evaluated.
    threads : int
        Who copies the points: those that have made them.
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
        workers: Any = None,
        zero_copy: bool = False,
        jit: bool = False,
        threads: int = 1,
    ) -> None:
        require_function("fun", fun, optional=False)
        named = isinstance(jac, str) and jac in SCHEMES  # an array would be compared element by element
        good = named or jac is None or isinstance(jac, bool | np.bool_) or callable(jac)
        require(good, "jac", jac, "None, True, a callable, '2-point', '3-point' or 'cs'")
        self._variables = variables
        self._no_pair = _one_a_row if variables.is_batch else _one
        self._fun: Callable[[Any], Any] = WithArgs(fun, args) if args else fun
        self._jac: Any = WithArgs(jac, args) if args and callable(jac) else jac
        if jit:
            self._fun, self._jac = _compiled_pair(self._fun, self._jac, variables.template)
        self._compiled = all(_compiles(one, variables.template) for one in (self._fun, self._jac) if callable(one))
        self._zero_copy, self._threads = zero_copy, threads
        self._points = self._points_of(variables)
        self._workers = None if workers is None else Workers(workers)
        self._mapped = self._fun
        if zero_copy or variables.on_device:
            self._fun = refusing_writes(self._fun, "fun", variables.template)
            if callable(self._jac):
                self._jac = refusing_writes(self._jac, "jac", variables.template)
        self.nfev = self.njev = 0
        self._differences: Differences | None = None
        self.seconds = 0.0
        if named and relative_step is not None:
            absolute_step = None
        # Not bound to this object, which would hold itself, and with it the caller's data, until garbage is collected.
        self._pair = self._choose(box, relative_step, absolute_step, workers)
        #: Whether the gradient is made of many evaluations.
        self.differenced = self._pair is Objective._by_differences

    def __call__(self, trial: Array) -> tuple[Any, Array]:
        """Return f (a float, or an array of one value a problem) and g (an array), checked, at trial points."""
        start = time.perf_counter()
        self.nfev += 1
        f, g = self._pair(self, trial)
        f = self._variables.read_values(f)
        g = self._variables.read_gradient(g)
        if self._variables.on_device:
            wait_for_values(g)  # the turn would wait for it anyway; so its time counts as the objective's
        self._points.settle()
        self.seconds += time.perf_counter() - start
        return f, g

    def _points_of(self, variables: Variables) -> Points:
        return Points(variables, self._zero_copy, self._compiled, self._threads)

    def follow(self, target: Target) -> None:
        """Take points from the turns of a target, where these can leave them."""
        self._points.follow(target)

    def serve(self, variables: Variables, box: Box | None, rows: np.ndarray | None = None) -> None:
        """Go on with other variables: fewer problems of the same kind, of whose trial points `rows` are to be taken."""
        self._variables = variables
        if rows is None:
            self._points = self._points_of(variables)
        else:
            self._points.serve(variables, rows)
        if self._differences is not None:
            self._differences = self._differences.within(box)

    def value_again(self, points: Array) -> float:
        """Return f at a point where it was evaluated before; not counted."""
        found = self._fun(self._points(points))
        return scalar_of(host_copy(found[0] if self._pair is Objective._together else found))

    def spent(self, maxfun: float) -> bool:
        """Whether differences have used up the calls allowed; the engine counts points, of which each takes several."""
        return self.differenced and self.nfev >= maxfun

    def replayed(self, times: int) -> None:
        """Count evaluations that were made by a captured graph."""
        self.nfev += times
        self.njev += times

    def close(self) -> None:
        """End the processes that were started for differences, and give points up."""
        self._points.leave()
        if self._workers is not None:
            self._workers.close()

    @property
    def rows_evaluated(self) -> int:
        """Points at which `fun` was evaluated: of each problem in every call."""
        return self.nfev * self._variables.problems

    @property
    def calls_a_point(self) -> int:
        """How often `fun` was called for one value and gradient: more than once where it is differenced."""
        return self.nfev // self.njev if self.differenced and self.njev else 1

    def _choose(
        self, box: Box | None, relative: Any, absolute: Any, workers: Any
    ) -> Callable[[Objective, Array], tuple[Any, Any]]:
        jac = self._jac
        if callable(jac):
            return Objective._separately
        if jac is not None and not isinstance(jac, str) and bool(jac):
            return Objective._together
        batch, template = self._variables.is_batch, self._variables.template
        derivative = (
            None if isinstance(jac, str) else value_and_gradient(self._fun, template, batch=batch, read=self._no_pair)
        )
        if derivative is not None:
            refuse_within_transformations(template)
            self._derivative = derivative
            return Objective._by_library
        self._complex = jac == "cs"
        plain = same_library(template, np.empty(0))
        require(plain or not self._complex, "jac", jac, "'2-point' or '3-point' where x0 is no NumPy array")
        require(plain or workers is None, "workers", workers, "None where x0 is no NumPy array")
        for name, steps in (("finite_diff_rel_step", relative), ("eps", absolute)):
            fits = steps is None or np.size(steps) in (1, self._variables.size)
            require(fits, name, np.shape(steps), f"a number or {self._variables.size} of them")
        scheme = jac if isinstance(jac, str) else "2-point"
        if jac is None and self._variables.size >= MANY:
            warn_caller(
                f"there is no jac: each gradient takes {self._variables.size:,} evaluations of fun, by differences; "
                "give jac, or jac='2-point' if that is meant"
            )
        self._differences = Differences(scheme, box, relative=relative, absolute=absolute)
        return Objective._by_differences

    def _separately(self, x: Array) -> tuple[Any, Any]:
        value = self._fun(self._points(x))
        self.njev += 1
        return value, self._jac(self._points(x))  # a copy of its own: fun may have changed the first one

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
        return self._no_pair(self._fun(point))

    def _by_library(self, x: Array) -> tuple[Any, Any]:
        self.njev += 1
        return self._derivative(self._points(x))

    def _by_differences(self, x: Array) -> tuple[Any, Any]:
        self.njev += 1
        found = self._value(self._points(x))
        value = self._variables.read_values(found)
        rows = namespace_of(x).reshape(x, (self._variables.problems, self._variables.size))
        base = self._comparable(value)
        assert self._differences is not None
        gradient = self._differences.gradient(
            rows, lambda points: self._rises(points, base), rounding_of(found, self._variables.dtype)
        )
        return value, namespace_of(gradient).reshape(gradient, self._variables.shape)

    def _rises(self, points: Iterator[Array], base: Any) -> list[Any]:
        if self._workers is None:
            return [self._rise(self._value(self._points(rows)), base) for rows in points]
        copies = (np.array(rows).reshape(self._variables.shape) for rows in points)
        return [self._rise(self._no_pair(value), base) for value in self._workers(self._mapped, copies)]

    def _rise(self, found: Any, base: Any) -> Any:
        self.nfev += 1
        if self._complex:
            return self._comparable(self._variables.read_values(np.imag(found)))
        with np.errstate(invalid="ignore", over="ignore"):  # f may be infinite: the engine deals with that
            return self._comparable(self._variables.read_values(found)) - base

    def _comparable(self, values: Any) -> Any:
        """Return checked values in a form that can be subtracted and divided by (B,) arrays of the points' library."""
        if is_cuda(values):
            return namespace_of(values).reshape(values, (-1,))
        if self._variables.on_device and isinstance(values, np.ndarray):
            return copy_to_device_of(values, self._variables.template)
        return values
