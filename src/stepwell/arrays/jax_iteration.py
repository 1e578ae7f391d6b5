"""Steps of conjugate gradients as few programs of JAX: to start one takes longer than most of what is in it.

What they compute is said by `stepwell.krylov`, which calls them for arrays of a library that compiles each shape, where
no axis is spread over ranks.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from stepwell.arrays.jax_programs import jax_program
from stepwell.arrays.kinds import Array


def without_kept(block: Array, panels: list[tuple[Array, Array]]) -> Array:
    """Return a block B less D UᵀB of all panels of directions D and their duals U."""
    rest = block
    for directions, duals in panels:
        rest = _programs()["without"](rest, directions, duals, block)
    return rest


def block_search(
    candidates: Array, mix: np.ndarray, residual: Array, matrices: tuple[Array, ...], square: float | None
) -> tuple[Array, Array, Array]:
    """Return directions P = CM, their products HP, and [PᵀHP, PᵀR] side by side; C are candidates, R the residual.

    `matrices` are A and L, or A alone where L is the identity, of H = AᵀA + `square` LᵀL; None: A itself is H.
    """
    found: tuple[Array, Array, Array] = _programs()["block_search"](
        candidates, mix.astype(candidates.dtype), residual, matrices, square
    )
    return found


def block_grams(directions: Array, products: Array, residual: Array) -> Array:
    """Return [PᵀHP, PᵀR] side by side, of directions P, their products HP and the residual R."""
    return _programs()["block_grams"](directions, products, residual)


def block_step(
    x: Array,
    residual: Array,
    directions: Array,
    products: Array,
    small: np.ndarray,
    panel: tuple[Array, Array],
    first: int,
) -> tuple[Array, Array, Array, tuple[Array, Array]]:
    """Return x and the residual after a step of a block, the norms of the residual's columns, and a panel.

    `small` is [(PᵀHP)⁻¹, (PᵀHP)⁻¹PᵀR]. Directions P and duals HP(PᵀHP)⁻¹ are written to the panel's columns from
    `first` on.
    """
    moved: tuple[Array, Array, Array, tuple[Array, Array]] = _programs()["block_step"](
        x, residual, directions, products, small.astype(residual.dtype), panel, first
    )
    return moved


def next_candidates(block: Array, panels: list[tuple[Array, Array]], norms: Array) -> tuple[Array, Array]:
    """Return C, a block B less D UᵀB of all panels, of which there is one at least, and the norms above CᵀC."""
    rest = block
    for directions, duals in panels[:-1]:
        rest = _programs()["without"](rest, directions, duals, block)
    found: tuple[Array, Array] = _programs()["next_candidates"](rest, *panels[-1], block, norms)
    return found


def columns_of_two(mask: np.ndarray, block: Array, other: Array) -> Array:
    """Return the columns of one block where a mask says so, and those of another elsewhere."""
    return _programs()["columns_of_two"](mask, block, other)


def columns_or_zero(mask: np.ndarray, blocks: list[Array]) -> list[Array]:
    """Return blocks with zeros in the columns of which a mask does not say that they are kept."""
    kept: list[Array] = _programs()["columns_or_zero"](mask, blocks)
    return kept


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

    def normal_product(block: Array, matrices: Any, square: Any) -> Array:
        image = product(matrices[0], block)
        if square is None:
            return image
        penalty = product(matrices[1].T, product(matrices[1], block)) if len(matrices) > 1 else block
        return product(matrices[0].T, image) + square * penalty

    def block_grams(directions: Array, products: Array, residual: Array) -> Array:
        return jax.numpy.concatenate([product(directions.T, products), product(directions.T, residual)], axis=1)

    def block_search(candidates: Array, mix: Array, residual: Array, matrices: Any, square: Any) -> Any:
        directions = product(candidates, mix)
        products = normal_product(directions, matrices, square)
        return directions, products, block_grams(directions, products, residual)

    def block_step(
        x: Array, residual: Array, directions: Array, products: Array, small: Array, panel: Any, first: int
    ) -> Any:
        inverse, step = jax.numpy.split(small, [directions.shape[1]], axis=1)
        rest, news = residual - product(products, step), (directions, product(products, inverse))
        kept = tuple(jax.lax.dynamic_update_slice_in_dim(*each, first, axis=1) for each in zip(panel, news))
        return x + product(directions, step), rest, jax.numpy.sqrt(dots(rest, rest)), kept

    def next_candidates(rest: Array, directions: Array, duals: Array, block: Array, norms: Array) -> Any:
        found = without(rest, directions, duals, block)
        return found, jax.numpy.concatenate([norms[None], product(found.T, found)])

    def columns_of_two(mask: Array, block: Array, other: Array) -> Array:
        return where(mask, block, other)

    def columns_or_zero(mask: Array, blocks: Any) -> Any:
        return [where(mask, block, 0.0) for block in blocks]

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

    named = (
        without,
        block_grams,
        block_search,
        block_step,
        next_candidates,
        columns_of_two,
        columns_or_zero,
        column_step,
        next_direction,
    )
    return {function.__name__: jax_program(function) for function in named}
