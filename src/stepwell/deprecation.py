"""Old spellings of arguments, which work for one release and say what they are called now."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def renamed(**new_names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take arguments by old names too, ``old="new"``, with a DeprecationWarning that names the new one.

    Signatures, editors and type checkers show the new names alone.

    Examples
    --------
    >>> @renamed(max_iter="maxiter")
    ... def solve(b, *, maxiter=10):
    ...     return maxiter
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     solve(0, max_iter=3)
    3
    >>> print(caught[0].message)
    max_iter is the old spelling of maxiter, which solve takes for one more release; write maxiter
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name = function.__qualname__.removesuffix(".__init__").rpartition("<locals>.")[2]

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if any(old in kwargs for old in new_names):
                for old, new in new_names.items():
                    if old not in kwargs:
                        continue
                    if new in kwargs:
                        raise TypeError(f"{old} is given beside {new}, whose old spelling it is; allowed: {new} alone")
                    warnings.warn(
                        f"{old} is the old spelling of {new}, which {name} takes for one more release; write {new}",
                        DeprecationWarning,
                        stacklevel=2,
                    )
                    kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate
