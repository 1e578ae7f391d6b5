"""Endmembers from the image itself, where there is no library: the pixels that span all others.

`vca`: vertex component analysis (Nascimento and Bioucas-Dias, IEEE Trans. Geosci. Remote Sens. 43, 2005): one pixel
after the other, each the farthest along a random direction orthogonal to those found. `nfindr` (Winter, Proc. SPIE
3753, 1999) begins there and exchanges pixels as long as the volume of their simplex grows.
"""

from __future__ import annotations

import os
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from stepwell.apps.files import envi
from stepwell.apps.images import Image
from stepwell.apps.unmixing.library import SpectralLibrary
from stepwell.apps.unmixing.scale import told_by_header
from stepwell.arrays.checks import read_numpy, require_finite
from stepwell.common.checks import read_choice, read_seed, read_whole, require_shape
from stepwell.common.files import Unreadable
from stepwell.operators.matrices import power_near

#: How endmembers are found.
Extraction: TypeAlias = Literal["nfindr", "vca"]
EXTRACTIONS: tuple[str, ...] = get_args(Extraction)
#: Most pixels that are looked at; of a larger image every second, or third, ...
MAX_PIXELS = 100_000
#: Sweeps of N-FINDR over all endmembers.
MAX_SWEEPS = 50


def extract_endmembers(pixels: np.ndarray, count: int, *, method: Extraction = "nfindr", seed: int = 0) -> np.ndarray:
    """Return the numbers of the pixels that are the purest.

    Parameters
    ----------
    pixels : array, (pixels, bands)
    count : int
        Endmembers; at least 2, at most one more than there are bands.
    method : {"nfindr", "vca"}
    seed : int, default 0
        Seed of the directions of VCA.

    Examples
    --------
    >>> pure = np.array([[1.0, 0.1, 0.2], [0.2, 1.0, 0.1], [0.1, 0.2, 1.0]])
    >>> shares = np.random.default_rng(0).dirichlet(np.ones(3), 50)
    >>> pixels = np.concatenate([shares @ pure, pure])
    >>> sorted(extract_endmembers(pixels, 3).tolist())
    [50, 51, 52]
    """
    pixels = np.asarray(read_numpy("pixels", pixels), dtype=np.float64)
    require_shape(pixels.ndim == 2 and 0 not in pixels.shape, "pixels", pixels, "(pixels, bands)")
    require_finite("pixels", pixels)
    count = read_whole("count", count, 2, min(len(pixels), pixels.shape[1] + 1))
    read_choice("method", method, EXTRACTIONS)
    largest = float(np.abs(pixels).max())
    pixels = pixels / power_near(largest) if largest > 0 else pixels  # whose squares stay within range
    found = _vca(pixels, count, np.random.default_rng(read_seed(seed)))
    return found if method == "vca" else _nfindr(pixels, found)


def _vca(pixels: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Vertex component analysis in the space of the first `count` singular vectors."""
    values, vectors = np.linalg.eigh(pixels.T @ pixels / len(pixels))
    space = vectors[:, np.argsort(values)[::-1][:count]]
    scores = pixels @ space
    # The projection onto the plane in which the simplex lies, whatever the light: y / (yᵀu), u the mean.
    light = scores @ scores.mean(axis=0)
    scores = scores / np.where(light > 0, light, np.inf)[:, None]
    size = scores.shape[1]
    found, held = np.zeros(count, dtype=np.intp), np.zeros((size, count))
    held[-1, 0] = 1.0
    for place in range(count):
        direction = rng.normal(size=size)
        direction -= held @ (np.linalg.pinv(held) @ direction)
        found[place] = int(np.argmax(np.abs(scores @ direction)))
        held[:, place] = scores[found[place]]
    return found


def _nfindr(pixels: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Exchange endmembers for pixels that make the simplex larger, until none does."""
    centred = pixels - pixels.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(pixels))
    space = vectors[:, np.argsort(values)[::-1][: len(found) - 1]]
    rows = np.concatenate([np.ones((len(pixels), 1)), centred @ space], axis=1)
    found = found.copy()
    for _ in range(MAX_SWEEPS):
        changed = False
        for place in range(len(found)):
            # The volume is linear in one corner: its cofactors weigh the corner's coordinates.
            matrix = rows[found]
            others = np.delete(matrix, place, axis=0)
            normal = np.linalg.svd(others)[2][-1]  # orthogonal to all others
            volumes = np.abs(rows @ normal)
            best = int(np.argmax(volumes))
            if volumes[best] > volumes[found[place]] * (1 + 1e-9):
                found[place], changed = best, True
        if not changed:
            break
    return found


def library_of_image(
    source: Image,
    count: int,
    waves: np.ndarray | None,
    *,
    method: Extraction = "nfindr",
    seed: int = 0,
    scale: float | None = None,
) -> SpectralLibrary:
    """Return endmembers of an image (lines, samples, bands) as a library.

    They are divided by `scale`, as the image will be; by default by the header's reflectance scale factor, or nothing.
    """
    lines, samples, bands = source.shape
    stride = max(1, int(np.ceil((lines * samples / MAX_PIXELS) ** 0.5)))
    rows = np.arange(0, lines, stride)
    block = np.concatenate([source.read(line, line + 1, 0)[:, ::stride] for line in rows.tolist()])
    pixels = block.reshape(-1, bands)
    header: Any = source.about if isinstance(source.about, envi.Header) else None
    used = np.ones(bands, dtype=bool) if header is None else envi.good_bands(header, bands)
    ignored = None if header is None else header.numbers("data ignore value")
    good = np.isfinite(pixels[:, used]).all(axis=1) & (pixels[:, used].max(axis=1, initial=-np.inf) > 0)
    if ignored is not None:
        good &= ~(pixels[:, used] == ignored[0]).all(axis=1)
    kept = np.flatnonzero(good)
    if kept.size < count:
        raise Unreadable(f"{os.fspath(source.path)}: has {kept.size} pixels with numbers; allowed: at least {count}")
    chosen = kept[extract_endmembers(pixels[kept][:, used], count, method=method, seed=seed)]
    across = block.shape[1]
    places = [(int(rows[one // across]), one % across * stride) for one in chosen.tolist()]
    names = [f"endmember {number} (line {line} sample {sample})" for number, (line, sample) in enumerate(places, 1)]
    factor = scale or told_by_header(header) or 1.0
    return SpectralLibrary(np.where(used, pixels[chosen] / factor, np.nan), names, names, waves)
