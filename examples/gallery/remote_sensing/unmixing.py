"""
What a hyperspectral image is made of
=====================================

A pixel of an imaging spectrometer sees several materials at once: its spectrum is their mixture. Which share each of
them has is a small least-squares problem in every pixel. Shares are not negative and sum to at most one; the rest is
shade. All pixels are solved in one call, and each gets standard errors of its shares.
"""

# %%
import time

import matplotlib.pyplot as plt
import numpy as np

from stepwell.apps import unmixing

# %%
# A simulated scene of 100 x 140 pixels in 120 bands: five materials in patches, uneven light, and noise that differs
# from band to band. Real images and libraries are read by ``stepwell unmix image.hdr library.csv -o abundances``.
scene = unmixing.simulate(100, 140, bands=120, seed=2)
names = scene.library.class_names
pixels = scene.image.reshape(-1, scene.image.shape[2])

# %%
# ``total="most"``: abundances sum to at most one; ``"one"`` would be fully constrained least squares.
plan = unmixing.Unmixing(scene.library, total="most")
start = time.perf_counter()
found = unmixing.unmix_pixels(plan, pixels)
seconds = time.perf_counter() - start
print(f"{len(pixels)} pixels in {seconds:.2f} s, {np.sum(found['status'] == 0)} converged")

# %%
# How far are they from the truth, and do the standard errors say so? Water is nearly black, so its share is the least
# certain one; what it lacks is counted as shade.
shares = found["abundances"].reshape(scene.truth.shape)
errors = found["error"].reshape(scene.truth.shape)
away = np.abs(shares - scene.truth)
for place, name in enumerate(names):
    print(f"{name:12s} mean error {away[..., place].mean():.4f}, standard error {np.nanmean(errors[..., place]):.4f}")
assert away.mean() < 0.03

# %%
figure, axes = plt.subplots(2, len(names), figsize=(11, 3.4), layout="constrained")
for place, name in enumerate(names):
    axes[0, place].imshow(scene.truth[..., place], vmin=0, vmax=1, cmap="viridis")
    drawn = axes[1, place].imshow(shares[..., place], vmin=0, vmax=1, cmap="viridis")
    axes[0, place].set_title(name)
axes[0, 0].set_ylabel("truth")
axes[1, 0].set_ylabel("found")
for axis in axes.flat:
    axis.set(xticks=[], yticks=[])
figure.colorbar(drawn, ax=axes, label="share of the pixel")
plt.show()

# %%
# One pixel in which no material dominates: its spectrum, and what the shares make of the library.
row, column = np.unravel_index(int(np.argmin(shares.max(axis=-1) + 10 * (shares.sum(axis=-1) < 0.8))), shares.shape[:2])
waves = scene.library.wavelengths
figure, axis = plt.subplots(figsize=(8, 3.4), layout="constrained")
axis.plot(waves, scene.image[row, column], color="0.6", label="measured")
bottom = np.zeros(len(waves))
for place, name in enumerate(names):
    of_class = [one == name for one in scene.library.classes]
    part = shares[row, column, place] * scene.library.spectra[of_class].mean(axis=0)
    axis.fill_between(waves, bottom, bottom + part, alpha=0.7, label=f"{name} {shares[row, column, place]:.2f}")
    bottom += part
axis.set(xlabel="wavelength, nm", ylabel="reflectance")
axis.set_ylim(0, 1.35 * bottom.max())
axis.legend(frameon=False, ncols=3, loc="upper left")
plt.show()
