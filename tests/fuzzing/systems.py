"""nnls and Convolution: the conditions of optimality in wide precision, alone as in a batch, any dtype and strides."""

from __future__ import annotations

import numpy as np

import stepwell
from fuzzing.common import clothed, exact, hold, norm, pick


def matrix(rng, m, n):
    kind = rng.integers(8)
    if kind == 0:
        A = rng.integers(-3, 4, (m, n)).astype(float)
    elif kind == 1:
        A = rng.standard_normal((m, 2)) @ rng.standard_normal((2, n))
    elif kind == 2:
        A = np.exp(-np.arange(1, m + 1)[:, None] / np.logspace(-1, 2, n)[None])
    elif kind == 3:
        A = np.abs(rng.standard_normal((m, n)))
    elif kind == 4:
        A = rng.standard_normal((m, n)) * (rng.random((m, n)) < 0.3)
    elif kind == 5:
        A = rng.standard_normal((m, n)) * 10.0 ** rng.uniform(-8, 8, n)
    elif kind == 6:
        A = rng.standard_normal((m, n))
        A[:, rng.integers(n)] = A[:, rng.integers(n)] * (1 + 1e-12)
    else:
        A = rng.standard_normal((m, n)) * 10.0 ** rng.uniform(-120, 120)
    return A


def certify(A, b, x, lam, residual, single, text):
    """KKT of min |Ax - b|^2 + lam^2 |x|^2, x >= 0; room by the rounding of b - Ax."""
    A, b, x = exact(A), exact(b), exact(x)
    hold(bool(np.isfinite(x).all()) and float(x.min(initial=0)) >= 0, f"{text}: x is negative or not finite")
    r = b - A @ x
    lengths = np.sqrt(norm(A, 0) ** 2 + exact(lam) ** 2) if A.size else np.zeros(A.shape[1])
    size = norm(b) + float((norm(A, 0) * x).sum())
    if size == 0:
        return
    eps = 2.0**-24 if single else 2.0**-53
    room = 2000 * eps * np.sqrt(max(*A.shape, 16)) * size
    w = A.T @ r - exact(lam) ** 2 * x
    scaled = w / np.where(lengths > 0, lengths, 1)
    hold(float(scaled.max(initial=0)) <= room, f"{text}: dual {float(scaled.max())} > {float(room)}")
    positive = x > 0
    slack = room + (2000 * eps * float((lengths * x).max(initial=0)) if lam else 0)
    worst = float(np.abs(scaled[positive]).max(initial=0))
    hold(worst <= slack, f"{text}: slope {worst} > {float(slack)}")
    hold(abs(float(norm(r)) - float(residual)) <= room, f"{text}: residual {residual}, is {float(norm(r))}")


def nnls(rng):
    m, n = int(rng.integers(1, 30)), int(rng.integers(1, 30))
    count = int(rng.integers(1, 8))
    A = matrix(rng, m, n)
    size = float(np.abs(A).max()) or 1.0
    B = np.where(rng.random((count, 1)) < 0.5, (A @ np.maximum(rng.standard_normal((n, count)), 0)).T, 0.0)
    B = B + rng.standard_normal((count, m)) * size * pick(rng, 0.0, 1e-6, 1.0)
    if rng.random() < 0.2:
        B[rng.integers(count)] = 0
    single = bool(rng.random() < 0.3) and 1e-15 < size < 1e15
    if single:
        A, B = A.astype("f4"), B.astype("f4")
    lam = float(pick(rng, 0.0, 0.0, size * 0.1))
    options = {"method": pick(rng, "auto", "qr", "gram"), "lam": lam, "threads": int(pick(rng, 1, 2, 3))}
    own = rng.random() < 0.4
    given = np.stack([A] * count) if own else A
    r = stepwell.nnls(clothed(rng, given), clothed(rng, B), **options)
    finished = stepwell.NNLSStatus.CONVERGED
    for k in range(count):
        text = f"{options['method']} {m}x{n} system {k} of {count}"
        hold(bool((r.x[k] >= 0).all()), f"{text}: negative")
        if r.status[k] == finished:
            certify(A, B[k], r.x[k], lam, r.residual[k], single, text)
        alone = stepwell.nnls(A, B[k], **options)
        if own:  # of what systems share, sums are rounded in another order, and ties fall otherwise
            hold(np.array_equal(alone.x, r.x[k], equal_nan=True), f"{text}: alone other bits")
    turned = stepwell.nnls(given, np.ascontiguousarray(B.T), axis=1, **options)
    hold(np.array_equal(turned.x.T, r.x, equal_nan=True), "axis=1 has other bits")
    again = stepwell.nnls(given, B, **options | {"threads": 1})
    hold(np.array_equal(again.x, r.x, equal_nan=True), "another run, other bits")


def convolution(rng):
    n, m, length = int(rng.integers(1, 60)), int(rng.integers(1, 60)), int(rng.integers(1, 90))
    pulse = rng.standard_normal(length) * 10.0 ** rng.uniform(-5, 5)
    if rng.random() < 0.3:
        pulse = np.abs(pulse)
    A = stepwell.Convolution(clothed(rng, pulse), n, m=m, origin=int(rng.integers(length)))
    dense = A.dense()
    x, y = rng.standard_normal((n, 3)), rng.standard_normal(m)
    size = float(np.abs(pulse).sum())
    room = 1e-13 * size * 10
    hold(float(np.abs(A @ x - dense @ x).max(initial=0)) <= room * np.abs(x).max(), "A @ x")
    hold(float(np.abs(A.T @ y - dense.T @ y).max(initial=0)) <= room * np.abs(y).max(), "A.T @ y")
    r = stepwell.nnls(A, y, method=pick(rng, "auto", "qr", "gram"))
    if r.success:
        certify(dense, y, r.x, 0.0, r.residual, False, f"convolution {m}x{n}, {length}")
