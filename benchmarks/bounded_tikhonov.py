"""Least squares with a penalty and x >= 0: L-BFGS-B as `tikhonov` runs it beside projected conjugate gradients (MPRGP).

    python benchmarks/bounded_tikhonov.py

One right-hand side each, until the projected gradient is below 1e-6 of Aᵀb. Counts are products with AᵀA + λ²I (a
product with A alone is half of one). MPRGP (Dostál and Schöberl 2005) is in NumPy and SciPy on one thread; it has here
the projected full step, where that lowers the objective more than stopping at the first bound.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from common import save, table

import stepwell
from stepwell.apps import tomography
from stepwell.krylov import bounded

TOL = 1e-6
PAIRS = (3, 5, 10)


def problems() -> Iterator[tuple[str, sp.csr_matrix, np.ndarray, float]]:
    random = np.random.default_rng(0)
    for size, spacing, lam, noise in ((48, 6.0, 0.5, 0.02), (64, 3.0, 1.0, 0.01), (64, 3.0, 4.0, 0.05)):
        A = tomography.parallel_beam(size, angles=np.arange(0, 180, spacing))
        b = A @ tomography.shepp_logan_3d(size)[size // 2].ravel()
        b = b + noise * np.abs(b).max() * random.standard_normal(b.shape)
        yield f"CT {size} x {size}, λ = {lam}", A, b, lam
    size, reach = 48, np.arange(-6, 7)
    weights = np.exp(-0.5 * (reach / 2.0) ** 2)
    weights /= weights.sum()
    line = sp.diags([np.full(size - abs(i), w) for i, w in zip(reach, weights)], list(reach))
    A = sp.csr_matrix(sp.kron(line, line))
    stars = np.zeros((size, size))
    stars[random.integers(0, size, 40), random.integers(0, size, 40)] = random.uniform(1, 5, 40)
    b = A @ stars.ravel()
    b = b + 0.01 * b.max() * random.standard_normal(b.size)
    for lam in (0.03, 0.003):
        yield f"stars, blurred, λ = {lam}", A, b, lam


def mprgp(A: sp.csr_matrix, b: np.ndarray, lam: float) -> tuple[np.ndarray, float]:
    """Projected conjugate gradients; return x and the products taken."""
    c = A.T @ b
    products = 0.0

    def apply(v: np.ndarray) -> np.ndarray:
        nonlocal products
        products += 1
        return A.T @ (A @ v) + lam**2 * v

    x, g, restart, rho, p = np.zeros(c.size), -c, True, 1.0, np.zeros(c.size)
    while True:
        projected = np.where(x > 0, g, np.minimum(g, 0))
        if np.linalg.norm(projected) <= TOL * np.linalg.norm(c):
            return x, products
        inner = np.where(x > 0, projected, 0)
        let_go = projected @ projected > 2 * (inner @ inner)  # the part at bounds is the larger one
        face = projected if let_go else inner
        before, rho = rho, face @ face
        p = -face if restart or let_go else -face + rho / before * p
        Hp = apply(p)
        step = rho / (p @ Hp)
        falls = p < 0
        room = np.min(np.where(falls, -x / np.where(falls, p, 1), np.inf))
        restart = step >= room
        if not restart:
            x, g = x + step * p, g + step * Hp
            continue
        far = np.maximum(x + step * p, 0)
        move = far - x
        Hm = apply(move)
        products -= 0.5  # what decides takes A alone, and the gradient is computed once
        if -(g @ move) - 0.5 * move @ Hm >= -room * (g @ p) - 0.5 * room**2 * (p @ Hp):
            x, g = far, g + Hm
        else:
            x, g = np.maximum(x + room * p, 0), g + room * Hp


def main() -> None:
    rows, kept = [], []
    usual = bounded.PAIRS
    for name, A, b, lam in problems():
        start = time.perf_counter()
        x, products = mprgp(A, b, lam)
        figures = {"problem": name, "mprgp": {"products": products, "ms": 1e3 * (time.perf_counter() - start)}}
        for pairs in PAIRS:
            bounded.PAIRS = pairs
            best = np.inf
            for _ in range(2):
                result = stepwell.tikhonov(A, b, lam, bounds=(0, None), tol=TOL, maxiter=20000)
                best = min(best, 1e3 * result.seconds)
            figures[f"{pairs} pairs"] = {"products": float(result.products), "ms": best}
        figures["difference"] = float(np.abs(x - result.x).max() / x.max())
        kept.append(figures)
        cells = [figures["mprgp"], *(figures[f"{pairs} pairs"] for pairs in PAIRS)]
        rows.append([name, *(f"{one['products']:.0f}, {one['ms']:.0f} ms" for one in cells)])
    bounded.PAIRS = usual
    table(["problem", "MPRGP", *(f"L-BFGS-B, {pairs} pairs" for pairs in PAIRS)], rows)
    save("bounded_tikhonov", "products", kept)


if __name__ == "__main__":
    main()
