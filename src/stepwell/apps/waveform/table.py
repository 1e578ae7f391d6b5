"""Returns of lidar shots as one table: where on the earth each lies, how strong it is, and how high the canopy."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from stepwell.apps.waveform.deconvolution import Deconvolution

#: Shares of the energy, in percent, below which heights above the ground are given.
HEIGHTS = (25, 50, 75, 90, 95, 98)
#: GEDI counts the seconds of its shots from here.
EPOCH = datetime.datetime(2018, 1, 1, tzinfo=datetime.UTC)


def return_table(done: Deconvolution, least: np.ndarray, offset: int = 0) -> dict[str, np.ndarray]:
    """Return one row per return, as columns by name.

    ``beam``, ``shot_number``, ``time`` (UTC), ``latitude``, ``longitude`` and ``elevation`` (metres above the
    ellipsoid) are there where the file has them; positions lie between those of the record's first and last sample.
    ``shot`` counts the shots that were done, ``sample`` those of the record; ``width`` is the standard deviation of a
    return along time, in metres where elevations are known, else in samples. ``rh25`` to ``rh98`` are heights above the
    lowest return, in metres, below which so many percent of the shot's energy came back.

    Parameters
    ----------
    done : Deconvolution
    least : array, (shots,)
        Smallest amplitude of a return of each shot.
    offset : int, default 0
        Number of the first shot.

    Examples
    --------
    >>> from stepwell.apps import waveform
    >>> shots = waveform.synthetic_shots(2, samples=80, returns=2)
    >>> done = waveform.deconvolve(shots)
    >>> sorted(return_table(done, np.full(2, 10.0)))[:3]
    ['amplitude', 'sample', 'shot']
    """
    found = [done.returns(shot, float(least[shot])) for shot in range(len(done.shots))]
    counts = np.array([len(times) for times, _ in found])
    row = np.repeat(np.arange(len(found)), counts)
    times = np.concatenate([one for one, _ in found]) if found else np.zeros(0)
    sizes = np.concatenate([one for _, one in found]) if found else np.zeros(0)
    start = done.shots.start if done.shots.start is not None else np.zeros(len(found), dtype=np.int64)
    sample = times + start[row]
    about = done.shots.about or {}
    columns = shot_columns(about, row) | {"shot": row + offset, "sample": sample, "amplitude": sizes}
    width = np.array([_width(done.amplitudes[shot], time) for shot, time in zip(row, times)])
    if "elevation_bin0" not in about:
        return columns | {"width": width}
    columns |= positions(about, row, sample) | {"width": width * metres_per_sample(about)[row]}
    return columns | height_columns(row, len(found), columns["elevation"], sizes)


def shot_columns(about: dict[str, np.ndarray], row: np.ndarray) -> dict[str, np.ndarray]:
    """Return beam, number and time of the shots of some returns, as far as the file has them."""
    columns: dict[str, np.ndarray] = {name: about[name][row] for name in ("beam", "shot_number") if name in about}
    if "delta_time" in about:
        columns["time"] = np.array([_utc(seconds) for seconds in about["delta_time"]], dtype=object)[row]
    return columns


def positions(about: dict[str, np.ndarray], row: np.ndarray, sample: np.ndarray) -> dict[str, np.ndarray]:
    """Return latitude, longitude and elevation of samples of records, between those of the first and the last."""
    share = sample / np.maximum(about["record_length"] - 1, 1)[row]
    columns = {}
    for name in ("latitude", "longitude", "elevation"):
        first, end = about[f"{name}_bin0"], about[f"{name}_lastbin"]
        step = end - first
        if name == "longitude":  # across the date line
            step = (step + 180) % 360 - 180
        columns[name] = first[row] + share * step[row]
    columns["longitude"] = (columns["longitude"] + 180) % 360 - 180
    return columns


def metres_per_sample(about: dict[str, np.ndarray]) -> np.ndarray:
    """Return the height of one sample of each shot."""
    height = np.abs(about["elevation_bin0"] - about["elevation_lastbin"])
    return np.asarray(height / np.maximum(about["record_length"] - 1, 1))


def height_columns(row: np.ndarray, shots: int, elevation: np.ndarray, energy: np.ndarray) -> dict[str, np.ndarray]:
    """Return ``rh25`` to ``rh98`` of the shot of each return; rows are in the order of shots."""
    heights = np.full((shots, len(HEIGHTS)), np.nan)
    bounds = np.searchsorted(row, np.arange(shots + 1))
    for shot, (begin, end) in enumerate(itertools.pairwise(bounds.tolist())):
        if end > begin:
            heights[shot] = relative_heights(elevation[begin:end], energy[begin:end])
    return {f"rh{share}": heights[row, place] for place, share in enumerate(HEIGHTS)}


def relative_heights(elevation: np.ndarray, energy: np.ndarray, shares: Sequence[float] = HEIGHTS) -> np.ndarray:
    """Return heights above the lowest return below which shares of the energy, in percent, came back.

    Examples
    --------
    >>> relative_heights(np.array([120.0, 110.0, 100.0]), np.array([1.0, 1.0, 2.0]), (25, 50, 75, 98)).tolist()
    [0.0, 0.0, 10.0, 20.0]
    """
    order = np.argsort(elevation)
    total = np.cumsum(energy[order])
    # (A share that is met up to rounding is met.)
    place = np.searchsorted(total, np.asarray(shares) / 100 * total[-1] * (1 - 1e-12))
    return np.asarray(elevation[order][np.minimum(place, len(order) - 1)] - elevation.min())


def _width(amplitudes: np.ndarray, time: float) -> float:
    """Return the standard deviation of the positive samples round a return."""
    middle = round(time)
    if amplitudes[middle] <= 0:  # between two samples
        middle = int(np.floor(time)) if amplitudes[int(np.floor(time))] > 0 else int(np.ceil(time))
    gaps = np.flatnonzero(amplitudes <= 0)
    place = np.searchsorted(gaps, middle)
    low = gaps[place - 1] + 1 if place else 0
    high = gaps[place] if place < len(gaps) else len(amplitudes)
    samples = np.arange(low, high)
    weights = amplitudes[low:high]
    return float(np.sqrt(np.average((samples - time) ** 2, weights=weights)))


def _utc(seconds: Any) -> str:
    if not np.isfinite(seconds) or abs(seconds) > 1e10:
        return ""
    return (
        (EPOCH + datetime.timedelta(seconds=float(seconds))).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
