"""Reverse and forward rules of least squares with x ≥ 0, within bounds, and with a sum that is bound.

x minimises ‖Ax − b‖² + λ²‖x‖² where some unknowns are held (at zero, or at a bound) and the others, F, are free. With
H = A_FᵀA_F + λ²I, r = b − Ax, and g the cotangent of x, the one solve u = H⁻¹g on F (zero elsewhere) gives

    b̄ = A u        Ā = r uᵀ − (A u) xᵀ        λ̄ = −2 λ uᵀx        bounds of held unknowns:  g − (AᵀA + λ²I) u

and tangents are ẋ_F = H⁻¹[Ȧᵀr + Aᵀ(ḃ − Ȧx − A ẋ_held) − 2 λ λ̇ x]_F. Where Σ x = s is asked for, H⁻¹ is replaced by the
inverse of [H 1; 1ᵀ 0], whose multiplier ν is the cotangent of s and is subtracted from those of the bounds.

``solve(g)`` returns u; how it does so, and what it keeps of A, λ and F, is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stepwell.arrays import Array
from stepwell.derivatives.matrices import Matrix

Solve = Callable[[Array], Array]


class Cotangents(NamedTuple):
    """What flows back to the arguments; None where it was not asked for."""

    matrix: Array | None
    b: Array | None
    lam: Array | None


def reverse(
    matrix: Matrix, b: Array, lam: Array, x: Array, u: Array, *, matrix_too: bool = True, lam_too: bool = True
) -> Cotangents:
    """Return the cotangents of A, b and λ, given u."""
    image = matrix.times(u)
    own = matrix.cotangent(b - matrix.times(x), u) - matrix.cotangent(image, x) if matrix_too else None
    return Cotangents(own, image, -2 * lam * (u * x).sum() if lam_too else None)


def forward(
    matrix: Matrix,
    b: Array,
    lam: Array,
    x: Array,
    solve: Solve,
    *,
    matrix_dot: Array | None = None,
    b_dot: Array | None = None,
    lam_dot: Array | None = None,
    held_dot: Array | None = None,
) -> Array:
    """Return the tangent of x; `held_dot` is that of the held unknowns, zero elsewhere."""
    data = b_dot
    rhs = None
    if matrix_dot is not None:
        change = matrix.like(matrix_dot)
        moved = change.times(x)
        data = -moved if data is None else data - moved
        rhs = change.transposed_times(b - matrix.times(x))
    if held_dot is not None:
        moved = matrix.times(held_dot)
        data = -moved if data is None else data - moved
    if data is not None:
        pulled = matrix.transposed_times(data)
        rhs = pulled if rhs is None else rhs + pulled
    if lam_dot is not None:
        pulled = -2 * lam * lam_dot * x
        rhs = pulled if rhs is None else rhs + pulled
    if rhs is None:
        return x * 0
    return solve(rhs) if held_dot is None else solve(rhs) + held_dot


def with_sum(solve: Solve, free: Array) -> Callable[[Array], tuple[Array, Array]]:
    """Return what solves with Σ u = 0 beside it: g to u and the multiplier ν, one number a system."""
    sums = solve(free)
    total = sums.sum(-1)
    total = total + (total == 0)  # no unknown is free: u = 0 and ν = 0

    def bound(g: Array) -> tuple[Array, Array]:
        u = solve(g)
        multiplier = u.sum(-1) / total
        return u - multiplier[..., None] * sums, multiplier

    return bound


def reverse_held(matrix: Matrix, lam: Array, u: Array, g: Array, multiplier: Array | None = None) -> Array:
    """Return the cotangents of the bounds of held unknowns; of the free ones, rounding is left."""
    own = g - matrix.transposed_times(matrix.times(u)) - lam * lam * u
    return own if multiplier is None else own - multiplier[..., None]


# ---- the solve itself, u = H⁻¹ g, so that the rules above can be differentiated again ----


def reverse_of_solve(
    matrix: Matrix, lam: Array, u: Array, v: Array, *, matrix_too: bool = True, lam_too: bool = True
) -> tuple[Array | None, Array | None]:
    """Return the cotangents of A and λ in u = H⁻¹g, given v = H⁻¹ū, which is that of g."""
    own = None
    if matrix_too:
        own = -matrix.cotangent(matrix.times(v), u) - matrix.cotangent(matrix.times(u), v)
    return own, -2 * lam * (u * v).sum() if lam_too else None


def forward_of_solve(
    matrix: Matrix,
    lam: Array,
    u: Array,
    solve: Solve,
    *,
    matrix_dot: Array | None = None,
    lam_dot: Array | None = None,
    g_dot: Array | None = None,
) -> Array:
    """Return the tangent of u = H⁻¹g: H⁻¹(ġ − Ȧᵀ A u − Aᵀ Ȧ u − 2 λ λ̇ u)."""
    rhs = g_dot
    if matrix_dot is not None:
        change = matrix.like(matrix_dot)
        moved = change.transposed_times(matrix.times(u)) + matrix.transposed_times(change.times(u))
        rhs = -moved if rhs is None else rhs - moved
    if lam_dot is not None:
        moved = 2 * lam * lam_dot * u
        rhs = -moved if rhs is None else rhs - moved
    return u * 0 if rhs is None else solve(rhs)
