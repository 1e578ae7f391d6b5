"""`stepwell unmix`: a scene is made and unmixed, wrong calls are named, an interrupt says how to go on."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from unmixing_cases import scene_files

from stepwell.apps.images import open_image
from stepwell.cli.group import main

# ---- the command ----


def test_the_command_makes_a_scene_and_unmixes_it(tmp_path):
    words = ["unmix", "--synthetic", "24x20", "--bands", "60", "-o", str(tmp_path / "a"), "--json", "-"]
    outcome = CliRunner().invoke(main, words)
    assert outcome.exit_code == 0, outcome.output
    summary = json.loads(outcome.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert summary["settings"]["plan"]["upper"] is None
    assert summary["result"]["errors"]["vegetation"] < 0.02
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    truth = open_image(tmp_path / "a_truth.hdr").read(0, 20)
    found = open_image(tmp_path / "a.hdr").read(0, 20)[:, :, :5]
    assert np.abs(found - truth).mean(axis=(0, 1))[0] == pytest.approx(
        summary["result"]["errors"]["vegetation"], rel=1e-5
    )
    again = ["unmix", str(tmp_path / "a_scene.hdr"), str(tmp_path / "a_library.csv"), "-o", str(tmp_path / "b"),
             "--sum", "one", "--no-plots"]  # fmt: skip
    outcome = CliRunner().invoke(main, again)
    assert outcome.exit_code == 0, outcome.output
    assert "480 converged of 480 unmixed" in outcome.stdout
    np.testing.assert_allclose(open_image(tmp_path / "b.hdr").read(0, 20)[:, :, 6], 1, atol=1e-5)
    assert not (tmp_path / "b.png").exists()


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ([], 2, "give either IMAGE and LIBRARY or --synthetic"),
        (["scene.hdr"], 2, "give LIBRARY"),
        (["scene.hdr", "library.csv", "--draws", "3", "--subset", "2"], 2, "subset is 2"),
        (["scene.hdr", "library.csv", "--best"], 2, "best is True"),
        (["scene.hdr", "library.csv", "--lower", "2", "--upper", "1"], 2, "lower is 2.0"),
        (["scene.hdr", "broken.csv"], 1, "broken.csv: has no table"),
        (["scene.hdr", "library.csv", "--exclude", "0", "9999"], 1, "shares 0 good bands"),
        (["scene.hdr", "library.csv", "-o", "scene"], 2, "is the input"),
        (["--synthetic", "12", "-o", "x"], 2, "two sizes are needed"),
    ],
)
def test_wrong_commands_are_named(tmp_path, monkeypatch, words, status, message):
    monkeypatch.chdir(tmp_path)
    scene_files(tmp_path)
    (tmp_path / "broken.csv").write_text("a\n")
    outcome = CliRunner().invoke(main, ["unmix", *words, *([] if "-o" in words else ["-o", "out"])])
    assert outcome.exit_code == status, outcome.output
    assert message in outcome.output


def test_an_interrupt_says_how_to_go_on(tmp_path, monkeypatch):
    image, library = scene_files(tmp_path)

    def interrupted(*parts, **options):
        raise KeyboardInterrupt

    words = ["unmix", str(image), str(library), "-o", str(tmp_path / "a"), "--no-plots"]
    with monkeypatch.context() as patch:
        patch.setattr("stepwell.apps.unmixing.run.unmix_pixels", interrupted)
        outcome = CliRunner().invoke(main, words)
    assert outcome.exit_code == 130
    assert "give the same command again" in outcome.output
    assert CliRunner().invoke(main, words).exit_code == 0
