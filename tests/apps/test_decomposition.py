"""Waveforms into Gaussians: truth within its errors, SciPy's fits, noise alone, files, runs that are stopped."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import scipy.optimize
from click.testing import CliRunner
from nnls_cases import DATA

from stepwell.apps import decomposition
from stepwell.apps.decomposition import decompose, decompose_file, decomposition_table, simulate
from stepwell.apps.waveform import load_shots, save_shots
from stepwell.cli.group import main

GEDI = DATA / "gedi_l1b_150shots.npz"


@pytest.mark.parametrize("starts", ["peaks", "deconvolve"])
def test_returns_are_found_within_their_standard_errors(starts):
    made = simulate(60, seed=4)
    done = decompose(made.shots, starts=starts)
    assert (done.status > 0).all()
    right = done.count == 3
    assert right.mean() > 0.95
    for name in ("position", "amplitude", "width"):
        off = (getattr(done, name)[right, :3] - getattr(made, name)[right]) / getattr(done, f"{name}_se")[right, :3]
        # Of some 180 normal deviates the mean square is 1 ± 0.105: five of these.
        assert np.mean(off**2) == pytest.approx(1, abs=0.55), name
    assert np.median(done.residual) == pytest.approx(2, rel=0.05)


def test_a_shot_is_fitted_as_scipy_fits_it():
    made = simulate(5, seed=7)
    done = decompose(made.shots)
    times = np.arange(200.0)

    def curve(t, *p):
        a, m, s = np.reshape(p[:-1], (3, 3))
        return (a[:, None] * np.exp(-0.5 * ((t - m[:, None]) / s[:, None]) ** 2)).sum(axis=0) + p[-1]

    for shot in range(5):
        start = np.concatenate([made.amplitude[shot], made.position[shot], made.width[shot], [200.0]])
        popt, pcov = scipy.optimize.curve_fit(
            curve, times, made.shots.waveforms[shot], start, sigma=np.full(200, 2.0), ftol=1e-14, xtol=1e-14
        )
        error = np.sqrt(np.diag(pcov))
        ours = np.concatenate([done.amplitude[shot, :3], done.position[shot, :3], done.width[shot, :3]])
        assert np.all(np.abs(ours - popt[:-1]) < 1e-3 * error[:-1])
        assert done.background[shot] == pytest.approx(popt[-1], abs=1e-3 * error[-1])
        # Errors are by the noise of the file (2), or by what the fit leaves where that is less.
        left = np.sqrt(np.sum((curve(times, *popt) - made.shots.waveforms[shot]) ** 2) / (200 - 10))
        assert done.amplitude_se[shot, :3] == pytest.approx(error[:3] * min(2 / left, 1), rel=1e-3)
        assert np.allclose(done.fit[shot], curve(times, *popt), atol=1e-3)


def test_noise_alone_is_no_return():
    done = decompose(simulate(200, returns=0).shots)
    # The chance is 5 % per waveform at the most: 10 of 200, and four standard deviations.
    assert np.count_nonzero(done.count) <= 22
    empty = done.count == 0
    assert np.allclose(done.background[empty], done.shots.waveforms[empty].mean(axis=1))
    assert (done.status[empty] == 1).all()


def test_a_shot_that_is_not_finite_changes_no_other():
    shots = simulate(6).shots
    whole = decompose(shots)
    shots.waveforms[2, 5] = np.nan
    with_nan = decompose(shots)
    assert with_nan.count[2] == 0
    assert with_nan.status[2] == -5
    rest = np.arange(6) != 2
    assert np.array_equal(whole.position[rest], with_nan.position[rest], equal_nan=True)


def test_real_shots_leave_about_the_noise():
    if not GEDI.exists():
        pytest.skip(f"real GEDI shots are not at {GEDI} (set STEPWELL_DATA)")
    shots = load_shots(GEDI)
    done = decompose(shots.part(slice(0, 60)))
    assert (done.status > 0).all()
    assert (done.count >= 1).all()
    seen = done.shots.waveforms.max(axis=1) - shots.background[:60]
    # Pulses are not Gaussian: what is left is small beside the waveform, not as small as the noise.
    assert np.median(done.residual / seen) < 0.03


@pytest.fixture
def located():
    """Shots whose records run from 100 m down to 0 m in 201 samples."""
    shots = simulate(4, seed=2).shots
    ends = {"latitude": (10.0, 10.1), "longitude": (20.0, 20.0), "elevation": (100.0, 0.0)}
    about = {"record_length": np.full(4, 201), "shot_number": np.arange(4) + 7}
    for name, (top, bottom) in ends.items():
        about |= {f"{name}_bin0": np.full(4, top), f"{name}_lastbin": np.full(4, bottom)}
    object.__setattr__(shots, "about", about)
    return shots


def test_a_return_has_a_place_and_its_error(located):
    done = decompose(located)
    table = decomposition_table(done)
    assert table["number"][: done.count[0]].tolist() == list(range(done.count[0]))
    assert np.allclose(table["elevation"], 100 - 0.5 * table["sample"])
    assert np.allclose(table["elevation_se"], 0.5 * table["sample_se"])
    assert np.allclose(table["latitude"], 10 + 0.1 * table["sample"] / 200)
    assert np.allclose(table["energy"], np.sqrt(2 * np.pi) * table["amplitude"] * table["width"] / 0.5)
    assert table["rh98"][0] == pytest.approx(table["elevation"][: done.count[0]].max() - table["elevation"][:3].min())


def test_a_run_that_was_stopped_goes_on_with_the_same_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr("stepwell.apps.decomposition.run.PART", 5)
    save_shots(tmp_path / "shots.npz", simulate(13).shots)
    whole = decompose_file(tmp_path / "shots.npz", tmp_path / "whole")
    calls = []

    def stopping(*args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return decompose(*args, **kwargs)

    monkeypatch.setattr("stepwell.apps.decomposition.run.decompose", stopping)
    with pytest.raises(KeyboardInterrupt):
        decompose_file(tmp_path / "shots.npz", tmp_path / "parts")
    with pytest.raises(ValueError, match="unfinished run with other settings"):
        decompose_file(tmp_path / "shots.npz", tmp_path / "parts", most=3)
    run = decompose_file(tmp_path / "shots.npz", tmp_path / "parts")
    assert (run.resumed, run.done, run.converged) == (1, 13, 13)
    assert (tmp_path / "parts" / "returns.csv").read_text() == (tmp_path / "whole" / "returns.csv").read_text()
    assert run.returns == whole.returns
    with pytest.raises(ValueError, match="overwrite=True"):
        decompose_file(tmp_path / "shots.npz", tmp_path / "parts", most=3)
    assert decompose_file(tmp_path / "shots.npz", tmp_path / "parts", most=3, overwrite=True).done == 13


def test_a_granule_with_a_shot_that_is_too_short(tmp_path):
    h5py = pytest.importorskip("h5py")
    lengths = np.array([700, 300, 650])
    with h5py.File(tmp_path / "g.h5", "w") as file:
        group = file.create_group("BEAM0101")
        waves = [200 + 80 * np.exp(-0.5 * ((np.arange(n) - n // 2) / 6) ** 2) for n in lengths]
        noise = np.random.default_rng(0).normal(0, 1, lengths.sum())
        group["rxwaveform"] = np.concatenate(waves) + noise
        group["txwaveform"] = np.tile(210 + 900 * np.exp(-0.5 * ((np.arange(128) - 50) / 6) ** 2), 3)
        group["rx_sample_count"], group["tx_sample_count"] = lengths.astype("u2"), np.full(3, 128, "u2")
        group["rx_sample_start_index"] = (np.cumsum([0, *lengths[:-1]]) + 1).astype("u8")
        group["tx_sample_start_index"] = (128 * np.arange(3) + 1).astype("u8")
        group["noise_mean_corrected"], group["noise_stddev_corrected"] = np.full(3, 200.0), np.full(3, 1.0)
        group["shot_number"] = np.arange(3) + 11
    run = decompose_file(tmp_path / "g.h5", tmp_path / "out")
    assert (run.shots, run.done) == (3, 2)
    assert run.beams["BEAM0101"]["skipped"] == {"waveform shorter than the window": 1}
    with open(tmp_path / "out" / "returns.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["shot_number"] for row in rows] == ["11", "13"]
    assert [float(row["sample"]) for row in rows] == pytest.approx([350, 325], abs=0.5)


def invoke(*words):
    return CliRunner().invoke(main, ["decompose", *map(str, words)])


def test_the_command_makes_shots_and_takes_them_apart(tmp_path):
    run = invoke("--synthetic", 12, "-o", tmp_path / "out", "--json", tmp_path / "a.json")
    assert run.exit_code == 0, run.output
    held = json.loads((tmp_path / "a.json").read_text())["result"]
    assert held["errors"]["right_count"] > 0.9
    assert held["errors"]["position"] < 0.3
    assert (tmp_path / "out" / "shots.png").read_bytes()[:4] == b"\x89PNG"
    assert "against the truth" in run.stdout


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ([], 2, "give either FILE or --synthetic"),
        (["--synthetic", "3", "--beam", "BEAM0101"], 2, "are for GEDI granules"),
        (["--synthetic", "3", "--shots", "9"], 2, "--shots is '9'; allowed: integers from 0 to 2"),
        (["--synthetic", "3", "--most", "40"], 2, "--most"),
        (["shots.npz", "-o", "shots"], 1, "the file holds a; allowed: 'waveforms' and 'pulses'"),
    ],
)
def test_wrong_commands_are_named(tmp_path, monkeypatch, words, status, message):
    monkeypatch.chdir(tmp_path)
    np.savez("shots.npz", a=np.zeros(3))
    run = invoke(*words, *([] if "-o" in words else ["-o", "out"]))
    assert run.exit_code == status, run.output
    assert message in " ".join(run.output.split())


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="starts is 'peak'; allowed: 'peaks', 'deconvolve'"):
        decompose(simulate(1).shots, starts="peak")
    with pytest.raises(TypeError, match="shots is"):
        decompose(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="most is 0"):
        decompose(simulate(1).shots, most=0)
    assert set(decomposition.__all__) <= set(dir(decomposition))
