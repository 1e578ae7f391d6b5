"""``tikhonov`` and ``cg`` in the programs of JAX: callbacks to the host with forward rules, as `jax_lsq` has them."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stepwell.arrays import host_copy, matrix_product, namespace_of, on_device_of
from stepwell.common.checks import read_axis, require, require_kind, require_shape
from stepwell.derivatives import jax_calls, linear
from stepwell.krylov.calls import solve_cg, solve_tikhonov
from stepwell.krylov.results import LinearResult

Array = Any
_plain_cg: Any = solve_cg
_plain_tikhonov: Any = solve_tikhonov


def _called(solve: Any, rows: int, columns: Array, *others: tuple[Array | None, int]) -> Array:
    """Call a solver of blocks; under ``vmap`` with leading axes, ones where an argument is shared."""

    def called(columns: Array, *arrays: Array) -> tuple[Array]:
        own = iter(arrays)
        parts = [(None if one is None else next(own), core) for one, core in others]
        return (linear.over_blocks(solve, columns, *parts),)

    shape = jax.ShapeDtypeStruct((rows, columns.shape[-1]), columns.dtype)
    (found,) = jax_calls.call(called, (shape,), columns, *(one for one, _ in others if one is not None))
    return found


def _normal_solve(A: Array, lam: Array, L: Array | None, tol: float, G: Array) -> Array:
    """(AᵀA + λ²LᵀL)⁻¹G, a linear map of G that JAX can transpose."""

    def product(V: Array) -> Array:
        normal = matrix_product(A.T, matrix_product(A, V))
        return normal + lam * lam * (V if L is None else matrix_product(L.T, matrix_product(L, V)))

    def solved(G: Array, A: Array, lam: Array, L: Array | None) -> Array:
        xp = namespace_of(A)
        penalty = xp.eye(A.shape[1], dtype=A.dtype, **on_device_of(A)) if L is None else matrix_product(L.T, L)
        lams, out = np.broadcast_to(host_copy(lam), G.shape[1]), xp.empty_like(G)
        for value in np.unique(lams):
            (columns,) = np.nonzero(lams == value)
            out[:, columns] = _plain_cg(matrix_product(A.T, A) + float(value) ** 2 * penalty, G[:, columns], tol=tol).x
        return out

    def solve(_: Any, rhs: Array) -> Array:
        return _called(solved, A.shape[-1], rhs, (A, 2), (lam, 1), (L, 2))

    return jax.lax.custom_linear_solve(product, G, solve, symmetric=True)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _tikhonov(how: tuple[Any, ...], A: Array, B: Array, lam: Array, L: Array | None) -> Array:
    method, tol, maxiter = how

    def solve(B: Array, A: Array, lam: Array, L: Array | None) -> Array:
        lams = host_copy(lam)
        given = lams if lams.size > 1 else float(lams[0])
        return _plain_tikhonov(A, B, given, L, method=method, tol=tol, maxiter=maxiter).x

    return _called(solve, A.shape[-1], B, (A, 2), (lam, 1), (L, 2))


@_tikhonov.defjvp
def _(how: tuple[Any, ...], primals: Any, tangents: Any) -> tuple[Array, Array]:
    A, B, lam, L = primals
    A_dot, B_dot, lam_dot, L_dot = tangents
    X = _tikhonov(how, A, B, lam, L)
    solve = functools.partial(_normal_solve, A, lam, L, how[1])
    return X, linear.forward(A, B, lam, L, X, solve, A_dot=A_dot, B_dot=B_dot, lam_dot=lam_dot, L_dot=L_dot)


def _cg(how: tuple[Any, ...], H: Array, B: Array) -> Array:
    """H⁻¹B; derivatives of every order are those of JAX's own linear solve, which asks for this one."""
    method, tol, maxiter = how

    def solved(B: Array, H: Array) -> Array:
        return _plain_cg(H, B, method=method, tol=tol, maxiter=maxiter).x

    symmetric = (H + H.T) / 2
    return jax.lax.custom_linear_solve(
        lambda V: matrix_product(symmetric, V),
        B,
        lambda _, rhs: _called(solved, H.shape[-1], rhs, (symmetric, 2)),
        symmetric=True,
    )


def _read(A: Any, B: Any, axis: int, options: dict[str, Any]) -> tuple[Array, Array, bool, bool]:
    require_kind(hasattr(A, "dtype") and hasattr(A, "ndim"), "A", A, "a dense matrix where arrays are traced")
    A, B = jnp.asarray(A), jnp.asarray(B)
    require_shape(A.ndim == 2, "A", A, "(m, n)")
    require_shape(B.ndim in (1, 2), "B", B, "(m,), a vector, or (m, columns), a block")
    for name in ("x0", "preconditioner", "callback", "memory", "noise"):
        require(options.get(name) is None, name, options.get(name), "None where arrays are traced")
    across, vector = read_axis(axis) == 0 and B.ndim == 2, B.ndim == 1
    B = B.T if across else B[:, None] if vector else B
    require_shape(B.shape[0] == A.shape[0], "B", B, f"{A.shape[0]} rows, as A of shape {A.shape} has")
    dtype = jnp.result_type(A, B, jnp.float32)
    return A.astype(dtype), B.astype(dtype), across, vector


def tikhonov(A: Any, B: Any, lam: Any, L: Any, *, axis: int, **options: Any) -> LinearResult:
    """As `stepwell.tikhonov`, for dense matrices that are traced."""
    A, B, across, vector = _read(A, B, axis, options)
    require_kind(not isinstance(lam, str), "lam", lam, "numbers where arrays are traced, no rule")
    lams = jnp.atleast_1d(jnp.asarray(lam, A.dtype))
    require_shape(lams.shape in ((1,), (B.shape[1],)), "lam", lams, f"one number, or one a column ({B.shape[1]})")
    how = (options["method"], options["tol"], options["maxiter"])
    X = _tikhonov(how, A, B, lams, None if L is None else jnp.asarray(L, A.dtype))
    return _result(X.T if across else X[:, 0] if vector else X, lams[0] if vector else lams)


def cg(H: Any, B: Any, *, axis: int, **options: Any) -> LinearResult:
    """As `stepwell.cg`, for dense matrices that are traced."""
    H, B, across, vector = _read(H, B, axis, options)
    X = _cg((options["method"], options["tol"], options["maxiter"]), H, B)
    return _result(X.T if across else X[:, 0] if vector else X, None)


def _result(x: Array, lam: Array | None) -> LinearResult:
    _register()
    return LinearResult.of_traced(x, lam)


@functools.cache
def _register() -> None:
    """Let results leave compiled functions: x and λ are arrays, the rest is not known while a program is traced."""
    jax.tree_util.register_pytree_node(
        LinearResult, lambda result: ((result.x, result.lam), None), lambda _, parts: LinearResult.of_traced(*parts)
    )
