"""GEDI L1B granules as they are distributed: one array of samples, indices from 1, waveforms of different lengths."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner

from stepwell.apps import waveform
from stepwell.cli.group import main

h5py = pytest.importorskip("h5py")
gedi = pytest.importorskip("stepwell.apps.waveform.gedi")

LENGTHS = np.array([700, 650, 300, 701])


@pytest.fixture
def granule(tmp_path):
    """Two beams; the third shot of the second is shorter than the window."""
    rng = np.random.default_rng(0)
    path = tmp_path / "GEDI01_B.h5"
    held = {}
    with h5py.File(path, "w") as file:
        file.create_group("METADATA")
        for beam in ("BEAM0000", "BEAM0101"):
            received, sent = [], []
            for length in LENGTHS:
                times = np.arange(length)
                wave = 200 + 80 * np.exp(-0.5 * ((times - length // 2) / 6) ** 2) + rng.normal(0, 1, length)
                received.append(wave)
                sent.append(210 + 900 * np.exp(-0.5 * ((np.arange(128) - 50) / 6) ** 2))
            group = file.create_group(beam)
            group["rxwaveform"], group["txwaveform"] = np.concatenate(received), np.concatenate(sent)
            group["rx_sample_count"] = LENGTHS.astype("u2")
            group["rx_sample_start_index"] = (np.cumsum([0, *LENGTHS[:-1]]) + 1).astype("u8")  # from 1, as distributed
            group["tx_sample_count"] = np.full(4, 128, dtype="u2")
            group["tx_sample_start_index"] = (128 * np.arange(4) + 1).astype("u8")
            group["noise_mean_corrected"] = np.full(4, 200.0, dtype="f4")
            held[beam] = received
    return path, held


def test_windows_are_cut_from_the_right_samples(granule):
    path, held = granule
    shots = gedi.load_gedi(path, "BEAM0101")
    assert gedi.beams(path) == ["BEAM0000", "BEAM0101"]
    assert shots.waveforms.shape == (3, 512)  # the short one is left out
    for row, start, wave in zip(shots.waveforms, shots.start, (held["BEAM0101"][k] for k in (0, 1, 3))):
        assert np.array_equal(row, wave[start : start + 512])


def test_parts_of_a_beam(granule):
    path, held = granule
    (row,) = gedi.load_gedi(path, first=3, count=1).waveforms
    assert row.max() == held["BEAM0000"][3].max()
    with pytest.raises(ValueError, match="first is 9; allowed: 0 to 3"):
        gedi.load_gedi(path, first=9)
    with pytest.raises(ValueError, match="beam is 'BEAM0001'; allowed: BEAM0000, BEAM0101"):
        gedi.load_gedi(path, "BEAM0001")
    with pytest.raises(ValueError, match="the longest waveform of BEAM0000 has 701"):
        gedi.load_gedi(path, samples=2000)


def test_the_command_finds_the_surface(granule, tmp_path):
    path, _ = granule
    out = tmp_path / "returns.npz"
    run = CliRunner().invoke(main, ["deconvolve", str(path), "--beam", "BEAM0101", "--select", "0:2", "-o", str(out)])
    assert run.exit_code == 0, run.output
    with np.load(out) as held:
        assert held["amplitudes"].shape == (2, 512)
        for shot, length in enumerate(LENGTHS[:2]):
            mine = held["return_shot"] == shot
            largest = np.argmax(held["return_amplitude"][mine])
            arrival = held["return_time"][mine][largest] + held["window_start"][shot]
            assert abs(arrival - length // 2) <= 1.5


@pytest.mark.parametrize("damage", ["no hdf5", "no beam", "no samples", "beyond"])
def test_damaged_granules_are_told_in_a_line(granule, damage):
    path, _ = granule
    if damage == "no hdf5":
        path.write_bytes(b"not HDF5 at all")
    else:
        with h5py.File(path, "a") as file:
            if damage == "no beam":
                del file["BEAM0000"], file["BEAM0101"]
            elif damage == "no samples":
                del file["BEAM0000/rxwaveform"]
            else:
                file["BEAM0000/rx_sample_start_index"][3] = 10**6
    run = CliRunner().invoke(main, ["deconvolve", str(path), "-o", str(path.with_suffix(".npz"))])
    assert run.exit_code == 1
    assert len(run.stderr.strip().splitlines()) == 1
    assert path.name in run.stderr


def test_noise_leaves_few_false_returns():
    """Of 12 surfaces: two that overlap may be found as three; false returns are fewer than a fifth of all."""
    shots = waveform.synthetic_shots(60, seed=11)
    done = waveform.deconvolve(shots)
    least = waveform.noise_threshold(done)
    false = found = missed = 0
    for shot in range(60):
        times, _ = done.returns(shot, least[shot])
        near = np.abs(times[:, None] - np.flatnonzero(shots.truth[shot])[None]) <= 2
        found, false, missed = found + len(times), false + (~near.any(1)).sum(), missed + (~near.any(0)).sum()
    assert false < 0.2 * found
    assert missed < 0.05 * 60 * 12
