"""Operators at hand: finite differences of images, a matrix in another library, the test of an adjoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from stepwell.arrays import Array, copy_to_device_of, namespace_of
from stepwell.arrays.checks import read_array, require_template
from stepwell.arrays.sparse import is_scipy_sparse, sparse_like
from stepwell.common.checks import (
    read_seed,
    read_sizes,
    read_whole,
    require,
    require_kind,
    require_memory,
    require_shape,
)
from stepwell.common.typing import OperatorLike
from stepwell.operators.matrices import as_operator


def gradient(shape: Sequence[int], *, like: Array | None = None) -> Any:
    """Forward differences of an image or volume along every axis, as a sparse CSR matrix.

    Parameters
    ----------
    shape : sequence of int
        The image's shape; the unknowns are its pixels in C order.
    like : array, optional
        An array of the library and device in which the matrix is wanted (default: SciPy).

    Returns
    -------
    sparse matrix
        One row per pair of neighbours, the differences along the first axis first. No row reaches over an edge, so
        constants are its null space.

    Examples
    --------
    >>> gradient((2, 2)).toarray().astype(int)
    array([[-1,  0,  1,  0],
           [ 0, -1,  0,  1],
           [-1,  1,  0,  0],
           [ 0,  0, -1,  1]])
    """
    import scipy.sparse as sp

    sizes = list(read_sizes("shape", shape, None, meaning="the image's shape"))
    require_template("like", like)
    require_memory("shape", shape, 4 * len(sizes) * math.prod(sizes))
    parts = []
    for axis, size in enumerate(sizes):
        step = sp.diags([-np.ones(size - 1), np.ones(size - 1)], [0, 1], shape=(size - 1, size))
        before = sp.identity(int(np.prod(sizes[:axis])))
        after = sp.identity(int(np.prod(sizes[axis + 1 :])))
        parts.append(sp.kron(sp.kron(before, step), after))
    matrix = sp.csr_matrix(sp.vstack(parts))
    return matrix if like is None else in_library_of(matrix, like)


def in_library_of(matrix: Any, like: Array) -> Any:
    """Copy a SciPy sparse matrix to the sparse format of another array's library, device and dtype.

    Parameters
    ----------
    matrix : scipy.sparse matrix
    like : array
        Any array of the wanted library: NumPy, CuPy, PyTorch or JAX.

    Returns
    -------
    sparse matrix
        ``scipy.sparse.csr_matrix``, ``cupyx.scipy.sparse.csr_matrix``, a torch CSR tensor or a JAX ``BCOO``.

    Examples
    --------
    >>> import numpy as np, scipy.sparse
    >>> in_library_of(scipy.sparse.eye(3), np.ones(1, np.float32)).dtype
    dtype('float32')
    """
    if not is_scipy_sparse(matrix):
        matrix = read_array("matrix", matrix)
        require_shape(len(matrix.shape) == 2, "matrix", matrix, "two dimensions, (m, n)")
    require_template("like", like, optional=False)
    return sparse_like(matrix, like)


def adjoint_error(
    A: OperatorLike, shape: tuple[int, int] | None = None, *, like: Array | None = None, trials: int = 3, seed: int = 0
) -> float:
    """Measure how far an operator's adjoint is from its adjoint: the dot-product test.

    Parameters
    ----------
    A : operator
        Anything :func:`as_operator` takes.
    shape : tuple, optional
        ``(m, n)``, needed for a pair of functions.
    like : array, optional
        An array of the library in which a pair of functions works (default: NumPy).
    trials : int, default 3
        Number of random pairs of vectors.
    seed : int, default 0
        Seed of the random numbers.

    Returns
    -------
    float
        The largest ``|⟨A x, y⟩ − ⟨x, Aᵀ y⟩| / (‖A x‖ ‖y‖ + ‖x‖ ‖Aᵀ y‖)``; about machine precision for a true pair.

    Examples
    --------
    >>> import numpy as np
    >>> adjoint_error((np.cumsum, lambda y: np.cumsum(y[::-1])[::-1]), shape=(50, 50)) < 1e-14
    True
    >>> adjoint_error((np.cumsum, np.cumsum), shape=(50, 50)) > 1e-3
    True
    """
    operator = as_operator(A)
    trials, seed = read_whole("trials", trials, 1, as_float=True), read_seed(seed)
    require_template("like", like)
    rows, columns = operator.shape
    if shape is not None:
        good = isinstance(shape, tuple | list) and len(shape) == 2
        require_kind(good, "shape", shape, "a pair of whole numbers (m, n)")
        told = tuple(read_whole("shape", size, 1, as_float=True) for size in shape)
        fits = all(one is None or one == other for one, other in zip(operator.shape, told, strict=True))
        require(fits, "shape", shape, f"{operator.shape}, as A has it")
        rows, columns = told
    if rows is None or columns is None:
        raise ValueError("shape is None; allowed: (m, n) for a pair of functions, which do not tell it")
    template = like if like is not None else operator.home if operator.home is not None else np.empty(0)
    xp = namespace_of(template)
    random = np.random.default_rng(seed)
    x = copy_to_device_of(random.standard_normal((columns, trials)), template)
    y = copy_to_device_of(random.standard_normal((rows, trials)), template)
    image, back = operator.forward(x), operator.adjoint(y)
    # Without their size, whose square may over- or underflow.
    largest = max((float(xp.max(xp.abs(part))) for part in (image, back) if 0 not in part.shape), default=0.0)
    if largest > 0:
        image, back = image / largest, back / largest
    gap = xp.abs(xp.sum(image * y, axis=0) - xp.sum(x * back, axis=0))

    def norms(block: Array) -> Array:
        return xp.sqrt(xp.sum(block * block, axis=0))

    scale = norms(image) * norms(y) + norms(x) * norms(back)
    return float(xp.max(gap / xp.where(scale > 0, scale, xp.ones_like(scale))))
