"""A phantom: rings and a gradient of the parameters of a quantity, noise of magnitudes, and the truth."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from stepwell.apps.relaxation.model import RelaxationModel
from stepwell.apps.relaxation.quantities import QUANTITIES
from stepwell.common.checks import read_choice, read_real, read_seed, read_sizes, require_memory

#: Parameters in tissue: least and largest.
TISSUE = {
    "t2star": {"T2star": (0.015, 0.060)},
    "t2": {"T2": (0.040, 0.160)},
    "t1": {"T1": (0.6, 2.0), "inversion": (1.8, 2.0)},
    "t1-vfa": {"T1": (0.6, 2.0)},
    "adc": {"ADC": (0.0006, 0.0022)},
    "ivim": {"f": (0.05, 0.30), "D": (0.0007, 0.0015), "Dstar": (0.012, 0.060)},
}
#: Signal of tissue without decay: least and largest. Repetition time of flip angles, seconds.
DENSITY, TR = (800.0, 1200.0), 0.015


@dataclasses.dataclass(frozen=True)
class RelaxationPhantom:
    """A simulated series and what it was made from.

    Attributes
    ----------
    model : RelaxationModel
    signal : array, (x, y, z, points), float32
        What a scanner would have measured.
    mask : bool array, (x, y, z)
        Where there is tissue.
    truth : dict of arrays, (x, y, z), float32
        By the names of the parameters' maps; NaN outside the tissue.
    """

    model: RelaxationModel
    signal: np.ndarray
    mask: np.ndarray
    truth: dict[str, np.ndarray]


def simulate(
    quantity: str,
    shape: tuple[int, int, int] = (64, 64, 1),
    *,
    points: Sequence[float] | None = None,
    snr: float = 100.0,
    tr: float | None = None,
    seed: int = 0,
) -> RelaxationPhantom:
    """Make a phantom of one quantity.

    Parameters
    ----------
    quantity : str
        As in :class:`RelaxationModel`.
    shape : tuple of three int
        Voxels along x, y and z.
    points : sequence of float, optional
        Echo times and so on; by default some that are in use.
    snr : float, default 100
        Mean signal without decay (of flip angles: the largest signal) over the standard deviation of the noise in each
        of the two channels whose magnitude is measured. Infinite: none.
    tr : float, optional
        Repetition time of flip angles, seconds; by default 0.015.
    seed : int
        Seed of the noise.

    Examples
    --------
    >>> phantom = simulate("ivim", (12, 12, 2))
    >>> phantom.signal.shape, sorted(phantom.truth)
    ((12, 12, 2, 16), ['D', 'Dstar', 'S0', 'f'])
    """
    about = QUANTITIES[read_choice("quantity", quantity, QUANTITIES)]
    sizes, seed = read_sizes("shape", shape, 3, meaning="x, y and z"), read_seed(seed)
    snr = read_real("snr", snr, above=0, infinite=True)
    if quantity == "t1-vfa" and tr is None:
        tr = TR
    given: Any = about.default if points is None else points  # which the model reads
    model = RelaxationModel(quantity, given, tr=tr)
    require_memory("shape", shape, 6 * len(model.points) * math.prod(sizes))
    x, y, z = np.meshgrid(*(np.linspace(-1, 1, size) if size > 1 else np.zeros(1) for size in sizes), indexing="ij")
    radius = np.hypot(x, y)
    mask = radius < 0.95
    # Each parameter has a pattern of its own: rings, a slope, a slope across it, a bowl.
    patterns = (0.5 + 0.5 * np.cos(5 * np.pi * radius), 0.5 + 0.5 * x, 0.5 + 0.5 * y, radius**2)
    truth = {"S0": DENSITY[0] + (DENSITY[1] - DENSITY[0]) * np.clip(0.5 + 0.3 * (x - y) + 0.1 * z, 0, 1)}
    for (name, (low, high)), pattern in zip(TISSUE[quantity].items(), patterns, strict=False):
        truth[name] = low + (high - low) * np.clip(pattern + 0 * z, 0, 1)
    clean = np.where(mask[..., None], model.signal(**truth), 0.0)
    level = clean.max() if quantity == "t1-vfa" else sum(DENSITY) / 2
    real, imaginary = np.random.default_rng(seed).standard_normal((2, *clean.shape))
    signal = np.hypot(clean + level / snr * real, level / snr * imaginary)
    inside = {name: np.where(mask, truth[name], np.nan).astype(np.float32) for name in model.parameters}
    return RelaxationPhantom(model, signal.astype(np.float32), mask, inside)
