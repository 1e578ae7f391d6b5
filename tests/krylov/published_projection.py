"""The projection by matrix products as the poster of Lin and Renaut (2010) prints it, for comparison only.

α = ⟨P, b⟩ / diag⟨P, AP⟩ presumes that the directions are conjugate. Those of plain conjugate gradients lose
conjugacy within some twenty steps on projection matrices, and this formula then makes the residual larger with every
further direction. :class:`stepwell.ProjectedCG` keeps its directions conjugate.
"""

from __future__ import annotations

import numpy as np

from stepwell.arrays import Array, namespace_of
from stepwell.krylov.systems import System


def plain_directions(system: System, steps: int) -> tuple[Array, Array]:
    """Directions of plain conjugate gradients for the first right-hand side, and their products, unnormalised."""
    residual = system.rhs()[:, :1]
    xp = namespace_of(residual)
    direction = residual
    rho = xp.sum(residual * residual)
    directions, products = [], []
    for _ in range(steps):
        product = system.product(direction)
        step = rho / xp.sum(direction * product)
        directions.append(direction)
        products.append(product)
        residual = residual - step * product
        before, rho = rho, xp.sum(residual * residual)
        direction = residual + rho / before * direction
    return xp.concat(directions, axis=1), xp.concat(products, axis=1)


def naive_augmented_projection(directions: Array, products: Array, rhs: Array) -> tuple[Array, Array]:
    """Project with the diagonal of PᵀHP alone: wrong as soon as conjugacy is lost.

    Returns
    -------
    x, residual : array
        The projected solution and what it leaves of the right-hand side.
    """
    diagonal = namespace_of(directions).sum(directions * products, axis=0)
    share = (directions.T @ rhs) / diagonal[:, None]
    return directions @ share, rhs - products @ share


def lost_conjugacy(directions: np.ndarray, products: np.ndarray) -> float:
    """Largest cosine between two different directions in the energy inner product."""
    gram = directions.T @ products
    scale = 1 / np.sqrt(np.diag(gram))
    return float(np.abs(gram * scale * scale[:, None] - np.eye(len(gram))).max())
