"""The interface: a linear map by two functions on blocks of columns, which counts what it is applied to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from stepwell.arrays import Array, namespace_of, to_like, without_graph

#: Columns that are multiplied at a time where a dense matrix AᵀA is made.
GRAM_WIDTH = 256


class Operator:
    """A linear map given by two functions on blocks of columns.

    Parameters
    ----------
    forward, adjoint : callable
        Map an ``(n, k)`` block to ``(m, k)``, and an ``(m, k)`` block to ``(n, k)``.
    shape : tuple
        ``(m, n)``; an entry is None where it is not known.
    home : array or None
        A (possibly empty) array of the library, device and dtype that the functions work with; None: any.
    matrix : object or None
        The explicit matrix behind the functions, where there is one.
    memory : int
        Bytes held beyond the caller's own matrix (a transposed copy, where one was made).

    Attributes
    ----------
    forward_columns, adjoint_columns : int
        How many columns each function has been applied to so far.
    """

    def __init__(
        self,
        forward: Callable[[Array], Array],
        adjoint: Callable[[Array], Array],
        shape: tuple[int | None, int | None],
        home: Array | None = None,
        matrix: Any = None,
        memory: int = 0,
    ) -> None:
        self._forward = forward
        self._adjoint = adjoint
        self.shape = shape
        self.home = home
        self.matrix = matrix
        self.memory = memory
        self.forward_columns = 0
        self.adjoint_columns = 0

    def forward(self, block: Array) -> Array:
        """Apply the operator to an ``(n, k)`` block; the answer has the block's dtype."""
        self.forward_columns += int(block.shape[1])
        return _in_dtype_of(block, self._forward(block))

    def adjoint(self, block: Array) -> Array:
        """Apply the adjoint to an ``(m, k)`` block; the answer has the block's dtype."""
        self.adjoint_columns += int(block.shape[1])
        return _in_dtype_of(block, self._adjoint(block))

    def gram(self, template: Array) -> Array:
        """Return the dense matrix AᵀA in the template's library, a block of columns at a time."""
        columns = self.shape[1]
        assert columns is not None
        ranges = [(first, min(columns, first + GRAM_WIDTH)) for first in range(0, columns, GRAM_WIDTH)]
        parts = [self.adjoint(self._columns(first, last, template)) for first, last in ranges]
        return namespace_of(template).concat(parts, axis=1)

    def _columns(self, first: int, last: int, template: Array) -> Array:
        """Return some of the operator's columns as a dense block."""
        if sp.issparse(self.matrix):
            return to_like(self.matrix[:, first:last].toarray(), template)
        units = np.zeros((self.shape[1] or 0, last - first))
        units[np.arange(first, last), np.arange(last - first)] = 1.0
        return self.forward(to_like(units, template))


def _in_dtype_of(block: Array, image: Array) -> Array:
    image = without_graph(image)
    if image.dtype == block.dtype:
        return image
    return namespace_of(block).astype(image, block.dtype)


def from_functions(
    forward: Callable[[Array], Array],
    adjoint: Callable[[Array], Array],
    shape: tuple[int | None, int | None] = (None, None),
    *,
    blocks: bool = False,
    like: Array | None = None,
) -> Operator:
    """Make an operator of two functions.

    Parameters
    ----------
    forward, adjoint : callable
        Functions of one vector; of a block of columns, ``(n, k)`` to ``(m, k)`` and back, with ``blocks=True``.
    shape : tuple, optional
        ``(m, n)``, where it is known.
    blocks : bool, default False
        Whether the functions take blocks. Otherwise they are called column by column.
    like : array, optional
        An array of the library and device that the functions work with.

    Examples
    --------
    >>> import numpy as np
    >>> doubling = from_functions(lambda x: 2 * x, lambda y: 2 * y, (3, 3))
    >>> doubling.forward(np.ones((3, 2)))[0]
    array([2., 2.])
    """
    if blocks:
        return Operator(forward, adjoint, shape, like)

    def by_column(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
        def apply(block: Array) -> Array:
            if not block.shape[1]:  # what it gives has a length, of no column as of any
                return function(to_like(np.zeros(int(block.shape[0])), block))[:, None][:, :0]
            return namespace_of(block).stack([function(block[:, j]) for j in range(block.shape[1])], axis=1)

        return apply

    return Operator(by_column(forward), by_column(adjoint), shape, like)
