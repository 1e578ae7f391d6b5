"""The caller's model, in whatever form it was given, as one function of parameters (k, n) and rows (k,).

``f(x, a, b, c)``, as SciPy has it, is handed columns (k, 1); ``f(x, p)`` and ``f(x, p, rows)``, with an argument of
that name, one array (k, n). A residual ``fun(p)`` or ``fun(p, rows)`` maps (k, n) to (k, m).
"""

from __future__ import annotations

import functools
import inspect
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import Array, host_copy, host_view, is_cuda
from stepwell.common.checks import require, require_function
from stepwell.quasi_newton.running_rows import NAMES, takes_rows

Call = Callable[[Any, Any], Any]


def parameter_names(f: Any) -> tuple[str, ...] | None:
    """Return the names of a model's parameters, those after the first; None where its signature does not tell.

    Examples
    --------
    >>> parameter_names(lambda t, a, k: a), parameter_names(lambda t, *p: t), parameter_names(lambda t, p, rows: t)
    (('a', 'k'), None, None)
    >>> parameter_names(lambda t, p, q: t)
    ('p', 'q')
    """
    named = getattr(f, "parameters", None)
    if isinstance(named, tuple):  # a compiled model says it itself
        return named
    plain, several = _positional(f)
    return None if several or len(plain) < 2 or _takes_one_array(plain) else plain[1:]


def _takes_one_array(plain: tuple[str, ...]) -> bool:
    """Whether a model is ``f(x, p)`` or ``f(x, p, rows)``; of ``f(x, p, q)`` p is the first of its parameters."""
    return plain[1:2] == ("p",) and (len(plain) == 2 or (len(plain) == 3 and plain[2] in NAMES))


def _positional(f: Any) -> tuple[tuple[str, ...], bool]:
    """Return the names of a function's positional arguments, and whether it takes any number more."""
    if type(f) is types.FunctionType:  # (a signature takes longer than the rest of a short fit)
        code = f.__code__
        return code.co_varnames[: code.co_argcount], bool(code.co_flags & inspect.CO_VARARGS)
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError, RecursionError):  # what is no function is told of elsewhere
        return (), True
    plain = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return tuple(p.name for p in plain), any(p.kind == p.VAR_POSITIONAL for p in parameters)


class Curve:
    """A model ``f(x, ...)`` and its x.

    Parameters
    ----------
    f : callable
    x : any
        Handed on as it is or, with `own`, an array whose last two axes are problems and points, cut to the rows.
    """

    #: What messages call it.
    told = "the model f"

    def __init__(self, f: Callable[..., Any], x: Any, own: bool) -> None:
        require_function("f", f, optional=False)
        self.f, self.x, self.own = f, x, own
        self.whole, self.rows = False, False
        plain, _ = _positional(f)
        if _takes_one_array(plain):
            self.whole, self.rows = True, len(plain) == 3

    def abscissa(self, rows: Any) -> Any:
        """Return x of some rows."""
        return self.x[..., rows, :] if self.own else self.x

    def __call__(self, p: Any, rows: Any) -> Any:
        """Return values at p (k, n), the parameters of these rows."""
        return self.at(self.abscissa(rows), p, rows)

    def at(self, x: Any, p: Any, rows: Any) -> Any:
        """Return values at p with x given: what compilers are handed."""
        if self.whole:
            return self.f(x, p, rows) if self.rows else self.f(x, p)
        return self.f(x, *[p[:, j : j + 1] for j in range(p.shape[1])])

    def of_columns(self, x: Any) -> Callable[..., Any] | None:
        """Return the model as a function of columns (k, 1); None where it takes parameters as one array."""
        return None if self.whole else functools.partial(self.f, x)

    def one(self, x: Any, q: Any, row: Any) -> Any:
        """Return values of one problem: of numbers, or of a vector."""
        return self.f(x, q) if self.whole else self.f(x, *[q[j] for j in range(q.shape[0])])

    def refused(self, shape: tuple[int, ...], rows: int, points: int | None) -> Exception:
        """Return the error for values of another shape than the rows have."""
        return wrong_shape(self.told, shape, rows, points)

    def keyed(self) -> tuple[Any, ...]:
        """Return the model and how it is called."""
        return self.f, self.whole, self.rows

    def weakly(self) -> Curve:
        """Return the same without x, by a weak reference to the model."""
        return _Held(weakref.ref(self.f), self.whole, self.rows)

    def alone(self, p: np.ndarray) -> Any:
        """Return values of one problem, called as SciPy does: with numbers."""
        return self.f(self.abscissa(0) if self.own else self.x, *p)


class _Held(Curve):
    """A curve that does not keep its function."""

    def __init__(self, weak: Any, whole: bool, rows: bool) -> None:
        self._weak, self.whole, self.rows, self.own = weak, whole, rows, False

    @property
    def f(self) -> Any:  # type: ignore[override]
        """The model, while it is there."""
        return self._weak()


class Residual:
    """A residual ``fun(p)`` or ``fun(p, rows)``, with further arguments as SciPy hands them on."""

    told = "the residual fun"

    def __init__(self, fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], lone: bool) -> None:
        require_function("fun", fun, optional=False)
        self.f, self.args, self.kwargs, self.lone = fun, args, kwargs, lone
        self.whole = True
        self.rows = not lone and takes_rows(fun, args)

    def __call__(self, p: Any, rows: Any) -> Any:
        """Return residuals at p (k, n)."""
        if self.rows:
            return self.f(p, rows, *self.args, **self.kwargs)
        return self.f(p, *self.args, **self.kwargs)

    def at(self, x: Any, p: Any, rows: Any) -> Any:
        """Return residuals at p, whatever x is."""
        return self(p, rows)

    def of_columns(self, x: Any) -> None:
        """Return None: a residual takes parameters as one array."""

    def one(self, x: Any, q: Any, row: Any) -> Any:
        """Return residuals of one problem."""
        return self(q, row)

    def refused(self, shape: tuple[int, ...], rows: int, points: int | None) -> Exception:
        """Return the error for residuals of another shape than the rows have."""
        return wrong_shape(self.told, shape, rows, points)

    def keyed(self) -> None:
        """Return None: nothing is kept of what is compiled of a residual."""

    def weakly(self) -> Residual:
        """Return itself."""
        return self

    def alone(self, p: np.ndarray) -> Any:
        """Return residuals of one problem, called as SciPy does: with a vector."""
        return self.f(p, *self.args, **self.kwargs)


def as_rows(values: Any, rows: int, points: int | None, name: str) -> np.ndarray:
    """Return values (rows, points) of what a NumPy function returned, or say which shape is wanted."""
    found = values if type(values) is np.ndarray else np.asarray(values)
    if found.dtype.kind not in "fc":
        require(found.dtype.kind in "biu", name, found.dtype, "a function that returns real numbers")
        found = found.astype(np.float64)
    elif found.dtype.kind == "f" and found.dtype.itemsize not in (4, 8):
        found = found.astype(np.float32 if found.dtype.itemsize < 4 else np.float64)
    if points is None and found.ndim == 2 and found.shape[0] == rows:
        return found
    if found.shape == (rows, points):
        return found
    if rows == 1 and found.ndim == 1 and points in (None, found.shape[0]):
        return found[None]
    if points is not None and found.shape in ((rows, 1), (1, points)) and found.ndim == 2:
        return np.broadcast_to(found, (rows, points))
    raise wrong_shape(name, tuple(found.shape), rows, points)


def wrong_shape(name: str, shape: tuple[int, ...], rows: int, points: int | None) -> ValueError:
    """Return the error for values of another shape than the rows have."""
    return ValueError(
        f"{name} returned shape {shape} for {rows} problems; allowed: ({rows}, {'m' if points is None else points}), "
        "one row per problem of ydata: parameters come as columns (k, 1), which broadcast against xdata of shape (m,)"
    )


def complex_values(name: str) -> TypeError:
    """Return the error for values that are not real."""
    return TypeError(f"{name} returned complex numbers; allowed: real ones, such as real and imaginary parts")


Function = Curve | Residual


def called_jac(function: Function, jac: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return a jac as a function of points (k, n) and rows, called as the function itself is."""
    if isinstance(function, Curve):
        return Curve(jac, function.x, function.own)
    if takes_rows(jac, function.args) and not function.lone:
        return lambda p, rows: jac(p, rows, *function.args, **function.kwargs)
    return lambda p, rows: jac(p, *function.args, **function.kwargs)


def on_host(array: Array) -> np.ndarray:
    """Return an array of any library as one of NumPy: a view where it is on the host."""
    return host_copy(array) if is_cuda(array) else host_view(array)


def jacobian_as_rows(returned: Any, values: np.ndarray, n: int) -> np.ndarray:
    """Return what a caller's jac returned as (rows, points, n), where the function has values (rows, points)."""
    rows, points = values.shape
    found: np.ndarray = returned if type(returned) is np.ndarray else np.asarray(returned)
    if found.dtype not in (np.float32, np.float64):
        found = found.astype(np.float64)
    if found.shape == (rows, points, n):
        return found
    if found.shape == (points, n) and rows == 1:
        return found[None]
    raise ValueError(
        f"jac returned shape {tuple(found.shape)} for {rows} problems; allowed: ({rows}, {points}, {n}), points by "
        "parameters of each problem"
    )
