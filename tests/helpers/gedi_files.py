"""A GEDI granule of level 1B and its level 2A, as NASA distributes them, of simulated shots with known surfaces."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stepwell.apps import waveform

#: Metres of one sample; samples of a record; the first sample of the part that holds surfaces.
STEP, RECORD, FIRST = 0.15, 600, 100
#: Shots of each beam; of level 2A, the fifth one of each ten is of bad quality.
BEAMS, SHOTS = ("BEAM0101", "BEAM1000"), 20


def write_pair(folder: Path) -> tuple[Path, Path]:
    """Write both files; level 2A has the shots in another order, and one that level 1B has not."""
    import h5py

    time = "2019108080338_O01964"
    level1, level2 = folder / f"GEDI01_B_{time}_T05337_02_003_01.h5", folder / f"GEDI02_A_{time}_T05337_02_001_01.h5"
    with h5py.File(level1, "w") as waves, h5py.File(level2, "w") as heights:
        for place, beam in enumerate(BEAMS):
            _write_beam(waves.create_group(beam), heights.create_group(beam), place)
    return level1, level2


def _write_beam(waves, heights, place: int) -> None:
    rng = np.random.default_rng(place)
    shots = waveform.synthetic_shots(SHOTS, samples=400, returns=3, noise=0.0, background=0.0, seed=place)
    numbers = 19640000000000000 + 1000 * place + np.arange(SHOTS, dtype="u8")
    received = rng.normal(200.0, 1.0, (SHOTS, RECORD))
    received[:, FIRST : FIRST + 400] += shots.waveforms
    sent = np.full((SHOTS, 128), 210.0)
    sent[:, 40 : 40 + shots.pulses.shape[1]] += 900 * shots.pulses
    top = 500.0 + 10 * rng.random(SHOTS)
    for name, values in (("rx", received), ("tx", sent)):
        waves[f"{name}waveform"] = values.ravel().astype("f4")
        waves[f"{name}_sample_count"] = np.full(SHOTS, values.shape[1], dtype="u2")
        waves[f"{name}_sample_start_index"] = (values.shape[1] * np.arange(SHOTS) + 1).astype("u8")
    waves["noise_mean_corrected"] = np.full(SHOTS, 200.0, dtype="f4")
    waves["noise_stddev_corrected"] = np.full(SHOTS, 1.0, dtype="f4")
    waves["shot_number"], waves["delta_time"] = numbers, 40_000_000.0 + 0.004 * np.arange(SHOTS)
    where = waves.create_group("geolocation")
    for end, drop in (("bin0", 0.0), ("lastbin", STEP * (RECORD - 1))):
        where[f"latitude_{end}"], where[f"longitude_{end}"] = np.full(SHOTS, 10.0), np.full(SHOTS, -60.0)
        where[f"elevation_{end}"] = top - drop

    surfaces = [(top[k] - STEP * (FIRST + np.flatnonzero(one)), one[one > 0]) for k, one in enumerate(shots.truth)]
    columns = {
        "shot_number": numbers,
        "lat_lowestmode": np.full(SHOTS, 10.0),
        "lon_lowestmode": np.full(SHOTS, -60.0),
        "elev_lowestmode": np.array([places.min() for places, _ in surfaces]),
        "elev_highestreturn": np.array([places.max() for places, _ in surfaces]),
        "num_detectedmodes": np.full(SHOTS, 3, dtype="u1"),
        "quality_flag": (np.arange(SHOTS) % 10 != 4).astype("u1"),
        "rh": np.array([waveform.relative_heights(*one, range(101)) for one in surfaces], dtype="f4"),
    }
    columns["elev_lowestmode"][columns["quality_flag"] == 0] = -9999.0
    order = rng.permutation(SHOTS)
    for name, values in columns.items():
        extra = np.zeros_like(values[:1]) if name == "shot_number" else values[:1]
        heights[name] = np.concatenate([values[order], extra])
