"""The rules for λ at realistic size, against brute force over the (generalised) singular values.

    python benchmarks/lam_rules.py              # the phantom, 64 x 64 pixels: some minutes
    python benchmarks/lam_rules.py --held-out   # problems that no constant of the rules was set on: a minute

The first are four slices of the phantom with 0.1 %, 1 % and 5 % noise; on these the constants at which the growing
spaces count as standing still were set. The others judge them: other operators (blurring, few angles, an integral
equation), images, sizes, noise levels and L. For every rule: λ over that of brute force, the error of the
reconstruction over the smallest that any λ gives, and the products a column that choosing and solving take. The tables
go to docs/krylov.md, the raw figures to benchmarks/raw/lam_rules.json.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import scipy.sparse as sp
from common import save, table
from scipy.linalg import eigh

import stepwell
from stepwell.apps import tomography
from stepwell.krylov import selection

NOISE, HELD_OUT_NOISE = (0.001, 0.01, 0.05), (0.003, 0.03)


class Oracle:
    """Residual, seminorm, trace and error as functions of λ, from the generalised singular values of (A, L)."""

    def __init__(self, A, L, images):
        self.A, self.images = A, images
        gram = (A.T @ A).toarray()
        self.norm = float(np.sqrt(eigh(gram, eigvals_only=True, subset_by_index=[len(gram) - 1] * 2)[0]))
        if L is None:
            self.squares, self.vectors = eigh(gram)
            self.penalty = np.ones(len(gram))
        else:  # ZᵀAᵀAZ = diag(s), Zᵀ(AᵀA + cLᵀL)Z = I, hence ZᵀLᵀLZ = diag((1 − s)/c)
            penalty = (L.T @ L).toarray()
            c = np.trace(gram) / np.trace(penalty)
            self.squares, self.vectors = eigh(gram, gram + c * penalty)
            self.penalty = np.clip(1 - self.squares, 0, None) / c
        self.squares = np.clip(self.squares, 0, None)
        self.grid = self.norm * np.geomspace(1e-5, 3, 401)

    def at(self, B, lam):
        rhs = self.vectors.T @ (self.A.T @ B)
        bottom = self.squares + lam**2 * self.penalty
        x = rhs / bottom[:, None]
        residual = np.sum(B * B, axis=0) - np.sum(x * (2 * rhs - self.squares[:, None] * x), axis=0)
        error = np.linalg.norm(self.vectors @ x - self.images, axis=0) / np.linalg.norm(self.images, axis=0)
        return residual, np.sum(self.penalty[:, None] * x * x, axis=0), np.sum(self.squares / bottom), error

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


def phantom(size):
    """Four slices of the phantom, seen under as many angles as 128 x 128 pixels under 90."""
    angles = round(0.7 * size)
    A = tomography.parallel_beam(size, angles=np.arange(angles) * (180 / angles))
    images = tomography.shepp_logan_3d(size).reshape(size, -1).T
    images = images[:, np.linalg.norm(images, axis=0) > 0]
    return A, None, images[:, np.linspace(2, images.shape[1] - 3, 4).astype(int)]


def blobs(size, count):
    """Images of a few smooth spots of different widths."""
    random = np.random.default_rng(5)
    rows, columns = np.mgrid[:size, :size] / size
    images = np.zeros((count, size, size))
    for image in images:
        for _ in range(7):
            row, column, width = random.uniform(0.2, 0.8), random.uniform(0.2, 0.8), random.uniform(0.03, 0.15)
            image += random.uniform(0.3, 1) * np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / (2 * width**2))
    return images.reshape(count, -1).T


def blurring(size, width):
    """Gaussian blur of an image, zero outside."""
    steps = np.arange(-3 * int(np.ceil(width)), 3 * int(np.ceil(width)) + 1)
    weights = np.exp(-(steps**2) / (2 * width**2))
    one = sp.diags(list(weights / weights.sum()), list(steps), shape=(size, size))
    return sp.csr_matrix(sp.kron(one, one))


def held_out():
    """Problems that had no part in setting the constants: name, A, L, images."""
    few = tomography.parallel_beam(40, angles=np.arange(0, 180, 15.0))
    yield "40 x 40, 12 angles, spots, L gradient", few, stepwell.operators.gradient((40, 40)), blobs(40, 3)
    yield (
        "48 x 48, 40 angles, spots, L = I",
        tomography.parallel_beam(48, angles=np.arange(0, 180, 4.5)),
        None,
        blobs(48, 3),
    )
    yield "blur, 40 x 40, spots, L = I", blurring(40, 1.5), None, blobs(40, 3)
    yield "blur, 40 x 40, phantom, L gradient", blurring(40, 1.0), stepwell.operators.gradient((40, 40)), phantom(40)[2]
    size = 1600
    t = (np.arange(size) + 0.5) / size
    volterra = sp.csr_matrix(np.tril(np.ones((size, size))) / size)
    curves = np.stack([np.sin(3 * t) + t**2, np.where(np.abs(t - 0.5) < 0.2, 1.0, 0.2)], axis=1)
    yield "integral from 0, 1600 points, L = I", volterra, None, curves


def judge(name, A, L, images, noises, rows, figures):
    oracle = Oracle(A, L, images)
    for level in noises:
        clean = A @ images
        B = tomography.add_noise(clean, level)
        noise = np.linalg.norm(B - clean, axis=0)
        chosen, error, t = brute_force(oracle, B, noise)
        for rule, wanted in chosen.items():
            start = time.process_time()
            level_of_each = noise / len(B) ** 0.5 if rule == "discrepancy" else None
            result = stepwell.tikhonov(A, B, rule, L, noise=level_of_each, tol=1e-4)
            seconds = time.process_time() - start
            solved = stepwell.tikhonov(A, B, result.lam, L, tol=1e-4)
            ratio = result.lam / wanted
            excess = [np.interp(np.log(result.lam[j]), t, error[:, j]) / error[:, j].min() for j in range(B.shape[1])]
            wanted_excess = [
                np.interp(np.log(wanted[j]), t, error[:, j]) / error[:, j].min() for j in range(B.shape[1])
            ]
            choosing = float((result.products - solved.products).mean())
            figures.append({"problem": name, "noise": level, "rule": rule,
                            "lam over norm": (result.lam / oracle.norm).tolist(),
                            "lam over brute force": ratio.tolist(), "error over smallest": excess,
                            "error over smallest by brute force": wanted_excess,
                            "products choosing": choosing, "products solving": float(solved.products.mean()),
                            "cpu seconds": seconds})  # fmt: skip
            rows.append([name, f"{level:.1%}", rule, f"{np.mean(result.lam) / oracle.norm:.2g}",
                         f"{ratio.min():.2f} to {ratio.max():.2f}", f"{max(excess):.2f} ({max(wanted_excess):.2f})",
                         f"{choosing:.0f}", f"{solved.products.mean():.0f}"])  # fmt: skip
            print(*rows[-1], sep=" | ", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--held-out", action="store_true")
    options = parser.parse_args()
    selection.EXACT_SIZE = 0  # the way of large problems, also where the problem is small
    rows, figures = [], []
    if options.held_out:
        for name, A, L, images in held_out():
            judge(name, A, L, images, HELD_OUT_NOISE, rows, figures)
    else:
        A, L, images = phantom(options.size)
        judge(f"phantom, {options.size} x {options.size}", A, L, images, NOISE, rows, figures)
    head = ["problem", "noise", "rule", "λ/‖A‖", "λ over brute force", "error over smallest (brute force)",
            "products a column to choose", "to solve at 1e-4"]  # fmt: skip
    print()
    table(head, rows)
    save("lam_rules", "held out" if options.held_out else f"{options.size} pixels", figures)


if __name__ == "__main__":
    main()
