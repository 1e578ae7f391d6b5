"""Which returns are more than noise: each is tried against the others, and the weakest goes until all are needed."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from stepwell.apps.waveform.deconvolution import Deconvolution, convolve
from stepwell.common.checks import read_real, require, require_instance

#: Chance, per waveform, that noise alone is called a return.
LEVEL = 0.05
#: Standard deviations by which a squared residual may stay below what the noise alone has: it then fits noise.
BELOW = 2.0


def threshold(samples: int, level: float = LEVEL) -> float:
    """Return how many of its standard errors a return must have, where noise has so many places to look like one.

    P(any of n normal deviates > t) ≤ n exp(−t²/2): so t = √(2 ln(n/level)).

    Examples
    --------
    >>> round(threshold(512), 2)
    4.3
    """
    return math.sqrt(2 * math.log(samples / level))


def significant_returns(done: Deconvolution, level: float = LEVEL) -> Deconvolution:
    """Keep the returns that the noise of each shot does not explain.

    The positive samples of a deconvolution are joined to returns, whose shapes are kept and whose sizes a are fitted
    by least squares. Without return k, the others fitted anew, the squared residual grows by a_k²/(G⁻¹)_kk, where G is
    the Gram matrix of the convolved shapes: a_k over its standard error, squared, times the variance of the noise. The
    return with the smallest such quotient goes, until all have `threshold` or more. Noise that is not white makes
    returns of its own: they go, the weakest first, as long as the squared residual stays two of its standard deviations
    below what the stated noise has (the discrepancy principle).

    Parameters
    ----------
    done : Deconvolution
        Of shots whose ``noise`` is known.
    level : float, default 0.05
        Chance per waveform that noise alone is called a return.

    Returns
    -------
    Deconvolution
        Amplitudes and fits of the returns that were kept.

    Examples
    --------
    >>> from stepwell.apps import waveform
    >>> shots = waveform.load_gedi("GEDI01_B_2019.h5", "BEAM0101", count=100)  # doctest: +SKIP
    >>> kept = significant_returns(waveform.deconvolve(shots))  # doctest: +SKIP
    """
    require_instance("done", done, Deconvolution)
    level = read_real("level", level, above=0, below=1)
    shots = done.shots
    require(shots.noise is not None, "done.shots.noise", None, "the standard deviation of each waveform's noise")
    assert shots.noise is not None
    least = threshold(shots.waveforms.shape[1], level)
    amplitudes = np.zeros_like(done.amplitudes)
    observed = shots.waveforms - shots.background[:, None]
    for shot, (found, pulse, sigma) in enumerate(zip(done.amplitudes, shots.pulses, shots.noise)):
        amplitudes[shot] = _kept(found, observed[shot], pulse, shots.origin, float(sigma), least)
    return dataclasses.replace(done, amplitudes=amplitudes, fit=convolve(shots, amplitudes) + shots.background[:, None])


def _kept(
    found: np.ndarray, observed: np.ndarray, pulse: np.ndarray, origin: int, sigma: float, least: float
) -> np.ndarray:
    """Return the amplitudes of one shot that are left."""
    positive = np.flatnonzero(found > 0)
    if not positive.size or not (np.isfinite(sigma) and sigma > 0 and np.isfinite(observed).all()):
        return found
    groups = np.split(positive, np.flatnonzero(np.diff(positive) > 1) + 1)
    shapes = np.zeros((len(groups), found.size))
    for shape, group in zip(shapes, groups):
        shape[group] = found[group] / found[group].sum()
    columns = np.array([np.convolve(shape, pulse)[origin : origin + found.size] for shape in shapes])
    gram, sides = columns @ columns.T, columns @ observed
    enough = found.size - BELOW * math.sqrt(2 * found.size)
    left = np.arange(len(groups))
    sizes = np.zeros(0)
    while left.size:
        inner = gram[np.ix_(left, left)]
        inverse = np.linalg.pinv(inner, hermitian=True)
        sizes = inverse @ sides[left]
        quotient = sizes / (sigma * np.sqrt(np.maximum(np.diag(inverse), np.finfo(float).tiny)))
        if quotient.min() >= least:
            unexplained = float(observed @ observed - sizes @ sides[left]) / sigma**2
            if unexplained + quotient.min() ** 2 > enough:
                break
            left = np.delete(left, quotient.argmin())
            continue
        # All that are weak and weaker than both neighbours go at once: they hardly see each other.
        beside = np.minimum(np.r_[np.inf, quotient[:-1]], np.r_[quotient[1:], np.inf])
        left = left[(quotient >= least) | (quotient > beside)]
    return sizes @ shapes[left] if left.size else np.zeros_like(found)
