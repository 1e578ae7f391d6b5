"""Lidar deconvolution: synthetic truth is recovered, files and the command line work, the picture shows it."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner
from nnls_cases import DATA, certified

from stepwell.apps import waveform
from stepwell.cli.group import main


def test_without_noise_the_truth_comes_back():
    shots = waveform.synthetic_shots(4, samples=200, returns=5, noise=0.0, seed=1)
    done = waveform.deconvolve(shots)
    np.testing.assert_allclose(done.amplitudes, shots.truth, atol=1e-6)
    np.testing.assert_allclose(done.fit, shots.waveforms, atol=1e-8)
    times, sizes = done.returns(0, least=1.0)
    groups = waveform.find_returns(shots.truth[0])
    np.testing.assert_allclose(times, groups[0], atol=1e-6)
    np.testing.assert_allclose(sizes, groups[1], rtol=1e-6)


def test_with_noise_strong_returns_are_where_they_were():
    shots = waveform.synthetic_shots(20, returns=3, noise=1.0, seed=2)
    certified(shots.matrix(), shots.waveforms - shots.background[:, None])
    done = waveform.deconvolve(shots)
    for shot in range(20):
        times, _ = done.returns(shot, least=8.0)
        for at in np.flatnonzero(shots.truth[shot] > 50):
            assert np.abs(times - at).min() < 1.5


def test_pulses_are_as_wide_as_the_papers():
    shots = waveform.synthetic_shots(50)
    assert shots.waveforms.shape == (50, 432)
    widths = (shots.pulses > 0.02).sum(axis=1)
    assert widths.min() >= 15
    assert widths.max() <= 25
    same = waveform.synthetic_shots(50)
    np.testing.assert_array_equal(shots.waveforms, same.waveforms)
    assert not np.array_equal(shots.waveforms, waveform.synthetic_shots(50, seed=1).waveforms)


def test_files_are_read_back(tmp_path):
    shots = waveform.synthetic_shots(3, samples=100, returns=2)
    waveform.save_shots(tmp_path / "shots.npz", shots)
    again = waveform.load_shots(tmp_path / "shots.npz")
    for name in ("waveforms", "pulses", "background", "truth"):
        np.testing.assert_array_equal(getattr(again, name), getattr(shots, name))
    assert again.origin == shots.origin
    np.savez(tmp_path / "bare.npz", waveforms=shots.waveforms, pulses=shots.pulses[0])
    bare = waveform.load_shots(tmp_path / "bare.npz")
    assert bare.pulses.shape == (3, 25)
    assert not bare.background.any()
    np.savez(tmp_path / "other.npz", speed=1)
    with pytest.raises(ValueError, match=r"the file holds speed; allowed: 'waveforms' and 'pulses'"):
        waveform.load_shots(tmp_path / "other.npz")


def test_real_shots_are_the_toeplitz_systems_of_their_pulses():
    path = DATA / "gedi_l1b_150shots.npz"
    if not path.exists():
        pytest.skip(f"real GEDI shots are not at {path} (set STEPWELL_DATA)")
    from scipy.linalg import toeplitz

    shots = waveform.load_shots(path)
    with np.load(path) as file:
        tx = file["tx"][7].astype(float)
        tx = np.clip(tx - np.median(tx), 0, None)
        tx /= tx.max()
        peak = int(tx.argmax())
        column, row = np.zeros(512), np.zeros(512)
        column[: 128 - peak], row[: peak + 1] = tx[peak:], tx[peak::-1]
        dense = shots.part(slice(7, 8)).matrix().dense()[0]
        np.testing.assert_allclose(dense, toeplitz(column, row), atol=1e-15)
        assert shots.waveforms.shape == (150, 512)
        with pytest.raises(ValueError, match=r"samples is 5000; allowed: up to \d+, the valid samples of"):
            waveform.load_shots(path, samples=5000)
    done = waveform.deconvolve(shots)
    assert np.all(done.result.status == 0)
    assert 20 < done.result.positive.sum(axis=1).mean() < 60


def test_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match="samples is 30; allowed: an integer of at least 60"):
        waveform.synthetic_shots(1, samples=30)


def test_no_returns():
    times, sizes = waveform.find_returns(np.zeros(5))
    assert len(times) == len(sizes) == 0


def test_the_command_line(tmp_path):
    shots = waveform.synthetic_shots(6, samples=120, returns=3)
    shots.waveforms[2, 5] = np.nan
    waveform.save_shots(tmp_path / "in.npz", shots)
    arguments = ["deconvolve", str(tmp_path / "in.npz"), "-o", str(tmp_path / "out.npz")]
    run = CliRunner().invoke(main, [*arguments, "--plot", str(tmp_path / "out.png"), "--shots", "0,1"])
    assert run.exit_code == 0, run.output
    assert "converged" in run.output
    assert "non_finite" in run.output
    with np.load(tmp_path / "out.npz") as out:
        assert out["status"].tolist() == [0, 0, 4, 0, 0, 0]
        assert len(out["return_time"]) == len(out["return_shot"]) == len(out["return_amplitude"]) > 6
        np.testing.assert_allclose(out["fit"][0], shots.waveforms[0], atol=15)
    assert (tmp_path / "out.png").read_bytes()[:4] == b"\x89PNG"
    shots.waveforms[:, 5] = np.nan
    waveform.save_shots(tmp_path / "in.npz", shots)
    run = CliRunner().invoke(main, arguments)
    assert run.exit_code == 1
    assert "Error: none of 6 shots converged; shot 0: A or b holds NaN or infinity" in run.stderr
    with np.load(tmp_path / "out.npz") as out:
        assert out["status"].tolist() == [4] * 6
    run = CliRunner().invoke(main, ["deconvolve", "--synthetic", "3", "-o", str(tmp_path / "made.npz")])
    assert run.exit_code == 0
    assert "3" in run.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either FILE or --synthetic COUNT"),
        (["--synthetic", "2"], "give -o OUT.npz, --table OUT.csv, --plot OUT.png or --json, or several of them"),
        (
            ["--synthetic", "2", "-o", "x.npz", "--shots", "a"],
            "--shots is 'a'; allowed: integers from 0 to 1 with commas",
        ),
        (
            ["--synthetic", "2", "-o", "x.npz", "--lam", "-1"],
            "lam is -1.0; allowed: a finite number of at least 0",
        ),
        (["--synthetic", "2", "-o", "x.npz", "--least", "nan"], "--least is 'nan'; allowed: noise, or a number"),
        (["--synthetic", "2", "-o", "x.npz", "--seed", "-1"], "'--seed': -1 is not in the range"),
        (["gedi.npz", "-o", "x.npz", "--samples", "0"], "'--samples': 0 is not in the range"),
        (["--synthetic", "2", "-o", "/proc/x.npz"], "could not write"),
        (["array.npy", "-o", "x.npz"], "the file holds a single array"),
        (["complex.npz", "-o", "x.npz"], "waveforms has dtype complex128; allowed: real numbers"),
        (["origin.npz", "-o", "x.npz"], "origin is array(5); allowed: an integer from 0 to 4"),
        (["origins.npz", "-o", "x.npz"], "origin is array([1, 2]); allowed: an integer from 0 to 4"),
        (["truth.npz", "-o", "x.npz"], "truth has shape (3,); allowed: (4, 80)"),
        (["start.npz", "-o", "x.npz"], "start has shape (3,); allowed: (4,)"),
        (
            ["flat-tx.npz", "-o", "x.npz", "--samples", "9"],
            "tx is flat in shot 0; allowed: pulses that rise above their median",
        ),
        (
            ["few-rx.npz", "-o", "x.npz", "--samples", "9"],
            "rx has shape (1, 30); allowed: (2, longest), a row a pulse of tx",
        ),
        (
            ["few-means.npz", "-o", "x.npz", "--samples", "9"],
            "noise_mean has shape (1,); allowed: (2,), one a pulse of tx",
        ),
        (["count.npz", "-o", "x.npz", "--samples", "9"], "rx_count is array([31, 31]); allowed: integers up to 30"),
        (
            ["no-tx.npz", "-o", "x.npz", "--samples", "9"],
            "tx has shape (0, 9); allowed: (shots, length), at least one of each",
        ),
        (["--synthetic", "2", "-o", "x.npz", "--shots", "77"], "--shots is '77'; allowed: integers from 0 to 1"),
        (["--synthetic", "2", "-o", "none/x.npz"], "there is no folder 'none'"),
        (["--synthetic", "2", "--plot", "x.xyz"], "must end in .png or .pdf or .svg"),
        (["junk.npz", "-o", "x.npz"], "junk.npz: is not an npz file"),
        (["other.npz", "-o", "x.npz"], "the file holds a; allowed: 'waveforms' and 'pulses'"),
        (["flat.npz", "-o", "x.npz"], "waveforms has shape (80,); allowed: (shots, samples)"),
        (["none.npz", "-o", "x.npz"], "waveforms has shape (0, 80); allowed: (shots, samples)"),
        (["pulses.npz", "-o", "x.npz"], "pulses has shape (3, 5); allowed: (length,) or (4, length)"),
        (["dark.npz", "-o", "x.npz"], "pulses is zero throughout in shot 2; allowed"),
    ],
)
def test_the_command_line_complains(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "junk.npz").write_text("not arrays")
    dark = np.ones((4, 5))
    dark[2] = 0
    np.save(tmp_path / "array.npy", dark)
    given = {"waveforms": np.ones((4, 80)), "pulses": np.ones(5)}
    gedi = {"tx": np.eye(2, 9), "rx": np.ones((2, 30)), "rx_count": np.full(2, 30), "noise_mean": np.zeros(2)}
    for name, held in {
        "complex": given | {"waveforms": np.ones((4, 80)) * 1j},
        "origin": given | {"origin": 5},
        "origins": given | {"origin": [1, 2]},
        "truth": given | {"truth": np.ones(3)},
        "start": given | {"start": np.ones(3)},
        "gedi": gedi,
        "flat-tx": gedi | {"tx": np.ones((2, 9))},
        "few-rx": gedi | {"rx": np.ones((1, 30))},
        "few-means": gedi | {"noise_mean": np.zeros(1)},
        "count": gedi | {"rx_count": np.full(2, 31)},
        "no-tx": gedi | {"tx": np.ones((0, 9))},
        "other": {"a": np.ones(3)},
        "flat": {"waveforms": np.ones(80), "pulses": np.ones(5)},
        "none": {"waveforms": np.ones((0, 80)), "pulses": np.ones(5)},
        "pulses": {"waveforms": np.ones((4, 80)), "pulses": np.ones((3, 5))},
        "dark": {"waveforms": np.ones((4, 80)), "pulses": dark},
    }.items():
        np.savez(tmp_path / f"{name}.npz", **held)
    run = CliRunner().invoke(main, ["deconvolve", *arguments])
    assert run.exit_code not in (0, None)
    assert run.exception is None or isinstance(run.exception, SystemExit)
    assert message in " ".join(run.output.split())


def test_times_can_be_found_in_the_record():
    tx = np.zeros((2, 40))
    tx[:, 10:13] = [1, 3, 1]
    rx = np.zeros((2, 300))
    rx[0, 200:203], rx[1, 50:53] = [1, 3, 1], [2, 6, 2]
    shots = waveform.gedi_shots(tx, rx, np.array([300, 280]), np.zeros(2), samples=100)
    done = waveform.deconvolve(shots)
    for shot, (at, size) in enumerate(((201, 3.0), (51, 6.0))):
        times, sizes = done.returns(shot)
        np.testing.assert_allclose(times + shots.start[shot], at, atol=1e-9)
        np.testing.assert_allclose(sizes, size)
    assert len(done.returns(0, least=4.0)[0]) == 0


def test_the_legend_has_what_any_shot_shows():
    from stepwell.apps.waveform.plots import plot_shots

    shots = waveform.synthetic_shots(2, samples=100, returns=2)
    shots.waveforms[1, 3] = np.nan
    figure = plot_shots(waveform.deconvolve(shots), shots=[0, 1])
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {"received", "fit", "truth", "returns"}
    assert "NaN" in figure.axes[1].get_title()


def test_the_picture_counts_the_returns_that_the_file_holds():
    from stepwell.apps.waveform.plots import plot_shots

    done = waveform.deconvolve(waveform.synthetic_shots(1, returns=4, noise=1.0))
    for least in (0.0, 8.0, 1e9):
        title = plot_shots(done, least=least).axes[0].get_title()
        assert title.startswith(f"shot 0: {len(done.returns(0, least)[0])} returns")


def test_a_file_has_the_very_name_it_was_given(tmp_path):
    shots = waveform.synthetic_shots(2, samples=100, returns=2)
    waveform.save_shots(tmp_path / "shots", shots)
    assert [path.name for path in tmp_path.iterdir()] == ["shots"]
    np.testing.assert_array_equal(waveform.load_shots(tmp_path / "shots").waveforms, shots.waveforms)
