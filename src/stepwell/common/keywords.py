"""Arguments by name: what an error says of one that a function does not have, and all of them as one dict."""

from __future__ import annotations

import functools
import inspect
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
    code: Any = inspect.unwrap(function).__code__
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


def answered_by(answer: Callable[[dict[str, Any]], Any]) -> Callable[[F], F]:
    """Let a function be a signature and a docstring: `answer` is called with all its arguments, defaults too, by name.

    So an argument stands in the signature alone, and not once more in a list of what is passed on. (A body could say
    ``locals()``, but compilers of PyTorch know none.) The function itself is called before, which tells the caller what
    is missing or given twice.

    Examples
    --------
    >>> def scaled(given):
    ...     return given["x"] * given["by"]
    >>> @answered_by(scaled)
    ... def scale(x, *, by=2.0):
    ...     "Return x times a factor."
    >>> scale(3.0), scale(3.0, by=1.0)
    (6.0, 3.0)
    """

    def decorate(function: F) -> F:
        parameters = inspect.signature(function).parameters
        names = tuple(parameters)
        defaults = {name: one.default for name, one in parameters.items() if one.default is not one.empty}

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            function(*args, **given)
            return answer({**defaults, **dict(zip(names, args)), **given})

        return call  # type: ignore[return-value]

    return decorate
