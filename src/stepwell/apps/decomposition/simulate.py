"""Waveforms made of Gaussians, with the truth: pulse, canopy and ground, white noise."""

from __future__ import annotations

import dataclasses

import numpy as np

from stepwell.apps.waveform.deconvolution import Shots
from stepwell.common.checks import read_real, read_seed, read_whole, require_memory

#: Standard deviation of the pulse in samples, and where its middle is.
PULSE, ORIGIN = 5.0, 20


@dataclasses.dataclass(frozen=True)
class SimulatedReturns:
    """Simulated shots, and position, amplitude and width of their returns, (shots, returns), in the order of time."""

    shots: Shots
    position: np.ndarray
    amplitude: np.ndarray
    width: np.ndarray


def simulate(
    count: int, *, samples: int = 200, returns: int = 3, noise: float = 2.0, background: float = 200.0, seed: int = 0
) -> SimulatedReturns:
    """Make waveforms.

    Parameters
    ----------
    count : int
        Number of shots.
    samples : int, default 200
        Samples of a waveform.
    returns : int, default 3
        Returns of each, of amplitudes from 20 to 120; the space between them is at least five widths of the pulse.
    noise : float, default 2
        Standard deviation of the noise.
    background : float, default 200
        Constant level.
    seed : int
        Seed of the random numbers.

    Examples
    --------
    >>> simulate(5, samples=120, returns=2).shots.waveforms.shape
    (5, 120)
    """
    count, samples = read_whole("count", count, 0), read_whole("samples", samples, 40)
    most = int((samples - 40) / (5 * PULSE)) + 1
    returns = read_whole("returns", returns, 0, most)
    noise, background = read_real("noise", noise, at_least=0), read_real("background", background)
    rng = np.random.default_rng(read_seed(seed))
    require_memory("count", count, 4 * count * (samples + 64))
    # Ordered places with room between: cuts of what is left of the window.
    spare = samples - 40 - 5 * PULSE * max(returns - 1, 0)
    cuts = np.sort(rng.uniform(0, spare, (count, returns)), axis=1)
    position = 20 + cuts + 5 * PULSE * np.arange(returns)
    amplitude = rng.uniform(20, 120, (count, returns))
    width = PULSE * rng.uniform(1.0, 1.6, (count, returns))
    times = np.arange(samples)
    shape = np.exp(-0.5 * ((times - position[:, :, None]) / width[:, :, None]) ** 2)
    clean = np.einsum("sr,srt->st", amplitude, shape) + background
    pulse = np.exp(-0.5 * ((np.arange(2 * ORIGIN + 1) - ORIGIN) / PULSE) ** 2)
    shots = Shots(
        clean + noise * rng.standard_normal(clean.shape),
        np.tile(pulse, (count, 1)),
        ORIGIN,
        np.full(count, background),
        noise=np.full(count, noise) if noise > 0 else None,
    )
    return SimulatedReturns(shots, position, amplitude, width)
