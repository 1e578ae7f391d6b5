"""The caller's objective, in whatever form it was given, as one function of the trial point.

``jac`` may be a callable, ``True`` (fun returns value and gradient), or missing: then PyTorch and JAX differentiate,
and NumPy functions are differenced at points inside the bounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import Array, host_view, in_kind, is_like, kind_of, scalar_of

_DIFFERENCES = ("2-point", "3-point")


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
        if not callable(fun):
            raise TypeError(f"fun is {fun!r}; allowed: a callable fun(x, *args)")
        if not (jac is None or isinstance(jac, bool | np.bool_) or callable(jac) or jac in _DIFFERENCES):
            raise ValueError(f"jac is {jac!r}; allowed: None, True, a callable, '2-point' or '3-point'")
        self._args = args
        self._template, self._shape, self._dtype = template, shape, dtype
        self._bounds, self._batch, self._rel_step = bounds, batch, rel_step
        self._kind = kind_of(template)
        self._fun: Callable[[Any], Any] = (lambda x: fun(x, *args)) if args else fun
        self._jac: Any = (lambda x: jac(x, *args)) if args and callable(jac) else jac
        self.nfev = self.njev = 0
        self.seconds = 0.0
        self._pair = self._choose()

    def __call__(self, x: np.ndarray) -> tuple[Any, np.ndarray]:
        """Return f (a float; for a batch, a (B,) float64 array) and g (flat host array) at a host point."""
        start = time.perf_counter()
        self.nfev += 1
        f, g = self._pair(x)
        f = self._values(f)
        g = self._gradient(g)
        self.seconds += time.perf_counter() - start
        return f, g

    def kindly(self, x: np.ndarray) -> Array:
        """Return a host point as the caller's kind of array, in the caller's shape."""
        shaped = x.reshape(self._shape)
        if self._kind == "numpy":
            view = shaped.view()
            view.flags.writeable = False
            return view
        return in_kind(shaped, self._template)

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

    def _by_differences(self, x: np.ndarray) -> tuple[Any, Any]:
        self.njev += 1
        value = self._values(self._fun(self.kindly(x)))
        central = self._jac == "3-point"
        rows = x.reshape(-1, x.shape[-1])
        gradient = np.empty_like(rows)
        # Steps balance truncation against rounding: eps^(1/2), and eps^(1/3) for central differences.
        epsilon = np.finfo(self._dtype).eps
        relative = self._rel_step or epsilon ** (1 / 3 if central else 1 / 2)
        step = relative * np.where(rows >= 0, 1.0, -1.0) * np.maximum(1.0, np.abs(rows))
        low, high = self._bounds if self._bounds is not None else (-np.inf, np.inf)
        low, high = np.broadcast_to(low, rows.shape), np.broadcast_to(high, rows.shape)
        moved = rows.copy()
        for j in range(rows.shape[1]):
            at, h = rows[:, j], step[:, j]
            if central:
                first, second = self._stencil(at, h, low[:, j], high[:, j])
                gradient[:, j] = self._central(moved, j, at, first, second, value)
            else:
                # Forward or, where the bound is near, backward; as long as the longer side at most.
                fits = (at + h >= low[:, j]) & (at + h <= high[:, j])
                up = high[:, j] - at >= at - low[:, j]
                moved[:, j] = np.clip(
                    at + np.where(fits, h, np.where(up, np.abs(h), -np.abs(h))), low[:, j], high[:, j]
                )
                gradient[:, j] = self._quotient(self._at(moved), value, moved[:, j] - at)
            moved[:, j] = at
        return value, gradient

    @staticmethod
    def _quotient(f: Any, f0: Any, h: np.ndarray) -> np.ndarray:
        # A variable without room is fixed: its derivative does not matter.
        with np.errstate(invalid="ignore", over="ignore"):  # f may be infinite: the engine deals with that
            return np.where(h != 0, (f - f0) / np.where(h != 0, h, 1.0), 0.0)

    @staticmethod
    def _stencil(at: np.ndarray, h: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Two places: at + h and at - h, or at + h and at + 2h to one side where a bound is near."""
        h = np.abs(h)
        both = (at - h >= low) & (at + h <= high)
        up = high - at >= at - low
        reach = np.minimum(h, np.maximum(high - at, at - low) / 2)
        side = np.where(up, reach, -reach)
        first, second = np.where(both, h, side), np.where(both, -h, 2 * side)
        return np.clip(at + first, low, high), np.clip(at + second, low, high)

    def _central(
        self, moved: np.ndarray, j: int, at: np.ndarray, first: np.ndarray, second: np.ndarray, value: Any
    ) -> np.ndarray:
        moved[:, j] = first
        a, fa = moved[:, j] - at, self._at(moved)
        moved[:, j] = second
        b, fb = moved[:, j] - at, self._at(moved)
        # Derivative at 0 of the parabola through (0, f), (a, fa), (b, fb).
        safe = (a != 0) & (b != 0) & (a != b)
        a, b = np.where(safe, a, 1.0), np.where(safe, b, -1.0)
        with np.errstate(invalid="ignore", over="ignore"):
            slope = ((fa - value) * b / a - (fb - value) * a / b) / (b - a)
        return np.where(safe, slope, 0.0)

    def _at(self, rows: np.ndarray) -> Any:
        self.nfev += 1
        return self._values(self._fun(self.kindly(rows if self._batch else rows[0])))

    def _values(self, f: Any) -> Any:
        if not self._batch:
            return f if type(f) is float else scalar_of(f)
        values = np.ascontiguousarray(host_view(f), dtype=np.float64)
        if values.shape != (self._shape[0],):
            raise ValueError(f"fun returned values of shape {values.shape}; allowed: ({self._shape[0]},)")
        return values

    def _gradient(self, g: Any) -> np.ndarray:
        gradient: np.ndarray = g if type(g) is np.ndarray else host_view(g)
        if gradient.dtype != self._dtype or not gradient.flags.c_contiguous:
            gradient = np.ascontiguousarray(gradient, dtype=self._dtype)
        if gradient.shape != self._shape and not is_like(gradient.shape, self._shape):
            raise ValueError(f"the gradient has shape {gradient.shape}; allowed: {self._shape}")
        return gradient
