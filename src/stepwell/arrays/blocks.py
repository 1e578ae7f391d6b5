"""Arithmetic on blocks of columns that the libraries spell in different ways."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.arrays.conversion import copy_to_device_of
from stepwell.arrays.jax_programs import jax_program
from stepwell.arrays.kinds import Array, kind_of, namespace_of
from stepwell.arrays.products import in_full_precision, rounds_products

#: JAX compiles a program for zeros of each shape; up to so many are copied from the host instead.
_FEW_ZEROS = 2**16


def empty_block(rows: int, columns: int, template: Array) -> Array:
    """Return a C-ordered block of the template's library, device and dtype, with anything in it; of JAX, zeros."""
    if kind_of(template) == "torch":
        return template.new_empty((rows, columns))
    if kind_of(template) == "jax":
        import jax

        if rows * columns <= _FEW_ZEROS:
            return copy_to_device_of(np.zeros((rows, columns)), template)
        with jax.default_device(next(iter(template.devices()))):
            return jax.numpy.zeros((rows, columns), dtype=template.dtype)
    if kind_of(template) == "cupy":
        import cupy

        with template.device:
            return cupy.empty((rows, columns), dtype=template.dtype)
    return np.empty((rows, columns), dtype=template.dtype)


def add_at(array: Array, places: Array, values: Array) -> Array:
    """Add values to a vector at places, one after the other where a place occurs twice; in place (not for JAX)."""
    kind = kind_of(array)
    if kind == "torch":
        return array.index_add_(0, places, values)
    if kind == "cupy":
        import cupy

        cupy.add.at(array, places, values)
    else:
        np.add.at(array, places, values)
    return array


def take_columns(block: Array, columns: np.ndarray) -> Array:
    """Return the named columns of a two-dimensional array, as a new C-ordered array."""
    return namespace_of(block).take(block, copy_to_device_of(columns, block), axis=1)


def take_rows(block: Array, rows: Array) -> Array:
    """Return the named rows of an array, as a new C-ordered array; `rows` lies where the array does."""
    return block[rows] if isinstance(block, np.ndarray) else namespace_of(block).take(block, rows, axis=0)


def zeros_like_rows(some: Array, rows: int) -> Array:
    """Return zeros of so many rows like those of `some`, in its place."""
    xp = namespace_of(some)
    return xp.zeros_like(xp.broadcast_to(some[:1], (rows, *some.shape[1:])))


def with_rows(block: Array, rows: Array, values: Array) -> Array:
    """Return an array with the named rows replaced; the same array where the library can write to it."""
    if kind_of(block) == "jax":
        return block.at[rows].set(values)
    block[rows] = values
    return block


def add_products(array: Array, left: Array, right: Array) -> Array:
    """Return array + left * right, element by element, without a third array of that size where a library can."""
    if kind_of(array) == "torch":
        import torch

        return torch.addcmul(array, left, right)
    return array + left * right


def plus_multiple(block: Array, factor: Any, other: Array) -> Array:
    """Return ``block + factor * other`` as a new array, in one pass where the library can."""
    if kind_of(block) == "torch" and isinstance(factor, float):
        return block.add(other, alpha=factor)
    if kind_of(block) == "jax":
        return _jax_functions()["plus_multiple"](block, factor, other)
    if isinstance(other, np.ndarray):
        product = factor * other
        if product.shape == block.shape and product.dtype == block.dtype:
            return np.add(block, product, out=product)
        return block + product
    return block + factor * other


def plus_diagonal(matrix: Array, value: float) -> Array:
    """Return a square matrix with a number added along its diagonal; the same matrix where the library can write."""
    if kind_of(matrix) == "jax":
        places = np.arange(matrix.shape[0])
        return matrix.at[places, places].add(value)
    if isinstance(matrix, np.ndarray):
        matrix[np.arange(matrix.shape[0]), np.arange(matrix.shape[0])] += value
    else:
        diagonal = matrix.diagonal()  # a view that can be written to, which NumPy's is not
        diagonal += value
    return matrix


def with_column(block: Array, j: int, values: Array) -> Array:
    """Return a two-dimensional array with one column replaced; the same array where the library can write to it."""
    if kind_of(block) == "jax":
        return block.at[:, j].set(values)
    block[:, j] = values
    return block


def with_columns(block: Array, first: int, values: Array) -> Array:
    """Return a block with its columns from one on replaced; the same block where the library can write to it."""
    if kind_of(block) == "jax":
        return _jax_functions()["with_columns"](block, values, first)
    block[:, first : first + values.shape[1]] = values
    return block


def with_row(block: Array, i: int, values: Array, factor: float = 1.0) -> Array:
    """Return a block with one row replaced by ``factor * values``; the same block where the library can write to it."""
    if kind_of(block) == "jax":
        return block.at[i].set(factor * values)
    if isinstance(block, np.ndarray):
        np.multiply(values, factor, out=block[i])
    else:
        block[i] = factor * values
    return block


def column_dots(left: Array, right: Array) -> Array:
    """Inner products of equal columns of two blocks: ``sum(left * right, axis=0)``."""
    if isinstance(left, np.ndarray):
        # One pass, and no BLAS, whose threads would linger; few sums run side by side, so they are of doubles.
        return np.einsum("ij,ij->j", left, right, dtype=np.float64).astype(left.dtype, copy=False)
    if kind_of(left) == "jax":
        return _jax_functions()["column_dots"](left, right)
    return namespace_of(left).sum(left * right, axis=0)


def column_norms(block: Array) -> Array:
    """Euclidean norm of every column of a block."""
    if isinstance(block, np.ndarray):
        return np.sqrt(column_dots(block, block))
    if kind_of(block) == "jax":
        return _jax_functions()["column_norms"](block)
    return namespace_of(block).linalg.vector_norm(block, axis=0)


def column_largest(block: Array) -> Array:
    """Largest absolute value of every column of a block that has rows; NaN where there is one."""
    if kind_of(block) == "jax":
        return _jax_functions()["column_largest"](block)
    xp = namespace_of(block)
    return xp.maximum(xp.max(block, axis=0), -xp.min(block, axis=0))


@functools.cache
def _jax_functions() -> dict[str, Any]:
    """Functions of which JAX makes one program each, where its parts by themselves would be several."""
    import jax

    def dots(left: Array, right: Array) -> Array:
        return (left * right).sum(axis=0)

    def norms(block: Array) -> Array:
        return jax.numpy.sqrt(dots(block, block))

    def largest(block: Array) -> Array:
        return jax.numpy.abs(block).max(axis=0)

    def multiple(block: Array, factor: Any, other: Array) -> Array:
        return block + factor * other

    def columns(block: Array, values: Array, first: int) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(block, values, first, axis=1)

    named = {
        "column_dots": dots,
        "column_norms": norms,
        "column_largest": largest,
        "plus_multiple": multiple,
        "with_columns": columns,
    }
    return {name: jax_program(function) for name, function in named.items()}


@functools.cache
def _jax_solvers() -> dict[str, Any]:
    """Factorisations, and what solves with them, as programs of JAX."""
    import jax

    def factor(matrix: Array) -> Array:
        return jax.scipy.linalg.cho_factor(matrix)[0]

    def solve_factor(triangle: Array, rhs: Array) -> Array:
        return jax.scipy.linalg.cho_solve((triangle, False), rhs)

    def by_triangle(columns: Array, rhs: Array) -> Array:
        R = jax.numpy.linalg.qr(columns, mode="r")
        return jax.numpy.linalg.solve(R, jax.numpy.linalg.solve(R.mT, rhs))

    named = {
        "factor": factor,
        "solve_factor": solve_factor,
        "solve": jax.numpy.linalg.solve,
        "by_triangle": by_triangle,
    }
    return {name: jax_program(function) for name, function in named.items()}


def factor_positive(matrix: Array) -> Callable[[Array], Array]:
    """Factor a symmetric positive definite matrix by Cholesky and return the function that solves with it.

    The matrix may be overwritten. Where it is not positive definite the solutions are not finite.
    """
    if rounds_products(matrix):  # solving with triangles multiplies, too
        xp, solve_wide = namespace_of(matrix), factor_positive(in_full_precision(matrix))
        return lambda rhs: xp.astype(solve_wide(xp.astype(rhs, xp.float64)), rhs.dtype)
    kind = kind_of(matrix)
    if kind == "torch":
        import torch

        lower, info = torch.linalg.cholesky_ex(matrix)
        failed = bool(info.any())
        return lambda rhs: torch.full_like(rhs, float("nan")) if failed else torch.cholesky_solve(rhs, lower)
    if kind == "jax":
        triangle = _jax_solvers()["factor"](matrix)  # NaN where it failed
        return lambda rhs: _jax_solvers()["solve_factor"](triangle, rhs)
    if kind == "cupy":
        import cupy
        from cupyx.scipy.linalg import solve_triangular

        lower = cupy.linalg.cholesky(matrix)  # NaN where it failed

        def solve(rhs: Array) -> Array:
            return solve_triangular(lower, solve_triangular(lower, rhs, lower=True), lower=True, trans="T")

        return solve
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    try:
        factors = cho_factor(matrix, overwrite_a=True, check_finite=False)
    except LinAlgError:
        return lambda rhs: np.full_like(rhs, np.nan)
    return lambda rhs: cho_solve(factors, rhs, check_finite=False)


def solve_positive(matrix: Array, rhs: Array) -> Array:
    """Solve M z = rhs, M symmetric and positive definite; stacks of matrices and of blocks of columns.

    Nothing waits for a device. Where M is not positive definite the solutions are not finite.
    """
    if kind_of(matrix) == "torch":
        import torch

        factor, trouble = torch.linalg.cholesky_ex(in_full_precision(matrix))
        found = torch.cholesky_solve(rhs.to(factor.dtype), factor).to(rhs.dtype)
        return torch.where((trouble > 0)[..., None, None], torch.nan, found)
    if kind_of(matrix) == "jax":
        return _jax_solvers()["solve"](matrix, rhs)
    return namespace_of(matrix).linalg.solve(matrix, rhs)


def solve_with_triangle(columns: Array, rhs: Array) -> Array:
    """Solve MᵀM z = rhs by the triangle R of a QR factorisation of M; stacks of matrices and of blocks of columns.

    Where columns of M are dependent the solutions are not finite.
    """
    if kind_of(columns) == "torch":
        import torch

        R = torch.linalg.qr(in_full_precision(columns), mode="r").R
        half = torch.linalg.solve_triangular(R.mT, rhs.to(R.dtype), upper=False)
        return torch.linalg.solve_triangular(R, half, upper=True).to(rhs.dtype)
    if kind_of(columns) == "jax":
        return _jax_solvers()["by_triangle"](columns, rhs)
    xp = namespace_of(columns)
    R = xp.linalg.qr(columns)[1]
    return xp.linalg.solve(R, xp.linalg.solve(xp.matrix_transpose(R), rhs))
