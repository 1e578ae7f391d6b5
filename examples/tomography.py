"""Reconstruct slices of a phantom together, choose λ, and watch neighbouring slices get cheaper.

Run: python examples/tomography.py
"""

from __future__ import annotations

import numpy as np

import stepwell
from stepwell.apps import tomography

# A small scan: 64 x 64 pixels, 45 angles, 1 % noise. Every slice is a column of B.
A = tomography.parallel_beam(64, angles=np.arange(0, 180, 4.0))
slices = tomography.shepp_logan_3d(64)[20:44]
B = tomography.add_noise(A @ slices.reshape(len(slices), -1).T, 0.01)

# One call for all slices. The discrepancy principle picks λ from the noise; `joint` makes it one for all slices.
noise = 0.01 * np.linalg.norm(B, axis=0)
result = stepwell.tikhonov(A, B, "discrepancy", noise=noise, joint=True, tol=1e-4)
images = np.asarray(result.x).T.reshape(slices.shape)
print(result.message)
each = result.products.sum() / len(slices)
print(f"lam {result.lam[0]:.3f}; {each:.1f} products a slice, {result.calls} operator calls")
print(f"signal to noise {tomography.signal_to_noise(images, slices):.1f} dB")

# The same slices one by one, as a scanner would deliver them.
solver = stepwell.ProjectedCG(A, float(result.lam[0]), augmented=True)
first = solver.solve(B[:, 0], tol=1e-3)
later = [solver.solve(B[:, j], tol=1e-3) for j in range(1, 8)]
print(
    f"one by one: the first slice took {first.products[0]:.0f} products, the next {[int(r.products[0]) for r in later]}"
)
