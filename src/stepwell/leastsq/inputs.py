"""Arguments of the least-squares doors: arrays and numbers, or an error that names the argument."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from stepwell import arrays


def as_array(name: str, value: Any, dtype: type | None = float) -> arrays.Array:
    """Return an array as it is; make one of a list or the like."""
    dense = str(getattr(value, "layout", "torch.strided")) == "torch.strided"  # torch has several that are not
    if hasattr(value, "toarray") or hasattr(value, "todense") or not dense:
        raise TypeError(
            f"{name} must be a dense array, got {type(value).__name__}; allowed: {name}.toarray() and the like"
        )
    if hasattr(value, "shape") and (arrays.kind_of(value) != "numpy" or isinstance(value, np.ndarray)):
        return value
    try:
        return np.asarray(value, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an array of numbers, got {_shown(value)} ({error})") from None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise unless a word is one of those allowed."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def number_of(name: str, value: Any) -> float:
    """Return a number as a float."""
    if isinstance(value, str | bytes):
        raise TypeError(f"{name} must be a number, got {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a number, got {value!r}") from error


def index_of(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return an integer that is not below the least, nor above the most."""
    try:
        number = operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} must be an integer, got {value!r}") from error
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most}, got {number}")
    return number
