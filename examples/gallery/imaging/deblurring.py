r"""
Deblurring an image whose pixels cannot be negative
===================================================

A telescope sees point sources through a blur. The least-squares problem has a sparse or matrix-free operator and x ≥ 0.
``stepwell.minimize`` takes one bound for all pixels, and value and gradient of

.. math:: \tfrac{1}{2} \lVert Bx - d \rVert^2 + \tfrac{1}{2} \lambda \lVert x \rVert^2.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

import stepwell

rng = np.random.default_rng(1)
side = 128

# %%
# A field of stars and a disc, seen through a Gaussian blur with noise. The blur is applied by the FFT; being symmetric,
# it is its own adjoint.
y, x = np.mgrid[:side, :side]
scene = np.zeros((side, side))
scene[rng.integers(0, side, 60), rng.integers(0, side, 60)] = rng.uniform(5, 40, 60)
scene += 2.0 * (np.hypot(x - 80, y - 50) < 14)

distance = np.minimum(np.arange(side), side - np.arange(side))
kernel = np.exp(-0.5 * (distance[:, None] ** 2 + distance[None] ** 2) / 1.6**2)
transfer = np.fft.rfft2(kernel / kernel.sum())


def blur(image):
    """Convolve with the Gaussian, periodically."""
    return np.fft.irfft2(np.fft.rfft2(image) * transfer, s=image.shape)


seen = blur(scene) + 0.02 * rng.normal(size=scene.shape)


# %%
# The function has the shape of the image; so have the gradient and the result.
def misfit(image, lam=1e-4):
    """Value and gradient of ½‖blur(image) − seen‖² + ½λ‖image‖²."""
    residual = blur(image) - seen
    return 0.5 * np.sum(residual**2) + 0.5 * lam * np.sum(image**2), blur(residual) + lam * image


assert stepwell.check_grad(misfit, rng.random(scene.shape))
options = {"maxiter": 200, "ftol": 0}
free = stepwell.minimize(misfit, np.zeros_like(seen), jac=True, options=options)
positive = stepwell.minimize(misfit, np.zeros_like(seen), jac=True, bounds=(0.0, None), options=options)
for name, result in (("free", free), ("x ≥ 0", positive)):
    error = np.linalg.norm(result.x - scene) / np.linalg.norm(scene)
    print(f"{name:6} {result.nit:4} iterations, relative error {error:.2f}; {result.message}")
assert positive.x.min() >= 0

# %%
# Without the bound the stars ring; with it most of the empty sky is exactly zero.
figure, axes = plt.subplots(1, 4, figsize=(12, 3.3), layout="constrained")
for axis, image, title in zip(
    axes, (scene, seen, free.x, positive.x), ("truth", "seen", "deblurred, free", "deblurred, x ≥ 0")
):
    axis.imshow(image, vmin=-2, vmax=8, cmap="magma")
    axis.set_title(title)
    axis.set_axis_off()
plt.show()
