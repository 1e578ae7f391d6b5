"""
A million spots in one call: localisation microscopy
====================================================

A molecule that lights up on a camera is a spot of a few pixels. A Gaussian that is fitted to those pixels finds the
molecule to a small part of a pixel, and a measurement has millions of spots. A compiled model is fitted without calling
Python; each lane of the vector registers has a spot of its own. Bounds hold exactly, and every spot has a status and
standard errors.
"""

# %%
import time

import matplotlib.pyplot as plt
import numpy as np

import stepwell

spots, side = 1_000_000, 5
model = stepwell.models.gaussian2d()
print(model.parameters)
rows, columns = (line.ravel().astype(np.float32) for line in np.mgrid[:side, :side])
pixels = np.stack([columns, rows])

# %%
# Simulated spots: a signal of some 500 counts, a background of 10, and noise of 50. Where each of them lies is drawn
# from a ring, which the picture at the end has to show again.
rng = np.random.default_rng(0)
angle = rng.uniform(0, 2 * np.pi, spots)
place = 2 + 0.25 * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
height, width = rng.uniform(450, 550, spots), rng.uniform(0.9, 1.1, spots)
truth = np.column_stack([height, place, width, np.full(spots, 10.0)]).astype(np.float32)
images = model(pixels, *(truth[:, j : j + 1] for j in range(5)))
images = images + np.float32(50) * rng.standard_normal(images.shape, dtype=np.float32)

# %%
# Data in float32 are fitted in float32; sums are double. Spots have to lie near the image, and must not be thinner
# than a third of a pixel.
start = np.array([500, 2, 2, 1, 10], dtype=np.float32)
bounds = ([0, -1, -1, 0.3, -np.inf], [np.inf, 5, 5, 4, np.inf])
began = time.perf_counter()
r = stepwell.curve_fit(model, pixels, images, start, bounds=bounds)
seconds = time.perf_counter() - began
print(
    f"{spots} spots in {seconds:.1f} s; {100 * r.success.mean():.2f} % converged; {r.nfev.mean():.1f} evaluations each"
)

# %%
# Are the standard errors true? Errors over standard errors should have a deviation of nearly 1. Intervals of 95 % by
# Student's t with 20 degrees of freedom should cover the truth.
error = r.x[:, 1:3] - truth[:, 1:3]
covered = (np.abs(error) < 2.086 * r.stderr[:, 1:3]).mean()
print(f"places are known to {np.median(r.stderr[:, 1]):.3f} pixels; intervals of 95 % cover {100 * covered:.1f} %")
assert r.success.mean() > 0.999
assert 0.93 < covered < 0.965

# %%
figure, (one, all_axes, errors) = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
one.imshow(images[0].reshape(side, side), cmap="magma")
one.plot(r.x[0, 1], r.x[0, 2], "c+", markersize=14)
one.set_title("one spot, and where it is")
all_axes.hist2d(r.x[:, 1], r.x[:, 2], bins=120, range=[[1.5, 2.5]] * 2, cmap="magma")
all_axes.set(title="a million places: a ring", aspect="equal")
grid = np.linspace(-4, 4, 81)
errors.hist(error[:, 0] / r.stderr[:, 1], grid, density=True, color="C0", label="error / standard error")
errors.plot(grid, np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi), "k--", label="normal")
errors.legend(frameon=False)
plt.show()
