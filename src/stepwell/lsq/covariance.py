"""The covariance of one system's x, in full, by dense linear algebra on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwell import arrays
from stepwell.lsq.batch import Batch

#: A sum that is within this of an end of its range, relative to Σ|x|, is held there.
HELD = 1e-10


def covariance_of(batch: Batch, index: int, x: np.ndarray, state: np.ndarray, lam: float, sigma: float) -> np.ndarray:
    """Return σ²MGM with M the inverse of G + λ²LᵀL over the variables between bounds, along a sum that is held."""
    constraints = batch.constraints
    assert constraints is not None
    n = batch.columns
    passive = np.flatnonzero(state == 0)
    number = int(arrays.host_copy(constraints.which)[index]) if constraints.which is not None else index

    def row(rows: Any) -> np.ndarray:
        return arrays.to_host(rows[index if rows.shape[0] > 1 else 0])

    if constraints.gram is not None:
        gram = arrays.to_host(batch.matrix if batch.matrix.ndim == 2 else batch.matrix[index])
        whole = row(constraints.gram)
    else:
        A = arrays.to_host(batch.dense_matrix(number))
        if constraints.weights is not None:
            A = A * row(constraints.weights)[:, None]
        gram = A.T @ A
        L = np.eye(n) if constraints.penalty is None else arrays.to_host(constraints.penalty)
        whole = gram + lam**2 * L.T @ L
    basis = np.eye(n)[:, passive]
    if constraints.sum_low is not None and constraints.sum_high is not None and passive.size:
        c = np.ones(n) if constraints.coefficients is None else arrays.to_host(constraints.coefficients)
        room = HELD * (np.abs(c * x).sum() + 1e-300)
        if min(abs(c @ x - float(row(end))) for end in (constraints.sum_low, constraints.sum_high)) <= room:
            # An orthonormal basis of what leaves the sum as it is.
            basis = basis @ np.linalg.qr(np.c_[c[passive], np.eye(passive.size)])[0][:, 1 : passive.size]
    inner = np.linalg.pinv(basis.T @ whole @ basis, hermitian=True)
    return np.asarray(sigma**2 * basis @ inner @ (basis.T @ gram @ basis) @ inner @ basis.T)
