"""The interface: a linear map by two functions on blocks of columns, which counts what it is applied to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import Array, copy_to_device_of, namespace_of, own_copy, without_graph
from stepwell.arrays.checks import read_array, require_template
from stepwell.arrays.sparse import is_scipy_sparse
from stepwell.common.checks import read_switch, require_function, require_instance, require_shape
from stepwell.operators.error_state import callers_arithmetic

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
    name : str
        What error messages call the operator; by default an argument's own name, where it is made of one.

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
        name: str = "the operator",
    ) -> None:
        self._forward = forward
        self._adjoint = adjoint
        self.shape = shape
        self.home = home
        self.matrix = matrix
        self.memory = memory
        self.name = name
        self.forward_columns = 0
        self.adjoint_columns = 0

    def forward(self, block: Array) -> Array:
        """Apply the operator to an ``(n, k)`` block; the answer has the block's dtype."""
        self.forward_columns += int(block.shape[1])
        return self._checked(block, self._call(self._forward, block), "forward", self.shape[0])

    def adjoint(self, block: Array) -> Array:
        """Apply the adjoint to an ``(m, k)`` block; the answer has the block's dtype."""
        self.adjoint_columns += int(block.shape[1])
        return self._checked(block, self._call(self._adjoint, block), "adjoint", self.shape[1])

    def count(self, columns: int) -> None:
        """Count an application to so many columns, forward and back, by someone who has the matrix."""
        self.forward_columns += columns
        self.adjoint_columns += columns

    def _call(self, function: Callable[[Array], Array], block: Array) -> Array:
        """Apply a function; without a matrix behind it, it is the caller's own, and may write into what it gets."""
        if self.matrix is not None:
            return function(block)
        own = namespace_of(block).asarray(block, copy=True) if self.copies_blocks else block
        with callers_arithmetic():
            return function(own)

    @property
    def copies_blocks(self) -> bool:
        """Whether functions get copies of blocks; those of one vector get copies of vectors."""
        return self.matrix is None and not hasattr(self._forward, "by_column")

    def _checked(self, block: Array, image: Array, function: str, rows: int | None) -> Array:
        """Return what a function made of a block in the block's dtype, where its shape is right."""
        if not hasattr(image, "shape"):
            image = read_array(f"what {self.name}'s {function} returned", image)
        shape, columns = tuple(image.shape), int(block.shape[1])
        if len(shape) != 2 or shape[1] != columns or rows not in (None, shape[0]):
            allowed = f"({'rows' if rows is None else rows}, {columns}), a column for each vector"
            require_shape(False, f"what {self.name}'s {function} returned", image, allowed)
        return _in_dtype_of(block, image)

    def gram(self, template: Array) -> Array:
        """Return the dense matrix AᵀA in the template's library, a block of columns at a time."""
        columns = self.shape[1]
        assert columns is not None
        ranges = [(first, min(columns, first + GRAM_WIDTH)) for first in range(0, columns, GRAM_WIDTH)]
        parts = [self.adjoint(self._columns(first, last, template)) for first, last in ranges]
        return namespace_of(template).concat(parts, axis=1)

    def _columns(self, first: int, last: int, template: Array) -> Array:
        """Return some of the operator's columns as a dense block."""
        if is_scipy_sparse(self.matrix):
            return copy_to_device_of(self.matrix[:, first:last].toarray(), template)
        units = np.zeros((self.shape[1] or 0, last - first))
        units[np.arange(first, last), np.arange(last - first)] = 1.0
        return self.forward(copy_to_device_of(units, template))


def _in_dtype_of(block: Array, image: Array) -> Array:
    image = without_graph(image)
    if image.dtype == block.dtype:
        return image
    return namespace_of(block).astype(image, block.dtype)


def by_column(function: Callable[[Array], Array], called: str) -> Callable[[Array], Array]:
    """Return what applies a function of one vector to a block, column by column; errors call its answer as told."""

    def image(vector: Array) -> Array:
        found = function(own_copy(vector))  # it may write into what it gets
        found = found if hasattr(found, "shape") else read_array(called, found)
        require_shape(len(found.shape) == 1, called, found, "one dimension, a vector")
        return found

    def apply(block: Array) -> Array:
        if not block.shape[1]:  # what it gives has a length, of no column as of any
            return image(copy_to_device_of(np.zeros(int(block.shape[0])), block))[:, None][:, :0]
        return namespace_of(block).stack([image(block[:, j]) for j in range(block.shape[1])], axis=1)

    apply.by_column = True  # type: ignore[attr-defined]
    return apply


def from_functions(
    forward: Callable[[Array], Array],
    adjoint: Callable[[Array], Array],
    shape: tuple[int | None, int | None] = (None, None),
    *,
    blocks: bool = False,
    like: Array | None = None,
    name: str = "the operator",
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
    name : str, default "the operator"
        What error messages call the operator.

    Examples
    --------
    >>> import numpy as np
    >>> doubling = from_functions(lambda x: 2 * x, lambda y: 2 * y, (3, 3))
    >>> doubling.forward(np.ones((3, 2)))[0]
    array([2., 2.])
    """
    require_function("forward", forward, optional=False)
    require_function("adjoint", adjoint, optional=False)
    require_template("like", like)
    require_instance("name", name, str)
    if read_switch("blocks", blocks):
        return Operator(forward, adjoint, shape, like, name=name)

    by_columns = (
        by_column(forward, f"what {name}'s forward returned"),
        by_column(adjoint, f"what {name}'s adjoint returned"),
    )
    return Operator(*by_columns, shape, like, name=name)
