"""Steps of conjugate gradients as few programs of JAX: to start one takes longer than most of what is in it.

What they compute is said by `stepwell.krylov`, which calls them for arrays of a library that compiles each shape, where
no axis is spread over ranks.
"""

from __future__ import annotations

import functools
from typing import Any

from stepwell.arrays.jax_programs import jax_program
from stepwell.arrays.kinds import Array


def without_kept(block: Array, panels: list[tuple[Array, Array]]) -> Array:
    """Return a block B less D UᵀB of all panels of directions D and their duals U."""
    rest = block
    for directions, duals in panels:
        rest = _programs()["without"](rest, directions, duals, block)
    return rest


def with_directions(
    panel: tuple[Array, Array], first: int, directions: Array, products: Array, inverse: Array
) -> tuple[Array, Array]:
    """Return a panel with directions P and duals HP(PᵀHP)⁻¹ written to its columns from one on."""
    written: tuple[Array, Array] = _programs()["with_directions"](panel, first, directions, products, inverse)
    return written


def block_step(
    x: Array, residual: Array, directions: Array, products: Array, step: Array
) -> tuple[Array, Array, Array]:
    """Return x and the residual after a step of a block, and the norms of the residual's columns."""
    moved: tuple[Array, Array, Array] = _programs()["block_step"](x, residual, directions, products, step)
    return moved


def column_step(
    x: Array, direction: Array, rho: Array, square: Any, state: tuple[Array, ...], image: tuple[Array, ...]
) -> tuple[Array, tuple[Array, ...], Array]:
    """Return x and [B − AX; −LX] after a step of each column along its direction P, and where P has no curvature.

    `image` is [AP; LP], `square` is λ², and `rho` what the residual and P have in common.
    """
    moved: tuple[Array, tuple[Array, ...], Array] = _programs()["column_step"](x, direction, rho, square, state, image)
    return moved


def next_direction(residual: Array, z: Array, rho: Array, direction: Array) -> tuple[Array, Array, Array]:
    """Return rho, the norms of the residual's columns, and the next directions; z is the residual preconditioned."""
    found: tuple[Array, Array, Array] = _programs()["next_direction"](residual, z, rho, direction)
    return found


@functools.cache
def _programs() -> dict[str, Any]:
    import jax

    where = jax.numpy.where

    def product(left: Array, right: Array) -> Array:
        return jax.numpy.matmul(left, right, precision=jax.lax.Precision.HIGHEST)

    def dots(left: Array, right: Array) -> Array:
        return (left * right).sum(axis=0)

    def without(rest: Array, directions: Array, duals: Array, block: Array) -> Array:
        return rest - product(directions, product(duals.T, block))

    def with_directions(panel: Any, first: int, directions: Array, products: Array, inverse: Array) -> Any:
        news = directions, product(products, inverse)
        return tuple(jax.lax.dynamic_update_slice_in_dim(*each, first, axis=1) for each in zip(panel, news))

    def block_step(x: Array, residual: Array, directions: Array, products: Array, step: Array) -> Any:
        rest = residual - product(products, step)
        return x + product(directions, step), rest, jax.numpy.sqrt(dots(rest, rest))

    def column_step(x: Array, direction: Array, rho: Array, square: Any, state: Any, image: Any) -> Any:
        curvature = dots(image[0], image[0]) + square * dots(image[1], image[1])
        flat = curvature <= 0  # a NaN is not flat: it shows in the residual
        step = where(flat, 0.0, rho / where(flat, 1.0, curvature))
        penalty = -step * image[1] if state[1] is None else state[1] - step * image[1]
        return x + step * direction, (state[0] - step * image[0], penalty), flat

    def next_direction(residual: Array, z: Array, rho: Array, direction: Array) -> Any:
        new = dots(residual, z)
        ratio = new / where(rho > 0, rho, 1.0)
        return new, jax.numpy.sqrt(dots(residual, residual)), z + ratio * direction

    named = (without, with_directions, block_step, column_step, next_direction)
    return {function.__name__: jax_program(function) for function in named}
