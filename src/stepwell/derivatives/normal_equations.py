"""The solve that derivatives of least squares need: (A_FᵀA_F + λ²I) u = g on the free columns F, by their QR factor.

A Gram matrix has the square of the condition: on the host its Cholesky factor serves, and what it solves is mended by
A itself, as far as that goes; beyond, R comes from the columns. (Where normal equations are what a caller has given,
their matrix stands for AᵀA.) There each system's free columns alone are factored, a system a thread; on a device all
columns, by QR, the held ones replaced by unit vectors of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell import _core
from stepwell.arrays import (
    Array,
    as_float,
    as_readable,
    as_user_array,
    host_view,
    is_cuda,
    matrix_product,
    namespace_of,
    on_device_of,
    solve_positive,
    solve_with_triangle,
)
from stepwell.common.threads import default_threads
from stepwell.derivatives import cuda
from stepwell.lsq.result import KeptFactor


def solve_free(
    entries: Array,
    free: Array,
    lam: Array,
    g: Array,
    shape: tuple[int, int, int] | None = None,
    *,
    gram: bool = False,
) -> Array:
    """Solve for any number of leading axes, which arguments may have as ones or lack.

    Parameters
    ----------
    entries : array, (..., m, n); with `shape` (..., length)
        Matrices, or pulses of convolutions.
    free : array, (..., n)
        1 for free columns, 0 for held ones, NaN throughout for a system that has no solution (nor has u).
    lam : array, (...)
    g : array, (..., n)
        Axes that it alone has are right-hand sides of one system: the factor serves all of them.
    shape : tuple (m, n, origin), optional
        Of convolutions.
    gram : bool, default False
        Whether `entries` are AᵀA, (..., n, n).

    Returns
    -------
    array, (..., n), of the dtype of g

    Examples
    --------
    >>> A = np.array([[1.0, 2.0], [0.0, 2.0], [1.0, 0.0]])
    >>> solve_free(A, np.array([1.0, 0.0]), np.array(0.0), np.array([4.0, 1.0]))
    array([2., 0.])
    """
    template, on_device = g, is_cuda(entries)
    if not on_device:  # views, whose shapes NumPy changes in a fraction of the time
        entries, free, lam, g = (host_view(array) for array in (entries, free, lam, g))
        # One axis of systems is what most have.
        if shape is None and g.ndim == 2 and free.shape == g.shape and lam.ndim == 0 and entries.ndim in (2, 3):
            whole = entries if entries.ndim == 3 else entries[None]
            if g.size and len(whole) in (1, len(g)):
                return as_user_array(_on_host(whole, free, lam.reshape(1), g[:, None], None, gram)[:, 0], template)
    xp = namespace_of(entries, free, g)
    core = 2 if shape is None else 1
    leads = [tuple(entries.shape[:-core]), tuple(free.shape[:-1]), tuple(lam.shape), tuple(g.shape[:-1])]
    rank = max(map(len, leads))
    leads = [(1,) * (rank - len(lead)) + lead for lead in leads]
    whole = np.broadcast_shapes(*leads)
    ours = np.broadcast_shapes(*leads[:3])
    alone = [axis for axis in range(rank) if ours[axis] == 1 and whole[axis] > 1]  # right-hand sides of one system
    axes = [axis for axis in range(rank) if axis not in alone]
    n, systems = int(g.shape[-1]), math.prod(ours)
    rhs = xp.permute_dims(xp.broadcast_to(xp.reshape(g, (*leads[3], n)), (*whole, n)), (*axes, *alone, rank))
    turned = tuple(rhs.shape)
    rhs = xp.reshape(rhs, (systems, math.prod(whole[axis] for axis in alone), n))
    marks = xp.reshape(xp.broadcast_to(xp.reshape(free, (*leads[1], n)), (*ours, n)), (systems, n))
    block = tuple(entries.shape[-core:])
    if math.prod(leads[0]) == 1:
        own = xp.reshape(entries, (1, *block))
    else:
        own = xp.reshape(xp.broadcast_to(xp.reshape(entries, (*leads[0], *block)), (*ours, *block)), (systems, *block))
    damping = xp.reshape(lam, (1,)) if math.prod(leads[2]) == 1 else xp.reshape(
        xp.broadcast_to(xp.reshape(lam, leads[2]), ours), (systems,)
    )  # fmt: skip
    if not systems or not n:
        u = xp.zeros_like(rhs)
    else:
        u = (_on_device if on_device else _on_host)(own, marks, damping, rhs, shape, gram)
    u = xp.reshape(u, turned)
    if alone:
        u = xp.permute_dims(u, tuple(map(int, np.argsort([*axes, *alone, rank]))))
    return u if on_device else as_user_array(u, template)


def solve_with_kept(factor: KeptFactor, g: Array) -> Array:
    """Solve as `solve_free` with the factors that a solve of large normal equations has kept; g as its x is."""
    if is_cuda(g):
        return cuda.solve_with_kept(factor, g)
    rhs = as_readable(host_view(g), np.float64)
    u = np.empty_like(rhs)
    systems, n = factor.order.shape[0], rhs.shape[-1]
    shape = (systems, rhs.size // (systems * n), n)
    _core.nnls_kept_solve(factor.entries, factor.order, rhs.reshape(shape), u.reshape(shape))
    return as_user_array(u.astype(host_view(g).dtype, copy=False), g)


def pull_back(entries: Array, b: Array, lam: float, x: Array, g: Array) -> tuple[Array, Array]:
    """Return the cotangents of A and b, (b − Ax)uᵀ − (Au)xᵀ and Au, of host systems with a matrix each.

    u solves (A_FᵀA_F + λ²I) u = g where x is positive. What `stepwell.derivatives.least_squares.reverse` says, of
    numbers that nobody differentiates again: in one call, which a small batch would else spend its time around.

    Parameters
    ----------
    entries : array, (systems, m, n)
    b : array, (systems, m)
    lam : float
    x, g : array, (systems, n)

    Examples
    --------
    >>> A, b, x, g = np.ones((1, 2, 1)), np.array([[3.0, 1.0]]), np.array([[2.0]]), np.array([[1.0]])
    >>> pull_back(A, b, 0.0, x, g)
    (array([[[-0.5],
            [-1.5]]]), array([[0.5, 0.5]]))
    """
    a, data, point, side = (as_readable(host_view(array), np.float64) for array in (entries, b, x, g))
    to_a, to_b = np.empty(a.shape), np.empty(data.shape)
    _core.nnls_pull_back(a, data, lam, point, side, to_a, to_b, default_threads())
    return as_user_array(to_a, entries), as_user_array(to_b, b)


def solve_free_with_rows(
    entries: Array, free: Array, lam: Array, g: Array, rows: Array, t: Array, shape: Any, *, gram: bool = False,
    solve: Callable[..., Array] | None = None,
) -> Array:  # fmt: skip
    """Solve H u + Cᵀν = g and C u = t on the free unknowns, C being a few `rows`: a bound sum, or equalities.

    Parameters
    ----------
    entries, free, lam, g, shape, gram
        As in `solve_free`.
    rows : array, (..., k, n)
    t : array, (..., k)
        Leading axes are as many as those of all others, ones where an argument is shared.
    solve : callable, optional
        ``solve(entries, free, lam, g)`` in place of `solve_free`: that of a library's own programs.

    Returns
    -------
    array, (..., n + k)
        u and ν. A row without a free unknown has no say: its ν is zero.

    Examples
    --------
    >>> A, C = np.eye(3), np.ones((1, 3))
    >>> solve_free_with_rows(A, np.array([1.0, 1.0, 0.0]), np.array(0.0), np.array([1.0, 3, 9]), C, np.ones(1), None)
    array([-0.5,  1.5,  0. ,  1.5])
    """
    xp = namespace_of(entries, g, rows)
    count, n = int(rows.shape[-2]), int(g.shape[-1])
    lead = np.broadcast_shapes(tuple(g.shape[:-1]), tuple(rows.shape[:-2]), tuple(free.shape[:-1]))
    apart = [xp.broadcast_to(one, (*lead, n)) for one in (g, *(rows[..., k, :] for k in range(count)))]
    if solve is None:
        solved = solve_free(entries, free, lam, xp.stack(apart), shape, gram=gram)
    else:
        solved = solve(entries, free, lam, xp.stack(apart))
    u, bent = solved[0], xp.moveaxis(solved[1:], 0, -2)
    rows = xp.broadcast_to(rows, bent.shape)
    small = matrix_product(rows, xp.matrix_transpose(bent))
    idle = xp.linalg.diagonal(small) == 0
    missing = xp.where(idle, 0.0, matrix_product(rows, u[..., None])[..., 0] - t)
    unit = xp.eye(count, dtype=g.dtype, **on_device_of(g))
    small = small + xp.where(idle, 1.0, 0.0)[..., None] * unit
    multipliers = xp.linalg.solve(small, xp.astype(missing, small.dtype)[..., None])[..., 0]
    u = u - matrix_product(multipliers[..., None, :], bent)[..., 0, :]
    return xp.astype(xp.concat([u, multipliers], axis=-1), g.dtype)


def _on_host(
    entries: np.ndarray, marks: np.ndarray, lam: np.ndarray, g: np.ndarray, shape: Any, gram: bool
) -> np.ndarray:
    """Solve (systems, right-hand sides, n) on all threads."""
    a, free, damping, rhs = (as_readable(array, np.float64) for array in (entries, marks, lam, g))
    rows, origin = (a.shape[-2], 0) if shape is None else (shape[0], shape[2])
    u = np.empty_like(rhs)
    _core.nnls_normal_solve(
        a if shape is None else a[:, None], rows, origin, shape is not None, (free > 0).view(np.uint8),
        damping, rhs, u, default_threads(), gram,
    )  # fmt: skip
    unsolved = np.isnan(free).any(axis=-1)
    if unsolved.any():
        u[unsolved] = np.nan
    return u.astype(g.dtype, copy=False)


def _on_device(
    entries: Array, marks: Array, lam: Array, g: Array, shape: tuple[int, int, int] | None, gram: bool
) -> Array:
    """Solve on the device: small systems by a block each, large ones by a QR factorisation of all their columns."""
    xp = namespace_of(g)
    if gram:
        return _gram_on_device(entries, marks, lam, g)
    if shape is not None:
        from stepwell.lsq.convolution import Convolution

        entries = Convolution(entries, shape[1], m=shape[0], origin=shape[2]).dense()
    if cuda.suits(int(entries.shape[-2]), int(entries.shape[-1]), int(g.shape[0])):
        return cuda.solve_free(entries, marks, lam, g)
    A, free, rhs = (as_float(array, "float64") for array in (entries, marks, g))
    damping = xp.astype(xp.asarray(lam, device=g.device), xp.float64)
    n = int(g.shape[-1])
    below = xp.where(free > 0, damping[:, None], xp.ones_like(free))
    unit = xp.eye(n, dtype=xp.float64, device=g.device)
    columns = xp.concat([A * xp.where(free > 0, 1.0, 0.0)[:, None, :], below[:, :, None] * unit], axis=-2)
    u = solve_with_triangle(columns, xp.matrix_transpose(rhs * free[:, None, :]))
    return xp.astype(xp.matrix_transpose(u) * free[:, None, :], g.dtype)


def _gram_on_device(gram: Array, marks: Array, lam: Array, g: Array) -> Array:
    """Solve with the whole matrix, rows and columns of held unknowns replaced by those of the unit matrix."""
    xp = namespace_of(g)
    G, free, rhs = (as_float(array, "float64") for array in (gram, marks, g))
    damping = xp.astype(xp.asarray(lam, device=g.device), xp.float64)
    unit = xp.eye(int(g.shape[-1]), dtype=xp.float64, device=g.device)
    diagonal = xp.where(free > 0, damping[:, None] ** 2, xp.ones_like(free))
    whole = G * (free[:, :, None] * free[:, None, :]) + diagonal[:, :, None] * unit
    u = solve_positive(whole, xp.matrix_transpose(rhs * free[:, None, :]))
    return xp.astype(xp.matrix_transpose(u) * free[:, None, :], g.dtype)
