"""
Measured tomography: a synchrotron scan, its axis and λ
=======================================================

The data set of this page is a parallel-beam scan of beamline I13-2 at Diamond Light Source. It has 91 projections of
135 x 160 pixels, 4 MB. It is published with the test data of the program Savu, under the Apache licence 2.0. This page
reads ``i13_parallel_beam.npz`` (projections, flat, dark, angles_deg, center_column) where the folder that
``STEPWELL_DATA`` names has it. Otherwise it simulates a scan whose axis is off the middle.
"""

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import stepwell
from stepwell.apps import tomography

file = Path(os.environ.get("STEPWELL_DATA", ".")) / "i13_parallel_beam.npz"
if file.exists():
    scan, source, truth = tomography.load_scan(file), "Diamond I13-2", None
    chosen = scan.integrals[:, 60:64]
    angles, known = scan.angles, scan.center
else:
    angles, known, source = np.arange(0, 180, 3.0), 34.0, "simulated scan"
    truth = tomography.shepp_logan_3d(64)[30:34]
    rays = tomography.parallel_beam(64, angles=angles, detectors=64, center=known)
    clean = (rays @ truth.reshape(4, -1).T).reshape(len(angles), 64, 4).transpose(0, 2, 1)
    chosen = tomography.add_noise(clean.reshape(-1, 1), 0.02).reshape(clean.shape)
print(f"{source}: {chosen.shape} (angles, slices, detectors)")

# %%
# Projections from opposite sides are mirror images about the rotation axis: where they agree best, it is. The file's
# own value, found by the beamline, stands beside.
center = tomography.find_axis(chosen, angles)
print(f"rotation axis: column {center:.2f} found, {known:.2f} stated, {(chosen.shape[2] - 1) / 2:.2f} the middle")
assert abs(center - known) < 0.5

# %%
# All slices at once: λ by generalised cross-validation, then once more with no pixel below zero.
size = chosen.shape[2]
A = tomography.parallel_beam(size, angles=angles, detectors=size, center=center)
B = tomography.sinograms(chosen)
lam = float(stepwell.tikhonov(A, B, "gcv", joint=True, tol=1e-3).lam[0])
result = stepwell.tikhonov(A, B, lam, tol=1e-3, bounds=(0, None))
images = np.asarray(result.x).T.reshape(-1, size, size)
print(f"lam {lam:.3g}; {result.message}")

# %%
# Beside it: filtered back-projection, as scikit-image has it, where that is installed. Its middle is pixel N // 2, so
# the sinogram is shifted there first.
pictures = {"Tikhonov, x ≥ 0": images[1]}
try:
    from scipy.ndimage import shift
    from skimage.transform import iradon
except ImportError:
    print("scikit-image is not installed: no filtered back-projection")
else:
    moved = shift(chosen[:, 1], (0, size // 2 - center), order=1, mode="nearest")
    pictures["filtered back-projection"] = iradon(moved.T, theta=angles, circle=True)
if truth is not None:
    error = np.linalg.norm(images - truth) / np.linalg.norm(truth)
    print(f"relative error of the volume {error:.2f}")
    assert error < 0.35
    pictures["truth"] = truth[1]
figure, axes = plt.subplots(1, len(pictures), figsize=(4.2 * len(pictures), 4), squeeze=False, layout="constrained")
top = np.percentile(images[1], 99.8)
for axis, (title, picture) in zip(axes[0], pictures.items()):
    axis.imshow(picture, cmap="gray", vmin=0, vmax=top)
    axis.set_title(title)
    axis.set_axis_off()
figure.suptitle(source)
plt.show()
