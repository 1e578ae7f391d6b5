"""Checks of sizes and parameters: every message names the argument, what was got and what is allowed."""

from __future__ import annotations

import math
import operator
from typing import Any


def integer(name: str, value: Any, least: int, multiple: int = 1) -> int:
    """Return value as an int of at least `least` and a multiple of `multiple`."""
    allowed = f"a multiple of {multiple}, at least {least}" if multiple > 1 else f"an integer of at least {least}"
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be {allowed}, got {value!r}") from None
    if number < least or number % multiple:
        raise ValueError(f"{name} must be {allowed}, got {number}")
    return number


def real(name: str, value: Any, low: float = -math.inf, high: float = math.inf, closed: bool = False) -> float:
    """Return value as a finite float in the open interval (low, high), or [low, high) when closed."""
    allowed = "a finite number"
    if low > -math.inf:
        allowed += f" {'of at least' if closed else 'above'} {low:g}"
    if high < math.inf:
        allowed += f" and below {high:g}"
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be {allowed}, got {value!r}") from None
    if not math.isfinite(number) or number >= high or number < low or (number == low and not closed):
        raise ValueError(f"{name} must be {allowed}, got {number!r}")
    return number


def grid_sides(n: Any, nx: Any, ny: Any, default: int, fields: int = 1, least: int = 1) -> tuple[int, int]:
    """Return (nx, ny) from what was given of n, nx and ny.

    `n` alone is the nearest square grid; `nx` or `ny` alone is a square one. n counts `fields` values a node.
    """
    if nx is None and ny is None:
        if n is None:
            return default, default
        side = max(least, round(math.sqrt(integer("n", n, 1) / fields)))
        return side, side
    nx = integer("nx", ny if nx is None else nx, least)
    ny = integer("ny", nx if ny is None else ny, least)
    if n is not None and integer("n", n, 1) != fields * nx * ny:
        counted = "nx * ny" if fields == 1 else f"{fields} * nx * ny"
        raise ValueError(f"n must be {counted} = {fields * nx * ny} for nx = {nx} and ny = {ny}, got {n}; leave it out")
    return nx, ny
