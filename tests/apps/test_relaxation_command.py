"""`stepwell relax`: phantoms are made and mapped, points are read from where they lie, wrong calls are named."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from stepwell.apps.relaxation import simulate
from stepwell.cli.group import main


def invoke(*words):
    return CliRunner().invoke(main, ["relax", *map(str, words)])


@pytest.mark.parametrize("quantity", ["t2star", "t1", "ivim"])
def test_the_command_makes_a_phantom_and_maps_it(tmp_path, quantity):
    pytest.importorskip("nibabel")
    out = tmp_path / "out"
    run = invoke(quantity, "--synthetic", "12x12x2", "-o", out, "--json", tmp_path / "a.json")
    assert run.exit_code == 0, run.output
    assert (out / "maps.png").read_bytes()[:4] == b"\x89PNG"
    held = json.loads((tmp_path / "a.json").read_text())["result"]
    assert held["converged"] == held["fitted"] > 0
    assert max(value for name, value in held["errors"].items() if name != "Dstar") < 0.06
    assert (out / "status.nii.gz").exists()
    assert "at a bound" in run.stdout


def test_points_from_a_file_or_from_the_command_line(tmp_path):
    phantom = simulate("adc", (4, 4, 1))
    np.save(tmp_path / "dwi.npy", phantom.signal)
    (tmp_path / "b.txt").write_text("\n".join(map(str, phantom.model.points)))
    listed = ",".join(map(str, phantom.model.points))
    for k, points in enumerate((tmp_path / "b.txt", listed)):
        run = invoke("adc", tmp_path / "dwi.npy", "--bvals", points, "-o", tmp_path / f"out{k}", "--no-plots")
        assert run.exit_code == 0, run.output
    first, second = (np.load(tmp_path / f"out{k}" / "ADC.npy") for k in (0, 1))
    assert np.array_equal(first, second, equal_nan=True)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["t2"], 2, "give either IMAGES or --synthetic"),
        (["t4", "image.npy"], 2, "'t4' is not one of"),
        (["t2", "image.npy"], 1, "points is None; allowed: the echo times in s"),
        (["t2", "image.npy", "--bvals", "0,100"], 2, "--bvals is for adc and ivim"),
        (["t2", "image.npy", "--te", "a,b"], 2, "neither numbers with commas between nor a file"),
        (["t2", "image.npy", "--te", "10,20,30"], 2, "did you mean 0.03?"),
        (["t2", "image.npy", "--te", "0.01,0.02"], 1, "allowed: 16, one per image"),
        (["t2", "image.npy", "--bounds", "T1", "0", "1"], 2, "bounds is 'T1'"),
        (["t2", "flat.npy", "--te", "0.01,0.02"], 1, "flat.npy: has shape (3, 4); allowed: four axes"),
        (["t2", "dark.npy", "--te", "0.01,0.02", "--no-plots"], 1, "there is no voxel to fit"),
        (["t2", "--synthetic", "3xx"], 2, "'3xx' is not WIDTHxHEIGHT"),
        (["t1-vfa", "dark.npy", "--flip", "3,9"], 1, "tr is None"),
    ],
)
def test_wrong_commands_are_named(tmp_path, monkeypatch, words, status, message):
    monkeypatch.chdir(tmp_path)
    np.save("image.npy", simulate("t2", (3, 3, 1)).signal)
    np.save("flat.npy", np.ones((3, 4)))
    np.save("dark.npy", np.zeros((2, 2, 2, 2)))
    run = invoke(*words, "-o", "out")
    assert run.exit_code == status, run.output
    assert message in " ".join(run.output.split())
