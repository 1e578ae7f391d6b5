"""
Decomposing lidar waveforms into Gaussians
==========================================

The echo of a laser pulse from a forest is a sum of pulses: from the crown, from shrubs, from the ground. A Gaussian is
fitted to each. Starts are the peaks of the smoothed waveform. Three thousand waveforms are one call; the standard error
of the last centre is the uncertainty of the ground. ``stepwell decompose`` does this for whole files.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

import stepwell

shots, samples, echoes = 3000, 200, 3
t = np.arange(samples, dtype=float)  # ns
model = stepwell.models.gaussians(echoes)
print(model.parameters)

# %%
# Simulated echoes.
rng = np.random.default_rng(0)
centres = 20 + np.cumsum(rng.uniform(15, 45, (shots, echoes)), axis=1)
heights, widths = rng.uniform(0.3, 1, (shots, echoes)), rng.uniform(3, 5, (shots, echoes))
truth = np.concatenate([heights, centres, widths], axis=1)
waves = model(t, *(truth[:, j : j + 1] for j in range(9))) + 0.02 * rng.normal(size=(shots, samples))

# %%
# Starts: the three highest peaks of each waveform after smoothing.
kernel = np.exp(-0.5 * (np.arange(-9, 10) / 3) ** 2)
smooth = np.apply_along_axis(np.convolve, 1, waves, kernel / kernel.sum(), mode="same")
peak = np.zeros_like(smooth)
peak[:, 1:-1] = np.where((smooth[:, 1:-1] > smooth[:, :-2]) & (smooth[:, 1:-1] >= smooth[:, 2:]), smooth[:, 1:-1], 0)
near = np.sort(np.argsort(peak, axis=1)[:, -echoes:], axis=1).astype(float)
start = np.concatenate([np.take_along_axis(smooth, near.astype(int), 1), near, np.full_like(near, 4.0)], axis=1)

# %%
bounds = ([0] * 3 + [0] * 3 + [1.5] * 3, [2] * 3 + [samples - 1] * 3 + [12] * 3)
r = stepwell.curve_fit(model, t, waves, start, bounds=bounds)
order = np.argsort(r.x[:, 3:6], axis=1)
found, stated = np.take_along_axis(r.x[:, 3:6], order, 1), np.take_along_axis(r.stderr[:, 3:6], order, 1)
good = r.success & (np.abs(found - centres) < 3).all(axis=1)
error = (found - centres)[good]
print(r.message)
print(f"all echoes found in {100 * good.mean():.1f} % of the shots; ground to {error[:, 2].std():.3f} ns")
print(f"errors over stated ones: {(error / stated[good]).std():.2f}")
assert good.mean() > 0.9
assert 0.9 < (error[:, 2] / stated[good, 2]).std() < 1.2

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
shot = int(np.argmin(np.where(good, np.diff(centres, axis=1).min(axis=1), np.inf)))
axes[0].plot(t, waves[shot], color="0.6", label="waveform")
axes[0].plot(t, model(t, *r.x[shot]), "k", linewidth=1, label="fit")
one = stepwell.models.gaussians(1)
for j in range(echoes):
    axes[0].fill_between(t, one(t, *r.x[shot, j::3]), alpha=0.4)
axes[0].set(xlabel="ns", title="the shot whose echoes lie closest")
axes[0].legend(frameon=False)
axes[1].hist(error[:, 2] / stated[good, 2], 60, range=(-4, 4), color="C2")
axes[1].set(title="ground: error over standard error")
plt.show()
