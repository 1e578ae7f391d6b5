"""The solve of `normal_equations` as a part of JAX's own programs: on a GPU, where nothing then leaves the program.

All columns are factored by QR, the held ones replaced by unit vectors of their own, as on a device elsewhere; in the
precision of the program. Leading axes are as many in every argument, ones where it is shared.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Array = Any


def solve_free(entries: Array, free: Array, lam: Array, g: Array, *, gram: bool = False) -> Array:
    """Solve (A_FᵀA_F + λ²I) u = g on the free columns, zero elsewhere; NaN where marks are; `gram`: A is AᵀA itself."""
    inside = (free > 0).astype(g.dtype)
    rhs = (g * inside)[..., None]
    unit = jnp.eye(g.shape[-1], dtype=g.dtype)
    if gram:
        diagonal = jnp.where(inside > 0, (lam * lam)[..., None], 1.0)
        whole = entries * (inside[..., :, None] * inside[..., None, :]) + diagonal[..., None] * unit
        u = jnp.linalg.solve(*_alike(whole, rhs))
    else:
        below = jnp.where(inside > 0, lam[..., None], 1.0)[..., None] * unit
        columns = entries * inside[..., None, :]
        lead = jnp.broadcast_shapes(columns.shape[:-2], below.shape[:-2])
        parts = [jnp.broadcast_to(part, (*lead, *part.shape[-2:])) for part in (columns, below)]
        R, rhs = _alike(jnp.linalg.qr(jnp.concatenate(parts, axis=-2), mode="r"), rhs)
        half = jax.scipy.linalg.solve_triangular(R, rhs, trans=1)
        u = jax.scipy.linalg.solve_triangular(R, half)
    return jnp.where(jnp.isnan(free), free, u[..., 0] * inside)


def _alike(matrix: Array, rhs: Array) -> tuple[Array, Array]:
    """Return both with the same leading axes."""
    lead = jnp.broadcast_shapes(matrix.shape[:-2], rhs.shape[:-2])
    return jnp.broadcast_to(matrix, (*lead, *matrix.shape[-2:])), jnp.broadcast_to(rhs, (*lead, *rhs.shape[-2:]))
