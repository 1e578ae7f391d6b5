"""Covariances of x by dense linear algebra on the host: of one system in full, and variances of normal equations."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepwell import arrays
from stepwell.lsq.batch import Batch

#: A sum that is within this of an end of its range, relative to Σ|x|, is held there; and of an x in single precision.
HELD, HELD_IN_SINGLE = 1e-10, 1e-6
#: Systems whose matrices are in memory at once, by their entries.
ENTRIES = 1 << 22


def covariance_of(batch: Batch, index: int, x: np.ndarray, state: np.ndarray, lam: float, sigma: float) -> np.ndarray:
    """Return σ²MGM with M the inverse of G + λ²LᵀL over the variables between bounds, along a sum that is held.

    With K = (A; λL) this is FᵀF, F = σAK⁺(K⁺)ᵀ, from K with columns of length one: those of other sizes, and products
    that cancel, cost no digits then.
    """
    constraints = batch.constraints
    assert constraints is not None
    n = batch.columns
    number = int(arrays.host_copy(constraints.which)[index]) if constraints.which is not None else index

    def row(rows: Any) -> np.ndarray:
        return arrays.to_host(rows[index if rows.shape[0] > 1 else 0])

    if constraints.gram is not None:
        A = _root(arrays.to_host(batch.matrix if batch.matrix.ndim == 2 else batch.matrix[index]))
        L = np.zeros((0, n)) if constraints.penalty_in_gram is None else arrays.to_host(constraints.penalty_in_gram)
    else:
        A = arrays.to_host(batch.dense_matrix(number))
        if constraints.weights is not None:
            A = A * row(constraints.weights)[:, None]
        L = np.eye(n) if constraints.penalty is None else arrays.to_host(constraints.penalty) / constraints.lam_unit
    K = np.concatenate([A, lam * L])
    lengths = _lengths(K)
    passive = np.flatnonzero((state == 0) & (lengths > 0))
    across = np.diag(1 / lengths[passive])  # from variables in units of their columns to x
    held = _held_sum(batch, x[None], slice(index, index + 1))
    if held is not None and held[0] and passive.size:
        c = _coefficients(batch)[passive] @ across
        # An orthonormal basis of what leaves the sum as it is.
        across = across @ np.linalg.qr(np.c_[c, np.eye(passive.size)])[0][:, 1 : passive.size]
    inverse = np.linalg.pinv(K[:, passive] @ across, rcond=max(K.shape) * float(np.finfo(float).eps))
    spread = np.zeros((len(A), n))
    spread[:, passive] = sigma * A[:, passive] @ across @ inverse @ inverse.T @ across.T
    return np.asarray(spread.T @ spread)


def deviations_of_gram(batch: Batch, x: np.ndarray, state: np.ndarray) -> np.ndarray:
    """Return the deviations of x of penalized normal equations where entries of b have deviation one, a row a system:
    the roots of the diagonal of MGM, M the inverse of G + λ²LᵀL over the variables between bounds.
    """
    constraints = batch.constraints
    assert constraints is not None
    assert constraints.gram is not None
    systems, n = x.shape
    found = np.empty((systems, n))
    size = max(1, ENTRIES // (n * n + 1))
    for start in range(0, systems, size):
        part = slice(start, min(start + size, systems))

        def rows(given: Any, part: slice = part) -> np.ndarray:
            return arrays.to_host(given if given.ndim == 2 or given.shape[0] == 1 else given[part])

        G, whole = rows(batch.matrix), rows(constraints.gram)
        squares = np.diagonal(whole, axis1=-2, axis2=-1)
        passive = (state[part] == 0) & (squares > 0)
        unit = np.where(passive, 1 / np.sqrt(np.where(squares > 0, squares, 1)), 0.0)  # x in units of its columns
        M = _inverse(whole * unit[:, :, None] * unit[:, None, :] + np.eye(n) * ~passive[:, None, :])
        M = M * passive[:, :, None] * passive[:, None, :]
        held = _held_sum(batch, x[part], part)
        if held is not None:
            along = np.einsum("sij,sj->si", M, unit * _coefficients(batch))
            square = np.einsum("si,si->s", along, unit * _coefficients(batch))
            square = np.where(held & (square > 0), square, np.inf)
            M = M - along[:, :, None] * along[:, None, :] / square[:, None, None]
        scatter = np.einsum("sij,sjk,sik->si", M, G * unit[:, :, None] * unit[:, None, :], M, optimize=True)
        found[part] = np.sqrt(np.maximum(scatter, 0)) * unit
    return found


def _inverse(whole: np.ndarray) -> np.ndarray:
    """The inverses of symmetric matrices with a diagonal of ones, of those on which all columns depend the least."""
    finite = np.isfinite(whole).all(axis=(1, 2))
    safe = np.where(finite[:, None, None], whole, np.eye(whole.shape[-1]))
    inverse = np.linalg.pinv(safe, rcond=whole.shape[-1] * float(np.finfo(float).eps), hermitian=True)
    return np.where(finite[:, None, None], inverse, np.nan)


def _held_sum(batch: Batch, x: np.ndarray, part: slice) -> np.ndarray | None:
    """Whether the sum of each system is held at an end of its range; None without a sum."""
    constraints = batch.constraints
    assert constraints is not None
    if constraints.sum_low is None or constraints.sum_high is None:
        return None
    c, x = _coefficients(batch), x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        room = (HELD_IN_SINGLE if batch.single else HELD) * (np.abs(c * x).sum(axis=1) + 1e-300)
        held = np.zeros(len(x), bool)
        for end in (constraints.sum_low, constraints.sum_high):
            held |= np.abs(x @ c - arrays.to_host(end[part] if end.shape[0] > 1 else end)) <= room
    return held


def _coefficients(batch: Batch) -> np.ndarray:
    """Of the sum."""
    assert batch.constraints is not None
    given = batch.constraints.coefficients
    return np.ones(batch.columns) if given is None else arrays.to_host(given)


def _lengths(K: np.ndarray) -> np.ndarray:
    """The lengths of columns whose squares may be no numbers."""
    largest = np.abs(K).max(axis=0, initial=0)
    some = np.where(largest > 0, largest, 1.0)
    return np.asarray(np.linalg.norm(K / some, axis=0) * largest)


def _root(G: np.ndarray) -> np.ndarray:
    """Rows R with RᵀR = G, positive semidefinite but for rounding."""
    squares = np.diagonal(G)
    lengths = np.sqrt(np.maximum(squares, 0))
    over = np.where(lengths > 0, lengths, 1.0)
    values, vectors = np.linalg.eigh(G / over / over[:, None])
    return np.asarray(np.sqrt(np.maximum(values, 0))[:, None] * vectors.T * lengths)
