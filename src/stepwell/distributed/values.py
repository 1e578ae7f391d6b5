"""Values of an objective over ranks: the whole, a share of it, or one number for each chunk."""

from __future__ import annotations

from typing import Any


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
    return Part(f)
