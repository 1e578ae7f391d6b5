"""
Measured spectroscopy: Jasper Ridge beside its reference abundances
===================================================================

The data set of this page is Jasper Ridge, 100 x 100 pixels in 198 bands of NASA's airborne spectrometer AVIRIS. Feiyun
Zhu publishes it with four endmembers and reference abundances for tests of unmixing (arXiv:1708.05125). It is two
MATLAB files of a few megabytes, for research, with his papers cited. Where the folder that ``STEPWELL_DATA`` names
holds them as ``jasperRidge2_R198.mat`` and ``end4.mat``, this page reads them; otherwise it simulates a scene.
"""

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.io
import scipy.optimize

from stepwell.apps import unmixing

folder = Path(os.environ.get("STEPWELL_DATA", "."))
if (folder / "jasperRidge2_R198.mat").exists() and (folder / "end4.mat").exists():
    held, known = scipy.io.loadmat(folder / "jasperRidge2_R198.mat"), scipy.io.loadmat(folder / "end4.mat")
    # MATLAB's first axis runs fastest: bands, then lines, then samples.
    cube = held["Y"].astype(float).reshape(198, 100, 100, order="F").transpose(1, 2, 0)
    reference = known["A"].reshape(4, 100, 100, order="F").transpose(1, 2, 0)
    names = ["tree", "water", "dirt", "road"]
    library = unmixing.SpectralLibrary(np.ascontiguousarray(known["M"].T), names, names)
    source = "Jasper Ridge"
else:
    scene = unmixing.simulate(50, 60, bands=80, seed=4)
    cube, reference, source = 5000 * scene.image.astype(float), scene.truth, "simulated scene, in units of 1/5000"
    library = unmixing.SpectralLibrary(scene.library.spectra, scene.library.names, scene.library.classes)
    names = library.class_names
print(f"{source}: {cube.shape}, brightest {cube.max():.0f}; library up to {library.spectra.max():.2f}")

# %%
# Image and library are in different units. ``stepwell unmix`` refuses to guess and names the factors that fit;
# ``--scale auto`` takes the best one and says so. Here: what free abundances add up to in the brighter pixels.
pixels = cube.reshape(-1, cube.shape[2])
free = unmixing.unmix_pixels(unmixing.Unmixing(library, total="free"), pixels[::7] / pixels.max())
unit = pixels.max() * np.percentile(free["sum"], 75)
print(f"abundances would add up to one in units of 1/{unit:.0f}")
scale = 5000.0

# %%
# Fully constrained least squares of all pixels, beside the published abundances. Some pixels also stand beside SciPy's
# ``nnls`` with a heavy row for the sum, which is the usual way.
total = "one" if source == "Jasper Ridge" else "most"
found = unmixing.unmix_pixels(unmixing.Unmixing(library, total=total), pixels / scale)
shares = found["abundances"].reshape(*cube.shape[:2], -1)
rmse = float(np.sqrt(np.nanmean((shares - reference) ** 2)))
print(f"root mean square difference from the reference abundances: {rmse:.3f}")
if total == "one":
    heavy = 1e3
    rows = np.vstack([library.spectra.T, heavy * np.ones(len(names))])
    some = np.arange(0, len(pixels), 197)
    by_scipy = np.array([scipy.optimize.nnls(rows, np.append(pixels[k] / scale, heavy))[0] for k in some])
    print(f"largest difference from SciPy with a heavy row: {np.abs(found['abundances'][some] - by_scipy).max():.1e}")
assert rmse < 0.12

# %%
figure, axes = plt.subplots(2, len(names), figsize=(2.4 * len(names), 4.6), layout="constrained")
for place, name in enumerate(names):
    axes[0, place].imshow(reference[..., place], vmin=0, vmax=1)
    axes[1, place].imshow(shares[..., place], vmin=0, vmax=1)
    axes[0, place].set_title(name)
axes[0, 0].set_ylabel("reference")
axes[1, 0].set_ylabel("Stepwell")
for axis in axes.flat:
    axis.set(xticks=[], yticks=[])
figure.suptitle(source)
plt.show()
