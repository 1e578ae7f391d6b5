"""`stepwell reconstruct --tv`: edges better than by Tikhonov, a gap per slice, and runs that go on where they were."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

import stepwell
from stepwell.apps import tomography
from stepwell.apps.tomography import variation
from stepwell.cli.group import main

PHANTOM = ["reconstruct", "--size", "24", "--angles", "20", "--slices", "8:14", "--nonnegative", "--no-plots"]


def run(*arguments):
    return CliRunner().invoke(main, [*PHANTOM, *map(str, arguments)], catch_exceptions=False)


def test_slices_are_those_of_tv_and_better_than_by_tikhonov(tmp_path):
    done = run("--tv", "-o", tmp_path)
    assert done.exit_code == 0, done.output
    assert "6 of 6 slices" in done.output
    volume = np.load(tmp_path / "volume.npy")
    truth = tomography.shepp_logan_3d(24)[8:14]
    A = tomography.parallel_beam(24, angles=np.arange(20) * 9.0)
    B = tomography.add_noise(A @ truth.reshape(6, -1).T, 0.01)
    sigma = 0.01 * np.linalg.norm(B, axis=0) / np.sqrt(B.shape[0])
    found = stepwell.tv(A, B, "noise", noise=sigma, shape=(24, 24), bounds=(0, None))
    np.testing.assert_array_equal(volume, found.x.T.reshape(volume.shape))
    told = json.loads((tmp_path / "reconstruct.json").read_text())["result"]
    assert len(told["gap"]) == 6
    assert max(told["gap"]) <= variation.TOL
    assert volume.min() >= 0
    assert not (tmp_path / variation.FOLDER).exists()
    assert run("--lam", "0.1", "-o", tmp_path / "smooth").exit_code == 0
    smooth = np.load(tmp_path / "smooth" / "volume.npy")
    assert tomography.signal_to_noise(volume, truth) > tomography.signal_to_noise(smooth, truth)


def test_a_stopped_run_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(variation, "BLOCK", 2)
    whole = run("--tv", "-o", tmp_path / "whole")
    assert whole.exit_code == 0, whole.output

    seen = []

    def watch(self, told):
        seen.append(self.before)
        return self.before == 4

    monkeypatch.setattr(variation.Watch, "__call__", watch)
    stopped = run("--tv", "-o", tmp_path / "out")
    assert stopped.exit_code == 130
    assert not (tmp_path / "out" / "volume.npy").exists()
    other = run("--tv", "--tol", "1e-2", "-o", tmp_path / "out")
    assert other.exit_code == 1
    assert "other settings" in other.output
    monkeypatch.setattr(variation.Watch, "__call__", lambda self, told: seen.append(self.before))
    seen.clear()
    resumed = run("--tv", "-o", tmp_path / "out")
    assert resumed.exit_code == 0, resumed.output
    assert set(seen) == {4}
    assert "4 slices" in resumed.output
    both = [np.load(tmp_path / name / "volume.npy") for name in ("whole", "out")]
    np.testing.assert_array_equal(*both)


def test_slices_can_be_coupled(tmp_path):
    done = run("--tv", "--across", "0.5", "--lam", "0.1", "-o", tmp_path)
    assert done.exit_code == 0, done.output
    gaps = json.loads((tmp_path / "reconstruct.json").read_text())["result"]["gap"]
    assert len(set(gaps)) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--across", "1"], "--tv"),
        (["--restart"], "--tv"),
        (["--tv", "--smooth"], "--smooth"),
        (["--tv", "--method", "cgls"], "--method"),
        (["--tv", "--lam", "gcv"], "noise, discrepancy"),
        (["--tv", "--across", "-1"], "--across"),
    ],
)
def test_options_that_do_not_go_together_are_refused(tmp_path, given, said):
    done = run(*given, "-o", tmp_path / "out")
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())
    assert not (tmp_path / "out").exists()
