"""
Surfaces from lidar waveforms
=============================

A laser pulse that meets leaves, branches and ground comes back as a sum of shifted pulses. Where the surfaces are is a
non-negative least-squares problem; its matrix is the convolution with the pulse, which ``stepwell.Convolution`` never
stores. Every shot has a pulse and so a matrix of its own; one call solves them all.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from stepwell.apps import waveform

# %%
# 200 simulated shots that met 12 surfaces each.
shots = waveform.synthetic_shots(200, seed=3)
found = waveform.deconvolve(shots)
print(found.result.message)

# %%
# Noise alone explains the smallest returns. ``noise_threshold`` measures it from what the fit leaves, shot by shot.
least = waveform.noise_threshold(found)
every = sum(len(found.returns(shot)[0]) for shot in range(200)) / 200
kept = sum(len(found.returns(shot, least[shot])[0]) for shot in range(200)) / 200
print(f"returns per shot: {every:.1f} in all, {kept:.1f} above the noise; true surfaces: 12")

# %%
figure, axes = plt.subplots(2, 1, figsize=(9, 5), sharex=True, layout="constrained")
for axis, shot in zip(axes, (1, 2)):
    axis.plot(shots.waveforms[shot], color="0.6", lw=1, label="received")
    axis.plot(found.fit[shot], color="C0", lw=1, label="fit")
    times, amplitudes = found.returns(shot, least[shot])
    axis.vlines(times, 0, amplitudes, color="C3", label="returns")
    axis.plot(np.flatnonzero(shots.truth[shot]), shots.truth[shot][shots.truth[shot] > 0], "k.", label="true surfaces")
    axis.set(ylabel=f"shot {shot}")
axes[0].legend(frameon=False, ncols=4)
axes[1].set(xlabel="sample")
plt.show()
