"""Hyperspectral unmixing: how much of each material is in every pixel, from a library of spectra.

| file | what it holds |
|---|---|
| `library.py` | `SpectralLibrary`: spectra with names, classes and wavelengths; CSV, ENVI, npz |
| `pixels.py` | `unmix_pixels`: abundances of many pixels, by one library or by random parts of it |
| `scale.py` | whether image and library are in one unit |
| `extraction.py` | `extract_endmembers`: VCA and N-FINDR, where there is no library |
| `target.py` | ENVI, GeoTIFF or npy with the georeference of the image; a table of means |
| `simulate.py` | a scene with truth |
| `run.py` | `unmix_image`: a whole image, in lines, resumable |
| `plots.py`, `command.py` | pictures of abundances; `stepwell unmix` |
"""

from __future__ import annotations

from stepwell.apps.unmixing.extraction import extract_endmembers
from stepwell.apps.unmixing.library import SpectralLibrary, read_library
from stepwell.apps.unmixing.pixels import Unmixing, unmix_pixels
from stepwell.apps.unmixing.run import UnmixRun, unmix_image
from stepwell.apps.unmixing.simulate import Scene, simulate

__all__ = [
    "Scene",
    "SpectralLibrary",
    "UnmixRun",
    "Unmixing",
    "extract_endmembers",
    "read_library",
    "simulate",
    "unmix_image",
    "unmix_pixels",
]
