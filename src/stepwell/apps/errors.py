"""How far noise scatters weighted sums of the solution of small non-negative least-squares problems, very many at once.

On the positive unknowns P the solution of min ‖Ax − b‖² + λ²‖Lx‖² is B⁻¹A_Pᵀb with B = A_PᵀA_P + λ²(LᵀL)_P, so noise of
unit variance gives it the covariance B⁻¹A_PᵀA_PB⁻¹. Where the sum of x is held it is G⁻¹ − wwᵀ/(1ᵀw) with G = A_PᵀA_P
and w = G⁻¹1 (no penalty there). That noise may change the set P, and that a penalty pulls, is not in it.
"""

from __future__ import annotations

import numpy as np

from stepwell.arrays import Array, copy_to_device_of, host_copy, namespace_of

#: Bytes for the matrices of one step, on the host and on a device, where small steps would only wait for each other.
STEP_BYTES, DEVICE_STEP_BYTES = 2**24, 2**29


def scatter_of_sums(
    grams: Array,
    x: Array,
    weights: Array,
    *,
    which: Array | None = None,
    lam: Array | None = None,
    penalty: Array | None = None,
    held: Array | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return standard deviations of weighted sums of x for noise of unit variance, and the parameters that x used.

    Parameters
    ----------
    grams : array, (matrices, n, n)
        AᵀA of each matrix.
    x : array, (systems, n)
        The solutions.
    weights : array, (systems, n) or (1, sums, n)
        The weights of one sum for each system, or of several for all of them.
    which : int array, (systems,), optional
        The matrix of each system; the first one by default.
    lam : array, (systems,), optional
        λ, zero by default.
    penalty : array, (n, n), optional
        LᵀL.
    held : bool array, (systems,), optional
        Where the sum of x is held.

    Returns
    -------
    scatter : array, (systems, sums)
        NaN where nothing is positive.
    used : array, (systems,)
        The trace of A_PB⁻¹A_Pᵀ, less one where the sum is held: without a penalty the free unknowns.
    """
    xp = namespace_of(x)
    positive = x > 0
    counts = np.asarray(host_copy(xp.sum(xp.astype(positive, xp.int32), axis=1)))
    finite = xp.all(xp.isfinite(x), axis=1)
    if lam is not None:
        finite = finite & xp.isfinite(lam)
    good = np.flatnonzero((counts > 0) & np.asarray(host_copy(finite), dtype=bool))
    good = good[np.argsort(counts[good], kind="stable")]  # those with as many positive unknowns go together
    sums = int(weights.shape[1]) if len(weights.shape) == 3 else 1
    scatter, used = np.full((len(counts), sums), np.nan), np.full(len(counts), np.nan)
    zero = xp.zeros_like(x[:1, 0])
    room = STEP_BYTES if isinstance(x, np.ndarray) else DEVICE_STEP_BYTES
    while good.size:
        step = max(1, room // (40 * int(counts[good[-1]]) * (int(counts[good[-1]]) + sums)))
        chosen, good = good[-step:], good[:-step]
        size = int(counts[chosen[-1]])
        part = copy_to_device_of(chosen, x)
        order = xp.argsort(xp.astype(~positive[part], xp.int32), axis=1, stable=True)[:, :size]  # the positive first
        there = copy_to_device_of(np.arange(size), x)[None, :] < copy_to_device_of(counts[chosen], x)[:, None]
        both = there[:, :, None] & there[:, None, :]
        rows, columns = order[:, :, None], order[:, None, :]
        gram = grams[0][rows, columns] if which is None else grams[which[part][:, None, None], rows, columns]
        gram = xp.where(both, gram, zero)
        matrix = gram
        if lam is not None and penalty is not None:
            matrix = matrix + xp.where(both, lam[part][:, None, None] ** 2 * penalty[rows, columns], zero)
        unit = copy_to_device_of(np.eye(size), x)
        # (Columns may be nearly parallel: without a penalty the matrix may be singular.)
        ridge = 1e-14 * xp.sum(matrix * unit, axis=(1, 2))[:, None]
        matrix = matrix + unit * xp.where(there, ridge, xp.ones_like(ridge))[:, :, None]
        if len(weights.shape) == 3:
            slope = xp.permute_dims(weights[0], (1, 0))[order]
        else:
            slope = weights[part][copy_to_device_of(np.arange(len(chosen)), x)[:, None], order][:, :, None]
        slope = xp.where(there[:, :, None], slope, zero)
        ones = xp.astype(there, x.dtype)[:, :, None]
        solved = xp.linalg.solve(matrix, xp.concat([slope, ones, gram], axis=2))
        sides, flat = solved[:, :, :sums], solved[:, :, sums]
        parameters = xp.sum(solved[:, :, sums + 1 :] * unit, axis=(1, 2))
        variance = xp.sum(sides * (gram @ sides), axis=1)
        if held is not None:
            fixed = held[part]
            less = xp.sum(slope * flat[:, :, None], axis=1) ** 2 / xp.sum(ones[:, :, 0] * flat, axis=1)[:, None]
            variance = xp.where(fixed[:, None], variance - less, variance)
            parameters = xp.where(fixed, parameters - 1, parameters)
        scatter[chosen] = host_copy(xp.sqrt(xp.where(variance > 0, variance, zero)))
        used[chosen] = host_copy(parameters)
    return scatter, used
