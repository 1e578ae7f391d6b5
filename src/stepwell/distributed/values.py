"""Values of an objective over ranks: the whole, a share of it, or one number for each chunk."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stepwell.common.checks import real_or_none, require_kind


class Part:
    """This rank's share of a sum over all ranks. See `part`."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"part({self.value!r})"


def part(f: Any) -> Part:
    """Mark a number as this rank's share of f: the solver adds up the shares of all ranks, which saves a reduction.

    Shares are added in the order of the ranks: runs repeat on as many ranks. (An array of one value for each of the
    rank's chunks, as `Layout.chunk_sums` returns it, gives the same bits on any number of ranks.)

    Examples
    --------
    >>> import numpy as np, stepwell
    >>> fun = lambda x: (stepwell.distributed.part(float(x @ x)), 2 * x)
    >>> stepwell.minimize(fun, np.ones(3), jac=True, comm="self").fun
    0.0
    """
    if not isinstance(f, float):
        only = f.reshape(-1)[0] if isinstance(f, np.ndarray) and f.size == 1 else f
        # (An array on a device is not asked for its number, which would wait for it.)
        there = hasattr(f, "dtype") and not isinstance(f, np.ndarray) and math.prod(f.shape) == 1
        good = "complex" not in str(f.dtype) if there else real_or_none(only) is not None
        require_kind(good, "f", f, "a number")
    return Part(f)
