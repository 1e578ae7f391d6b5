"""Minimisers in the programs of JAX: a forward rule around `stepwell.minimize`, outside of ``jit`` and ``vmap``.

The run itself needs values: it is never put into a callback, inside of which JAX may wait for itself for ever.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from stepwell.arrays import is_compiled
from stepwell.common.checks import WrongKind
from stepwell.quasi_newton.api import minimize

Array = Any


def argmin(fun: Any, x0: Any, theta: tuple[Any, ...], bounds: Any, options: Any, fail: Any) -> Array:
    """As `stepwell.argmin`, for arrays of JAX."""
    start = jax.lax.stop_gradient(x0)
    limits = None if bounds is None else tuple(jnp.broadcast_to(jnp.asarray(b, x0.dtype), x0.shape) for b in bounds)

    @jax.custom_jvp
    def solution(theta: Any, limits: Any) -> Array:
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves((start, theta, limits))):
            raise WrongKind(
                "the arguments of argmin are traced; allowed: outside of jit and vmap, where values are known"
            )
        if is_compiled(fun, start):  # so is its gradient, once
            both = _value_and_gradient(fun)
            result = minimize(lambda x: both(x, *theta), start, jac=True, bounds=limits, options=options)
        else:
            result = minimize(lambda x: fun(x, *theta), start, bounds=limits, options=options)
        return fail([] if result.success else [str(result.message)], result.x)

    @solution.defjvp
    def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
        theta, limits = primals
        theta_dot, limits_dot = tangents
        x = solution(theta, limits)
        return x, _tangent(fun, x, theta, limits, theta_dot, limits_dot)

    return solution(theta, limits)


@functools.lru_cache(maxsize=32)
def _value_and_gradient(fun: Any) -> Any:
    return jax.jit(jax.value_and_grad(fun))


@functools.partial(jax.jit, static_argnums=0)
def _tangent(fun: Any, x: Array, theta: Any, limits: Any, theta_dot: Any, limits_dot: Any) -> Array:
    """How x moves with parameters and bounds. Compiled once for a function, not in each call."""
    held_dot, held = jnp.zeros_like(x), jnp.zeros(x.shape, bool)
    if limits is not None:
        for side in (1, 0):  # of equal bounds the lower one
            at = x == limits[side]
            held_dot, held = jnp.where(at, limits_dot[side], held_dot), held | at

    def slope(x: Array, theta: Any) -> Array:
        return jax.grad(fun)(x, *theta)

    _, mixed = jax.jvp(slope, (x, theta), (held_dot, theta_dot))

    def product(v: Array) -> Array:
        inner = jnp.where(held, 0, v)
        image = jax.jvp(lambda x: slope(x, theta), (x,), (inner,))[1]
        return jnp.where(held, v, image)

    def solve(product: Any, rhs: Array) -> Array:
        return jax.scipy.sparse.linalg.cg(product, rhs, tol=1e-12, maxiter=4 * x.size + 20)[0]

    moved = jax.lax.custom_linear_solve(product, jnp.where(held, 0, -mixed), solve, symmetric=True)
    return jnp.where(held, held_dot, moved)
