"""
Computed tomography of a phantom, λ chosen from the noise
=========================================================

All slices of a scan are right-hand sides of one linear system. ``stepwell.tikhonov`` solves them together, chooses the
regularisation λ, and ``ProjectedCG`` takes slices that arrive one by one.
"""

# %%
# A small scan: 64 x 64 pixels, 45 angles, 1 % noise. Every slice is a column of B.
import matplotlib.pyplot as plt
import numpy as np

import stepwell
from stepwell.apps import tomography

A = tomography.parallel_beam(64, angles=np.arange(0, 180, 4.0))
slices = tomography.shepp_logan_3d(64)[20:44]
B = tomography.add_noise(A @ slices.reshape(len(slices), -1).T, 0.01)

# %%
# One call for all slices. The discrepancy principle picks λ from the noise; ``joint`` makes it one for all slices,
# which can then share one search space.
noise = 0.01 * np.sqrt(np.mean(B**2, axis=0))
result = stepwell.tikhonov(A, B, "discrepancy", noise=noise, joint=True, tol=1e-4)
images = np.asarray(result.x).T.reshape(slices.shape)
print(result.message)
each = result.products.sum() / len(slices)
print(f"lam {result.lam[0]:.3f}; {each:.1f} products per slice, {result.calls} operator calls")
print(f"signal to noise {tomography.signal_to_noise(images, slices):.1f} dB")

# %%
# What λ does: too little lets the noise through, too much blurs.
middle = 12
factors = (0.03, 1.0, 20.0)
tried = [stepwell.tikhonov(A, B[:, middle], f * result.lam[0], tol=1e-4).x.reshape(64, 64) for f in factors]
figure, axes = plt.subplots(1, 4, figsize=(12, 3.3), layout="constrained")
titles = ["truth", "λ a thirtieth", "λ as chosen", "λ twenty times as large"]
for axis, image, title in zip(axes, [slices[middle], *tried], titles):
    axis.imshow(image, vmin=0, vmax=1, cmap="gray")
    axis.set_title(title)
    axis.set_axis_off()
plt.show()

# %%
# The same slices one by one, as a scanner would deliver them: later ones profit from the directions of the first.
solver = stepwell.ProjectedCG(A, float(result.lam[0]), augmented=True)
first = solver.solve(B[:, 0], tol=1e-3)
later = [solver.solve(B[:, j], tol=1e-3) for j in range(1, 8)]
print(f"one by one: the first slice took {first.products:.0f} products, the next {[int(r.products) for r in later]}")
