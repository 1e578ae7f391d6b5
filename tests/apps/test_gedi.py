"""GEDI L1B granules as they are distributed: one array of samples, indices from 1, waveforms of different lengths."""

from __future__ import annotations

import csv
import dataclasses
import json
import struct

import gedi_files
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
            group["noise_stddev_corrected"] = np.full(4, 1.0, dtype="f4")
            group["shot_number"] = 19640000000000000 + np.arange(4, dtype="u8") + 1000 * (beam == "BEAM0101")
            group["delta_time"] = 40_000_000.0 + 0.004 * np.arange(4)
            place = group.create_group("geolocation")
            for name, top, step in (
                ("latitude", 10.0, 0.001),
                ("longitude", 179.9999, 0.0002),
                ("elevation", 500.0, 0),
            ):
                place[f"{name}_bin0"] = top + np.zeros(4)
                low = top - 0.15 * (LENGTHS - 1) if name == "elevation" else np.full(4, top + step)
                place[f"{name}_lastbin"] = (low + 180) % 360 - 180 if name == "longitude" else low
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
    both = gedi.load_gedi(path, first=3, count=1)  # of each beam
    assert both.about["beam"].tolist() == ["BEAM0000", "BEAM0101"]
    for row, beam in zip(both.waveforms, ("BEAM0000", "BEAM0101")):
        assert row.max() == held[beam][3].max()
    with pytest.raises(ValueError, match="first is 9; allowed: the number of a shot that some beam has"):
        gedi.load_gedi(path, first=9)
    with pytest.raises(ValueError, match="first is 9; allowed: 0 to 3"):
        gedi.load_gedi(path, "BEAM0101", first=9)
    with pytest.raises(ValueError, match="beam is 'BEAM0001'; allowed: BEAM0000, BEAM0101"):
        gedi.load_gedi(path, "BEAM0001")
    with pytest.raises(ValueError, match="the longest waveform of BEAM0000 has 701 samples; allowed: at most so many"):
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


def test_all_beams_are_done_and_the_account_says_so(granule, tmp_path):
    path, _ = granule
    with h5py.File(path, "a") as file:
        file["BEAM0101/txwaveform"][128:256] = 210.0  # the second pulse of this beam is flat
    out, said = tmp_path / "returns.npz", tmp_path / "said.json"
    run = CliRunner().invoke(main, ["deconvolve", str(path), "-o", str(out), "--json", str(said)])
    assert run.exit_code == 0, run.output
    assert "BEAM0000: 3 of 4 shots done (1 skipped: waveform shorter than the window)" in run.stdout
    beams = json.loads(said.read_text())["result"]["beams"]
    assert [(one["beam"], one["shots"], one["done"]) for one in beams] == [("BEAM0000", 4, 3), ("BEAM0101", 4, 2)]
    assert beams[1]["skipped"] == {"flat pulse": 1, "waveform shorter than the window": 1}
    with np.load(out) as held:
        assert held["amplitudes"].shape == (5, 512)


def test_one_table_says_where_returns_lie(granule, tmp_path):
    """The one surface of each shot lies in the middle of its record; its elevation follows from 0.15 m a sample."""
    path, _ = granule
    table = tmp_path / "returns.csv"
    run = CliRunner().invoke(main, ["deconvolve", str(path), "--table", str(table)])
    assert run.exit_code == 0, run.output
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6  # one return a shot: noise is none
    for row, length in zip(rows, [*LENGTHS[[0, 1, 3]]] * 2):
        middle = length // 2
        assert abs(float(row["elevation"]) - (500 - 0.15 * middle)) < 0.15
        share = middle / (length - 1)
        assert abs(float(row["latitude"]) - (10 + 0.001 * share)) < 1e-5
        turned = (179.9999 + 0.0002 * share + 180) % 360 - 180
        assert abs((float(row["longitude"]) - turned + 180) % 360 - 180) < 1e-6
        assert row["time"].startswith("2019-04-08T23:06:40.0")  # 40,000,000 s after the beginning of 2018
        assert float(row["rh98"]) == 0
        assert abs(float(row["amplitude"]) - 80) < 4
    assert [row["beam"] for row in rows] == ["BEAM0000"] * 3 + ["BEAM0101"] * 3
    assert rows[3]["shot_number"] == "19640000000001000"


def test_a_geopackage_has_the_same_points(granule, tmp_path):
    pyogrio = pytest.importorskip("pyogrio")
    path, _ = granule
    words = ["--table", str(tmp_path / "a.gpkg"), "--table", str(tmp_path / "a.csv")]
    run = CliRunner().invoke(main, ["deconvolve", str(path), *words])
    assert run.exit_code == 0, run.output
    meta, _, geometry, fields = pyogrio.raw.read(tmp_path / "a.gpkg")
    held = dict(zip(meta["fields"], fields))
    assert meta["crs"] == "EPSG:4326"
    with (tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert held["shot_number"].tolist() == [int(row["shot_number"]) for row in rows]
    for one, row in zip(geometry, rows):
        east, north = struct.unpack("<dd", bytes(one)[-16:])
        assert (east, north) == (float(row["longitude"]), float(row["latitude"]))


def test_noise_alone_is_no_return_and_surfaces_are():
    """Waveforms of noise alone: at a level of 5 % few have a return. With surfaces of ten errors all are found."""
    rng = np.random.default_rng(5)
    pulse = np.exp(-0.5 * ((np.arange(41) - 20) / 6) ** 2)
    count, samples, sigma = 60, 512, 3.0
    truth = np.zeros((count, samples))
    truth[30:, 150], truth[30:, 330] = 60.0, 30.0  # errors of an isolated return are 3/||pulse|| = 0.92
    shots = waveform.Shots(np.zeros((count, samples)), np.tile(pulse, (count, 1)), 20, np.zeros(count),
                           noise=np.full(count, sigma))  # fmt: skip
    noisy = waveform.convolve(shots, truth) + sigma * rng.normal(size=(count, samples))
    shots = dataclasses.replace(shots, waveforms=noisy)
    done = waveform.significant_returns(waveform.deconvolve(shots))
    found = [done.returns(shot)[0] for shot in range(count)]
    assert sum(len(times) > 0 for times in found[:30]) <= 7  # the chance of more is 1e-4 at 5 %
    for times in found[30:]:
        assert all(np.abs(times - at).min() < 2 for at in (150, 330))
    assert np.mean([len(times) for times in found[30:]]) < 2.5
    left = np.sqrt(np.mean((noisy - done.fit) ** 2))
    assert 0.95 * sigma < left < 1.1 * sigma  # the noise is left as noise


def without_places(path, beam, field, instead=None):
    with h5py.File(path, "r+") as file:
        del file[f"{beam}/geolocation/{field}"]
        if instead is not None:
            file[f"{beam}/geolocation/{field}"] = instead


@pytest.mark.parametrize("instead", [None, np.zeros((2, 2)), np.zeros(3)])
def test_missing_places_are_said_and_refused_before_work(granule, tmp_path, monkeypatch, instead):
    path, _ = granule
    without_places(path, "BEAM0101", "elevation_lastbin", instead)
    table = tmp_path / "returns.csv"
    run = CliRunner().invoke(main, ["deconvolve", str(path), "--table", str(table)])
    assert run.exit_code == 0, run.output
    assert "note: the table has no positions: BEAM0101: geolocation/elevation_lastbin" in run.stderr
    with open(table, newline="") as file:
        assert "latitude" not in csv.DictReader(file).fieldnames
    pytest.importorskip("pyogrio")
    monkeypatch.setattr(waveform, "deconvolve", lambda *_, **__: pytest.fail("work was done"))
    for words in (
        ["deconvolve", str(path), "--table", str(tmp_path / "returns.gpkg")],
        ["decompose", str(path), "-o", str(tmp_path / "out"), "--geopackage"],
    ):
        refused = CliRunner().invoke(main, words)
        assert refused.exit_code == 1
        assert "BEAM0101: geolocation/elevation_lastbin" in refused.stderr.splitlines()[-1]
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("field", ["rx_sample_count", "tx_sample_start_index", "noise_mean_corrected", "rxwaveform"])
def test_fields_of_another_shape_are_named(granule, tmp_path, field):
    path, _ = granule
    with h5py.File(path, "r+") as file:
        held = file[f"BEAM0101/{field}"][()]
        del file[f"BEAM0101/{field}"]
        file[f"BEAM0101/{field}"] = held.reshape(1, -1)
    for words in (["deconvolve", "--table", str(tmp_path / "a.csv")], ["decompose", "-o", str(tmp_path / "out")]):
        told = CliRunner().invoke(main, [words[0], str(path), *words[1:]])
        assert told.exit_code == 1
        assert len(told.stderr.splitlines()) == 1
        assert "BEAM0101" in told.stderr
        assert "has shape" in told.stderr


def test_the_published_table_is_read_by_shot(tmp_path):
    _, path = gedi_files.write_pair(tmp_path)
    found = waveform.load_gedi_l2a(path)
    assert found["beam"].tolist() == [beam for beam in gedi_files.BEAMS for _ in range(gedi_files.SHOTS + 1)]
    one = waveform.load_gedi_l2a(path, "BEAM1000")
    assert one["rh"].shape == (gedi_files.SHOTS + 1, 101)
    assert np.array_equal(one["shot_number"], found["shot_number"][gedi_files.SHOTS + 1 :])
    with h5py.File(path) as file:
        for name in ("elev_lowestmode", "quality_flag", "rh"):
            assert np.array_equal(one[name], file["BEAM1000"][name])
    with pytest.raises(ValueError, match=r"beam is 'BEAM1001'; allowed: BEAM0101, BEAM1000; did you mean"):
        waveform.load_gedi_l2a(path, "BEAM1001")


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("rh", None, "BEAM0101 has no rh; is it a GEDI L2A granule"),
        ("rh", np.zeros((21, 100)), r"rh has shape \(21, 100\); allowed: \(21, 101\)"),
        ("quality_flag", np.zeros(5), r"quality_flag has shape \(5,\); allowed: \(21,\)"),
        ("shot_number", np.zeros((21, 1)), "shot_number has shape"),
    ],
)
def test_other_tables_are_refused(tmp_path, name, values, words):
    level1, path = gedi_files.write_pair(tmp_path)
    with h5py.File(path, "a") as file:
        del file["BEAM0101"][name]
        if values is not None:
            file["BEAM0101"][name] = values
    with pytest.raises(ValueError, match=words):
        waveform.load_gedi_l2a(path)
    with pytest.raises(ValueError, match="is it a GEDI L2A granule"):
        waveform.load_gedi_l2a(level1)
