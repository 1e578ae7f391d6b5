"""Lidar shots from NASA's GEDI L1B granules as they are distributed: HDF5, a group a beam.

In a beam all waveforms lie one after the other in one array; ``..._sample_start_index`` (counted from 1) and
``..._sample_count`` say where each begins and how long it is.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from stepwell.apps.files.hdf5 import open_hdf5, own_datasets, own_groups, require_h5py
from stepwell.apps.waveform.deconvolution import Shots, gedi_shots
from stepwell.common.checks import meant, read_whole, require
from stepwell.common.files import Unreadable, damage_told

_NEEDED = (
    "rxwaveform",
    "rx_sample_start_index",
    "rx_sample_count",
    "txwaveform",
    "tx_sample_start_index",
    "tx_sample_count",
    "noise_mean_corrected",
)


def beams(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the beams in a granule."""
    require_h5py()
    with open_hdf5(path) as file, damage_told(path):
        return sorted(name for name in own_groups(file) if name.startswith("BEAM"))


def load_gedi(
    path: str | os.PathLike[str],
    beam: str | None = None,
    *,
    first: int = 0,
    count: int | None = None,
    samples: int = 512,
) -> Shots:
    """Read shots of one beam of a GEDI L1B granule.

    Parameters
    ----------
    path : path
        An HDF5 file as NASA distributes it.
    beam : str, optional
        Such as ``"BEAM0101"``; by default the first one.
    first, count : int
        Which shots: `count` of them (default: all) from `first` on. Shots whose waveform is shorter than `samples`
        are left out.
    samples : int, default 512
        Length of the window round the peak of each waveform.

    Returns
    -------
    Shots
        ``start`` says where each window begins in its waveform, counted from 0.
    """
    require_h5py()
    samples, first = read_whole("samples", samples, 1), read_whole("first", first, 0)
    with open_hdf5(path) as file:
        with damage_told(path):
            groups = own_groups(file)
            names = sorted(name for name in groups if name.startswith("BEAM"))
        if not names:
            raise Unreadable(f"{os.fspath(path)}: holds no group BEAM...; it is no GEDI L1B granule")
        chosen = names[0] if beam is None else beam
        require(chosen in names, "beam", chosen, ", ".join(names) + meant(chosen, names))
        with damage_told(path):
            group = own_datasets(groups[chosen])
        missing = [name for name in _NEEDED if name not in group]
        if missing:
            raise Unreadable(f"{os.fspath(path)}: {chosen} has no {', '.join(missing)}; is it a GEDI L1B granule?")
        shots = len(group["rx_sample_count"])
        require(first < shots, "first", first, f"0 to {shots - 1}, the shots of {chosen}")
        last = shots if count is None else min(shots, first + read_whole("count", count, 1))
        with damage_told(path):
            rx, rx_count = _rows(group, "rx", first, last)
            tx, _ = _rows(group, "tx", first, last)
            noise = np.asarray(group["noise_mean_corrected"][first:last], dtype=np.float64)
    long = rx_count >= samples
    if not long.any():
        raise Unreadable(
            f"{os.fspath(path)}: the longest waveform of {chosen} has {rx_count.max()} samples; "
            f"allowed: at most so many, not {samples}"
        )
    return gedi_shots(tx[long], rx[long], rx_count[long], noise[long], samples)


def _rows(group: dict[str, Any], which: str, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Return waveforms as the rows of one array, and their lengths; only the part that is needed is read."""
    start = np.asarray(group[f"{which}_sample_start_index"][first:last], dtype=np.int64) - 1
    count = np.asarray(group[f"{which}_sample_count"][first:last], dtype=np.int64)
    held = group[f"{which}waveform"]
    if start.min() < 0 or (start + count).max() > held.shape[0] or count.min() < 0:
        raise Unreadable(f"{held.file.filename}: {which}_sample_start_index and _count leave {which}waveform")
    low = int(start.min())
    values = np.asarray(held[low : int((start + count).max())], dtype=np.float64)
    rows = np.zeros((len(start), int(count.max())))
    for row, begin, length in zip(rows, start - low, count):
        row[:length] = values[begin : begin + length]
    return rows, count
