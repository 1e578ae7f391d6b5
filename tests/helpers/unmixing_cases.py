"""A simulated scene of five materials, in memory and in files."""

from __future__ import annotations

from test_images import write_envi

from stepwell.apps import unmixing
from stepwell.apps.unmixing.library import write_library

SCENE = unmixing.simulate(12, 14, bands=40, seed=2)
PIXELS = SCENE.image.reshape(-1, 40).astype(float)
A = SCENE.library.spectra.T


def scene_files(folder, scale=1.0, dtype="<f4", code=4, interleave="bip", **more):
    waves = SCENE.library.wavelengths
    fields = {"wavelength": "{" + ",".join(f"{wave:.8g}" for wave in waves) + "}", "wavelength units": "Nanometers",
              "map info": "{UTM, 1, 1, 500000, 4000000, 30, 30, 33, North}", **more}  # fmt: skip
    write_envi(folder / "scene.hdr", scale * SCENE.image.astype(float), interleave, dtype, code=code, **fields)
    write_library(folder / "library.csv", SCENE.library)
    return folder / "scene.hdr", folder / "library.csv"
