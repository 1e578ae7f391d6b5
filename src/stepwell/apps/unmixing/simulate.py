"""A scene: five materials in smooth patches, an uneven light, noise that differs from band to band, and the truth."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.ndimage import gaussian_filter

from stepwell.apps.unmixing.library import SpectralLibrary
from stepwell.common.checks import read_real, read_seed, read_whole, require_memory

#: Materials of the scene.
MATERIALS = ("vegetation", "soil", "water", "roof", "straw")


@dataclasses.dataclass(frozen=True)
class Scene:
    """A simulated image and what it was made from.

    Attributes
    ----------
    image : array, (lines, samples, bands), float32
        Reflectances.
    library : SpectralLibrary
        The spectra that may be known of it.
    truth : array, (lines, samples, materials), float32
        Abundances, which sum to the light.
    light : array, (lines, samples)
        From 0.7, in shade, to 1.
    """

    image: np.ndarray
    library: SpectralLibrary
    truth: np.ndarray
    light: np.ndarray


def simulate(
    lines: int = 60, samples: int = 80, *, bands: int = 120, noise: float = 0.005, variants: int = 1, seed: int = 0
) -> Scene:
    """Make a scene.

    Parameters
    ----------
    lines, samples, bands : int
        Sizes of the image; the bands go from 400 to 2400 nm.
    noise : float, default 0.005
        Standard deviation of the noise of the best band; the worst, at the ends, have three times as much.
    variants : int, default 1
        Spectra of each material in the library; the scene is made of the first.
    seed : int, default 0
        Seed of patches and noise.

    Examples
    --------
    >>> scene = simulate(10, 12, bands=30)
    >>> scene.image.shape, scene.truth.shape, bool(scene.truth.sum(axis=2).max() <= 1)
    ((10, 12, 30), (10, 12, 5), True)
    """
    lines, samples = read_whole("lines", lines, 2), read_whole("samples", samples, 2)
    bands, variants = read_whole("bands", bands, 6), read_whole("variants", variants, 1)
    noise = read_real("noise", noise, at_least=0)
    random = np.random.default_rng(read_seed(seed))
    require_memory("bands", bands, 2 * bands * lines * samples)
    waves = np.linspace(400.0, 2400.0, bands)
    spectra = _spectra(waves)
    # Patches: a Dirichlet distribution whose gammas are those of a smooth field.
    fields = gaussian_filter(random.standard_normal((lines, samples, len(MATERIALS))), (3, 3, 0))
    shares = np.exp(3 * fields / fields.std())
    shares /= shares.sum(axis=2, keepdims=True)
    slope = gaussian_filter(random.standard_normal((lines, samples)), 6)
    light = 0.7 + 0.3 * (slope - slope.min()) / max(float(np.ptp(slope)), 1e-300)
    truth = (shares * light[:, :, None]).astype(np.float32)
    spread = noise * (1 + 2 * np.abs(np.linspace(-1, 1, bands)) ** 3)
    image = truth @ spectra + spread * random.standard_normal((lines, samples, bands))
    all_spectra, names, classes = [], [], []
    for name, spectrum in zip(MATERIALS, spectra):
        for variant in range(variants):
            size, tilt = (1.0, 0.0) if not variant else random.uniform([0.85, -0.1], [1.15, 0.1])
            all_spectra.append(spectrum * size * (1 + tilt * np.linspace(-1, 1, bands)))
            names.append(name if variants == 1 else f"{name} {variant + 1}")
            classes.append(name)
    library = SpectralLibrary(np.array(all_spectra), names, classes, waves)
    return Scene(image.astype(np.float32), library, truth, light)


def _spectra(waves: np.ndarray) -> np.ndarray:
    """Return spectra that look like those of the materials: edges, slopes and absorption bands."""

    def step(centre: float, width: float) -> np.ndarray:
        return 1 / (1 + np.exp(-(waves - centre) / width))

    def dip(centre: float, width: float, depth: float) -> np.ndarray:
        return 1 - depth * np.exp(-0.5 * ((waves - centre) / width) ** 2)

    green = 0.05 + 0.06 * np.exp(-0.5 * ((waves - 550) / 35) ** 2) + 0.42 * step(715, 15)
    vegetation = green * dip(1450, 90, 0.6) * dip(1940, 110, 0.75) * np.exp(-np.clip(waves - 1300, 0, None) / 1800)
    soil = (0.08 + 0.30 * (1 - np.exp(-(waves - 350) / 600))) * dip(1900, 60, 0.2) * dip(2200, 40, 0.15)
    water = 0.06 * np.exp(-(waves - 400) / 220) + 0.002
    roof = (0.20 + 0.25 * step(600, 40)) * dip(870, 90, 0.2) * (1 - 0.1 * step(1800, 200))
    straw = (0.10 + 0.45 * step(680, 120)) * dip(1200, 60, 0.1) * dip(1480, 80, 0.25) * dip(2100, 90, 0.35)
    return np.array([vegetation, soil, water, roof, straw])
