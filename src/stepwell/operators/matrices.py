"""Operators of what people have: dense arrays, each library's sparse matrices, LinearOperators, pairs of functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays import (
    Array,
    as_readable,
    empty_block,
    is_array,
    is_cuda,
    matrix_product,
    namespace_of,
    transposed_product,
    without_graph,
)
from stepwell.arrays.checks import require_real
from stepwell.arrays.sparse import (
    csr_parts,
    csr_with_transpose,
    empty_like_home,
    has_own_product,
    is_scipy_sparse,
    is_sparse,
    linear_operator_base,
)
from stepwell.common.checks import WrongKind, read_choice, require_instance, require_shape
from stepwell.common.threads import default_threads
from stepwell.operators.block_products import dense_products
from stepwell.operators.cuda_sparse import BlockProduct, group_rows, is_available
from stepwell.operators.operator import Operator, by_column, from_functions
from stepwell.operators.over_ranks import products_of_pieces, takes_distributed_arrays


def as_operator(A: Any, dtype: Any = None, *, name: str = "A", columns: int | None = None) -> Operator:
    """Turn anything that maps vectors into an :class:`Operator`.

    Parameters
    ----------
    A : array, sparse matrix, LinearOperator, pair of functions or Operator
        Dense arrays and sparse matrices of NumPy/SciPy, CuPy and PyTorch, dense JAX arrays, anything with ``matmat``
        and ``rmatmat``, anything with ``shape``, ``matvec`` and ``rmatvec`` (called column by column, as is a
        LinearOperator without functions of blocks), anything with ``shape``, ``@`` and ``.T``, or a pair
        ``(forward, adjoint)`` of functions of one vector. What has an attribute ``home``, an array, works with arrays
        of its library and device.
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
    require_instance("name", name, str)
    if dtype is not None:
        dtype = read_choice("dtype", dtype, ("float64", "float32"))
    if isinstance(A, Operator):
        other = (
            dtype is not None and A.home is not None and A.matrix is not None and str(dtype) not in str(A.home.dtype)
        )
        if other:
            return as_operator(A.matrix, dtype, name=name, columns=columns)
        return A
    if isinstance(A, tuple | list) and len(A) == 2 and all(callable(f) for f in A):
        return from_functions(A[0], A[1], name=name)
    if is_scipy_sparse(A):
        return _scipy_sparse(A, dtype, name)
    A = without_graph(A)
    if has_own_product(A):
        return _library_sparse(A, dtype, name, columns)
    if takes_distributed_arrays(A):
        return from_functions(*products_of_pieces(A), name=name)
    if hasattr(A, "shape") and (hasattr(A, "matvec") or (hasattr(A, "matmat") and hasattr(A, "rmatmat"))):
        return _linear_operator(A, name)
    if is_array(A):
        return _dense(A, dtype, name)
    if hasattr(A, "shape") and hasattr(A, "__matmul__") and hasattr(A, "T"):
        transposed = A.T
        return Operator(
            lambda X: matrix_product(A, X), lambda Y: matrix_product(transposed, Y), tuple(A.shape), name=name
        )
    raise WrongKind(
        f"{name} is a {type(A).__name__}; allowed: a dense or sparse matrix, a LinearOperator, a pair of functions "
        f"(forward, adjoint) or a stepwell.operators.Operator"
    )


def power_near(size: float, most: int = 1000) -> float:
    """Return the power of two nearest to a positive size, with an exponent of at most so many.

    Examples
    --------
    >>> power_near(1000.0), power_near(5e-324) > 0
    (1024.0, True)
    """
    return 2.0 ** min(most, max(-most, round(math.log2(size))))


def scaled(operator: Operator, factor: float) -> Operator:
    """Return the operator times a number; an explicit matrix is copied.

    Examples
    --------
    >>> scaled(as_operator(np.eye(2)), 3.0).forward(np.ones((2, 1)))[:, 0]
    array([3., 3.])
    """
    if operator.matrix is not None:
        other = as_operator(operator.matrix * factor)
        other.memory += other.memory if is_sparse(operator.matrix) else int(operator.matrix.nbytes)
        return other
    return Operator(
        lambda block: factor * operator.forward(block),
        lambda block: factor * operator.adjoint(block),
        operator.shape,
        operator.home,
        memory=operator.memory,
        name=operator.name,
    )


def _dense(A: Array, dtype: Any, name: str) -> Operator:
    require_shape(len(A.shape) == 2, name, A, "two dimensions, (m, n)")
    if isinstance(A, np.ndarray):
        A = np.asarray(A)  # np.matrix, which SciPy's todense() makes, has rules of its own for products
    xp = namespace_of(A)
    require_real(name, A)
    given = A
    if dtype is not None or not xp.isdtype(A.dtype, "real floating"):
        A = xp.astype(A, getattr(xp, dtype or "float64"), copy=False)
    copied = 0 if A.dtype == given.dtype else int(A.nbytes)
    if isinstance(A, np.ndarray) and A.dtype in (np.float32, np.float64):
        return Operator(*dense_products(A), tuple(A.shape), A[:0, :0], A, copied)
    return Operator(
        lambda X: matrix_product(A, X),
        lambda Y: transposed_product(A, Y),
        tuple(A.shape),
        empty_block(0, 0, A),
        A,
        copied,
    )


def _require_sound(name: str, A: Any) -> None:
    """Raise for a CSR or CSC matrix whose indices point outside of it: compiled loops would follow them."""
    if A.format not in ("csr", "csc"):
        return
    rows, columns = A.shape if A.format == "csr" else A.shape[::-1]
    ends, places = A.indptr, A.indices
    sound = len(ends) == rows + 1 and ends[0] == 0 and ends[-1] <= min(len(places), len(A.data))
    sound = sound and bool(np.all(ends[1:] >= ends[:-1]))
    used = places[: ends[-1]] if sound else places
    sound = sound and (not used.size or (used.min() >= 0 and used.max() < columns))
    if not sound:
        raise ValueError(
            f"{name} is a sparse matrix whose indices do not fit its shape {A.shape}; allowed: those that do"
        )


def _scipy_sparse(A: Any, dtype: Any, name: str) -> Operator:
    """CSR and the CSR of the transpose, so that both products run over rows, in parallel on all cores."""
    import scipy.sparse as sp

    from stepwell import _core

    require_real(name, A)
    _require_sound(name, A)
    value = np.dtype(dtype or (A.dtype if A.dtype in (np.float32, np.float64) else np.float64))
    matrix = sp.csr_matrix(A, dtype=value)
    transposed = sp.csr_matrix(matrix.T)

    def multiplier(csr: Any) -> Callable[[np.ndarray], np.ndarray]:
        index = np.int64 if np.int64 in (csr.indptr.dtype, csr.indices.dtype) else np.int32
        indptr, indices = as_readable(csr.indptr, index), as_readable(csr.indices, index)
        entries = as_readable(csr.data)

        def apply(block: np.ndarray) -> np.ndarray:
            out = np.empty((csr.shape[0], block.shape[1]), dtype=value)
            x = as_readable(block, value)
            _core.csr_times_block(indptr, indices, entries, x, out, default_threads())
            return out

        return apply

    shared = A.format == "csr" and np.may_share_memory(matrix.data, A.data)
    made = (transposed,) if shared else (transposed, matrix)
    copied = sum(part.data.nbytes + part.indices.nbytes + part.indptr.nbytes for part in made)
    home = np.empty(0, dtype=value)
    return Operator(multiplier(matrix), multiplier(transposed), matrix.shape, home, matrix, copied)


def _library_sparse(A: Any, dtype: Any, name: str, columns: int | None) -> Operator:
    """The library's own CSR, and that of the transpose; on a GPU wide blocks go through our kernel where it pays."""
    require_real(name, A)
    matrix, transposed = csr_with_transpose(A, dtype)
    home = csr_parts(matrix)[2][:0]
    rearranged = is_cuda(home) and is_available() and columns != 1
    held = sum(int(part.nbytes) for csr in (matrix, transposed) for part in csr_parts(csr))
    functions = []
    for csr in (matrix, transposed):
        grouped = group_rows(*csr_parts(csr), tuple(csr.shape)) if rearranged else None
        held += 0 if grouped is None else grouped.memory
        functions.append(_device_multiplier(csr, None if grouped is None else BlockProduct(grouped), home))
    return Operator(functions[0], functions[1], tuple(matrix.shape), home, matrix, held)


def _device_multiplier(csr: Any, by_groups: BlockProduct | None, home: Array) -> Callable[[Array], Array]:
    def apply(block: Array) -> Array:
        if by_groups is None or block.shape[1] < by_groups.least_columns or block.dtype != home.dtype:
            return csr @ block  # sparse products have no setting that rounds
        return by_groups(block)

    return apply


def _linear_operator(A: Any, name: str) -> Operator:
    """Wrap what has functions named as SciPy's LinearOperator has them: those of blocks where it defines them."""
    require_shape(len(A.shape) == 2, name, A, "two dimensions, (m, n)")
    base = linear_operator_base(A)

    def own(function: str) -> Callable[[Array], Array]:
        # SciPy's from 1.18 on asks for what its initialiser has set, which ASTRA's OpTomo does not call.
        lacks = hasattr(base, "_shared_matvec") and not hasattr(A, "_xp")
        inherited = lacks and getattr(type(A), function) is getattr(base, function)
        found: Callable[[Array], Array] = getattr(A, f"_{function}" if inherited else function)
        return found

    def transposed(function: str) -> Callable[[Array], Array]:
        def apply(argument: Array) -> Array:
            try:
                return own(function)(argument)
            except (NotImplementedError, TypeError, AttributeError) as error:
                # SciPy calls the function that is missing, None, or says of an operator's class that it has none.
                missing = isinstance(error, AttributeError) and not hasattr(A, function)
                missing = missing or str(error) == "'NoneType' object is not callable"
                if not (missing or isinstance(error, NotImplementedError)):
                    raise
                raise WrongKind(
                    f"{name} is a {type(A).__name__} whose rmatvec is not implemented; allowed: one with rmatvec or "
                    "rmatmat, as its transpose is needed"
                ) from error

        return apply

    forward = own("matmat") if takes_blocks(A, "matmat") else by_column(own("matvec"), f"what {name}'s matvec returned")
    if takes_blocks(A, "rmatmat"):
        adjoint = transposed("rmatmat")
    else:
        adjoint = by_column(transposed("rmatvec"), f"what {name}'s rmatvec returned")
    home = A.home if hasattr(A, "home") else empty_like_home(A) if hasattr(A, "matmat") else None
    return Operator(forward, adjoint, tuple(A.shape), home, name=name)


def takes_blocks(A: Any, function: str) -> bool:
    """Whether an operator itself defines ``matmat`` or ``rmatmat``.

    What SciPy's and CuPy's LinearOperator puts in their place hands the caller's function columns of shape ``(n, 1)``,
    which many functions of vectors do not take.

    Examples
    --------
    >>> from scipy.sparse.linalg import LinearOperator, aslinearoperator
    >>> by_vectors = LinearOperator((2, 2), matvec=lambda x: x, rmatvec=lambda x: x)
    >>> takes_blocks(by_vectors, "matmat"), takes_blocks(aslinearoperator(np.eye(2)), "rmatmat")
    (False, True)
    """
    if not hasattr(A, function):
        return False
    kind: Any = type(A)
    base = linear_operator_base(A)
    if base is None:
        return True
    given = f"_CustomLinearOperator__{function}_impl"  # one made of functions
    if hasattr(A, given):
        return getattr(A, given) is not None
    if function == "rmatmat" and kind._adjoint is not base._adjoint and kind._rmatmat is base._rmatmat:
        return takes_blocks(A.H, "matmat")
    return any(getattr(kind, own) is not getattr(base, own) for own in (function, f"_{function}"))
