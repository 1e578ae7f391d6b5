"""Oracles of the lasso: the problem as a cone program for Clarabel, and its objective written out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp


def objective(A, b, x, lam, groups=None, W=None):
    """½‖Ax − b‖² + λ‖Wx‖₁, or that of groups, of one vector."""
    c = x if W is None else W @ x
    sizes = np.abs(c) if groups is None else [np.linalg.norm(c[groups == g]) for g in np.unique(groups)]
    return 0.5 * np.sum((A @ x - b) ** 2) + lam * np.sum(sizes)


def clarabel_least(A, b, lam, groups=None, W=None, lower=None, upper=None):
    """The least objective, by an interior-point method at 1e-11."""
    clarabel = pytest.importorskip("clarabel")
    m, n = A.shape
    W = np.eye(n) if W is None else W
    labels = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]
    count = int(labels.max()) + 1
    # variables: x (n), t (count), r (m)
    squares = np.concatenate([np.zeros(n + count), np.ones(m)])
    linear = np.concatenate([np.zeros(n), np.full(count, lam), np.zeros(m)])
    rows = [np.hstack([A, np.zeros((m, count)), -np.eye(m)])]
    rhs, cones = [b], [clarabel.ZeroConeT(m)]
    for side, sign in ((lower, -1.0), (upper, 1.0)):
        if side is not None:
            bound = np.broadcast_to(np.asarray(side, float), (n,))
            keep = np.flatnonzero(np.isfinite(bound))
            rows.append(np.hstack([sign * np.eye(n)[keep], np.zeros((keep.size, count + m))]))
            rhs.append(sign * bound[keep])
            cones.append(clarabel.NonnegativeConeT(keep.size))
    for g in range(count):
        members = np.flatnonzero(labels == g)
        length = np.zeros((1, n + count + m))
        length[0, n + g] = -1.0
        rows += [length, np.hstack([-W[members], np.zeros((members.size, count + m))])]
        rhs.append(np.zeros(1 + members.size))
        cones.append(clarabel.SecondOrderConeT(1 + members.size))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_rel = settings.tol_gap_abs = settings.tol_feas = 1e-11
    stacked = sp.csc_matrix(np.vstack(rows))
    solver = clarabel.DefaultSolver(sp.diags(squares).tocsc(), linear, stacked, np.concatenate(rhs), cones, settings)
    return float(solver.solve().obj_val)
