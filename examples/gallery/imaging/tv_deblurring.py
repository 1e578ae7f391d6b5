"""
Deblurring with total variation
===============================

A is a convolution, given by two functions. Total variation with x ≥ 0 brings back the edges that the blur took. λ comes
from the noise, and the result says what is proved of it.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

import stepwell

rng = np.random.default_rng(1)
side = 96
y, x = np.mgrid[:side, :side]
scene = 1.0 * (np.hypot(x - 60, y - 40) < 18) + 0.5 * ((abs(x - 28) < 12) & (abs(y - 62) < 20))

# %%
# The blur is applied by the FFT; being symmetric, it is its own adjoint. One function of a block of columns is both.
distance = np.minimum(np.arange(side), side - np.arange(side))
kernel = np.exp(-0.5 * (distance[:, None] ** 2 + distance[None] ** 2) / 2.0**2)
transfer = np.fft.rfft2(kernel / kernel.sum())


def blur(block):
    """Convolve every column, an image, with the Gaussian, periodically."""
    images = block.T.reshape(-1, side, side)
    seen = np.fft.irfft2(np.fft.rfft2(images) * transfer, s=(side, side))
    return seen.reshape(block.shape[1], -1).T


A = stepwell.operators.from_functions(blur, blur, (side**2, side**2), blocks=True)
sigma = 0.02
seen = blur(scene.reshape(-1, 1))[:, 0] + sigma * rng.normal(size=side**2)

# %%
result = stepwell.tv(A, seen, "discrepancy", noise=sigma, shape=scene.shape, bounds=(0, None))
error = np.linalg.norm(result.x - scene.ravel()) / np.linalg.norm(scene)
print(f"λ = {result.lam:.2g}, {result.products[0]:.1f} products, relative error {error:.2f}")
print(result.message)
assert result.success
assert result.x.min() >= 0

# %%
figure, axes = plt.subplots(1, 3, figsize=(10, 3.3), layout="constrained")
for axis, shown, title in zip(axes, (scene, seen, result.x), ("truth", "seen", "total variation, x ≥ 0")):
    axis.imshow(shown.reshape(scene.shape), vmin=0, vmax=1, cmap="gray")
    axis.set_title(title)
    axis.set_axis_off()
plt.show()
