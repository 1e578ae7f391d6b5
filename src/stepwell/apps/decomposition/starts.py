"""Where the Gaussians of a waveform start: at the maxima of its curvature, or at the returns of a deconvolution."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from scipy.ndimage import gaussian_filter1d

from stepwell.apps.waveform.deconvolution import Shots, deconvolve, noise_threshold
from stepwell.apps.waveform.significance import significant_returns, threshold
from stepwell.arrays import Array

#: Over the width of the pulse, how wide the filters are that the curvature is taken with: one sees weak returns, the
#: other those that are near each other.
SMOOTHING = (1.0, 0.4)
#: Over the width of the pulse, how near two returns of a deconvolution are one.
NEAR = 1.5
#: Standard deviations of a Gaussian between the points where it has half its height.
FULL_WIDTH = 2 * math.sqrt(2 * math.log(2))


@dataclasses.dataclass(frozen=True)
class Candidates:
    """Gaussians to start with, (shots, most), in the order of their weight; `count` of each shot."""

    count: np.ndarray
    position: np.ndarray
    amplitude: np.ndarray
    width: np.ndarray


def pulse_widths(shots: Shots) -> np.ndarray:
    """Return the standard deviation of a Gaussian as wide at half its height as the pulse of each shot, in samples."""
    half = shots.pulses.max(axis=1, keepdims=True) / 2
    above = (shots.pulses >= half).sum(axis=1)
    return np.asarray(np.maximum(above, 1.0) / FULL_WIDTH)


def noise_levels(shots: Shots) -> np.ndarray:
    """Return the standard deviation of the noise of each shot: as the file has it, else from second differences."""
    if shots.noise is not None and np.isfinite(shots.noise).all() and (shots.noise > 0).all():
        return np.asarray(shots.noise, dtype=float)
    second = np.diff(shots.waveforms, 2, axis=1)
    spread = np.median(np.abs(second - np.median(second, axis=1, keepdims=True)), axis=1) / 0.6745
    return np.asarray(np.maximum(spread / math.sqrt(6), np.finfo(float).tiny))


def from_curvature(shots: Shots, sigma: np.ndarray, most: int, level: float) -> Candidates:
    """Return Gaussians where the smoothed waveform bends down most: peaks, and shoulders of peaks.

    A Gaussian has the curvature -a/s² at its middle, from which its width follows. A place counts where height and
    curvature are above what noise gives anywhere in a waveform with chance `level`.
    """
    least, pulse = threshold(shots.waveforms.shape[1], level), pulse_widths(shots)
    parts = [_bends(shots, sigma, pulse, least, max(1.0, ratio * float(np.median(pulse)))) for ratio in SMOOTHING]
    row, position, size, wide, weight = (np.concatenate(both) for both in zip(*parts, strict=True))
    # What both see counts once, as the first one sees it.
    fine = np.arange(len(row)) >= len(parts[0][0])
    order = np.lexsort((position, row))
    gap = np.where(np.diff(row[order]) == 0, np.diff(position[order]), np.inf) < pulse[row[order]][1:]
    beside = np.zeros(len(row), dtype=bool)
    beside[order[1:]] |= gap & ~fine[order[:-1]]
    beside[order[:-1]] |= gap & ~fine[order[1:]]
    kept = ~(fine & beside)
    return _gathered(len(shots), *(one[kept] for one in (row, position, size, wide, weight)), most)


def _bends(
    shots: Shots, sigma: np.ndarray, pulse: np.ndarray, least: float, scale: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return shot, position, amplitude, width and weight where the curvature, smoothed by `scale`, has a maximum."""
    smooth = gaussian_filter1d(shots.waveforms, scale, axis=1, mode="nearest")
    height = smooth - np.median(shots.waveforms, axis=1, keepdims=True)
    bend = -np.gradient(np.gradient(smooth, axis=1), axis=1)
    impulse = np.zeros(2 * math.ceil(6 * scale) + 5)
    impulse[len(impulse) // 2] = 1
    kernel = gaussian_filter1d(impulse, scale, mode="constant")
    noise = np.linalg.norm(kernel), np.linalg.norm(np.gradient(np.gradient(kernel)))
    inner = bend[:, 1:-1]
    peak = (inner > bend[:, :-2]) & (inner >= bend[:, 2:])
    peak &= (inner > least * noise[1] * sigma[:, None]) & (height[:, 1:-1] > least * noise[0] * sigma[:, None])
    row, column = np.nonzero(peak)
    column = column + 1
    size, curve = height[row, column], bend[row, column]
    wide = np.sqrt(np.maximum(size / curve - scale**2, (0.8 * pulse[row]) ** 2))
    wide = np.minimum(wide, 6 * pulse[row])
    # Smoothing has lowered it: a s/√(s² + scale²).
    size = size * np.sqrt(1 + (scale / wide) ** 2)
    return row, column.astype(float), size, wide, size / sigma[row]


def from_deconvolution(
    shots: Shots,
    sigma: np.ndarray,
    most: int,
    level: float,
    threads: int | None = None,
    put: Callable[[np.ndarray], Array] | None = None,
) -> Candidates:
    """Return Gaussians at the returns that a deconvolution finds, as wide as the pulse."""
    known = dataclasses.replace(shots, noise=sigma)
    done = deconvolve(known, threads=threads, put=put)
    least = noise_threshold(done)
    done = significant_returns(done, level)
    found = [done.returns(shot, float(least[shot]) / 4) for shot in range(len(shots))]
    row = np.repeat(np.arange(len(found)), [len(times) for times, _ in found])
    times = np.concatenate([one for one, _ in found]) if found else np.zeros(0)
    sizes = np.concatenate([one for _, one in found]) if found else np.zeros(0)
    pulse = pulse_widths(shots)
    row, times, sizes = _joined(row, times, sizes, NEAR * pulse)
    tall = shots.pulses.max(axis=1)[row]
    return _gathered(len(shots), row, times, sizes * tall, pulse[row], sizes / sigma[row], most)


def _joined(
    row: np.ndarray, times: np.ndarray, sizes: np.ndarray, near: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Join returns, which are in the order of time, to runs that are no longer than `near`: one Gaussian spans them."""
    run = np.zeros(len(row), dtype=np.int64)
    for k in range(1, len(row)):
        begin = run[k - 1]
        apart = row[k] != row[begin] or times[k] - times[begin] > near[row[k]]
        run[k] = k if apart else begin
    first, place = np.unique(run, return_inverse=True)
    total = np.bincount(place, sizes, len(first))
    middle = np.bincount(place, sizes * times, len(first)) / np.maximum(total, np.finfo(float).tiny)
    return row[first], middle, total


def _gathered(
    shots: int, row: np.ndarray, position: np.ndarray, size: np.ndarray, wide: np.ndarray, weight: np.ndarray, most: int
) -> Candidates:
    """Return the heaviest candidates of each shot."""
    order = np.lexsort((-weight, row))
    row = row[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    kept = place < most
    held = [np.full((shots, most), np.nan) for _ in range(3)]
    for array, values in zip(held, (position, size, wide), strict=True):
        array[row[kept], place[kept]] = values[order][kept]
    return Candidates(np.bincount(row[kept], minlength=shots), *held)
