"""In which unit an image is: held against the library, never guessed in silence."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from stepwell.api.lsq import nnls
from stepwell.apps.files import envi
from stepwell.apps.images import Image
from stepwell.apps.unmixing.library import SpectralLibrary
from stepwell.common.checks import read_choice, read_real
from stepwell.common.files import Unreadable

#: What an image is divided by: a number; "auto", the factor that fits best; None, what its file says, or nothing.
Scale: TypeAlias = float | Literal["auto"] | None
#: Brightest pixels of the image over the largest numbers of the library, where both are in one unit: shade is darker,
#: clouds and glint are brighter than any material of a library.
DARKEST, BRIGHTEST = 1 / 30, 4.0
#: What images are usually stored in: reflectance, percent, bytes, and whole numbers of various parts.
USUAL = (1.0, 100.0, 255.0, 1000.0, 4095.0, 5000.0, 10000.0, 32767.0, 65535.0, 0.01)
#: By how much a usual factor may miss the one that the pixels ask for, to be named.
NEAR = 3.0
#: Lines and pixels that are looked at.
LINES, PIXELS = 16, 400


def settle_scale(
    source: Image, told: float | None, library: SpectralLibrary, used: np.ndarray, given: Scale, notes: list[str]
) -> float:
    """Return what the image is to be divided by, to have the unit of the library.

    Parameters
    ----------
    source : Image
        (lines, samples, bands).
    told : float or None
        The factor that its file names.
    library : SpectralLibrary
        At the bands in use.
    used : bool array
        Which bands of the image these are.
    given : float, "auto" or None
        What the caller says.
    notes : list of str
        What was found is added.
    """
    if isinstance(given, str):
        read_choice("scale", given, ("auto",))
    elif given is not None:
        given = read_real("scale", given, above=0)
    pixels = _sample(source, used)
    top = float(np.nanmax(library.spectra))
    bright = float(np.percentile(pixels.max(axis=1), 99)) if len(pixels) else 0.0
    if bright <= 0 or top <= 0:  # nothing to go by
        return given if isinstance(given, float) else told or 1.0
    if isinstance(given, float):
        if not DARKEST <= bright / given / top <= BRIGHTEST:
            notes.append(f"divided by {given:g} the brightest pixels are {bright / given:.3g}, the library's {top:.3g}")
        return given
    factor = 1.0 if told is None else told
    if given is None and DARKEST <= bright / factor / top <= BRIGHTEST:
        if factor != 1:
            notes.append(f"the image is divided by its reflectance scale factor, {factor:g}")
        return factor
    wanted = _unit(pixels, library.spectra)
    fitting = sorted(
        (one for one in USUAL if 1 / NEAR <= wanted / one <= NEAR), key=lambda one: abs(np.log(wanted / one))
    )
    fitting = fitting or [float(f"{wanted:.3g}")]
    if given == "auto":
        notes.append(
            f"the image is divided by {fitting[0]:g}, found by --scale auto: abundances then sum to about "
            f"{wanted / fitting[0]:.2g}"
        )
        return fitting[0]
    named = ", ".join(f"{one:g} (abundances then sum to about {wanted / one:.2g})" for one in fitting[:3])
    by_file = "" if told is None else f" after division by its reflectance scale factor {told:g}"
    raise Unreadable(
        f"{source.path}: its brightest pixels are about {bright / factor:.4g}{by_file}, the spectra of the library "
        f"reach {top:.3g}: these are not in one scale; allowed: --scale with a factor that fits, such as {named}; or "
        f"--scale auto, which takes {fitting[0]:g}"
    )


def told_by_header(header: envi.Header | None) -> float | None:
    """Return ENVI's reflectance scale factor."""
    told = None if header is None else header.numbers("reflectance scale factor")
    return None if told is None or not told[0] > 0 else float(told[0])


def _sample(source: Image, used: np.ndarray) -> np.ndarray:
    """Return pixels of some lines that are finite and not empty, (pixels, bands)."""
    lines = np.unique(np.linspace(0, source.shape[0] - 1, LINES).round().astype(int))
    found = np.concatenate([source.read(line, line + 1)[..., used].reshape(-1, used.sum()) for line in lines.tolist()])
    found = found[np.isfinite(found).all(axis=1) & (found.max(axis=1, initial=-np.inf) > 0)]
    return np.asarray(found[:: max(1, -(-len(found) // PIXELS))])


def _unit(pixels: np.ndarray, spectra: np.ndarray) -> float:
    """Return what abundances without any bound on their sum add up to, in the pixels that are not in the shade."""
    size = float(np.abs(pixels).max())
    sums = size * nnls(np.ascontiguousarray(spectra.T), pixels / size, threads=1).x.sum(axis=1)
    return float(np.percentile(sums[np.isfinite(sums) & (sums > 0)], 75)) if np.any(sums > 0) else 1.0
