"""Products of long, narrow blocks of columns with each other, with small matrices and with dense ones.

On the host they run on the package's own threads: a BLAS leaves its threads waiting in a loop for more, and they take
the cores from the sparse product that follows. The sums of these do not depend on the number of threads either. Other
libraries have products of their own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stepwell import _core
from stepwell.arrays import Array, as_readable, matrix_product, plus_product, transposed_product
from stepwell.common.threads import default_threads

#: So many columns are multiplied by a transposed matrix one by one, in passes over it in its own order.
FEW_COLUMNS = 4


def inner_products(left: Array, right: Array) -> Array:
    """All inner products of the columns of two blocks, ``left.T @ right``; symmetric where they are the same block.

    Examples
    --------
    >>> block = np.arange(6.0).reshape(3, 2)
    >>> inner_products(block, block)
    array([[20., 26.],
           [26., 35.]])
    """
    if not isinstance(left, np.ndarray):
        return transposed_product(left, right)
    ordered = as_readable(left, left.dtype)
    out = np.empty((left.shape[1], right.shape[1]), dtype=left.dtype)
    _core.block_gram(ordered, ordered if right is left else as_readable(right, left.dtype), out, default_threads())
    return out


def combined(left: Array, right: Array) -> Array:
    """Combinations of the columns of a block, ``left @ right``.

    Examples
    --------
    >>> combined(np.eye(2), np.array([[1.0], [2.0]]))
    array([[1.],
           [2.]])
    """
    return matrix_product(left, right) if not isinstance(left, np.ndarray) else _combine(None, left, right, 1)


def plus_combined(block: Array, left: Array, right: Array, sign: int = 1) -> Array:
    """Return ``block + sign * left @ right`` as a new array.

    Examples
    --------
    >>> plus_combined(np.ones((2, 1)), np.eye(2), np.array([[1.0], [2.0]]), -1)
    array([[ 0.],
           [-1.]])
    """
    if not isinstance(block, np.ndarray):
        return plus_product(block, left, right, sign)
    return _combine(as_readable(block, left.dtype), left, right, sign)


def dense_products(A: np.ndarray) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """Functions of blocks that multiply by a dense matrix of NumPy, and by its transpose.

    Examples
    --------
    >>> forward, adjoint = dense_products(np.array([[1.0, 2.0], [0.0, 3.0]]))
    >>> forward(np.ones((2, 1)))[:, 0], adjoint(np.ones((2, 1)))[:, 0]
    (array([3., 3.]), array([1., 5.]))
    """
    if A.flags.aligned and A.flags.c_contiguous:
        return lambda X: _times(A, X), lambda Y: _transposed_times(A, Y)
    if A.flags.aligned and A.flags.f_contiguous:
        return lambda X: _transposed_times(A.T, X), lambda Y: _times(A.T, Y)
    return lambda X: A @ X, lambda Y: A.T @ Y  # else a copy would take as much memory as the matrix


def _times(A: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Return ``A @ block``, in the wider dtype of the two."""
    return np.asarray(combined(A, block) if block.dtype == A.dtype else A @ block)


def _transposed_times(A: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Return ``A.T @ block``, in the wider dtype of the two."""
    if block.dtype != A.dtype:
        return np.asarray(A.T @ block)
    if block.shape[1] > FEW_COLUMNS:
        return np.asarray(inner_products(A, block))
    out = np.empty((block.shape[1], A.shape[1]), dtype=A.dtype)
    nothing = np.zeros(A.shape[1], dtype=A.dtype)
    for column, image in zip(as_readable(block.T, A.dtype), out):
        _core.rows_combine(A, column, nothing, image, default_threads())
    return np.ascontiguousarray(out.T)


def _combine(base: np.ndarray | None, left: np.ndarray, right: np.ndarray, sign: int) -> np.ndarray:
    out = np.empty((left.shape[0], right.shape[1]), dtype=left.dtype)
    _core.block_combine(
        as_readable(left, left.dtype), as_readable(right, left.dtype), base, sign, out, default_threads()
    )
    return out
