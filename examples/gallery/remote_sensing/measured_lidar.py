"""
Measured lidar: ground and canopy heights beside GEDI's own
===========================================================

GEDI, a laser on the International Space Station, sends pulses through forests and records what comes back. NASA's Land
Processes Distributed Active Archive Center publishes the waveforms (level 1B) and what its own processing finds in them
(level 2A). Both are free to use. A file of level 2A has 1.5 GB for a quarter of an orbit, one of level 1B more. The R
package rGEDI has a small subset of GEDI01_B_2019108080338_O01964_T05337_02_003_01 and of its level 2A.

Where the folder that ``STEPWELL_DATA`` names holds ``GEDI01_B_*.h5`` and the ``GEDI02_A_*.h5`` of the same orbit, this
page reads both and matches them shot by shot. Where it holds ``gedi_l1b_150shots.npz`` (pulses, waveforms and noise of
150 shots, without places), it reads that. Otherwise it simulates shots over a slope, whose heights are known.
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
pairs = [
    (granule, level2[0])
    for granule in sorted(folder.glob("GEDI01_B_*.h5"))
    if (level2 := sorted(folder.glob(f"GEDI02_A_{'_'.join(granule.name.split('_')[2:5])}_*.h5")))
]
subset = folder / "gedi_l1b_150shots.npz"
heights = (25, 50, 75, 95, 98)
published = None
if pairs:
    shots, source, beside = waveform.load_gedi(pairs[0][0], count=60), pairs[0][0].name, "level 2A"
    published = waveform.load_gedi_l2a(pairs[0][1])
elif subset.exists():
    shots, source = waveform.load_shots(subset), "GEDI L1B, 150 shots"
else:
    made = waveform.synthetic_shots(60, samples=512, returns=4, noise=0.0, background=0.0, seed=1)
    noise = np.random.default_rng(2).normal(0, 3, made.waveforms.shape)
    slope = {"elevation_bin0": 420.0 + 0.3 * np.arange(60)}  # one sample is 0.15 m
    slope["elevation_lastbin"] = slope["elevation_bin0"] - 0.15 * 511
    place = {f"{name}_{end}": np.zeros(60) for name in ("latitude", "longitude") for end in ("bin0", "lastbin")}
    about = {"shot_number": np.arange(60), "record_length": np.full(60, 512)} | place | slope
    shots = waveform.Shots(
        made.waveforms + noise,
        made.pulses,
        made.origin,
        made.background,
        made.truth,
        noise=np.full(60, 3.0),
        about=about,
    )
    source, beside = "simulated shots, 4 surfaces each", "the truth"
    surfaces = [
        (slope["elevation_bin0"][k] - 0.15 * np.flatnonzero(one), one[one > 0]) for k, one in enumerate(made.truth)
    ]
    published = {
        "shot_number": np.arange(60),
        "quality_flag": np.ones(60),
        "num_detectedmodes": np.full(60, 4),
        "elev_lowestmode": np.array([places.min() for places, _ in surfaces]),
        "rh": np.array([waveform.relative_heights(*one, range(101)) for one in surfaces]),
    }
print(f"{source}: {shots.waveforms.shape}")

# %%
# A plain deconvolution explains the noise too: what it leaves is less than the noise that the product states.
# ``significant_returns`` drops returns until each is needed at a level of 5 % per shot, and fits the rest again.
every = waveform.deconvolve(shots)
found = waveform.significant_returns(every)
for name, one in (("all returns", every), ("significant ones", found)):
    left = np.sqrt(np.mean((shots.waveforms - one.fit) ** 2, axis=1))
    count = np.mean([len(one.returns(shot)[0]) for shot in range(len(shots))])
    print(f"{name}: {count:.1f} per shot, rms left over stated noise {np.median(left / shots.noise):.2f}")
assert np.median(left / shots.noise) > 0.8  # noise is left as noise, but for what one return more would explain

# %%
# The published processing of GEDI (its level 2A) smooths a waveform and counts its modes above a threshold, here four
# deviations. It sees surfaces only where they stand apart; the deconvolution also parts those that overlap.
smooth = scipy.ndimage.gaussian_filter1d(shots.waveforms - shots.background[:, None], 6.5, axis=1)
modes = [len(scipy.signal.find_peaks(wave, height=4 * sigma)[0]) for wave, sigma in zip(smooth, shots.noise)]
ours = [len(found.returns(shot)[0]) for shot in range(len(shots))]
print(f"modes of the smoothed waveform: {np.mean(modes):.1f} per shot; returns: {np.mean(ours):.1f}")
if shots.truth is not None:
    near = [np.abs(found.returns(k)[0][:, None] - np.flatnonzero(shots.truth[k])).min(axis=0) < 2 for k in range(60)]
    print(f"surfaces found within two samples: {np.mean(np.concatenate(near)):.2f}")
    assert np.mean(np.concatenate(near)) > 0.8

# %%
# Ground and canopy beside what is published, shot by shot; of level 2A only shots of good quality. The ground is our
# lowest return, there the lowest mode. Level 2A takes its heights from the smoothed waveform, in which the pulse still
# is, and from the middle of the ground's mode. Ours are those of the surfaces. So low percentiles differ most.
if published is not None:
    table = waveform.return_table(found, np.zeros(len(shots)))
    row = np.unique(table["shot"], return_index=True)[1]  # the first return of each shot
    ground = np.minimum.reduceat(table["elevation"], row)
    good = np.flatnonzero(published["quality_flag"] == 1)
    _, mine, theirs = np.intersect1d(table["shot_number"][row], published["shot_number"][good], return_indices=True)
    theirs = good[theirs]
    differences = {"ground": ground[mine] - published["elev_lowestmode"][theirs]}
    for share in heights:
        ours_there = table[f"rh{share}"][row][mine]
        differences[f"RH{share}"] = ours_there - published["rh"][theirs, share]
    print(f"{len(mine)} shots matched; metres, ours less {beside}:")
    print(f"{'':8}{'median':>8}{'5 %':>8}{'95 %':>8}")
    for name, values in differences.items():
        print(f"{name:8}" + "".join(f"{np.percentile(values, share):8.2f}" for share in (50, 5, 95)))

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    axes[0].hist(differences["ground"], bins=np.linspace(-3, 3, 41))
    axes[0].set(xlabel=f"ground, ours less {beside} (m)", ylabel="shots")
    tall = published["rh"][theirs, 98]
    axes[1].plot(tall, table["rh98"][row][mine], "C0.")
    axes[1].plot([0, tall.max()], [0, tall.max()], "k--", lw=1)
    axes[1].set(xlabel=f"RH98, {beside} (m)", ylabel="RH98, ours (m)")
    plt.show()

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
