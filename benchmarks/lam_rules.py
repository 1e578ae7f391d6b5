"""The rules for λ at realistic size, against brute force over the singular values of the projection matrix.

    python benchmarks/lam_rules.py              # 64 x 64 pixels: some minutes, most of them for the singular values

Four slices of the phantom with 0.1 %, 1 % and 5 % noise. For every rule: λ over that of brute force, the error of the
reconstruction over the smallest that any λ gives, and the products a column that choosing and solving take. The table
goes to docs/many-rhs.md, the raw figures to benchmarks/results/lam_rules.json.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from common import save, table
from scipy.linalg import eigh

import stepwell
from stepwell.apps import tomography
from stepwell.krylov import selection


class Oracle:
    """Residual, seminorm, trace and error as functions of λ, from the singular values of A."""

    def __init__(self, A, images):
        self.A, self.images = A, images
        squares, self.vectors = eigh((A.T @ A).toarray())
        self.squares = np.clip(squares, 0, None)
        self.norm = float(np.sqrt(self.squares[-1]))
        self.grid = self.norm * np.geomspace(1e-5, 1, 401)

    def at(self, B, lam):
        rhs = self.vectors.T @ (self.A.T @ B)
        x = rhs / (self.squares + lam**2)[:, None]
        residual = np.sum(B * B, axis=0) - np.sum(x * (2 * rhs - self.squares[:, None] * x), axis=0)
        trace = np.sum(self.squares / (self.squares + lam**2))
        error = np.linalg.norm(self.vectors @ x - self.images, axis=0) / np.linalg.norm(self.images, axis=0)
        return residual, np.sum(x * x, axis=0), trace, error

    def curves(self, B):
        points = [self.at(B, lam) for lam in self.grid]
        return [np.array([point[k] for point in points]) for k in range(4)]


def brute_force(oracle, B, noise):
    residual, seminorm, trace, error = oracle.curves(B)
    t = np.log(oracle.grid)
    scores = residual / (B.shape[0] - trace[:, None]) ** 2
    rho, eta = 0.5 * np.log(residual), 0.5 * np.log(seminorm)
    slope = [np.gradient(values, t, axis=0) for values in (rho, eta)]
    bend = slope[0] * np.gradient(slope[1], t, axis=0) - np.gradient(slope[0], t, axis=0) * slope[1]
    speed = np.hypot(*slope)
    bend = np.where(speed > 1e-3, bend / np.maximum(speed, 1e-3) ** 3, -np.inf)[3:-3]
    discrepancy = [np.exp(np.interp(np.log(noise[j]), rho[:, j], t)) for j in range(B.shape[1])]
    chosen = {
        "gcv": oracle.grid[scores.argmin(axis=0)],
        "discrepancy": np.array(discrepancy),
        "lcurve": oracle.grid[3:-3][bend.argmax(axis=0)],
    }
    return chosen, error, t


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=64)
    size = parser.parse_args().size
    angles = round(0.7 * size)
    A = tomography.parallel_beam(size, angles=np.arange(angles) * (180 / angles))
    images = tomography.shepp_logan_3d(size).reshape(size, -1).T
    images = images[:, np.linalg.norm(images, axis=0) > 0]
    images = images[:, np.linspace(2, images.shape[1] - 3, 4).astype(int)]
    oracle = Oracle(A, images)
    selection.EXACT_SIZE = 0  # the way of large problems, also where the problem is small
    rows, figures = [], []
    for level in (0.001, 0.01, 0.05):
        clean = A @ images
        B = tomography.add_noise(clean, level)
        noise = np.linalg.norm(B - clean, axis=0)
        chosen, error, t = brute_force(oracle, B, noise)
        for rule, wanted in chosen.items():
            start = time.process_time()
            result = stepwell.tikhonov(A, B, rule, noise=noise if rule == "discrepancy" else None, tol=1e-4)
            seconds = time.process_time() - start
            solved = stepwell.tikhonov(A, B, result.lam, tol=1e-4)
            ratio = result.lam / wanted
            excess = [np.interp(np.log(result.lam[j]), t, error[:, j]) / error[:, j].min() for j in range(B.shape[1])]
            choosing = float((result.products - solved.products).mean())
            figures.append({"noise": level, "rule": rule, "lam over norm": (result.lam / oracle.norm).tolist(),
                            "lam over brute force": ratio.tolist(), "error over smallest": excess,
                            "products choosing": choosing, "products solving": float(solved.products.mean()),
                            "cpu seconds": seconds})  # fmt: skip
            rows.append([f"{level:.1%}", rule, f"{np.mean(result.lam) / oracle.norm:.2g}",
                         f"{ratio.min():.2f} to {ratio.max():.2f}", f"{max(excess):.2f}", f"{choosing:.0f}",
                         f"{solved.products.mean():.0f}"])  # fmt: skip
    print(f"\n{size} x {size} pixels, A {A.shape[0]} x {A.shape[1]}, four slices\n")
    head = ["noise", "rule", "λ/‖A‖", "λ over brute force", "error over smallest", "products a column to choose",
            "to solve at 1e-4"]  # fmt: skip
    table(head, rows)
    save("lam_rules", f"{size} pixels", figures)


if __name__ == "__main__":
    main()
