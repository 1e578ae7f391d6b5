r"""
A slice of diffusion MRI: two compartments with bounds
======================================================

Blood that flows in capillaries looks like fast diffusion. Where little blood flows the data do not determine how fast.
Bounds keep such voxels sensible, and status, rank and standard error of each voxel say which of them to trust. With the
diffusion weighting b the signal falls as

.. math:: S_0 \left( f e^{-b D^*} + (1 - f) e^{-b D} \right).
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

import stepwell

b = np.array([0, 10, 20, 30, 50, 75, 100, 150, 200, 300, 400, 500, 600, 700, 800, 1000]) / 1000  # ms / um^2
model = stepwell.models.ivim()
print(model.parameters)

# %%
# A slice whose perfusion falls from the left to the right, to nothing.
side = 72
y, x = np.mgrid[-1 : 1 : side * 1j, -1 : 1 : side * 1j]
tissue = np.hypot(x, y) < 0.95
fraction = np.clip(0.25 * (1 - x) / 2, 0, None) * (x < 0.5)
slow = 0.8 + 0.4 * np.exp(-((x + 0.2) ** 2 + y**2) / 0.1)
truth = np.stack([np.ones_like(x), fraction, np.full_like(x, 15.0), slow], axis=-1)
clean = model(b, *(truth[..., j : j + 1].reshape(-1, 1) for j in range(4))).reshape(side, side, -1)
rng = np.random.default_rng(0)
signal = clean + rng.normal(scale=1 / 50, size=clean.shape)
signal[~tissue] = np.nan  # outside there is nothing

# %%
# One call for the image. NaN is a missing point; a voxel without any has the status NO_POINTS and stops nobody.
bounds = ([0.5, 0, 3, 0], [1.5, 0.7, 100, 3])
r = stepwell.curve_fit(model, b, signal, [1, 0.1, 20, 1], bounds=bounds, nan_policy="omit")
print(r.message)
maps = r.params
assert (r.status[~tissue] == stepwell.FitStatus.NO_POINTS).all()
assert r.success[tissue].mean() > 0.99

# %%
# The diffusion is found everywhere; its errors are those that the fit states. D* is not known where f is small.
free = tissue & (r.active_mask == 0).all(axis=-1)
score = ((maps["D"] - slow) / r.stderr[..., 3])[free]
at_bound = (r.active_mask[tissue] != 0).any(axis=-1).mean()
error = np.median(np.abs(maps["D"] - slow)[tissue])
print(f"D: median error {error:.3f} um^2/ms; errors over stated ones {score.std():.2f}")
print(f"{100 * at_bound:.0f} % of the voxels end at a bound")

# %%
figure, axes = plt.subplots(1, 4, figsize=(13, 3.3), layout="constrained")
uncertain = np.where(r.stderr[..., 2] > 0, r.stderr[..., 2] / maps["Dstar"], np.nan)
shown = {
    "perfusion fraction f": (maps["f"], 0, 0.3),
    "diffusion D": (maps["D"], 0.6, 1.4),
    "D*": (maps["Dstar"], 0, 50),
    "standard error of D*, relative": (uncertain, 0, 1),
}
for one, (title, (image, low, high)) in zip(axes, shown.items(), strict=True):
    picture = one.imshow(np.where(tissue, image, np.nan), vmin=low, vmax=high, cmap="viridis")
    one.set_title(title)
    one.set_axis_off()
    figure.colorbar(picture, ax=one, shrink=0.8)
plt.show()
