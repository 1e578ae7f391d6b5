"""The caller's objective, in whatever form it was given, as one function of the trial points.

``jac`` may be a callable, ``True`` (fun returns value and gradient), or missing: then PyTorch and JAX differentiate,
and NumPy and CuPy functions are differenced at points inside the bounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import Array, is_cuda, kind_of, namespace_of, to_like
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
        self._kind = kind_of(variables.template)
        self._points = Points(variables, zero_copy)
        self._fun: Callable[[Any], Any] = (lambda x: fun(x, *args)) if args else fun
        self._jac: Any = (lambda x: jac(x, *args)) if args and callable(jac) else jac
        if self._kind == "torch" and (zero_copy or variables.on_device):
            self._fun = _leaving_alone(self._fun, "fun")
            self._jac = _leaving_alone(self._jac, "jac") if callable(self._jac) else self._jac
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
        if self._kind == "jax" and self._variables.on_device:
            g.block_until_ready()  # the turn would wait for it anyway; so its time counts as the objective's
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
        if jac not in _DIFFERENCES and self._kind == "torch":
            return self._by_torch
        if jac not in _DIFFERENCES and self._kind == "jax":
            return self._by_jax()
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

    def _by_torch(self, x: Array) -> tuple[Any, Any]:
        import torch

        self.njev += 1
        point = self._points(x).detach().requires_grad_()
        with torch.enable_grad():
            value = self._value(point)
            if not (isinstance(value, torch.Tensor) and value.requires_grad):
                what = "a tensor without a graph" if isinstance(value, torch.Tensor) else type(value).__name__
                raise TypeError(
                    f"fun returned {what}; without jac PyTorch differentiates it: return a tensor computed from x, "
                    "or give jac"
                )
            (gradient,) = torch.autograd.grad(value.sum() if self._variables.is_batch else value, point)
        return value.detach(), gradient

    def _by_jax(self) -> Callable[[Array], tuple[Any, Any]]:
        import jax

        batch = self._variables.is_batch
        if batch:

            def total(point: Any) -> tuple[Any, Any]:
                values = self._value(point)
                return values.sum(), values

            derivative = jax.value_and_grad(total, has_aux=True)
        else:
            derivative = jax.value_and_grad(self._value)

        def evaluate(x: Array) -> tuple[Any, Any]:
            self.njev += 1
            value, gradient = derivative(self._points(x))
            return (value[1] if batch else value), gradient

        return evaluate

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
            return to_like(values, self._variables.template)
        return values


def _leaving_alone(function: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    """Refuse a function that writes to the solver's point: PyTorch's tensors cannot be read-only, but count changes."""

    def called(point: Any) -> Any:
        before = 0 if point.is_inference() else point._version
        out = function(point)
        if not point.is_inference() and point._version != before:
            raise ValueError(f"{name} changed x in place, which is the solver's; allowed: changing a copy (x.clone())")
        return out

    return called
