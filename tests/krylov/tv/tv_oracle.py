"""Oracles for total variation: the problem as a cone program for Clarabel, and its objective written out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp


def field(shape, weights):
    """Forward differences as a matrix for each axis, a row per pixel; rows over an edge are zero."""
    parts = []
    for axis, (side, weight) in enumerate(zip(shape, weights)):
        step = sp.diags([-np.ones(side), np.ones(side - 1)], [0, 1], shape=(side, side)).tolil()
        step[side - 1] = 0
        before, after = int(np.prod(shape[:axis])), int(np.prod(shape[axis + 1 :]))
        parts.append(weight * sp.kron(sp.kron(sp.identity(before), step), sp.identity(after)).tocsr())
    return parts


def inner_field(shape, weights, mask):
    """The same, without differences that reach out of a mask."""
    parts = field(shape, weights)
    inside = np.asarray(mask).ravel().astype(float)
    return [sp.diags(((D != 0) @ (1 - inside) == 0).astype(float)) @ D for D in parts]


def objective(A, b, x, lam, shape, kind="isotropic", eps=None, weights=None, pixel=1.0, mask=None):
    """½‖Ax − b‖² + λ TV(x) of one vector; ``pixel`` weighs the length of a pixel's differences."""
    weights = weights or (1.0,) * len(shape)
    parts = np.stack([D @ x for D in (field(shape, weights) if mask is None else inner_field(shape, weights, mask))])
    if kind == "anisotropic":
        total = (pixel * np.abs(parts)).sum()
    else:
        size = np.sqrt((parts**2).sum(axis=0))
        size = size if kind == "isotropic" else np.where(size > eps, size - eps / 2, size**2 / (2 * eps))
        total = (pixel * size).sum()
    return 0.5 * np.sum((A @ x - b) ** 2) + lam * total


def clarabel_least(
    A, b, lam, shape, kind="isotropic", eps=None, weights=None, lower=None, upper=None, pixel=1.0, mask=None
):
    """The least objective, by an interior-point method at 1e-11; Huber's is an infimal convolution."""
    clarabel = pytest.importorskip("clarabel")
    A = sp.csr_matrix(A)
    m, n = A.shape
    weights = weights or (1.0,) * len(shape)
    parts = field(shape, weights)
    if mask is not None:  # pixels outside are zero
        parts = inner_field(shape, weights, mask)
        lower = np.where(mask.ravel(), -np.inf if lower is None else lower, 0.0)
        upper = np.where(mask.ravel(), np.inf if upper is None else upper, 0.0)
    axes = len(parts)
    huber = axes * n if kind == "huber" else 0
    lengths = axes * n if kind == "anisotropic" else n
    # variables: x (n), t (lengths), r (m), w (huber)
    squares = np.concatenate(
        [
            np.zeros(n + lengths),
            np.ones(m),
            (lam / eps if eps else 0.0) * np.broadcast_to(pixel, (axes, n)).ravel()[:huber],
        ]
    )
    linear = np.concatenate([np.zeros(n), lam * np.broadcast_to(pixel, (lengths // n, n)).ravel(), np.zeros(m + huber)])

    def zeros(rows, columns):
        return sp.csr_matrix((rows, columns))

    rows = [sp.hstack([A, zeros(m, lengths), -sp.identity(m), zeros(m, huber)])]
    rhs, cones = [b], [clarabel.ZeroConeT(m)]
    for side, sign in ((lower, -1.0), (upper, 1.0)):
        if side is not None:
            bound = np.broadcast_to(np.asarray(side, float), (n,))
            keep = np.flatnonzero(np.isfinite(bound))
            rows.append(sp.hstack([sign * sp.identity(n).tocsr()[keep], zeros(keep.size, lengths + m + huber)]))
            rhs.append(sign * bound[keep])
            cones.append(clarabel.NonnegativeConeT(keep.size))
    if kind == "anisotropic":
        D = sp.vstack(parts)
        for sign in (1.0, -1.0):
            rows.append(sp.hstack([sign * D, -sp.identity(lengths), zeros(lengths, m)]))
            rhs.append(np.zeros(lengths))
            cones.append(clarabel.NonnegativeConeT(lengths))
    else:
        blocks = [sp.hstack([zeros(n, n), -sp.identity(n), zeros(n, m + huber)])]
        for axis, D in enumerate(parts):
            pick = zeros(n, huber)
            if huber:
                pick = sp.hstack([sp.identity(n) if other == axis else zeros(n, n) for other in range(axes)])
            blocks.append(sp.hstack([-D, zeros(n, n + m), pick]))
        order = np.arange((axes + 1) * n).reshape(axes + 1, n).T.ravel()
        rows.append(sp.vstack(blocks).tocsr()[order])
        rhs.append(np.zeros((axes + 1) * n))
        cones += [clarabel.SecondOrderConeT(axes + 1)] * n
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_rel = settings.tol_gap_abs = settings.tol_feas = 1e-11
    solver = clarabel.DefaultSolver(
        sp.diags(squares).tocsc(), linear, sp.vstack(rows).tocsc(), np.concatenate(rhs), cones, settings
    )
    return float(solver.solve().obj_val)
