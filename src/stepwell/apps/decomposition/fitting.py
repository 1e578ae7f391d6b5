"""Gaussians fitted to all shots at once, those with as many of them together; what noise explains is left out."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from stepwell.api.fit import curve_fit
from stepwell.apps.decomposition.starts import (
    from_curvature,
    from_deconvolution,
    noise_levels,
    pulse_widths,
)
from stepwell.apps.waveform.deconvolution import Shots
from stepwell.apps.waveform.significance import LEVEL, threshold
from stepwell.arrays import Array, host_copy
from stepwell.arrays.presenting import Told
from stepwell.common.checks import read_choice, read_real, read_whole, require_function, require_instance
from stepwell.common.progress import as_told, with_bar
from stepwell.fit import models
from stepwell.fit.status import FitStatus

Starts = Literal["peaks", "deconvolve"]
#: Over the width of the pulse: the least width of a return.
NARROWEST = 0.5
#: Most steps of a fit: one with more Gaussians than its waveform has may go on for thousands, and loses one anyway.
STEPS = 100
#: Most Gaussians of a waveform.
MOST = 20
_FIELDS = ("position", "amplitude", "width")


@dataclasses.dataclass(frozen=True)
class Decomposition(Told):
    """Shots, and the Gaussians that they were taken apart into: a exp(-(t - position)² / 2 width²) plus a background.

    Attributes
    ----------
    shots : Shots
    count : int array, (shots,)
        Returns of each shot.
    position, amplitude, width : arrays, (shots, most)
        In the order of time; in samples of the waveform, its units, and samples. NaN beyond `count`.
    position_se, amplitude_se, width_se : arrays, (shots, most)
        Standard errors; NaN for a parameter at a bound.
    background, residual : arrays, (shots,)
        The constant, and the standard deviation of what the fit leaves.
    status : int array, (shots,)
        How each fit ended: numbers of :class:`stepwell.FitStatus`.
    """

    shots: Shots
    count: np.ndarray
    position: np.ndarray
    amplitude: np.ndarray
    width: np.ndarray
    position_se: np.ndarray
    amplitude_se: np.ndarray
    width_se: np.ndarray
    background: np.ndarray
    residual: np.ndarray
    status: np.ndarray

    @property
    def energy(self) -> np.ndarray:
        """Area of each Gaussian, √(2π) amplitude width."""
        return np.asarray(math.sqrt(2 * math.pi) * self.amplitude * self.width)

    @property
    def fit(self) -> np.ndarray:
        """The waveforms that the Gaussians make, (shots, samples)."""
        times = np.arange(self.shots.waveforms.shape[1])
        total = np.repeat(self.background[:, None], len(times), axis=1)
        for k in range(self.position.shape[1]):
            there = np.flatnonzero(self.count > k)
            a, t, s = (getattr(self, name)[there, k, None] for name in ("amplitude", "position", "width"))
            total[there] += a * np.exp(-0.5 * ((times - t) / s) ** 2)
        return np.asarray(total)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw the first four shots, and save the picture where `path` says; needs matplotlib."""
        from stepwell.apps.decomposition.plots import plot_shots

        return plot_shots(self.part(slice(0, 4)), path)

    def part(self, rows: slice | np.ndarray) -> Decomposition:
        """Return some of the shots."""
        held = {one.name: getattr(self, one.name)[rows] for one in dataclasses.fields(self) if one.name != "shots"}
        return Decomposition(self.shots.part(rows), **held)


@with_bar("shots")
def decompose(
    shots: Shots,
    *,
    starts: Starts = "peaks",
    most: int = 8,
    level: float = LEVEL,
    threads: int | None = None,
    put: Callable[[np.ndarray], Array] | None = None,
    progress: Callable[[int, int], object] | bool | None = None,
) -> Decomposition:
    """Take waveforms apart into Gaussians.

    Each waveform starts with the Gaussians that its curvature or a deconvolution suggests, and is fitted within bounds:
    amplitudes are not negative, positions lie in the window, widths are at least half the pulse's. The return
    that its standard error makes the least certain goes, as long as noise explains it, and the rest are fitted again.

    Parameters
    ----------
    shots : Shots
        As :func:`stepwell.apps.waveform.load_gedi`, ``load_shots`` or ``synthetic_shots`` give them.
    starts : {"peaks", "deconvolve"}
        Where Gaussians begin: peaks and shoulders of the smoothed waveform, or the returns of
        :func:`stepwell.apps.waveform.deconvolve`.
    most : int, default 8
        Gaussians of a waveform at the most; up to 20.
    level : float, default 0.05
        Chance per waveform that noise alone is called a return.
    threads : int, optional
        CPU threads; by default all.
    put : callable, optional
        Copies an array to another library or a device, where the fits are then done.
    progress : callable or True, optional
        Called as ``progress(done, shots)``; True shows a bar.

    Examples
    --------
    >>> from stepwell.apps.decomposition import simulate
    >>> made = simulate(3, noise=0.5, seed=1)
    >>> done = decompose(made.shots)
    >>> done.count.tolist(), bool(np.nanmax(np.abs(done.position[:, :3] - made.position)) < 0.5)
    ([3, 3, 3], True)
    """
    require_instance("shots", shots, Shots)
    require_function("put", put)
    read_choice("starts", starts, ("peaks", "deconvolve"))
    most, level = read_whole("most", most, 1, MOST), read_real("level", level, above=0, below=1)
    tell = as_told(progress)
    usable = np.isfinite(shots.waveforms).all(axis=1)
    sigma = np.where(usable, noise_levels(shots), 1.0)
    held = dataclasses.replace(shots, waveforms=np.where(usable[:, None], shots.waveforms, 0.0))
    if starts == "peaks":
        found = from_curvature(held, sigma, most, level)
    else:
        found = from_deconvolution(held, sigma, most, level, threads, put)
    done = _begun(shots, most)
    values = {"position": found.position, "amplitude": found.amplitude, "width": found.width}
    count = np.where(usable, found.count, 0)
    least = threshold(shots.waveforms.shape[1], level)
    done.status[~usable] = int(FitStatus.NON_FINITE_START)
    open_ones = np.flatnonzero(usable)
    while open_ones.size:
        again = []
        for terms in np.unique(count[open_ones]).tolist():
            rows = open_ones[count[open_ones] == terms]
            _fit(done, rows, terms, values, sigma, threads, put)
            if terms:
                again.append(_weakest_out(done, rows, terms, values, least))
        count[open_ones] = done.count[open_ones]
        open_ones = np.sort(np.concatenate(again)) if again else open_ones[:0]
        count[open_ones] -= 1
        if tell is not None:
            tell(len(shots) - len(open_ones), len(shots))
    _in_order_of_time(done)
    return done


def _begun(shots: Shots, most: int) -> Decomposition:
    rows = len(shots)
    wide = {f"{name}{end}": np.full((rows, most), np.nan) for name in _FIELDS for end in ("", "_se")}
    narrow = {name: np.full(rows, np.nan) for name in ("background", "residual")}
    return Decomposition(shots, np.zeros(rows, np.int64), **wide, **narrow, status=np.zeros(rows, np.int64))


def _fit(
    done: Decomposition,
    rows: np.ndarray,
    terms: int,
    values: dict[str, np.ndarray],
    sigma: np.ndarray,
    threads: int | None,
    put: Any,
) -> None:
    """Fit the shots of `rows`, which have as many Gaussians, from the first of their `values`."""
    waveforms = np.asarray(done.shots.waveforms[rows], dtype=float)
    samples = waveforms.shape[1]
    done.count[rows] = terms
    for name in _FIELDS:
        getattr(done, name)[rows] = getattr(done, f"{name}_se")[rows] = np.nan
    if terms == 0:  # the mean has no gradient left
        done.background[rows] = waveforms.mean(axis=1)
        done.residual[rows] = waveforms.std(axis=1, ddof=1) if samples > 1 else np.nan
        done.status[rows] = int(FitStatus.GTOL)
        return
    shape, ones = (len(rows), terms), np.ones((len(rows), terms))
    pulse = pulse_widths(done.shots)[rows, None]
    low = np.concatenate([0 * ones, 0 * ones, NARROWEST * pulse * ones, np.full((len(rows), 1), -np.inf)], axis=1)
    widest = np.broadcast_to(np.maximum(samples / 4, 2 * pulse), shape)
    high = np.concatenate([np.inf * ones, (samples - 1.0) * ones, widest, np.full((len(rows), 1), np.inf)], axis=1)
    start = np.concatenate(
        [values[name][rows, :terms] for name in ("amplitude", "position", "width")]
        + [np.median(waveforms, axis=1)[:, None]],
        axis=1,
    )
    bring = (lambda array: array) if put is None else put
    result = curve_fit(
        models.gaussians(terms, offset=True),
        np.arange(samples, dtype=float),
        bring(waveforms),
        bring(np.clip(start, low, high)),
        bounds=(low, high),
        uncertainty="stderr",
        maxiter=STEPS,
        threads=threads,
    )
    x, error, active = (np.asarray(host_copy(one)) for one in (result.x, result.stderr, result.active_mask))
    redchi = np.asarray(host_copy(result.redchi))
    # The noise is known: what neighbours leave unexplained does not make returns uncertain.
    with np.errstate(all="ignore"):
        error = np.where(active != 0, np.nan, error * np.minimum(sigma[rows] / np.sqrt(redchi), 1.0)[:, None])
    for place, name in enumerate(("amplitude", "position", "width")):
        columns = slice(place * terms, (place + 1) * terms)
        getattr(done, name)[rows, :terms] = x[:, columns]
        getattr(done, f"{name}_se")[rows, :terms] = error[:, columns]
    done.background[rows], done.residual[rows] = x[:, -1], np.sqrt(redchi)
    done.status[rows] = np.asarray(host_copy(result.status))


def _weakest_out(
    done: Decomposition, rows: np.ndarray, terms: int, values: dict[str, np.ndarray], least: float
) -> np.ndarray:
    """Put the weakest Gaussian of each shot last, and return the shots of which noise explains it."""
    amplitude, error = done.amplitude[rows, :terms], done.amplitude_se[rows, :terms]
    with np.errstate(all="ignore"):
        quotient = np.where(amplitude > 0, amplitude / error, 0.0)
    quotient = np.where(np.isfinite(quotient), quotient, 0.0)
    order = np.argsort(-quotient, axis=1, kind="stable")
    goes = np.take_along_axis(quotient, order, axis=1)[:, -1] < least
    shots = rows[goes]
    for name in _FIELDS:
        values[name][shots[:, None], np.arange(terms)] = np.take_along_axis(
            getattr(done, name)[rows, :terms], order, axis=1
        )[goes]
    return shots


def _in_order_of_time(done: Decomposition) -> None:
    order = np.argsort(done.position, axis=1, kind="stable")  # NaN last
    for name in (f"{field}{end}" for field in _FIELDS for end in ("", "_se")):
        array = getattr(done, name)
        array[:] = np.take_along_axis(array, order, axis=1)
