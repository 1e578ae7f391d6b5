r"""
Measured MRI: myelin water beside other programs
================================================

The data set of this page is the example slice of DECAES, ``image-194x110x1x56.nii.gz``. It is a multi-echo spin-echo
slice of a brain with 56 echoes 7 ms apart, at most five megabytes. Jonathan Doucette publishes it in his repository
mwiexamples, in ``data/images``; no licence stands there, so ask him before you pass it on. Where the folder that
``STEPWELL_DATA`` names holds the file, this page reads it. DECAES' own myelin water fraction stands beside ours where
``image-194x110x1x56.t2parts.mat`` is there, too, which this command makes::

    julia --threads=auto decaes.jl -- image-194x110x1x56.nii.gz --T2map --T2part --TE 7e-3 --nT2 40 \
        --T2Range 10e-3 2.0 --SPWin 10e-3 25e-3 --MPWin 25e-3 200e-3 --Reg chi2 --Chi2Factor 1.02

Otherwise the page simulates a slice.
"""

# %%
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.optimize

from stepwell.apps import t2
from stepwell.apps.images import open_image

folder = Path(os.environ.get("STEPWELL_DATA", "."))
image = folder / "image-194x110x1x56.nii.gz"
work = Path(tempfile.mkdtemp())
if image.exists():
    te, options, truth = 0.007, {"threshold": 200.0}, None
else:
    phantom = t2.simulate((32, 32, 1), snr=300)
    te, options, truth = phantom.te, {"mask": work / "mask.npy", "myelin": (0.010, 0.040)}, phantom.truth["sfr"]
    image = work / "phantom.npy"
    np.save(image, phantom.signal)
    np.save(work / "mask.npy", phantom.mask)

# %%
# The whole slice: flip angle, distribution and λ of every voxel. ``te`` is in seconds, and milliseconds are refused.
run = t2.map_image(image, work / "maps", te, angles=(120.0, 180.0, 25), lam="chi2", format="npy", **options)
mwf, status = np.load(run.files["mwf"])[:, :, 0], np.load(run.files["status"])[:, :, 0]
print(f"{run.converged} of {run.fitted} voxels converged; mean myelin water fraction {run.means['sfr']:.3f}")

# %%
# Beside another program: SciPy's ``nnls`` with the same dictionary, voxel by voxel, without penalty. What it leaves of
# the signal is what Stepwell's plain fit leaves.
source = open_image(image, axes=4)
signal = source.read(0, source.shape[source.axis])[:, :, 0]
chosen = np.argwhere(status == 0)[:: max(1, run.converged // 25)]
signals = np.array([signal[x, y] for x, y in chosen])
plain = t2.T2Model(echoes=run.model.echoes, te=te, angles=(180.0, 180.0, 1), lam=0.0)
ours = t2.fit_voxels(plain, signals)["resnorm"]
theirs = np.array([scipy.optimize.nnls(plain.dictionary[0], one)[1] for one in signals])
print(f"residuals against SciPy's: they differ by at most {np.max(np.abs(ours - theirs) / theirs):.1e} of themselves")
assert np.max(np.abs(ours - theirs) / theirs) < 1e-5

# %%
# Beside DECAES, where its map is there; of the phantom, beside the truth.
beside, title = truth, "truth"
other = folder / "image-194x110x1x56.t2parts.mat"
if truth is None and other.exists():
    held = open_image(other, name="sfr", channels=False)
    beside, title = np.moveaxis(held.read(0, held.shape[held.axis]), 0, held.axis), "DECAES"
panels = {"Stepwell": mwf}
if beside is not None:
    panels[title] = beside.reshape(mwf.shape)
    away = np.abs(mwf - panels[title])[status == 0]
    print(f"mean difference from {title}: {np.nanmean(away):.4f}")
    assert truth is None or np.nanmean(away) < 0.05
figure, axes = plt.subplots(1, len(panels), figsize=(4.6 * len(panels), 4), squeeze=False, layout="constrained")
for axis, (name, values) in zip(axes[0], panels.items()):
    drawn = axis.imshow(np.rot90(values), vmin=0, vmax=0.3, cmap="inferno")
    axis.set_title(f"myelin water fraction: {name}")
    axis.set_axis_off()
figure.colorbar(drawn, ax=axes, shrink=0.8)
plt.show()
