"""The caller's objective, in whatever form it was given, as one function of the trial point.

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
    is_like,
    kind_of,
    lent,
    namespace_of,
    scalar_of,
    with_column,
)
from stepwell.checks import read_host_array, require, require_function, require_shape

_DIFFERENCES = ("2-point", "3-point")
#: Rounding of values that are coarser than doubles, by the name of their dtype.
_ROUNDING = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def _leaving_alone(function: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    """Refuse a function that writes to its point: PyTorch's tensors cannot be read-only, but count changes."""

    def called(point: Any) -> Any:
        before = 0 if point.is_inference() else point._version
        out = function(point)
        if not point.is_inference() and point._version != before:
            raise ValueError(f"{name} changed x in place, which is the solver's; allowed: changing a copy (x.clone())")
        return out

    return called


class Objective:
    """Evaluates f and its gradient at host points and counts what it does.

    Parameters
    ----------
    fun, jac, args
        As in `stepwell.minimize`.
    template : array
        An array of the caller's kind; `fun` is called with arrays of that kind and of ``shape``.
    shape : tuple
        Shape of the points that `fun` sees: that of x0, (B, n) for a batch.
    dtype : dtype
        float64 or float32.
    bounds : (lower, upper) or None
        Finite differences stay inside.
    batch : bool
        `fun` maps (B, n) to (B,).
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        jac: Any,
        args: tuple[Any, ...],
        template: Array,
        shape: tuple[int, ...],
        dtype: np.dtype,
        bounds: tuple[np.ndarray, np.ndarray] | None,
        *,
        batch: bool = False,
        rel_step: float | None = None,
    ) -> None:
        require_function("fun", fun, optional=False)
        good = jac is None or isinstance(jac, bool | np.bool_) or callable(jac)
        good = good or (isinstance(jac, str) and jac in _DIFFERENCES)  # an array would be compared element by element
        require(good, "jac", jac, "None, True, a callable, '2-point' or '3-point'")
        self._args = args
        self._template, self._shape, self._dtype = template, shape, dtype
        self._bounds, self._batch, self._rel_step = bounds, batch, rel_step
        self._kind = kind_of(template)
        self._fun: Callable[[Any], Any] = (lambda x: fun(x, *args)) if args else fun
        self._jac: Any = (lambda x: jac(x, *args)) if args and callable(jac) else jac
        if self._kind == "torch":
            self._fun = _leaving_alone(self._fun, "fun")
            self._jac = _leaving_alone(self._jac, "jac") if callable(self._jac) else self._jac
        self.nfev = self.njev = 0
        self.seconds = 0.0
        self._pair = self._choose()
        #: Whether the gradient is made of many evaluations.
        self.differenced = self._pair == self._by_differences

    def __call__(self, x: np.ndarray) -> tuple[Any, np.ndarray]:
        """Return f (a float; for a batch, a (B,) float64 array) and g (flat host array) at a host point."""
        start = time.perf_counter()
        self.nfev += 1
        f, g = self._pair(x)
        f = self._values(f)
        g = self._gradient(g)
        self.seconds += time.perf_counter() - start
        return f, g

    def spent(self, maxfun: float) -> bool:
        """Whether differences have used up the calls allowed; the engine counts points, of which each takes several."""
        return self.differenced and self.nfev >= maxfun

    @property
    def calls_a_point(self) -> int:
        """How often `fun` was called for one value and gradient: more than once where it is differenced."""
        return self.nfev // self.njev if self.differenced and self.njev else 1

    def kindly(self, x: np.ndarray) -> Array:
        """Return a host point as the caller's kind of array, in the caller's shape."""
        return lent(x.reshape(self._shape), self._template)

    def _choose(self) -> Callable[[np.ndarray], tuple[Any, Any]]:
        fun, jac, kindly = self._fun, self._jac, self.kindly
        if callable(jac):

            def separate(x: np.ndarray) -> tuple[Any, Any]:
                point = kindly(x)
                value = fun(point)
                self.njev += 1
                return value, jac(point)

            return separate
        if jac is not None and not isinstance(jac, str) and bool(jac):

            def together(x: np.ndarray) -> tuple[Any, Any]:
                self.njev += 1
                out = fun(kindly(x))
                try:
                    value, gradient = out
                except (TypeError, ValueError):
                    raise TypeError(
                        f"fun returned {type(out).__name__}; with jac=True it must return a pair (f, gradient)"
                    ) from None
                return value, gradient

            return together
        if jac not in _DIFFERENCES and self._kind == "torch":
            return self._by_torch
        if jac not in _DIFFERENCES and self._kind == "jax":
            return self._by_jax()
        return self._by_differences

    def _by_torch(self, x: np.ndarray) -> tuple[Any, Any]:
        import torch

        self.njev += 1
        point = self.kindly(x).detach().requires_grad_()
        with torch.enable_grad():
            value = self._fun(point)
            if not (isinstance(value, torch.Tensor) and value.requires_grad):
                what = "a tensor without a graph" if isinstance(value, torch.Tensor) else type(value).__name__
                raise TypeError(
                    f"fun returned {what}; without jac PyTorch differentiates it: return a tensor computed from x, "
                    "or give jac"
                )
            (gradient,) = torch.autograd.grad(value.sum() if self._batch else value, point)
        return value.detach(), gradient

    def _by_jax(self) -> Callable[[np.ndarray], tuple[Any, Any]]:
        import jax

        if self._batch:

            def total(point: Any) -> tuple[Any, Any]:
                values = self._fun(point)
                return values.sum(), values

            derivative = jax.value_and_grad(total, has_aux=True)
        else:
            derivative = jax.value_and_grad(self._fun)

        def evaluate(x: np.ndarray) -> tuple[Any, Any]:
            self.njev += 1
            value, gradient = derivative(self.kindly(x))
            return (value[1] if self._batch else value), gradient

        return evaluate

    def _by_differences(self, x: Array) -> tuple[Any, Any]:
        self.njev += 1
        value = self._fun(self.kindly(x))
        epsilon = self._rounding(value)
        value = self._values(value)
        f = self._comparable(value)
        central = self._jac == "3-point"
        rows = self._rows(x)
        xp = namespace_of(rows)
        # Steps balance truncation against rounding: eps^(1/2), and eps^(1/3) for central differences.
        relative = self._rel_step or epsilon ** (1 / 3 if central else 1 / 2)
        size = relative * xp.maximum(xp.ones_like(rows), xp.abs(rows))
        step = xp.where(rows >= 0, size, -size)
        if self._bounds is None:
            low, high = xp.full_like(rows, -np.inf), xp.full_like(rows, np.inf)
        else:
            low, high = (xp.broadcast_to(bound, rows.shape) for bound in self._bounds)
        if central:
            first, second = self._stencil(rows, step, low, high)
        else:
            # Forward or, where the bound is near, backward; as long as the longer side at most.
            fits = (rows + step >= low) & (rows + step <= high)
            up = high - rows >= rows - low
            first = xp.clip(rows + xp.where(fits, step, xp.where(up, xp.abs(step), -xp.abs(step))), low, high)
        moved, gradient = xp.asarray(rows, copy=True), xp.zeros_like(rows)
        for j in range(rows.shape[1]):
            moved = with_column(moved, j, first[:, j])
            a, fa = first[:, j] - rows[:, j], self._at(moved)
            if central:
                moved = with_column(moved, j, second[:, j])
                b, fb = second[:, j] - rows[:, j], self._at(moved)
                slope = self._parabola(f, a, fa, b, fb)
            else:
                slope = self._quotient(f, a, fa)
            gradient = with_column(gradient, j, slope)
            moved = with_column(moved, j, rows[:, j])
        return value, xp.reshape(gradient, self._shape)

    def _rounding(self, value: Any) -> float:
        """Relative rounding of x or of what `fun` returns for it, whichever is coarser."""
        name = str(getattr(value, "dtype", "")).rpartition(".")[2]
        return max(float(np.finfo(self._dtype).eps), _ROUNDING.get(name, 0.0))

    @staticmethod
    def _quotient(f: Any, h: Array, moved: Any) -> Array:
        # A variable without room is fixed: its derivative does not matter.
        xp = namespace_of(h)
        with np.errstate(invalid="ignore", over="ignore"):  # f may be infinite: the engine deals with that
            return xp.where(h != 0, (moved - f) / xp.where(h != 0, h, xp.ones_like(h)), xp.zeros_like(h))

    @staticmethod
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

    @staticmethod
    def _parabola(f: Any, a: Array, fa: Any, b: Array, fb: Any) -> Array:
        """Derivative at 0 of the parabola through (0, f), (a, fa), (b, fb)."""
        xp = namespace_of(a)
        safe = (a != 0) & (b != 0) & (a != b)
        a, b = xp.where(safe, a, xp.ones_like(a)), xp.where(safe, b, -xp.ones_like(b))
        with np.errstate(invalid="ignore", over="ignore"):
            slope = ((fa - f) * b / a - (fb - f) * a / b) / (b - a)
        return xp.where(safe, slope, xp.zeros_like(a))

    def _at(self, rows: Array) -> Any:
        self.nfev += 1
        return self._comparable(self._values(self._fun(self.kindly(rows if self._batch else rows[0]))))

    def _rows(self, x: Array) -> Array:
        """Return points as (B, n)."""
        return x.reshape(-1, x.shape[-1])

    def _comparable(self, values: Any) -> Any:
        """Return checked values in a form that can be subtracted and divided by (B,) arrays of x's library."""
        return values

    def _values(self, f: Any) -> Any:
        if not self._batch:
            return f if type(f) is float else scalar_of(f)
        values = read_host_array("f", f)
        if values.shape != (self._shape[0],):
            raise ValueError(f"fun returned values of shape {values.shape}; allowed: ({self._shape[0]},)")
        return values

    def _gradient(self, g: Any) -> np.ndarray:
        gradient: np.ndarray = g if type(g) is np.ndarray else read_host_array("the gradient", g, self._dtype)
        if gradient.dtype != self._dtype or not gradient.flags.c_contiguous:
            gradient = read_host_array("the gradient", gradient, self._dtype)
        if gradient.shape != self._shape:
            require_shape(is_like(gradient.shape, self._shape), "the gradient", gradient, self._shape)
        return gradient
