"""tikhonov, cg and ProjectedCG: true residuals in wide precision, operators in every form, columns not finite."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

import stepwell
from fuzzing.common import clothed, exact, hold, norm, pick

METHODS = ("auto", "cgls", "pseudo-block", "block", "prcg", "aprcg", "direct")


def formed(rng, A):
    """The matrix in one of the forms that operators have."""
    kind = rng.integers(8)
    if kind == 0:
        return sp.csr_array(A)
    if kind == 1:
        return sp.csc_matrix(A)
    if kind == 2:
        return sp.coo_array(A)
    if kind == 3:
        return (lambda x: A @ x, lambda y: A.T @ y)
    if kind == 4:

        def spoiling(matrix):
            def apply(x):
                image = matrix @ x
                x[...] = 1e9
                return image

            return apply

        return stepwell.operators.from_functions(spoiling(A), spoiling(A.T), A.shape, blocks=bool(rng.random() < 0.5))
    if kind == 5:
        return sp.linalg.aslinearoperator(A)
    return clothed(rng, A)


def sizes(rng):
    m, n = int(rng.integers(1, 40)), int(rng.integers(1, 30))
    A = rng.standard_normal((m, n)) * (rng.random((m, n)) < pick(rng, 0.3, 1.0))
    A = A * 10.0 ** rng.uniform(-2, 2) * 10.0 ** rng.uniform(-1, 1, n)
    return A


def relative(A, L, lam, b, x):
    """The residual of the normal equations over the norm of A'b, and its rounding where all is in float64."""
    A, L, b, x = exact(A), exact(L), exact(b), exact(x)
    right = A.T @ b
    gradient = A.T @ (b - A @ x) - exact(lam) ** 2 * (L.T @ (L @ x))
    whole = norm(right)
    terms = norm(np.abs(A).T @ (np.abs(b) + np.abs(A) @ np.abs(x)))
    terms = terms + exact(lam) ** 2 * norm(np.abs(L).T @ (np.abs(L) @ np.abs(x)))
    return (float(norm(gradient) / whole), float(terms / whole)) if whole > 0 else (0.0, 0.0)


def tikhonov(rng):
    A = sizes(rng)
    m, n = A.shape
    count = int(rng.integers(1, 7))
    B = rng.standard_normal((m, count))
    if rng.random() < 0.2:
        B[:, rng.integers(count)] = 0
    bad = -1
    if rng.random() < 0.2:
        bad = int(rng.integers(count))
        B[rng.integers(m), bad] = pick(rng, np.nan, np.inf)
    L = None if rng.random() < 0.5 else rng.standard_normal((int(rng.integers(1, 2 * n + 1)), n))
    size = float(np.abs(A).max()) or 1.0
    lam = size * 10.0 ** rng.uniform(-2, 1, count) if rng.random() < 0.3 else size * 10.0 ** rng.uniform(-2, 1)
    single = rng.random() < 0.2
    if single:
        A, B = A.astype("f4"), B.astype("f4")
        L = None if L is None else L.astype("f4")
    tol = float(pick(rng, 1e-3, 1e-5)) if single else float(pick(rng, 1e-4, 1e-8, 1e-11))
    method = pick(rng, *METHODS)
    x0 = None if rng.random() < 0.7 else rng.standard_normal((n, count)).astype(A.dtype)
    keep = B.copy()
    r = stepwell.tikhonov(
        formed(rng, A), clothed(rng, B), lam, None if L is None else formed(rng, L), method=method, tol=tol, x0=x0
    )
    hold(np.array_equal(B, keep, equal_nan=True), "B was written to")
    hold(r.x.shape == (n, count), f"x has shape {r.x.shape}")
    penalty = np.eye(n) if L is None else L
    lams = np.broadcast_to(lam, (count,))
    for k in range(count):
        if k == bad:
            hold(r.status[k] == stepwell.LinearStatus.NONFINITE, f"column {k} is not finite, and {r.status[k]!r}")
            continue
        hold(bool(np.isfinite(r.x[:, k]).all()), f"{method}: x of column {k} is not finite")
        if r.status[k] == stepwell.LinearStatus.CONVERGED:
            found, terms = relative(A, penalty, lams[k], B[:, k], r.x[:, k])
            room = 60 * (2.0**-24 if single else 2.0**-53) * np.sqrt(max(m, n)) * terms
            hold(found <= 1.001 * tol + room, f"{method}: converged with {found} > {tol} (room {room})")


def cg(rng):
    n, count = int(rng.integers(1, 40)), int(rng.integers(1, 6))
    G = rng.standard_normal((n + 3, n))
    H = G.T @ G + 10.0 ** rng.uniform(-6, 1) * np.eye(n)
    B = rng.standard_normal((n, count))
    tol = float(pick(rng, 1e-3, 1e-8))
    method = pick(rng, *METHODS)
    r = stepwell.cg(formed(rng, H), clothed(rng, B), tol=tol, method=method)
    for k in range(count):
        hold(bool(np.isfinite(r.x[:, k]).all()), f"{method}: not finite")
        if r.status[k] == stepwell.LinearStatus.CONVERGED:
            found = float(norm(exact(B[:, k]) - exact(H) @ exact(r.x[:, k])) / norm(B[:, k]))
            room = 60 * 2.0**-53 * np.sqrt(n) * float(norm(np.abs(H) @ np.abs(r.x[:, k])) / norm(B[:, k]))
            hold(found <= 1.001 * tol + room, f"{method}: converged with {found} > {tol}")


def projected(rng):
    A = sizes(rng)
    m, n = A.shape
    size = float(np.abs(A).max()) or 1.0
    lam = size * 10.0 ** rng.uniform(-2, 1)
    single = rng.random() < 0.4
    if single:
        A = A.astype("f4")
    memory = int(pick(rng, 2**28, int(8 * (2 * n + m) * rng.integers(2, n + 3))))
    augmented = bool(rng.random() < 0.5)
    solver = stepwell.ProjectedCG(formed(rng, A), lam, memory=memory, augmented=augmented)
    tol = 1e-4 if single else float(pick(rng, 1e-4, 1e-9))
    base = rng.standard_normal(m)
    for k in range(int(rng.integers(1, 9))):
        b = (base + rng.standard_normal(m) * pick(rng, 0.0, 1e-3, 1.0)).astype(A.dtype)
        r = solver.solve(b, tol=tol)
        hold(bool(np.isfinite(r.x).all()), "x is not finite")
        if r.success:
            found, terms = relative(A, np.eye(n), lam, b, r.x)
            room = 60 * (2.0**-24 if single else 2.0**-53) * np.sqrt(max(m, n)) * terms
            hold(found <= 1.001 * tol + room, f"right-hand side {k}: converged with {found} > {tol} (room {room})")
        hold(solver.bytes_held <= max(memory, 0), "more memory than allowed")
