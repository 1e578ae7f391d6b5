"""NNLS in the programs of JAX: a call to the host, with a forward rule that JAX transposes for reverse mode.

The rule's own solve is ``jax.lax.custom_linear_solve``: JAX transposes it and differentiates it again by its matrix, so
that every order follows from one rule. The rule calls the function that has the rule, not the callback, or second
derivatives would ask for the callback's. Under ``vmap`` arguments that are not mapped arrive with an axis of length
one: a shared matrix stays shared.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stepwell.common.checks import read_axis, read_real, require, require_kind, require_shape
from stepwell.derivatives import jax_calls, jax_handlers, jax_solve, least_squares
from stepwell.derivatives.matrices import Dense, Matrix, Pulses
from stepwell.derivatives.normal_equations import solve_free
from stepwell.derivatives.systems import Outcome, Spec, as_result, solve_folded, turned
from stepwell.lsq.convolution import Convolution
from stepwell.lsq.result import NNLSResult

Array = Any


# ---- calls ----


def _raw(spec: Spec, entries: Array, b: Array, lam: Array, warm: Array | None) -> Outcome:
    core = 2 if spec.rows < 0 else 1
    lead = np.broadcast_shapes(entries.shape[:-core], b.shape[:-1])
    n = entries.shape[-1] if spec.rows < 0 else spec.columns
    dtype = b.dtype

    def shaped(last: int, kind: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((*lead, last), kind)

    costs = jnp.int64 if jax.config.jax_enable_x64 else jnp.int32
    shapes = Outcome(
        shaped(n, dtype), shaped(n, dtype), shaped(n, bool), shaped(2, dtype), shaped(6, jnp.int32), shaped(4, costs)
    )

    def called(entries: Array, b: Array, lam: Array, warm: Array | None = None) -> Outcome:
        return solve_folded(entries, b, lam, warm, spec)

    def by_callback(*arrays: Array) -> Outcome:
        return jax_calls.call(called, shapes, *arrays)

    given = [_with_lead(entries, core, len(lead)), b, _with_lead(lam, 0, len(lead))]
    if jax_handlers.handles(spec, entries, b, warm):
        return jax_handlers.solve_nnls(by_callback, spec, shapes, *given)
    return by_callback(*given, *([] if warm is None else [_with_lead(warm, 1, len(lead))]))


def _with_lead(array: Array, core: int, rank: int) -> Array:
    """Return an array with as many leading axes as the others have, so that those that ``vmap`` adds stay aligned."""
    missing = rank - (array.ndim - core)
    return jnp.reshape(array, (*[1] * missing, *array.shape))


def _normal_solve(matrix: Matrix, free: Array, lam: Array, g: Array, shape: Any) -> Array:
    """u = (A_FᵀA_F + λ²I)⁻¹ g on the free unknowns, zero elsewhere; a linear map of g that JAX can transpose."""
    inside = free > 0

    def product(u: Array) -> Array:
        inner = jnp.where(inside, u, 0)
        image = matrix.transposed_times(matrix.times(inner)) + lam * lam * inner
        return jnp.where(inside, image, u)

    def solved(entries: Array, free: Array, lam: Array, g: Array) -> tuple[Array]:
        return (solve_free(entries, free, lam, g, shape),)

    def by_callback(*given: Array) -> Array:
        (u,) = jax_calls.call(solved, (jax.ShapeDtypeStruct(given[-1].shape, given[-1].dtype),), *given)
        return u

    def elsewhere(*given: Array) -> Array:
        return jax_calls.on_gpu(jax_solve.solve_free if shape is None else by_callback, by_callback, *given)

    def solve_by(*given: Array) -> Array:
        if jax_handlers.registered() and given[-1].shape[-1] > 0:
            return jax_handlers.solve_normal(elsewhere, shape, *given)
        return elsewhere(*given)

    def solve(_: Any, rhs: Array) -> Array:
        rank, core = rhs.ndim - 1, 2 if shape is None else 1
        given = (_with_lead(matrix.entries, core, rank), free, _with_lead(lam, 0, rank), rhs)
        u = solve_by(*given)
        return jnp.where(free == 0, rhs, u)  # held unknowns: the identity; of an unsolved system NaN

    u = jax.lax.custom_linear_solve(product, g, solve, symmetric=True)
    return jnp.where(free == 0, 0, u)


# ---- the rule ----


def _matrix(entries: Array, spec: Spec) -> Matrix:
    return Dense(entries) if spec.rows < 0 else Pulses(entries, spec.rows, spec.columns, spec.origin)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _solution(spec: Spec, entries: Array, b: Array, lam: Array, warm: Array | None) -> Outcome:
    return _raw(spec, entries, b, lam, warm)


@_solution.defjvp
def _(spec: Spec, primals: Any, tangents: Any) -> tuple[Outcome, Outcome]:
    entries, b, lam, warm = primals
    entries_dot, b_dot, lam_dot, _ = tangents
    found = _solution(spec, entries, b, lam, warm)
    x = found.x
    free = jax.lax.stop_gradient(jnp.where(jnp.isnan(x), x, (x > 0).astype(x.dtype)))
    matrix = _matrix(entries, spec)
    tangent = least_squares.forward(
        matrix, b, lam, x, lambda rhs: _normal_solve(matrix, free, lam, rhs, spec.pulse_shape),
        matrix_dot=entries_dot, b_dot=b_dot, lam_dot=lam_dot,
    )  # fmt: skip
    rest = [
        jnp.zeros_like(array) if jnp.issubdtype(array.dtype, jnp.floating) else np.zeros(array.shape, jax.dtypes.float0)
        for array in found[1:]
    ]
    return found, Outcome(tangent, *rest)


# ---- the API ----


def nnls(A: Any, b: Any, *, lam: Any, warm_start: Any, axis: int, progress: Any, **options: Any) -> NNLSResult:
    """As `stepwell.nnls`, whose arguments these are, for arrays that are traced."""
    _register()
    convolution = isinstance(A, Convolution)
    entries, b = jnp.asarray(A.pulse if convolution else A), jnp.asarray(b)
    across = read_axis(axis) == 1 and b.ndim == 2
    b = b.T if across else b
    core = 1 if convolution else 2
    allowed = "(length,) or (systems, length)" if convolution else "(m, n) or (systems, m, n)"
    require_shape(entries.ndim - core in (0, 1), "A", entries, allowed)
    require_shape(b.ndim in (1, 2), "b", b, "(m,), or (systems, m), with axis=1 (m, systems)")
    rows = A.m if convolution else entries.shape[-2]
    fits = b.shape[-1] == rows and (entries.ndim == core or b.shape[:-1] == entries.shape[:1])
    require_shape(fits, "b", b, f"{rows} entries a system, as many systems as A of shape {entries.shape} has")
    require(progress is None, "progress", progress, "None where the arrays are traced")
    chain = isinstance(warm_start, str)
    require(not chain or warm_start == "chain", "warm_start", warm_start, "an x, a boolean set, or 'chain'")
    require_kind(not any(isinstance(v, jax.core.Tracer) for v in options.values()), "options", options, "plain values")
    dtype = jnp.result_type(entries, b, jnp.float32)
    entries, b = entries.astype(dtype), b.astype(dtype)
    lam = lam if isinstance(lam, jax.Array) else read_real("lam", lam, at_least=0)
    shape = (A.m, A.n, A.origin) if convolution else (-1, 0, 0)
    spec = Spec(rows=shape[0], columns=shape[1], origin=shape[2], chain=chain, **options)
    warm = None if chain or warm_start is None else jax.lax.stop_gradient(jnp.asarray(warm_start))
    if across and warm is not None and warm.ndim == 2:
        warm = warm.T
    found = _solution(spec, entries, b, jnp.asarray(lam, dtype), warm)
    result = as_result(Outcome(found.x, *jax.lax.stop_gradient(tuple(found[1:]))), spec)
    return turned(result) if across else result


@functools.cache
def _register() -> None:
    """Let results leave compiled functions: all fields are arrays but for the two texts."""
    jax.tree_util.register_dataclass(
        NNLSResult,
        [name for name in NNLSResult.__dataclass_fields__ if name not in ("method", "choice")],
        ["method", "choice"],
    )
