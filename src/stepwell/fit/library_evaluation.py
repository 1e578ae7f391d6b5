"""Models that PyTorch and JAX evaluate: Jacobians by forward mode, n tangents of the whole batch at once.

Rows are independent, so that one tangent e_j serves all of them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import copy_to_device_of, kind_of, shapes_are_compiled
from stepwell.fit.functions import Curve, Function, called_jac, complex_values, jacobian_as_rows, on_host, wrong_shape
from stepwell.fit.problem import FitProblem

#: Programs are compiled for so many rows: all, and then a quarter of what was held, when no more run.
SHRINK = 4
SMALLEST = 16


class LibraryEvaluation:
    """A model of tensors or JAX arrays.

    JAX compiles values and derivatives apart, for few numbers of rows; what is compiled is kept with the function for
    the next call.
    """

    accuracy = 0.0

    def __init__(self, function: Function, jac: Any, problem: FitProblem) -> None:
        self._function, self._problem, self._template = function, problem, problem.template
        self._points: int | None = problem.points or None
        self._kind = kind_of(problem.template)
        self._in_steps = shapes_are_compiled(problem.template)
        self.picks = not self._in_steps
        self._held = problem.problems
        self._jac = None if jac is None else called_jac(function, jac)
        self._programs = programs_of(function, self._kind, self._points)
        self._x = self._abscissa()

    def _abscissa(self) -> Any:
        function = self._function
        if not isinstance(function, Curve):
            return None
        x = function.x
        if isinstance(x, np.ndarray | list | tuple) and np.asarray(x).dtype.kind in "biuf":
            found = np.asarray(x)
            found = (
                found.astype(np.float32 if self._problem.single else np.float64) if found.dtype.kind == "f" else found
            )
            return copy_to_device_of(np.ascontiguousarray(found), self._template)
        return x

    def _arguments(self, x: np.ndarray, rows: np.ndarray) -> tuple[int, Any, Any, Any]:
        """Return how many rows count, and x, points and rows in the library, filled up to a number compiled for."""
        k = len(rows)
        if self._in_steps and k < self._held:
            while self._held > SMALLEST and k * SHRINK <= self._held:
                self._held = max(-(-self._held // SHRINK), SMALLEST, k)
            fill = self._held - k
            if fill > 0:
                x = np.concatenate([x, np.broadcast_to(x[:1], (fill, x.shape[1]))])
                rows = np.concatenate([rows, np.broadcast_to(rows[:1], (fill,))])
        there, which = (copy_to_device_of(np.ascontiguousarray(part), self._template) for part in (x, rows))
        abscissa = self._x
        if isinstance(self._function, Curve) and self._function.own:
            abscissa = abscissa[..., which, :]
        return k, abscissa, there, which

    def values(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the model's values (k, m)."""
        k, abscissa, there, which = self._arguments(x, rows)
        found = on_host(self._programs.values(abscissa, there, which))
        if found.ndim != 2 or found.shape[0] != len(there) or self._points not in (None, found.shape[1]):
            raise wrong_shape(self._function.told, tuple(found.shape), len(there), self._points)
        self._points = int(found.shape[1])
        return _real(found[:k])

    def jacobian(self, x: np.ndarray, rows: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return its derivatives (k, m, n), by forward mode or the caller's jac."""
        k, abscissa, there, which = self._arguments(x, rows)
        if self._jac is not None:
            found = on_host(self._jac(there, which))
            shape = np.broadcast_to(values[:1], (len(there), values.shape[1]))
            return jacobian_as_rows(found, shape, x.shape[1])[:k]
        columns = on_host(self._programs.columns(abscissa, there, which))
        return _real(np.moveaxis(columns, 0, 2)[:k])


def _real(found: np.ndarray) -> np.ndarray:
    if found.dtype.kind == "c":
        raise complex_values("the model f")
    return found if found.dtype in (np.float32, np.float64) else found.astype(np.float64)


class Programs:
    """Values (k, m) and columns of J (n, k, m) of a function of x, points and rows."""

    def __init__(self, values: Callable[..., Any], columns: Callable[..., Any]) -> None:
        self.values, self.columns = values, columns


#: Compiled programs of functions that are still there.
_kept: weakref.WeakKeyDictionary[Any, dict[Any, Programs]] = weakref.WeakKeyDictionary()


def programs_of(function: Function, kind: str | None, points: int | None) -> Programs:
    """Return values and derivatives of a model by its library; what is compiled is kept for the next call."""
    if kind == "torch":
        return _by_torch(function, points)
    import jax

    # Of a function that is compiled already; another may read what has changed since.
    if not (isinstance(function, Curve) and isinstance(function.f, jax.stages.Wrapped)):
        return _by_jax(function, points)
    known, key = _kept.setdefault(function.f, {}), (function.whole, function.rows, points)
    if key not in known:
        # (By a weak reference: what is kept must not keep the function.)
        known[key] = _by_jax(_Held(weakref.ref(function.f), function.whole, function.rows), points)
    return known[key]


class _Held:
    """A curve that does not keep its function."""

    def __init__(self, f: Any, whole: bool, rows: bool) -> None:
        self._f, self._whole, self._rows = f, whole, rows

    def at(self, x: Any, p: Any, rows: Any) -> Any:
        alive = self._f()
        curve = Curve.__new__(Curve)
        curve.f, curve.whole, curve.rows = alive, self._whole, self._rows
        return curve.at(x, p, rows)


def _told(function: Any) -> str:
    return str(getattr(function, "told", Curve.told))


def _fits(found: Any, p: Any, points: int | None) -> bool:
    shape = tuple(getattr(found, "shape", ()))
    return len(shape) == 2 and shape[0] == p.shape[0] and points in (None, shape[1])


def jax_function(function: Any, points: int | None) -> Callable[[Any, Any, Any], Any]:
    """Return a model as a function of x, points (k, n) and rows in JAX; one of a single problem is mapped."""
    import jax

    def batched(x: Any, p: Any, rows: Any) -> Any:
        first: Exception | None = None
        try:
            found = function.at(x, p, rows)
            if _fits(found, p, points):
                return found
            first = wrong_shape(_told(function), tuple(getattr(found, "shape", ())), p.shape[0], points)
        except (TypeError, ValueError, jax.errors.JAXTypeError) as error:
            first = error
        try:  # a function of one problem
            own = hasattr(x, "ndim") and x.ndim >= 2 and x.shape[-2] == p.shape[0] and getattr(function, "own", False)
            return jax.vmap(lambda q, row, z: _one(function, z, q, row), in_axes=(0, 0, -2 if own else None))(
                p, rows, x
            )
        except Exception:
            raise first from None

    return batched


def _by_jax(function: Any, points: int | None) -> Programs:
    import jax
    import jax.numpy as jnp

    batched = jax_function(function, points)

    def columns(x: Any, p: Any, rows: Any) -> Any:
        n = p.shape[1]

        def along(tangent: Any) -> Any:
            return jax.jvp(lambda q: batched(x, q, rows), (p,), (jnp.broadcast_to(tangent, p.shape),))[1]

        return jax.vmap(along)(jnp.eye(n, dtype=p.dtype))

    return Programs(jax.jit(batched), jax.jit(columns))


def _one(function: Any, x: Any, q: Any, row: Any) -> Any:
    """Call a function of one problem: with numbers, or a vector."""
    if isinstance(function, Curve | _Held):
        f = function.f if isinstance(function, Curve) else function._f()
        whole = function.whole if isinstance(function, Curve) else function._whole
        return f(x, q) if whole else f(x, *[q[j] for j in range(q.shape[0])])
    return function(q, row)


def torch_function(function: Any, points: int | None) -> Callable[[Any, Any, Any], Any]:
    """Return a model as a function of x, points (k, n) and rows of tensors; one of a single problem is mapped."""
    import torch

    state: dict[str, bool] = {}

    def at(x: Any, p: Any, rows: Any) -> Any:
        if not state.get("one"):
            try:
                found = function.at(x, p, rows)
                if _fits(found, p, points):
                    return found
                first: Exception = wrong_shape(_told(function), tuple(getattr(found, "shape", ())), p.shape[0], points)
            except (TypeError, ValueError, RuntimeError) as error:
                first = error
            if "one" in state:
                raise first
            try:
                found = torch.func.vmap(lambda q: _one(function, x, q, None))(p)
            except Exception:
                raise first from None
            state["one"] = True
            return found
        return torch.func.vmap(lambda q: _one(function, x, q, None))(p)

    return at


def _by_torch(function: Any, points: int | None) -> Programs:
    import torch

    at = torch_function(function, points)
    state: dict[str, bool] = {}

    def values(x: Any, p: Any, rows: Any) -> Any:
        with torch.no_grad():
            return at(x, p, rows)

    def columns(x: Any, p: Any, rows: Any) -> Any:
        tangents = torch.eye(p.shape[1], dtype=p.dtype, device=p.device)

        def along(tangent: Any) -> Any:
            return torch.func.jvp(lambda q: at(x, q, rows), (p,), (tangent.expand(p.shape),))[1]

        with torch.no_grad():
            if state.get("apart"):
                return torch.stack([along(tangent) for tangent in tangents])
            try:
                return torch.func.vmap(along)(tangents)
            except RuntimeError:  # functions that look at values: one tangent after the other
                state["apart"] = True
                return torch.stack([along(tangent) for tangent in tangents])

    return Programs(values, columns)
