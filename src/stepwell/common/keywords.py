"""Arguments by a name that a function does not have: the error says which one may be meant."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from stepwell.common.checks import meant

F = TypeVar("F", bound=Callable[..., Any])


def keywords_told(function: F) -> F:
    """Let a function, or an ``__init__``, answer an unknown argument with the name that is nearest.

    Examples
    --------
    >>> @keywords_told
    ... def solve(A, *, maxiter=None):
    ...     return A
    >>> solve(1, max_iter=3)
    Traceback (most recent call last):
    ...
    TypeError: solve() got an unexpected keyword argument 'max_iter'; did you mean 'maxiter'?; allowed: A, maxiter
    """
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    known = frozenset(names)

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        if not known.issuperset(given):
            unknown = next(name for name in given if name not in known)
            allowed = [name for name in names if name != "self"]
            raise TypeError(
                f"{function.__qualname__.removesuffix('.__init__')}() got an unexpected keyword argument {unknown!r}"
                f"{meant(unknown, allowed)}; allowed: {', '.join(allowed)}"
            )
        return function(*args, **given)

    return call  # type: ignore[return-value]
