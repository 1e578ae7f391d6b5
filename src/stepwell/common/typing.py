"""Types of what the public functions take. (What they return is typed by the result classes.)

Arrays of four libraries have no common type: an array is anything with a shape, and what comes back in the caller's
library is `stepwell.arrays.Array`, which type checkers read as Any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias


class HasShape(Protocol):
    """An array or matrix of any library, dense or sparse, or anything that maps vectors and says its shape."""

    @property
    def shape(self) -> Any:
        """The shape."""


class HasBounds(Protocol):
    """A ``scipy.optimize.Bounds``."""

    lb: Any
    ub: Any


#: A vector, block or stack of numbers: an array of any library, or nested lists.
ArrayLike: TypeAlias = (
    HasShape | Sequence[float] | Sequence[Sequence[float]] | Sequence[Sequence[Sequence[float]]] | Sequence[HasShape]
)
#: One number, or one for each right-hand side.
NumberOrArray: TypeAlias = float | HasShape | Sequence[float]
#: Bounds: a pair (lower, upper), a ``scipy.optimize.Bounds``, an array (2, n), pairs (low, high), or an array (n, 2).
BoundsLike: TypeAlias = tuple[Any, Any] | list[Any] | Sequence[tuple[Any, Any]] | HasShape | HasBounds
#: A function of a vector or block.
Function: TypeAlias = Callable[[Any], Any]
#: A matrix or operator with a shape, a matrix as nested lists, or a pair of functions ``(forward, adjoint)``.
OperatorLike: TypeAlias = HasShape | Sequence[Sequence[float]] | tuple[Function, Function] | list[Function]
