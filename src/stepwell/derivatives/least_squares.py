"""Reverse and forward rules of least squares with x ≥ 0, and of the solve that they need.

x minimises ‖Ax − b‖² + λ²‖x‖² where some unknowns are held at zero and the others, F, are free. With H = A_FᵀA_F + λ²I,
r = b − Ax, and g the cotangent of x, the one solve u = H⁻¹g on F (zero elsewhere) gives

    b̄ = A u        Ā = r uᵀ − (A u) xᵀ        λ̄ = −2 λ uᵀx

and tangents are ẋ_F = H⁻¹[Ȧᵀr + Aᵀ(ḃ − Ȧx) − 2 λ λ̇ x]_F. (Bounds, sums and whatever else ``lsq_linear`` has:
`stepwell.derivatives.bounded`.)

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
    own = matrix.cotangent_of_two(b - matrix.times(x), u, -image, x) if matrix_too else None
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
) -> Array:
    """Return the tangent of x."""
    data = b_dot
    rhs = None
    if matrix_dot is not None:
        change = matrix.like(matrix_dot)
        moved = change.times(x)
        data = -moved if data is None else data - moved
        rhs = change.transposed_times(b - matrix.times(x))
    if data is not None:
        pulled = matrix.transposed_times(data)
        rhs = pulled if rhs is None else rhs + pulled
    if lam_dot is not None:
        pulled = -2 * lam * lam_dot * x
        rhs = pulled if rhs is None else rhs + pulled
    if rhs is None:
        return x * 0
    return solve(rhs)


# ---- the solve itself, u = H⁻¹ g, so that the rules above can be differentiated again ----


def reverse_of_solve(
    matrix: Matrix, lam: Array, u: Array, v: Array, *, matrix_too: bool = True, lam_too: bool = True
) -> tuple[Array | None, Array | None]:
    """Return the cotangents of A and λ in u = H⁻¹g, given v = H⁻¹ū, which is that of g."""
    own = matrix.normal_cotangent(-v, u) if matrix_too else None
    if not lam_too:
        return own, None
    return own, -2 * lam * ((u * v).sum(-1) if getattr(lam, "ndim", 0) else (u * v).sum())


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
        moved = matrix.normal_change(matrix_dot, u)
        rhs = -moved if rhs is None else rhs - moved
    if lam_dot is not None:
        factor = 2 * lam * lam_dot
        moved = (factor[..., None] if getattr(factor, "ndim", 0) else factor) * u
        rhs = -moved if rhs is None else rhs - moved
    return u * 0 if rhs is None else solve(rhs)
