"""Reverse and forward rules of ``tikhonov`` and ``cg``, and the solvers with any number of leading axes.

X minimises ‖AX − B‖² + ‖LXΛ‖², Λ = diag(λ), so that H x = Aᵀb with H = AᵀA + λ²LᵀL in every column. With R = B − AX,
G the cotangent of X and U = H⁻¹G, which is a system of the same kind,

    B̄ = A U      Ā = R Uᵀ − (A U) Xᵀ      L̄ = −[(L X) Λ² Uᵀ + (L U) Λ² Xᵀ]      λ̄ = −2 λ (L x)·(L u)

    Ẋ = H⁻¹[Ȧᵀ R + Aᵀ(Ḃ − Ȧ X) − 2 λ λ̇ LᵀL X − λ² (L̇ᵀL + LᵀL̇) X]

and of H X = B:  B̄ = U,  H̄ = −U Xᵀ (symmetric, as H is).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from stepwell.arrays import Array, matrix_product, namespace_of

Solve = Callable[[Array], Array]


def reverse(
    A: Array, B: Array, lam: Array, L: Array | None, X: Array, U: Array
) -> tuple[Array, Array, Array, Array | None]:
    """Return the cotangents of A, B, λ (one a column) and L, given U; λ has one entry, or one a column."""
    image, square = matrix_product(A, U), lam * lam
    own = matrix_product(B - matrix_product(A, X), U.T) - matrix_product(image, X.T)
    if L is None:
        return own, image, -2 * lam * (X * U).sum(0), None
    bent, other = matrix_product(L, X), matrix_product(L, U)
    penalty = -matrix_product(bent * square, U.T) - matrix_product(other * square, X.T)
    return own, image, -2 * lam * (bent * other).sum(0), penalty


def forward(
    A: Array,
    B: Array,
    lam: Array,
    L: Array | None,
    X: Array,
    solve: Solve,
    *,
    A_dot: Array | None = None,
    B_dot: Array | None = None,
    lam_dot: Array | None = None,
    L_dot: Array | None = None,
) -> Array:
    """Return the tangent of X."""
    rhs = X * 0
    if A_dot is not None:
        rest, moved = B - matrix_product(A, X), matrix_product(A_dot, X)
        rhs = rhs + matrix_product(A_dot.T, rest) - matrix_product(A.T, moved)
    if B_dot is not None:
        rhs = rhs + matrix_product(A.T, B_dot)
    if lam_dot is not None:
        rhs = rhs - 2 * lam * lam_dot * (X if L is None else matrix_product(L.T, matrix_product(L, X)))
    if L_dot is not None and L is not None:
        bent, moved = matrix_product(L, X), matrix_product(L_dot, X)
        rhs = rhs - lam * lam * (matrix_product(L_dot.T, bent) + matrix_product(L.T, moved))
    return solve(rhs)


def over_blocks(solve: Callable[..., Array], columns: Array, *others: tuple[Array | None, int]) -> Array:
    """Call ``solve(columns, *others)`` for any leading axes; arguments that lack one, or have it as a one, share it.

    `columns` is (..., rows, k); each other argument comes with the number of its own last axes. Where all others are
    shared, the blocks become one, side by side: one factor, or one search space, serves them all.
    """
    xp = namespace_of(columns)
    arrays = [(columns, 2), *others]
    leads = [() if array is None else tuple(array.shape[: array.ndim - core]) for array, core in arrays]
    rank = max(map(len, leads))
    leads = [(1,) * (rank - len(lead)) + lead for lead in leads]
    whole: tuple[int, ...] = np.broadcast_shapes(*leads)
    rows, width = columns.shape[-2:]
    if all(math.prod(lead) == 1 for lead in leads[1:]):
        shared = [None if a is None else xp.reshape(a, tuple(a.shape[a.ndim - core :])) for a, core in others]
        if not rank:
            return solve(columns, *shared)
        blocks = math.prod(leads[0])
        wide = xp.permute_dims(xp.reshape(columns, (blocks, rows, width)), (1, 0, 2))
        repeated = [
            xp.concat([a] * blocks) if a is not None and a.ndim == 1 and a.shape[0] > 1 else a for a in shared
        ]  # one number a column
        found = solve(xp.reshape(wide, (rows, blocks * width)), *repeated)
        apart = xp.permute_dims(xp.reshape(found, (found.shape[0], blocks, width)), (1, 0, 2))
        return xp.reshape(apart, (*leads[0], found.shape[0], width))
    spread: list[Array] = []
    for (array, core), lead in zip(arrays, leads):
        shape = () if array is None else tuple(array.shape[array.ndim - core :])
        wide = None if array is None else xp.broadcast_to(xp.reshape(array, (*lead, *shape)), (*whole, *shape))
        spread.append(wide)
    parts = [solve(*(None if a is None else a[place] for a in spread)) for place in np.ndindex(*whole)]
    joined = xp.stack(parts)
    return xp.reshape(joined, (*whole, *joined.shape[1:]))
