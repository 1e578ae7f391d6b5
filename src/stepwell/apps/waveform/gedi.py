"""Lidar shots from NASA's GEDI L1B granules as they are distributed: HDF5, a group a beam.

In a beam all waveforms lie one after the other in one array; ``..._sample_start_index`` (counted from 1) and
``..._sample_count`` say where each begins and how long it is.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator
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
#: Standard deviation of the background, by the names that versions of the product have.
_SPREAD = ("noise_stddev_corrected", "noise_std_corrected")
#: Where the first and the last sample of a record lie on the earth.
_ENDS = tuple(f"{what}_{end}" for what in ("latitude", "longitude", "elevation") for end in ("bin0", "lastbin"))


def beams(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the beams in a granule.

    Examples
    --------
    >>> beams("GEDI01_B_2019.h5")[:2]  # doctest: +SKIP
    ['BEAM0000', 'BEAM0001']
    """
    require_h5py()
    with open_hdf5(path) as file, damage_told(path):
        return _names(own_groups(file))


def _names(groups: Iterable[str]) -> list[str]:
    return sorted(name for name in groups if name.startswith("BEAM"))


def chosen_beams(
    path: str | os.PathLike[str], groups: Iterable[str], beam: str | None, product: str = "GEDI L1B"
) -> list[str]:
    """Return the beam that is wanted, or all of a granule with these groups; raise where there is none."""
    names = _names(groups)
    if not names:
        raise Unreadable(f"{os.fspath(path)}: holds no group BEAM...; it is no {product} granule")
    _require_beam(beam, names)
    return names if beam is None else [beam]


def _require_beam(beam: str | None, names: list[str]) -> None:
    require(beam is None or beam in names, "beam", beam, ", ".join(names) + meant(beam, names))


def shot_counts(path: str | os.PathLike[str], beam: str | None = None) -> dict[str, int]:
    """Return how many shots each beam of a granule has, or one of them.

    Examples
    --------
    >>> shot_counts("GEDI01_B_2019.h5", "BEAM0101")  # doctest: +SKIP
    {'BEAM0101': 62418}
    """
    require_h5py()
    with open_hdf5(path) as file, damage_told(path):
        groups = own_groups(file)
        names = _names(groups)
        held = {name: own_datasets(groups[name]).get("rx_sample_count") for name in names}
        counts = {name: 0 if one is None else len(one) for name, one in held.items()}
    _require_beam(beam, names)
    return {name: count for name, count in counts.items() if beam in (None, name)}


#: Why shots are left out, in words.
SHORT, FLAT, BROKEN = "waveform shorter than the window", "flat pulse", "numbers that are not finite"


def load_gedi(
    path: str | os.PathLike[str],
    beam: str | None = None,
    *,
    first: int = 0,
    count: int | None = None,
    samples: int = 512,
) -> Shots:
    """Read shots of a GEDI L1B granule.

    Parameters
    ----------
    path : path
        An HDF5 file as NASA distributes it.
    beam : str, optional
        Such as ``"BEAM0101"``; by default all of them, one after the other.
    first, count : int
        Which shots of each beam: `count` of them (default: all) from `first` on. Shots whose waveform is shorter than
        `samples`, whose pulse is flat, or that hold what is no number, are left out.
    samples : int, default 512
        Length of the window round the peak of each waveform.

    Returns
    -------
    Shots
        ``start`` says where each window begins in its waveform, counted from 0; ``about`` has the beam, the number and
        the time of each shot, and where its record begins and ends on the earth.

    Examples
    --------
    >>> shots = load_gedi("GEDI01_B_2019.h5", "BEAM0101", count=100)  # doctest: +SKIP
    >>> shots.waveforms.shape  # doctest: +SKIP
    (100, 512)
    """
    last = None if count is None else first + read_whole("count", count, 1)
    parts = list(read_parts(path, beam, first=first, last=last, samples=samples))
    found = [part.shots for part in parts if part.shots is not None]
    if not found:
        why = ", ".join(sorted({reason for part in parts for reason in part.skipped}))
        longest = max(part.longest for part in parts)
        raise Unreadable(
            f"{os.fspath(path)}: no shot is left ({why}); the longest waveform of {parts[0].beam} has {longest} "
            f"samples; allowed: at most so many, not {samples}"
        )
    return join_shots(found)


@dataclasses.dataclass(frozen=True)
class Part:
    """Shots of one beam, and how many were left out and why; `total` are the shots that were looked at."""

    beam: str
    shots: Shots | None
    total: int
    skipped: dict[str, int]
    longest: int


def read_parts(
    path: str | os.PathLike[str],
    beam: str | None = None,
    *,
    first: int = 0,
    last: int | None = None,
    samples: int = 512,
    size: int | None = None,
) -> Iterator[Part]:
    """Yield the shots of one beam or of all, at most `size` at a time, so that a granule needs no memory as a whole."""
    require_h5py()
    samples, first = read_whole("samples", samples, 1), read_whole("first", first, 0)
    with open_hdf5(path) as file:
        with damage_told(path):
            groups = own_groups(file)
        looked_at = False
        for name in chosen_beams(path, groups, beam):
            with damage_told(path):
                group = own_datasets(groups[name])
                places = own_datasets(own_groups(groups[name]).get("geolocation", groups[name]))
            _require_fields(os.fspath(path), name, group)
            shots = len(group["rx_sample_count"])
            require(beam is None or first < shots, "first", first, f"0 to {shots - 1}, the shots of {name}")
            end = shots if last is None else min(shots, last)
            step = max(1, end - first) if size is None else size
            for begin in range(first, end, step):
                looked_at = True
                with damage_told(path):
                    yield _read_part(name, group, places, begin, min(end, begin + step), samples)
        require(looked_at, "first", first, "the number of a shot that some beam has")


def _require_fields(path: str, beam: str, group: dict[str, Any]) -> None:
    """Raise where a beam lacks what is needed, or has it in another shape: one number per shot."""
    missing = [field for field in _NEEDED if field not in group]
    if missing:
        raise Unreadable(f"{path}: {beam} has no {', '.join(missing)}; is it a GEDI L1B granule?")
    shots = group["rx_sample_count"].shape[:1]
    for field in ("rx_sample_count", *_NEEDED):  # to which the others are held
        shape = tuple(map(int, group[field].shape))
        if len(shape) != 1 or (shape != shots and not field.endswith("waveform")):
            raise Unreadable(f"{path}: {beam}: {field} has shape {shape}; allowed: one axis, with an entry per shot")


def unplaced(path: str | os.PathLike[str], beam: str | None = None) -> list[str]:
    """Say which beams of a granule have no places on the earth for all their shots, and why: one line per reason."""
    found: dict[str, list[str]] = {}
    with open_hdf5(path) as file, damage_told(path):
        groups = own_groups(file)
        for name in (name for name in _names(groups) if beam in (None, name)):
            shots = own_datasets(groups[name])
            count = shots["rx_sample_count"].shape if "rx_sample_count" in shots else ()
            if len(count) != 1:  # whoever reads it is told so
                continue
            places = own_datasets(own_groups(groups[name]).get("geolocation", groups[name]))
            for field in _ENDS:
                if field not in places or places[field].shape != count:
                    shape = f"shape {tuple(places[field].shape)}" if field in places else "no such array"
                    found.setdefault(f"geolocation/{field}: {shape}; needed: an entry per shot", []).append(name)
                    break
    return [f"{', '.join(names)}: {why}" for why, names in found.items()]


def _read_part(beam: str, group: dict[str, Any], places: dict[str, Any], first: int, last: int, samples: int) -> Part:
    """Read shots of one beam, and leave out those that cannot be used."""
    rx, rx_count = _rows(group, "rx", first, last)
    tx, _ = _rows(group, "tx", first, last)

    def field(held: dict[str, Any], name: str) -> np.ndarray | None:
        fits = name in held and held[name].ndim == 1 and len(held[name]) >= last
        return np.asarray(held[name][first:last]) if fits else None

    noise = np.asarray(group["noise_mean_corrected"][first:last], dtype=np.float64)
    spread = next((one for name in _SPREAD if (one := field(group, name)) is not None), None)
    why = np.full(last - first, "", dtype=object)
    level = np.median(tx, axis=1, keepdims=True)
    why[(tx <= level).all(axis=1)] = FLAT
    why[~(np.isfinite(rx).all(axis=1) & np.isfinite(tx).all(axis=1) & np.isfinite(noise))] = BROKEN
    why[rx_count < samples] = SHORT
    kept = why == ""
    skipped = {str(reason): int((why == reason).sum()) for reason in sorted(set(why[~kept]))}
    longest = int(rx_count.max())
    if not kept.any():
        return Part(beam, None, last - first, skipped, longest)
    std = None if spread is None else spread[kept].astype(float)
    shots = gedi_shots(tx[kept], rx[kept], rx_count[kept], noise[kept], samples, std)
    about = {"beam": np.full(int(kept.sum()), beam), "record_length": rx_count[kept]}
    for name in ("shot_number", "delta_time"):
        found = field(group, name)
        found = field(places, name) if found is None else found
        if found is not None:
            about[name] = found[kept]
    ends = {name: field(places, name) for name in _ENDS}
    if all(found is not None for found in ends.values()):
        about |= {name: np.asarray(found, dtype=float)[kept] for name, found in ends.items()}
    return Part(beam, dataclasses.replace(shots, about=about), last - first, skipped, longest)


def join_shots(parts: list[Shots]) -> Shots:
    """Put shots together; pulses of different lengths get zeros, so that all have one origin."""
    origin = max(part.origin for part in parts)
    length = max(origin - part.origin + part.pulses.shape[1] for part in parts)
    pulses = []
    for part in parts:
        before = origin - part.origin
        pulses.append(np.pad(part.pulses, ((0, 0), (before, length - before - part.pulses.shape[1]))))
    held: dict[str, Any] = {}
    for name in ("waveforms", "background", "start", "noise"):
        values = [getattr(part, name) for part in parts]
        held[name] = None if any(value is None for value in values) else np.concatenate(values)
    abouts = [part.about or {} for part in parts]
    shared = set.intersection(*(set(about) for about in abouts))
    about = {name: np.concatenate([one[name] for one in abouts]) for name in abouts[0] if name in shared}
    return Shots(pulses=np.concatenate(pulses), origin=origin, about=about, **held)


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
