"""Checks of arguments: before any work, an error that names the argument, what was got and what is allowed.

What is called ``read_...`` returns the argument in the form that solvers work with; what is called ``require_...`` only
raises. Every text reads ``argument is ...; allowed: ...``, or ``argument has shape (dtype) ...; allowed: ...``. Arrays
have checks of their own, `stepwell.arrays.checks`.
"""

from __future__ import annotations

import math
import operator
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NoReturn

import numpy as np

from stepwell.common.memory import available_memory

#: What an infinite whole number becomes, where one is allowed: more than any run can count.
UNLIMITED = 2**62


class WrongKind(TypeError, ValueError):
    """An argument of the wrong kind, such as text for a number; whoever expects either of the two errors catches it."""


def require(holds: bool, argument: str, value: Any, allowed: str) -> None:
    """Raise ValueError naming the argument, the value and what is allowed, unless it holds."""
    if not holds:
        _refuse(ValueError, argument, value, allowed)


def require_kind(holds: bool, argument: str, value: Any, allowed: str) -> None:
    """Raise as `require` does, for a value that is of the wrong kind altogether."""
    if not holds:
        _refuse(WrongKind, argument, value, allowed)


def _refuse(error: type[ValueError], argument: str, value: Any, allowed: str) -> NoReturn:
    raise error(f"{argument} is {shown(value)}; allowed: {allowed}")


def shown(value: Any) -> str:
    """Return a value as an error shows it: in one line, and not all of a long one.

    Examples
    --------
    >>> shown(list(range(100)))[-11:]
    ', 20, 21...'
    """
    try:
        text = " ".join(repr(value).split())
    except RecursionError:
        text = f"a {type(value).__name__} of very many {type(value).__name__}s, one in the other"
    return text if len(text) <= 80 else f"{text[:77]}..."


# ---- numbers ----


def read_real(
    argument: str,
    value: Any,
    *,
    at_least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    infinite: bool = False,
    other: str = "",
) -> float:
    """Return one real number within limits as a float; `infinite`: it may be that, too.

    `other` says what else the argument may be, which the caller has taken care of.

    Examples
    --------
    >>> read_real("tol", np.float32(0.5), above=0, below=1)
    0.5
    >>> read_real("tol", 1, above=0, below=1)
    Traceback (most recent call last):
    ...
    ValueError: tol is 1; allowed: a finite number above 0 and below 1
    """
    number = real_or_none(value)
    if number is not None and not math.isnan(number) and (infinite or not math.isinf(number)):
        fits = (at_least is None or number >= at_least) and (above is None or number > above)
        if fits and (below is None or number < below):
            return number
    ends = {"of at least": at_least, "above": above, "below": below}
    limits = " and ".join(f"{words} {end:g}" for words, end in ends.items() if end is not None)
    allowed = f"a {'' if infinite else 'finite '}number {limits}".rstrip() + (f", or {other}" if other else "")
    _refuse(WrongKind if number is None else ValueError, argument, value, allowed)


def read_whole(
    argument: str,
    value: Any,
    at_least: int,
    at_most: int | None = None,
    *,
    multiple: int = 1,
    as_float: bool = False,
    infinite: bool = False,
    other: str = "",
) -> int:
    """Return one whole number within limits as an int; `as_float`: it may be written as one, such as 1e4.

    `other` says what else the argument may be, which the caller has taken care of.

    Examples
    --------
    >>> read_whole("maxiter", 1e4, 0, as_float=True)
    10000
    >>> read_whole("n", 7, 2, multiple=2)
    Traceback (most recent call last):
    ...
    ValueError: n is 7; allowed: an integer of at least 2, a multiple of 2
    """
    number = _whole(value, as_float, infinite)
    # What counts things, or measures memory, is never larger; beyond, integers of C would overflow.
    at_most = UNLIMITED if at_most is None else at_most
    if number is not None and number >= at_least and number <= at_most and not number % multiple:
        return number
    allowed = "a whole number" if as_float else "an integer"
    allowed += f" of at least {at_least}" if at_most >= UNLIMITED > (number or 0) else f" from {at_least} to {at_most}"
    allowed += f", a multiple of {multiple}" if multiple > 1 else ""
    allowed += f", or {other}" if other else ""
    _refuse(WrongKind if number is None else ValueError, argument, value, allowed)


def _whole(value: Any, as_float: bool, infinite: bool) -> int | None:
    number = real_or_none(value)
    if number is None:
        return None
    if infinite and number > UNLIMITED:
        return UNLIMITED
    try:
        return operator.index(value)
    except TypeError:
        return int(number) if as_float and number.is_integer() else None


def real_or_none(value: Any) -> float | None:
    """Return one real number, of Python, NumPy or an array library; None for what is none, such as a bool."""
    if type(value) is float:
        return value
    if isinstance(value, bool | str | bytes | complex) or getattr(value, "shape", ()) != ():
        return None
    if hasattr(value, "dtype") and any(word in str(value.dtype) for word in ("bool", "complex")):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def read_seed(value: Any, argument: str = "seed") -> int:
    """Return a seed of random numbers: a whole number that is not negative, of up to 128 bits."""
    return read_whole(argument, value, 0, 2**128 - 1)


def read_sizes(argument: str, value: Any, count: int | None, at_least: int = 1, *, meaning: str) -> tuple[int, ...]:
    """Return `count` whole numbers (None: any but none) as a tuple; `meaning` says what they are.

    Examples
    --------
    >>> read_sizes("shape", 3, 2, meaning="rows and columns")
    Traceback (most recent call last):
    ...
    stepwell.common.checks.WrongKind: shape is 3; allowed: 2 whole numbers, rows and columns
    """
    parts = _parts(argument, value, count, f"whole numbers, {meaning}")
    return tuple(read_whole(argument, one, at_least, as_float=True) for one in parts)


def read_reals(argument: str, value: Any, count: int, *, meaning: str, **limits: Any) -> tuple[float, ...]:
    """Return `count` real numbers, within limits as `read_real` takes them, as a tuple."""
    return tuple(read_real(argument, one, **limits) for one in _parts(argument, value, count, f"numbers, {meaning}"))


def _parts(argument: str, value: Any, count: int | None, what: str) -> list[Any]:
    """Return the parts of a list, a tuple, an array or the like, of which there must be `count`."""
    plain = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
    parts = list(value) if plain and getattr(value, "ndim", 1) == 1 else []
    right = len(parts) > 0 if count is None else len(parts) == count
    require_kind(right, argument, value, f"a sequence of {what}" if count is None else f"{count} {what}")
    return parts


def require_memory(argument: str, value: Any, numbers: int) -> None:
    """Raise where so many numbers of eight bytes, which a size asks for, are more than the memory can hold."""
    free = available_memory()
    # (What a system says is free may be wrong, and what it can swap is not in it: a gigabyte is always tried.)
    fits = free is None or 8 * numbers <= max(free, 1 << 30)
    require(fits, argument, value, f"a size that fits into the memory, {numbers} numbers do not")


def read_axis(value: Any) -> Literal[0, 1]:
    """Return the axis along which right-hand sides lie: 0, they are rows, or 1, they are columns.

    Examples
    --------
    >>> read_axis(2)
    Traceback (most recent call last):
    ...
    ValueError: axis is 2; allowed: 0, right-hand sides are rows, or 1, they are columns
    """
    number = _whole(value, False, False)
    if number == 0:
        return 0
    if number == 1:
        return 1
    allowed = "0, right-hand sides are rows, or 1, they are columns"
    _refuse(WrongKind if number is None else ValueError, "axis", value, allowed)


# ---- words, switches, functions ----


def read_choice(argument: str, value: Any, names: Iterable[str]) -> str:
    """Return a name that is among those allowed; the error says which one may have been meant.

    Examples
    --------
    >>> read_choice("method", "gramm", ("auto", "qr", "gram"))
    Traceback (most recent call last):
    ...
    ValueError: method is 'gramm'; allowed: 'auto', 'qr', 'gram'; did you mean 'gram'?
    """
    names = tuple(names)
    if isinstance(value, str) and value in names:
        return value
    _refuse(ValueError, argument, value, ", ".join(map(repr, names)) + meant(value, names))


def meant(word: Any, names: Iterable[str]) -> str:
    """Return the end of an error's text: the name that an unknown word may stand for, or nothing.

    Examples
    --------
    >>> meant("Journal_Bearing", ["torsion", "journal-bearing"])
    "; did you mean 'journal-bearing'?"
    """
    from difflib import get_close_matches

    if not isinstance(word, str):
        return ""
    plain = {name.lower().replace("_", "-"): name for name in names}
    close = get_close_matches(word.lower().replace("_", "-"), plain, 1)
    return f"; did you mean {plain[close[0]]!r}?" if close else ""


def read_switch(argument: str, value: Any) -> bool:
    """Return True or False, as Python or NumPy have them."""
    require_kind(isinstance(value, bool | np.bool_), argument, value, "True or False")
    return bool(value)


def require_instance(argument: str, value: Any, kind: type, *, optional: bool = False) -> None:
    """Raise for what is not of a class; `optional`: None stands for nothing."""
    allowed = f"{'None or ' if optional else ''}a {kind.__name__}"
    require_kind(isinstance(value, kind) or (optional and value is None), argument, value, allowed)


def read_texts(argument: str, value: Any, count: int, meaning: str) -> list[str]:
    """Return `count` texts as a list."""
    texts = [str(one) if isinstance(one, str) else one for one in _parts(argument, value, count, f"texts, {meaning}")]
    require_kind(all(isinstance(one, str) for one in texts), argument, value, f"{count} texts, {meaning}")
    return texts


def require_path(argument: str, value: Any) -> None:
    """Raise for what names no file: numbers, which Python takes for files that are open, bytes and the like."""
    require_kind(isinstance(value, str | os.PathLike), argument, value, "a path")


def require_function(argument: str, value: Any, *, optional: bool = True) -> None:
    """Raise for what cannot be called; `optional`: None stands for no function."""
    allowed = "None or a callable" if optional else "a callable"
    require_kind(callable(value) or (optional and value is None), argument, value, allowed)


def require_shape(holds: bool, argument: str, array: Any, allowed: Any) -> None:
    """Raise, naming the shape, unless it holds."""
    if not holds:
        raise ValueError(f"{argument} has shape {tuple(array.shape)}; allowed: {allowed}")


def warn_caller(message: str, category: type[Warning] | None = None) -> None:
    """Warn, by default with SciPy's OptimizeWarning, at the line of the first caller outside this package and SciPy.

    Who filters by that class has imported it. Where nobody has, which takes SciPy half a second, it is the class that
    this one is made of: UserWarning.
    """
    optimizers = sys.modules.get("scipy.optimize")
    category = category or getattr(optimizers, "OptimizeWarning", UserWarning)
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in ("stepwell", "scipy"):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
