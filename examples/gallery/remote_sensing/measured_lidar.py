"""
Measured lidar: canopy returns of GEDI shots
============================================

GEDI, a laser on the International Space Station, sends pulses through forests and records what comes back. The data set
of this page is the level 1B granule GEDI01_B_2019108080338_O01964_T05337_02_003_01, published by NASA's Land Processes
Distributed Active Archive Center (free to use, several gigabytes; the R package rGEDI has a subset of some shots).
Where the folder that ``STEPWELL_DATA`` names holds ``gedi_l1b_150shots.npz`` (pulses, waveforms and noise of 150 shots)
or the granule itself, this page reads it; otherwise it simulates shots.
"""

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.ndimage
import scipy.signal

from stepwell.apps import waveform

folder = Path(os.environ.get("STEPWELL_DATA", "."))
granules = sorted(folder.glob("GEDI01_B_*.h5"))
subset = folder / "gedi_l1b_150shots.npz"
if subset.exists():
    shots, source = waveform.load_shots(subset), "GEDI L1B, 150 shots"
elif granules:
    shots, source = waveform.load_gedi(granules[0], count=40), granules[0].name
else:
    made = waveform.synthetic_shots(60, samples=512, returns=4, noise=0.0, background=0.0, seed=1)
    noise = np.random.default_rng(2).normal(0, 3, made.waveforms.shape)
    shots = waveform.Shots(
        made.waveforms + noise, made.pulses, made.origin, made.background, made.truth, noise=np.full(60, 3.0)
    )
    source = "simulated shots, 4 surfaces each"
print(f"{source}: {shots.waveforms.shape}")

# %%
# A plain deconvolution explains the noise too: what it leaves is less than the noise that the product states.
# ``significant_returns`` drops returns until each is needed at a level of 5 % a shot, and fits the rest again.
every = waveform.deconvolve(shots)
found = waveform.significant_returns(every)
for name, one in (("all returns", every), ("significant ones", found)):
    left = np.sqrt(np.mean((shots.waveforms - one.fit) ** 2, axis=1))
    count = np.mean([len(one.returns(shot)[0]) for shot in range(len(shots))])
    print(f"{name}: {count:.1f} a shot, rms left over stated noise {np.median(left / shots.noise):.2f}")
assert np.median(left / shots.noise) > 0.8  # noise is left as noise, but for what one return more would explain

# %%
# The published processing of GEDI (its level 2A) smooths a waveform and counts its modes above a threshold, here four
# deviations. It sees surfaces only where they stand apart; the deconvolution also parts those that overlap.
smooth = scipy.ndimage.gaussian_filter1d(shots.waveforms - shots.background[:, None], 6.5, axis=1)
modes = [len(scipy.signal.find_peaks(wave, height=4 * sigma)[0]) for wave, sigma in zip(smooth, shots.noise)]
ours = [len(found.returns(shot)[0]) for shot in range(len(shots))]
print(f"modes of the smoothed waveform: {np.mean(modes):.1f} a shot; returns: {np.mean(ours):.1f}")
if shots.truth is not None:
    near = [np.abs(found.returns(k)[0][:, None] - np.flatnonzero(shots.truth[k])).min(axis=0) < 2 for k in range(60)]
    print(f"surfaces found within two samples: {np.mean(np.concatenate(near)):.2f}")
    assert np.mean(np.concatenate(near)) > 0.8

# %%
# ``stepwell deconvolve GRANULE.h5 --table returns.csv`` writes latitude, longitude and elevation of every return, and
# canopy heights, for all beams of a granule.
figure, axes = plt.subplots(2, 1, figsize=(9, 5), layout="constrained")
for axis, shot in zip(axes, (3, 7)):
    axis.plot(shots.waveforms[shot], color="0.65", lw=1, label="received")
    axis.plot(found.fit[shot], color="C0", lw=1, label="significant returns, convolved")
    times, sizes = found.returns(shot)
    axis.vlines(times, shots.background[shot], shots.background[shot] + sizes, color="C3", label="returns")
    axis.set(ylabel=f"shot {shot}")
axes[0].legend(frameon=False, ncols=3)
axes[0].set_title(source)
axes[1].set_xlabel("sample of 1 ns (0.15 m)")
plt.show()
