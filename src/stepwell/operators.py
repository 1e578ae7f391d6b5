"""Linear operators: one small interface over dense arrays, sparse matrices, LinearOperators and pairs of functions.

Every solver here sees an :class:`Operator`: ``shape``, ``forward(X)`` and ``adjoint(Y)`` on blocks of columns, and
how many columns each has been applied to. This module is the only one that knows how the libraries' sparse matrices
differ.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from stepwell.arrays import Array, is_cuda, kind_of, namespace_of, to_like
from stepwell.settings import default_threads, is_whole
from stepwell.targets.cuda_sparse import BlockProduct, group_rows, is_available

__all__ = ["Operator", "adjoint_error", "as_operator", "from_functions", "gradient", "in_library_of"]

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

    def scaled(self, factor: float) -> Operator:
        """Return the operator times a number; an explicit matrix is copied."""
        if self.matrix is not None:
            other = as_operator(self.matrix * factor)
            other.memory += other.memory if is_sparse(self.matrix) else int(self.matrix.nbytes)
            return other
        return Operator(
            lambda block: factor * self.forward(block),
            lambda block: factor * self.adjoint(block),
            self.shape,
            self.home,
            memory=self.memory,
        )

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


def is_sparse(matrix: Any) -> bool:
    """Whether a matrix is a sparse one of SciPy, CuPy or PyTorch."""
    return hasattr(matrix, "tocsr") or (kind_of(matrix) == "torch" and str(matrix.layout) != "torch.strided")


def _in_dtype_of(block: Array, image: Array) -> Array:
    if image.dtype == block.dtype:
        return image
    return namespace_of(block).astype(image, block.dtype)


def as_operator(A: Any, dtype: Any = None, *, name: str = "A", columns: int | None = None) -> Operator:
    """Turn anything that maps vectors into an :class:`Operator`.

    Parameters
    ----------
    A : array, sparse matrix, LinearOperator, pair of functions or Operator
        Dense arrays and sparse matrices of NumPy/SciPy, CuPy and PyTorch, dense JAX arrays, anything with ``matmat``
        and ``rmatmat``, anything with ``shape``, ``@`` and ``.T``, or a pair ``(forward, adjoint)`` of functions of
        one vector.
    dtype : dtype name, optional
        ``"float32"`` or ``"float64"``: cast an explicit matrix to it.
    name : str, default "A"
        What error messages call the operator.
    columns : int, optional
        Width of the blocks to come, where it is known: for one column a sparse matrix on a GPU is not rearranged.

    Returns
    -------
    Operator

    Examples
    --------
    >>> import numpy as np
    >>> operator = as_operator(np.array([[1.0, 2.0], [0.0, 1.0], [0.0, 0.0]]))
    >>> operator.shape
    (3, 2)
    >>> operator.adjoint(np.array([[1.0], [1.0], [5.0]])).ravel()
    array([1., 3.])
    """
    if isinstance(A, Operator):
        other = (
            dtype is not None and A.home is not None and A.matrix is not None and str(dtype) not in str(A.home.dtype)
        )
        return as_operator(A.matrix, dtype, name=name, columns=columns) if other else A
    if isinstance(A, tuple | list) and len(A) == 2 and all(callable(f) for f in A):
        return from_functions(A[0], A[1])
    if sp.issparse(A):
        return _scipy_sparse(A, dtype, name)
    if type(A).__module__.startswith("cupyx.scipy.sparse") and hasattr(A, "tocsr"):
        return _cupy_sparse(A, dtype, name, columns)
    if kind_of(A) == "torch" and str(A.layout) != "torch.strided":
        return _torch_sparse(A, dtype, name, columns)
    if hasattr(A, "matmat") and hasattr(A, "rmatmat"):
        return _linear_operator(A)
    if kind_of(A) != "numpy" or isinstance(A, np.ndarray):
        return _dense(A, dtype, name)
    if hasattr(A, "shape") and hasattr(A, "__matmul__") and hasattr(A, "T"):
        transposed = A.T
        return Operator(lambda X: A @ X, lambda Y: transposed @ Y, tuple(A.shape))
    raise TypeError(
        f"{name}: got {type(A).__name__}; allowed are a dense or sparse matrix, a LinearOperator, a pair of functions "
        f"(forward, adjoint) or a stepwell.operators.Operator"
    )


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
    good = (
        isinstance(shape, Sequence | np.ndarray) and len(shape) and all(is_whole(s) and 1 <= s < np.inf for s in shape)
    )
    if not good:
        raise ValueError(f"shape: got {shape!r}; it must be a sequence of whole numbers, each at least 1")
    sizes = [int(s) for s in shape]
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
    """
    matrix = sp.csr_matrix(matrix)
    data = to_like(matrix.data, like)
    kind = kind_of(like)
    if kind == "torch":
        import torch

        with _beta_warnings_silenced():
            return torch.sparse_csr_tensor(
                to_like(matrix.indptr, like), to_like(matrix.indices, like), data, matrix.shape
            )
    if kind == "cupy":
        from cupyx.scipy.sparse import csr_matrix

        parts = (data, to_like(matrix.indices, like), to_like(matrix.indptr, like))
        return csr_matrix(parts, shape=matrix.shape)
    if kind == "jax":
        from jax.experimental.sparse import BCOO

        entries = matrix.tocoo()
        places = np.stack([entries.row, entries.col], axis=1)
        return BCOO((to_like(entries.data, like), to_like(places, like)), shape=matrix.shape)
    return sp.csr_matrix((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def adjoint_error(
    A: Any, shape: tuple[int, int] | None = None, *, like: Array | None = None, trials: int = 3, seed: int = 0
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
    if not (is_whole(trials) and 1 <= trials < np.inf):
        raise ValueError(f"trials: got {trials!r}; it must be a whole number, at least 1")
    if shape is not None and not (isinstance(shape, tuple | list) and len(shape) == 2 and all(map(is_whole, shape))):
        raise ValueError(f"shape: got {shape!r}; it must be a pair of whole numbers (m, n)")
    rows, columns = shape or operator.shape
    if rows is None or columns is None:
        raise ValueError("shape: a pair of functions does not tell its shape; give shape=(m, n)")
    template = like if like is not None else operator.home if operator.home is not None else np.empty(0)
    xp = namespace_of(template)
    random = np.random.default_rng(seed)
    x = to_like(random.standard_normal((columns, trials)), template)
    y = to_like(random.standard_normal((rows, trials)), template)
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


def _dense(A: Array, dtype: Any, name: str) -> Operator:
    if len(A.shape) != 2:
        raise ValueError(f"{name}: got an array of shape {tuple(A.shape)}; it must have two dimensions")
    xp = namespace_of(A)
    require_real(A, name)
    given = A
    if dtype is not None or not xp.isdtype(A.dtype, "real floating"):
        A = xp.astype(A, getattr(xp, dtype or "float64"), copy=False)
    copied = 0 if A.dtype == given.dtype else int(A.nbytes)
    return Operator(lambda X: A @ X, lambda Y: A.T @ Y, tuple(A.shape), A[:0, :0], A, copied)


def _scipy_sparse(A: Any, dtype: Any, name: str) -> Operator:
    """CSR and the CSR of the transpose, so that both products run over rows, in parallel on all cores."""
    from stepwell import _core

    require_real(A, name)
    value = np.dtype(dtype or (A.dtype if A.dtype in (np.float32, np.float64) else np.float64))
    matrix = sp.csr_matrix(A, dtype=value)
    transposed = sp.csr_matrix(matrix.T)

    def multiplier(csr: Any) -> Callable[[np.ndarray], np.ndarray]:
        index = np.int64 if np.int64 in (csr.indptr.dtype, csr.indices.dtype) else np.int32
        indptr, indices = csr.indptr.astype(index, copy=False), csr.indices.astype(index, copy=False)

        def apply(block: np.ndarray) -> np.ndarray:
            out = np.empty((csr.shape[0], block.shape[1]), dtype=value)
            x = np.ascontiguousarray(block, dtype=value)
            _core.csr_times_block(indptr, indices, csr.data, x, out, default_threads())
            return out

        return apply

    shared = A.format == "csr" and np.may_share_memory(matrix.data, A.data)
    made = (transposed,) if shared else (transposed, matrix)
    copied = sum(part.data.nbytes + part.indices.nbytes + part.indptr.nbytes for part in made)
    home = np.empty(0, dtype=value)
    return Operator(multiplier(matrix), multiplier(transposed), matrix.shape, home, matrix, copied)


def _cupy_sparse(A: Any, dtype: Any, name: str, columns: int | None) -> Operator:
    import cupy

    require_real(A, name)
    matrix = A.tocsr().astype(dtype or A.dtype)
    transposed = matrix.T.tocsr()

    def parts(csr: Any) -> tuple[Array, Array, Array]:
        return csr.indptr, csr.indices, csr.data

    return _on_device(matrix, transposed, parts, cupy.empty(0, matrix.dtype), columns)


def _torch_sparse(A: Any, dtype: Any, name: str, columns: int | None) -> Operator:
    import torch

    require_real(A, name)
    with _beta_warnings_silenced():
        coo = A.to_sparse_coo().to(getattr(torch, dtype) if dtype else A.dtype)
        matrix, transposed = coo.to_sparse_csr(), coo.t().to_sparse_csr()

    def parts(csr: Any) -> tuple[Array, Array, Array]:
        return csr.crow_indices(), csr.col_indices(), csr.values()

    home = torch.empty(0, dtype=matrix.dtype, device=matrix.device)
    return _on_device(matrix, transposed, parts, home, columns)


def _on_device(
    matrix: Any,
    transposed: Any,
    parts: Callable[[Any], tuple[Array, Array, Array]],
    home: Array,
    columns: int | None,
) -> Operator:
    """Library CSR and the CSR of the transpose; on a GPU wide blocks go through a kernel of our own where it pays."""
    rearranged = is_cuda(home) and is_available() and columns != 1
    held = sum(int(part.nbytes) for csr in (matrix, transposed) for part in parts(csr))
    functions = []
    for csr in (matrix, transposed):
        grouped = group_rows(*parts(csr), tuple(csr.shape)) if rearranged else None
        held += 0 if grouped is None else grouped.memory
        functions.append(_device_multiplier(csr, None if grouped is None else BlockProduct(grouped), home))
    return Operator(functions[0], functions[1], tuple(matrix.shape), home, matrix, held)


def _device_multiplier(csr: Any, by_groups: BlockProduct | None, home: Array) -> Callable[[Array], Array]:
    def apply(block: Array) -> Array:
        if by_groups is None or block.shape[1] < by_groups.least_columns or block.dtype != home.dtype:
            return csr @ block
        return by_groups(block)

    return apply


def _linear_operator(A: Any) -> Operator:
    if type(A).__module__.startswith("cupyx"):
        import cupy

        return Operator(A.matmat, A.rmatmat, tuple(A.shape), cupy.empty(0))
    return Operator(A.matmat, A.rmatmat, tuple(A.shape), np.empty(0))


def require_real(A: Any, name: str) -> None:
    """Refuse arrays and matrices of what are no real numbers."""
    if "complex" in str(A.dtype) or (isinstance(A.dtype, np.dtype) and A.dtype.kind not in "biuf"):
        raise TypeError(f"{name}: got dtype {A.dtype}; it must hold real numbers")


def _beta_warnings_silenced() -> warnings.catch_warnings[Any]:
    """Context in which torch does not announce once per process that its CSR support is in beta."""
    return warnings.catch_warnings(action="ignore")
