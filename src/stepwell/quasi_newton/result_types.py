"""The result types of the quasi-Newton solvers: SciPy's `OptimizeResult`, without its import.

That of ``scipy.optimize`` takes longer than all else in a first call. Results are dicts with attributes, as SciPy's
are; once somebody has imported ``scipy.optimize``, they say that they are an `OptimizeResult`, and `isinstance` agrees.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, ItemsView, Iterator, ValuesView
from typing import Any

import numpy as np

from stepwell.arrays import Array
from stepwell.arrays.presenting import Presented
from stepwell.arrays.reprs import summarise
from stepwell.quasi_newton.status import Status

#: What a text of a result shows first; the rest follows as it is.
_FIRST = ("message", "success", "status", "reason", "fun", "x", "jac", "projected_gradient", "nit", "nfev", "njev")


class Later:
    """A value that is made when it is first looked at; `text` says what it will be."""

    def __init__(self, make: Callable[[], Any], text: str) -> None:
        self.make, self._text = make, text

    def __repr__(self) -> str:
        return self._text


class Fields(dict[str, Any]):
    """A dict whose items are attributes, too."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Tell `isinstance` of SciPy's type, where that is known."""
        theirs = getattr(sys.modules.get("scipy.optimize"), "OptimizeResult", None)
        return type(self) if theirs is None else _with_scipy(type(self), theirs)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    __setattr__ = dict.__setitem__  # type: ignore[assignment]

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *self]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self.items()),)

    # What is made later must not be seen before it is; __iter__, so that dict(result) asks for items, too.

    def __iter__(self) -> Iterator[str]:
        return dict.__iter__(self)

    def __getitem__(self, name: str) -> Any:
        value = dict.__getitem__(self, name)
        if type(value) is Later:
            value = value.make()
            dict.__setitem__(self, name, value)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """Return an item, or the default."""
        return default if name not in self else self[name]  # noqa: SIM401 (this is where it is made)

    def pop(self, name: str, *default: Any) -> Any:
        """Remove an item and return it."""
        if name in self:
            self[name]  # made
        return dict.pop(self, name, *default)

    def _made(self) -> Fields:
        for name in self:
            self[name]
        return self

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """Return names and values."""
        return dict.items(self._made())

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """Return the values."""
        return dict.values(self._made())

    def copy(self) -> dict[str, Any]:
        """Return a dict of the items, as SciPy's does."""
        return dict(self.items())


@functools.cache
def _with_scipy(ours: type, theirs: type) -> type:
    # Of the same name and place, so that it is shown and pickled as ours is.
    return type(ours.__name__, (ours, theirs), {name: getattr(ours, name) for name in ("__module__", "__qualname__")})


class _Summarised(Presented, Fields):
    """A result whose text is at most a screen long."""

    def __repr__(self) -> str:
        names = [name for name in _FIRST if name in self] + [name for name in self if name not in _FIRST]
        return summarise(type(self).__name__, {name: dict.__getitem__(self, name) for name in names})

    __str__ = __repr__


class Result(_Summarised):
    """What `minimize` returns: SciPy's `OptimizeResult` (for `isinstance`, too) with fields of our own.

    Attributes
    ----------
    x, jac : array
        The solution and the gradient there, of x0's kind and shape; by differences NaN where bounds are equal.
    fun : float
        The value of f there.
    success : bool
        Whether what was asked for was reached.
    status : int
        SciPy's code: 0 converged, 1 a limit was reached, 2 no further progress, 99 stopped by the callback.
    reason : Status
        Why the run ended.
    message : str
        The same in words.
    nit, nfev, njev : int
        Iterations, and evaluations of f and of its gradient.
    hess_inv : InverseHessian
        The inverse Hessian approximation, a linear operator.
    projected_gradient : float
        Largest element of the projected gradient.
    info : int
        Code of the line search.
    seconds : dict
        ``total``, ``setup`` (before the first evaluation), ``objective``, ``solver``.
    mode : str
        On a GPU: how turns were made. Over ranks: how many, and what is promised of the bits.
    exchanges, bytes_sent, nbytes : int
        Over ranks: messages of this rank and their size, and the memory that it holds.
    cauchy_walks, truncations, resets, skipped : int
        How often the rarer branches were taken: Cauchy points beyond the first bound, directions cut short, histories
        dropped, pairs refused.
    """

    x: Array
    fun: float
    jac: Array
    success: bool
    status: int
    reason: Status
    message: str
    nit: int
    nfev: int
    njev: int
    hess_inv: Any
    projected_gradient: float
    info: int
    seconds: dict[str, float]
    mode: str
    exchanges: int
    bytes_sent: int
    nbytes: int
    cauchy_walks: int
    truncations: int
    resets: int
    skipped: int


class BatchResult(_Summarised):
    """What `minimize_batch` returns: the fields of `Result` with one entry per problem.

    Attributes
    ----------
    x, jac : (B, n) array
        Solutions and gradients there, of x0's kind.
    fun : (B,) array
        Values of f there.
    success, status, nit, nfev, info, projected_gradient : (B,) array
        As in `Result`.
    reason, message : list
        A `Status` and its words for each problem.
    hess_inv : callable
        ``hess_inv(k)`` gives the inverse Hessian approximation of problem k.
    evaluations : int
        How often `fun` was evaluated, by a call or by a captured graph.
    rows_evaluated : int
        At how many points in all: of every problem in each call, or, where `fun` takes rows, of those it got.
    seconds : dict
    mode : str
        As in `Result`.
    """

    x: Array
    fun: Array
    jac: Array
    success: np.ndarray
    status: np.ndarray
    reason: list[Status]
    message: list[str]
    nit: np.ndarray
    nfev: np.ndarray
    info: np.ndarray
    projected_gradient: np.ndarray
    hess_inv: Any
    evaluations: int
    rows_evaluated: int
    seconds: dict[str, float]
    mode: str
