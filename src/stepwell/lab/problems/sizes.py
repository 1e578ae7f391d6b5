"""Sizes of problems on grids."""

from __future__ import annotations

import math
from typing import Any

from stepwell.common.checks import read_whole, require


def grid_sides(n: Any, nx: Any, ny: Any, default: int, fields: int = 1, at_least: int = 1) -> tuple[int, int]:
    """Return (nx, ny) from what was given of n, nx and ny.

    `n` alone is the nearest square grid; `nx` or `ny` alone is a square one. n counts `fields` values a node.
    """
    if nx is None and ny is None:
        if n is None:
            return default, default
        side = max(at_least, round(math.sqrt(read_whole("n", n, 1) / fields)))
        return side, side
    nx = read_whole("nx", ny if nx is None else nx, at_least)
    ny = read_whole("ny", nx if ny is None else ny, at_least)
    counted = "nx * ny" if fields == 1 else f"{fields} * nx * ny"
    require_agreement(n, fields * nx * ny, f"{counted} for nx = {nx} and ny = {ny}")
    return nx, ny


def require_agreement(n: Any, count: int, made_of: str) -> None:
    """Raise for a number of variables, given beside other sizes, that is not the one they make."""
    if n is not None:
        require(read_whole("n", n, 1) == count, "n", n, f"{count} = {made_of}; or leave it out")
