"""`stepwell t2map`: a phantom is made and mapped, wrong calls are named, packages are asked for before work."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from t2_cases import phantom_file

from stepwell.cli.group import main

# ---- the command ----


def test_the_command_makes_a_phantom_and_maps_it(tmp_path):
    pytest.importorskip("nibabel")
    out = tmp_path / "out"
    words = ["t2map", "--synthetic", "16x16x2", "--myelin", "0.01", "0.04", "-o", str(out),
             "--angles", "120", "180", "31", "--json", str(tmp_path / "a.json")]  # fmt: skip
    outcome = CliRunner().invoke(main, words)
    assert outcome.exit_code == 0, outcome.output
    assert "myelin water fraction" in outcome.stdout
    assert (out / "maps.png").read_bytes()[:4] == b"\x89PNG"
    errors = json.loads((tmp_path / "a.json").read_text())["result"]["errors"]
    assert errors["sfr"] < 0.05
    assert errors["alpha"] < 4
    nibabel = pytest.importorskip("nibabel")
    truth = np.asarray(nibabel.load(out / "truth_sfr.nii.gz").dataobj)
    found = np.asarray(nibabel.load(out / "sfr.nii.gz").dataobj)
    assert np.nanmean(np.abs(found - truth)) == pytest.approx(errors["sfr"], rel=1e-5)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--te", "0.01"], 2, "give either IMAGE or --synthetic"),
        (["image.npy"], 2, "give --te"),
        (["image.npy", "--te", "0.01", "--lam", "chi3"], 2, "did you mean 'chi2'"),
        (["image.npy", "--te", "0.01", "--lam", "discrepancy"], 2, "noise is None"),
        (["image.npy", "--te", "0.01", "--t2", "2", "1"], 2, "t2 is"),
        (["image.npy", "--te", "0.01", "--flip", "170", "--b1", "image.npy"], 2, "none beside --flip"),
        (["flat.npy", "--te", "0.01", "--lam", "0"], 1, "flat.npy: has shape (3, 4); allowed: four axes"),
        (["dark.npy", "--te", "0.01", "--lam", "0", "--no-plots"], 1, "there is no voxel to fit"),
        (["--synthetic", "3xx", "-o", "out"], 2, "'3xx' is not WIDTHxHEIGHT"),
    ],
)
def test_wrong_commands_are_named(tmp_path, monkeypatch, words, status, message):
    monkeypatch.chdir(tmp_path)
    phantom_file(tmp_path, (3, 3, 1))
    np.save("flat.npy", np.ones((3, 4)))
    np.save("dark.npy", np.zeros((2, 2, 2, 8)))
    outcome = CliRunner().invoke(main, ["t2map", *words, *([] if "-o" in words else ["-o", "out"])])
    assert outcome.exit_code == status, outcome.output
    assert message in outcome.output


def test_packages_are_asked_for_before_work(tmp_path, monkeypatch):
    (tmp_path / "image.nii").write_bytes(b"")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    base = ["t2map", str(tmp_path / "image.nii"), "--te", "0.01", "-o", str(tmp_path / "out")]
    outcome = CliRunner().invoke(main, base)
    assert outcome.exit_code == 2
    assert "pip install 'stepwell[nifti]'" in outcome.output
    assert not (tmp_path / "out").exists()


def test_without_matplotlib_the_work_is_done_and_a_line_says_what_is_missing(tmp_path, monkeypatch):
    phantom_file(tmp_path, (3, 3, 1))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    words = ["t2map", str(tmp_path / "image.npy"), "--te", "0.01", "--flip", "150", "--lam", "0.02"]
    outcome = CliRunner().invoke(main, [*words, "-o", str(tmp_path / "out")])
    assert outcome.exit_code == 0, outcome.output
    (line,) = outcome.stderr.splitlines()
    assert line == "note: no picture is drawn, which needs matplotlib: pip install 'stepwell[plot]'"
    assert (tmp_path / "out" / "mwf.npy").exists()
    assert not (tmp_path / "out" / "maps.png").exists()
