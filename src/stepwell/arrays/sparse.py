"""Sparse matrices of the libraries: SciPy's, CuPy's, PyTorch's and, for products alone, JAX's."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

from stepwell.arrays.conversion import copy_to_device_of
from stepwell.arrays.kinds import Array, is_sparse_tensor, kind_of


def is_scipy_sparse(matrix: Any) -> bool:
    """Whether a matrix is a sparse one of SciPy, whose import, a tenth of a second, nobody needs who has none.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> is_scipy_sparse(sp.eye(2)), is_scipy_sparse(np.eye(2))
    (True, False)
    """
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(matrix))


def is_sparse(matrix: Any) -> bool:
    """Whether a matrix is a sparse one of SciPy, CuPy or PyTorch.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> is_sparse(sp.eye(2)), is_sparse(np.eye(2))
    (True, False)
    """
    return hasattr(matrix, "tocsr") or is_sparse_tensor(matrix)


def has_own_product(matrix: Any) -> bool:
    """Whether a sparse matrix, of CuPy or PyTorch, is multiplied by its own library."""
    cupy = type(matrix).__module__.startswith("cupyx.scipy.sparse") and hasattr(matrix, "tocsr")
    return cupy or is_sparse_tensor(matrix)


def csr_with_transpose(matrix: Any, dtype: str | None) -> tuple[Any, Any]:
    """Return a sparse matrix of CuPy or PyTorch, and its transpose, as CSR of a dtype (None: its own)."""
    if not is_sparse_tensor(matrix):
        csr = matrix.tocsr().astype(dtype or matrix.dtype)
        return csr, csr.T.tocsr()
    import torch

    with _beta_warnings_silenced():
        coo = matrix.to_sparse_coo().to(getattr(torch, dtype) if dtype else matrix.dtype)
        return coo.to_sparse_csr(), coo.t().to_sparse_csr()


def csr_parts(csr: Any) -> tuple[Array, Array, Array]:
    """Return the starts of rows, the columns of entries and the entries of a CSR matrix."""
    if is_sparse_tensor(csr):
        return csr.crow_indices(), csr.col_indices(), csr.values()
    return csr.indptr, csr.indices, csr.data


def empty_like_home(operator: Any) -> Array:
    """Return an empty array of the library and device on which something with ``matmat`` works: CuPy's, or NumPy's."""
    if not type(operator).__module__.startswith("cupyx"):
        return np.empty(0)
    import cupy

    return cupy.empty(0)


def linear_operator_base(operator: Any) -> Any:
    """Return the class LinearOperator, of SciPy or CuPy, that an operator's class is made from; None if there is none.

    Examples
    --------
    >>> from scipy.sparse.linalg import LinearOperator, aslinearoperator
    >>> linear_operator_base(aslinearoperator(np.eye(2))) is LinearOperator, linear_operator_base(np.eye(2)) is None
    (True, True)
    """
    base: Any = next((one for one in type(operator).__mro__ if one.__name__ == "LinearOperator"), None)
    return base if base is not None and base.__module__.startswith(("scipy.", "cupyx.")) else None


def sparse_like(matrix: Any, like: Array) -> Any:
    """Copy a SciPy sparse matrix to the sparse format of another array's library, device and dtype.

    Returns
    -------
    sparse matrix
        ``scipy.sparse.csr_matrix``, ``cupyx.scipy.sparse.csr_matrix``, a torch CSR tensor or a JAX ``BCOO``.
    """
    import scipy.sparse as sp

    matrix = sp.csr_matrix(matrix)
    kind = kind_of(like)
    if kind == "jax":
        from jax.experimental.sparse import BCOO

        entries = matrix.tocoo()
        places = np.stack([entries.row, entries.col], axis=1)
        return BCOO((copy_to_device_of(entries.data, like), copy_to_device_of(places, like)), shape=matrix.shape)
    starts, columns, data = (copy_to_device_of(part, like) for part in (matrix.indptr, matrix.indices, matrix.data))
    if kind == "torch":
        import torch

        with _beta_warnings_silenced():
            return torch.sparse_csr_tensor(starts, columns, data, matrix.shape)
    if kind == "cupy":
        from cupyx.scipy.sparse import csr_matrix

        return csr_matrix((data, columns, starts), shape=matrix.shape)
    return sp.csr_matrix((data, columns, starts), shape=matrix.shape)


def _beta_warnings_silenced() -> warnings.catch_warnings[Any]:
    """Context in which torch does not announce once per process that its CSR support is in beta."""
    return warnings.catch_warnings(action="ignore")
