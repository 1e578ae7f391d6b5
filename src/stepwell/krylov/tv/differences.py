"""Forward differences of blocks of images, their adjoint, and the size of a field of differences.

An image block is ``(batch, *dims)``; a field has one block per axis, ``(len(dims), batch, *dims)``, whose last entries
along its own axis are zero. Each axis has a weight: the inverse of the voxel's side, or the weight across slices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwell.arrays import Array, copy_to_device_of, namespace_of


def differences(images: Array, weights: tuple[float, ...]) -> Array:
    """Return ∇x: forward differences along every axis, times its weight.

    Examples
    --------
    >>> differences(np.array([[[1.0, 4.0]]]), (1.0, 2.0))[1]
    array([[[6., 0.]]])
    """
    xp, count = namespace_of(images), len(weights)
    if isinstance(images, np.ndarray):
        field = np.empty((count, *images.shape), dtype=images.dtype)
        for axis, weight in enumerate(weights):
            low, high, end = _cuts(axis - count)
            np.subtract(images[high], images[low], out=field[axis][low])
            if weight != 1:
                field[axis][low] *= weight
            field[axis][end] = 0
        return field
    parts = []
    for axis, weight in enumerate(weights):
        low, high, end = _cuts(axis - count)
        step = images[high] - images[low]
        parts.append(xp.concat([step if weight == 1 else weight * step, xp.zeros_like(images[end])], axis=axis - count))
    return xp.stack(parts)


def divergence(field: Array, weights: tuple[float, ...]) -> Array:
    """Return ∇ᵀp, the adjoint of `differences`; the last entries of p along each axis must be zero.

    Examples
    --------
    >>> divergence(np.array([[[[0.0, 0.0]]], [[[3.0, 0.0]]]]), (1.0, 2.0))
    array([[[-6.,  6.]]])
    """
    xp, count = namespace_of(field), len(weights)
    total = None
    for axis, weight in enumerate(weights):
        low, high, end = _cuts(axis - count)
        part = field[axis] if weight == 1 else weight * field[axis]
        if isinstance(field, np.ndarray):
            total = np.negative(part) if total is None else np.subtract(total, part, out=total)
            total[high] += part[low]
            continue
        moved = xp.concat([xp.zeros_like(part[end]), part[low]], axis=axis - count) - part
        total = moved if total is None else total + moved
    return total


def sizes(field: Array, anisotropic: bool) -> Array:
    """Return |p| of every pixel: over all axes together, or of every difference alone."""
    xp = namespace_of(field)
    if anisotropic:
        return xp.abs(field)
    total = field[0] * field[0]
    for part in field[1:]:
        total = total + part * part
    return xp.sqrt(total)[None]


def _cuts(axis: int) -> tuple[tuple[Any, ...], ...]:
    """Index all but the last, all but the first, and the last entry along an axis counted from the end."""
    rest = (slice(None),) * (-axis - 1)
    return (..., slice(None, -1), *rest), (..., slice(1, None), *rest), (..., slice(-1, None), *rest)


def along(values: Any, block: Array, axis: int = 0) -> Array:
    """Return one number per problem as an array that multiplies a block of images along its batch axis."""
    shape = [1] * block.ndim
    shape[axis] = -1
    return copy_to_device_of(np.asarray(values, dtype=np.float64).reshape(shape), block)
