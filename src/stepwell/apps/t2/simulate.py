"""A phantom: rings with more and less myelin water, a smooth field of flip angles, Rician noise, and the truth."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from stepwell.apps.t2.epg import echo_decays
from stepwell.common.checks import read_real, read_seed, read_sizes, read_whole, require_memory

#: Mean T2 in seconds and width in ln T2 of the three kinds of water: myelin, within and between cells, free.
WATERS = {"myelin": (0.018, 0.15), "middle": (0.080, 0.15), "free": (1.2, 0.1)}
#: Flip angles of the field, in degrees: least and largest.
FIELD = (120.0, 180.0)


@dataclasses.dataclass(frozen=True)
class Phantom:
    """A simulated image and what it was made from.

    Attributes
    ----------
    signal : array, (x, y, z, echoes), float32
        What a scanner would have measured.
    mask : bool array, (x, y, z)
        Where there is tissue.
    truth : dict of arrays, (x, y, z), float32
        By the names of the maps: sfr, mfr, ffr, ggm, gdn, alpha; NaN outside the tissue.
    te : float
        Seconds between echoes.
    """

    signal: np.ndarray
    mask: np.ndarray
    truth: dict[str, np.ndarray]
    te: float


def simulate(
    shape: tuple[int, int, int] = (64, 64, 1),
    *,
    echoes: int = 32,
    te: float = 0.010,
    snr: float = 200.0,
    t1: float = 1.0,
    seed: int = 0,
) -> Phantom:
    """Make a phantom.

    Parameters
    ----------
    shape : tuple of three int
        Voxels along x, y and z.
    echoes, te, t1
        As in :class:`T2Model`.
    snr : float, default 200
        First echo of a voxel without free water over the standard deviation of the noise in each of the two channels
        whose magnitude is measured. Infinite: none.
    seed : int
        Seed of the noise.

    Examples
    --------
    >>> phantom = simulate((12, 12, 2))
    >>> phantom.signal.shape, float(np.nanmax(phantom.truth["sfr"])) < 0.3
    ((12, 12, 2, 32), True)
    """
    sizes = read_sizes("shape", shape, 3, meaning="x, y and z")
    echoes, seed = read_whole("echoes", echoes, 1), read_seed(seed)
    require_memory("echoes", echoes, 4 * (echoes + 2))
    require_memory("shape", shape, 4 * echoes * math.prod(sizes))
    snr = read_real("snr", snr, above=0, infinite=True)
    x, y, z = np.meshgrid(*(_centred(size) for size in sizes), indexing="ij")
    radius = np.hypot(x, y)
    mask = radius < 0.95
    free = np.clip(1.2 * (0.25 - radius) / 0.25, 0, 0.9) + 0 * z
    rings = 0.15 + 0.11 * np.cos(6 * np.pi * radius) * (1 - 0.3 * z**2)
    myelin = (1 - free) * rings
    angle = np.rint(FIELD[1] - (FIELD[1] - FIELD[0]) * np.clip((0.5 * (x + 1) + 0.5 * y**2 + 0.2 * z) / 1.6, 0, 1))

    logs = np.log(np.geomspace(0.005, 3.0, 150))
    angles = np.arange(FIELD[0], FIELD[1] + 1)
    decays = echo_decays(echoes, te, np.exp(logs), angles, t1)
    shares = {name: _lobe(logs, *water) for name, water in WATERS.items()}
    amounts = {"myelin": myelin, "middle": 1 - myelin - free, "free": free}
    which = (angle - angles[0]).astype(int)
    density = np.where(mask, 1000.0, 0.0)
    clean = sum((density * amounts[name])[..., None] * (decays @ share)[which] for name, share in shares.items())
    clean = np.asarray(clean)
    first = float(1000.0 * (decays[-1] @ shares["middle"])[0])
    random = np.random.default_rng(seed)
    sigma = first / snr
    real, imaginary = random.standard_normal((2, *clean.shape))
    signal = np.hypot(clean + sigma * real, sigma * imaginary)

    means = {name: float(logs @ share) for name, share in shares.items()}
    mean = sum(amounts[name] * means[name] for name in amounts)
    truth = {
        "sfr": myelin,
        "mfr": amounts["middle"],
        "ffr": free,
        "ggm": np.exp(mean),
        "gdn": density,
        "alpha": angle,
    }
    outside = {name: np.where(mask, value, np.nan).astype(np.float32) for name, value in truth.items()}
    return Phantom(signal.astype(np.float32), mask, outside, te)


def _centred(size: int) -> np.ndarray:
    """Return places from -1 to 1; of one voxel the middle."""
    return np.linspace(-1, 1, size) if size > 1 else np.zeros(1)


def _lobe(logs: np.ndarray, centre: float, width: float) -> np.ndarray:
    """Return a normal distribution over the logarithms, of sum 1."""
    shape = np.exp(-0.5 * ((logs - np.log(centre)) / width) ** 2)
    return np.asarray(shape / shape.sum())
