"""Fits in the programs of JAX: a forward rule around ``curve_fit``, outside of ``jit`` and ``vmap``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from stepwell.arrays.forward_mode import jax_function
from stepwell.common.checks import WrongKind
from stepwell.derivatives.fit import Given, costs
from stepwell.fit.result import FitResult

Array = Any


def curve_fit(solver: Callable[..., FitResult], given: Given, parts: dict[str, Any]) -> FitResult:
    """Fit, with x a function of whatever of `parts` is an array: xdata, ydata, sigma, lower, upper."""
    moving = {name: value for name, value in parts.items() if isinstance(value, jax.Array)}
    fixed = {name: value for name, value in parts.items() if name not in moving}
    held: list[FitResult] = []

    @jax.custom_jvp
    def solution(moving: dict[str, Array]) -> Array:
        if any(isinstance(leaf, jax.core.Tracer) for leaf in moving.values()):
            raise WrongKind(
                "the arguments of curve_fit are traced; allowed: outside of jit and vmap, where values are known"
            )
        held.append(solver(**fixed, **moving))
        return held[-1].x

    @solution.defjvp
    def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
        x = solution(*primals)
        state = held[-1].active_mask
        return x, _tangent(given, fixed, x, state, primals[0], tangents[0])

    x = solution(moving)
    return dataclasses.replace(held[-1], x=x)


def _tangent(given: Given, fixed: dict[str, Any], x: Array, state: Array, moving: Any, moving_dot: Any) -> Array:
    """How x moves with all that is given."""
    n = x.shape[-1]
    shape, B = x.shape, given.problems
    x, state = x.reshape(B, n), state.reshape(B, n)
    at = jax_function(given.curve, given.points)

    def rows(value: Any, width: int) -> Array:
        return jnp.broadcast_to(jnp.asarray(value, x.dtype), (*given.lead, width)).reshape(B, width)

    def slope(p: Array, moving: dict[str, Array]) -> Array:
        parts = fixed | moving
        data = rows(parts["ydata"], given.points)
        weights = None if parts["sigma"] is None else 1 / rows(parts["sigma"], given.points)
        counts = jnp.isfinite(data)
        if given.mask is not None:
            counts = counts & (rows(given.mask, given.points) != 0)
        if weights is not None:
            counts = counts & (weights > 0)

        def total(p: Array) -> Array:
            values = at(given.abscissa(parts["xdata"]), p, jnp.arange(B))
            found = costs(jnp, given.loss, given.scale, values, data, weights, counts)
            return jnp.where(counts, found, 0).sum()

        return jax.grad(total)(p)

    held_dot = jnp.zeros_like(x)
    for side, name in ((1, "upper"), (-1, "lower")):
        if name in moving:
            limit = rows(moving[name], n)
            at_bound = (state == side) | ((state == 2) & (limit == x))
            held_dot = jnp.where(at_bound, rows(moving_dot[name], n), held_dot)
    _, mixed = jax.jvp(slope, (x, moving), (held_dot, moving_dot))
    hessian = jax.vmap(
        lambda e: jax.jvp(lambda p: slope(p, moving), (x,), (jnp.broadcast_to(e, x.shape),))[1], out_axes=2
    )(jnp.eye(n, dtype=x.dtype))
    free = state == 0
    matrix = jnp.where(free[:, :, None] & free[:, None, :], hessian, jnp.eye(n, dtype=x.dtype))
    moved = jnp.linalg.solve(matrix, jnp.where(free, -mixed, 0)[..., None])[..., 0]
    return jnp.where(free, moved, held_dot).reshape(shape)
