"""`stepwell t2map` with real files: units, sidecars, masks in their space, orientations, regions, finished folders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from t2_cases import KNOWN, TE

from stepwell.apps import t2
from stepwell.apps.t2.sidecar import Sidecar, read_sidecar, settle_spacing
from stepwell.cli.group import main
from stepwell.common.files import Unreadable

nibabel = pytest.importorskip("nibabel")
FAST = ["--flip", "150", "--lam", "0.02", "--no-plots"]
PHANTOM = t2.simulate((4, 3, 2), echoes=16, te=TE)


def write(path, array, affine=None):
    nibabel.save(nibabel.Nifti1Image(np.asarray(array), np.diag([2.0, 2, 5, 1]) if affine is None else affine), path)
    return path


def invoke(*words):
    return CliRunner().invoke(main, ["t2map", *(str(word) for word in words)])


@pytest.mark.parametrize(("words", "meant"), [
    (["--te", "7"], "te is 7.0; allowed: seconds, at most 0.5; did you mean 0.007?"),
    (["--te", "0.6"], "did you mean 0.0006?"),
    (["--te", "0.01", "--t1", "1000"], "t1 is 1000.0; allowed: seconds, at most 30; did you mean 1?"),
    (["--te", "0.01", "--t2", "10", "2000"], "t2 is 10.0; allowed: seconds, at most 5; did you mean 0.01?"),
])  # fmt: skip
def test_milliseconds_are_refused_with_what_was_meant(tmp_path, words, meant):
    image = write(tmp_path / "a.nii.gz", PHANTOM.signal)
    run = invoke(image, *words, "-o", tmp_path / "out", "--no-plots")
    assert run.exit_code == 2
    assert meant in " ".join(run.stderr.split())
    assert not (tmp_path / "out").exists()


def test_the_echo_time_of_a_sidecar_is_taken_and_said(tmp_path):
    image = write(tmp_path / "sub-01_MESE.nii.gz", PHANTOM.signal)
    (tmp_path / "sub-01_MESE.json").write_text(json.dumps({"EchoTime": TE, "RepetitionTime": 1.5}))
    run = invoke(image, "-o", tmp_path / "out", *FAST)
    assert run.exit_code == 0, run.output
    assert "note: te is 0.01 s, the EchoTime of sub-01_MESE.json" in run.stderr
    given = invoke(image, "--te", TE, "-o", tmp_path / "given", *FAST)
    assert given.exit_code == 0, given.output
    for name in ("sfr", "mwf", "gdn"):
        both = [np.asarray(nibabel.load(tmp_path / where / f"{name}.nii.gz").dataobj) for where in ("out", "given")]
        np.testing.assert_array_equal(*both)
    other = invoke(image, "--te", 0.012, "-o", tmp_path / "other", *FAST)
    assert other.exit_code == 1
    assert "EchoTime is 0.01 s, and te is 0.012 s" in " ".join(other.stderr.split())
    assert not (tmp_path / "other").exists()
    assert invoke(image, "--te", 0.012, "--no-sidecar", "-o", tmp_path / "other", *FAST).exit_code == 0


@pytest.mark.parametrize(
    ("held", "te", "message"),
    [
        ({"EchoTime": 10}, None, "EchoTime is 10; allowed: seconds, at most 0.5 .did it mean 0.01"),
        ({"EchoTime": [0.01, 0.02, 0.04]}, None, "3 echoes; allowed: 16 of them, evenly spaced"),
        ({"EchoTime": [0.01 * k for k in range(1, 17)]}, 0.02, "evenly spaced by te = 0.02"),
        ({"EchoTime": 0.01, "RepetitionTime": 0.1}, None, "16 echoes of te = 0.01 s take 0.16 s"),
        ({"EchoTime": 0.01, "RepetitionTime": 1500}, None, "allowed: seconds, at most 60 .did it mean 1.5"),
        ({"EchoTime": "10 ms"}, None, "EchoTime is 10 ms; allowed: seconds"),
        ({"EchoTime": []}, None, r"EchoTime is \[\]"),
        ({"RepetitionTime": -1}, 0.01, "RepetitionTime is -1"),
        ({"EchoTime": True}, None, "EchoTime is True"),
    ],
)
def test_contradictions_of_a_sidecar_are_named(tmp_path, held, te, message):
    image = tmp_path / "a.nii.gz"
    image.write_bytes(b"")
    (tmp_path / "a.json").write_text(json.dumps(held))
    with pytest.raises(Unreadable, match=message):
        settle_spacing(te, 16, read_sidecar(image))


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"EchoTime": NaN}', "[" * 100_000])
def test_sidecars_that_are_none(tmp_path, text):
    (tmp_path / "a.nii").write_bytes(b"")
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(Unreadable, match=r"a\.json: "):
        read_sidecar(tmp_path / "a.nii")


def test_one_of_the_echoes_is_no_contradiction():
    """dcm2niix tells one echo time of an image that holds all echoes."""
    assert settle_spacing(0.01, 16, Sidecar(Path("a.json"), (0.03,), None)) == (0.01, [])


def test_a_flat_mask_and_masks_that_lie_elsewhere(tmp_path):
    one = PHANTOM.signal[:, :, :1]
    image = write(tmp_path / "a.nii.gz", one)
    mask = PHANTOM.mask[:, :, :1].astype("u1")
    flat, whole = write(tmp_path / "flat.nii.gz", mask[:, :, 0]), write(tmp_path / "whole.nii.gz", mask)
    runs = [t2.map_image(image, tmp_path / path.stem, TE, mask=path, **KNOWN) for path in (flat, whole)]
    assert runs[0].fitted == runs[1].fitted == mask.sum()
    mirrored = write(tmp_path / "mirror.nii.gz", mask, np.diag([-2.0, 2, 5, 1]))
    with pytest.raises(Unreadable, match=r"its affine is \[-2 0 0 0; .*\(LAS\), the image's \[2 0 0 0; .*\(RAS\)"):
        t2.map_image(image, tmp_path / "out", TE, mask=mirrored, **KNOWN)
    shifted = np.diag([2.0, 2, 5, 1])
    shifted[0, 3] = 1e-4  # what float32 leaves
    t2.map_image(image, tmp_path / "near", TE, mask=write(tmp_path / "near.nii.gz", mask, shifted), **KNOWN)
    turned = write(tmp_path / "turned.nii.gz", mask[:, :, 0].T)
    with pytest.raises(Unreadable, match=r"has shape \(3, 4\); allowed: \(4, 3, 1\)"):
        t2.map_image(image, tmp_path / "out", TE, mask=turned, **KNOWN)
    assert not (tmp_path / "out").exists()  # nothing came of it


@pytest.mark.parametrize("codes", ["RAS", "LPI", "PSR"])
def test_orientations_are_kept(tmp_path, codes):
    straight = nibabel.Nifti1Image(PHANTOM.signal, np.diag([2.0, 2, 5, 1]))
    turn = nibabel.orientations.ornt_transform(
        nibabel.io_orientation(straight.affine), nibabel.orientations.axcodes2ornt(codes)
    )
    image = straight.as_reoriented(turn)
    nibabel.save(image, tmp_path / "a.nii.gz")
    run = t2.map_image(tmp_path / "a.nii.gz", tmp_path / "out", TE, **KNOWN)
    made = nibabel.load(run.files["mwf"])
    np.testing.assert_allclose(made.affine, image.affine)
    assert "".join(nibabel.aff2axcodes(made.affine)) == codes
    back = np.asarray(nibabel.as_closest_canonical(made).dataobj)
    alone = t2.fit_voxels(run.model, PHANTOM.signal.reshape(-1, 16).astype(float))["sfr"].reshape(4, 3, 2)
    np.testing.assert_array_equal(back, alone)


@pytest.mark.parametrize("angle", [180.0, 150.0, 120.0])
def test_the_excitation_is_half_the_refocusing_angle(angle):
    """Of 700 units of water excited by half the angle gdn is 700; a full 90° gives 1/sin(angle/2) as much."""
    model = t2.T2Model(echoes=24, te=TE, angles=(angle, angle, 1), lam=0.0)
    decay = t2.echo_decays(24, TE, model.t2_times[[25]], np.array([angle]))[0, :, 0]
    full = decay / np.sin(np.deg2rad(angle) / 2)  # signals are linear in the sine of the excitation
    maps = t2.fit_voxels(model, 700 * np.stack([decay, full]))
    np.testing.assert_allclose(maps["gdn"], [700, 700 / np.sin(np.deg2rad(angle) / 2)], rtol=1e-5)
    np.testing.assert_allclose(maps["t2dist"].sum(axis=1), maps["gdn"], rtol=1e-5)
    np.testing.assert_allclose(maps["ggm"], model.t2_times[25], rtol=1e-5)


def test_means_by_region(tmp_path):
    image = write(tmp_path / "a.nii.gz", PHANTOM.signal)
    labels = np.zeros((4, 3, 2), "i2")
    labels[:2], labels[2:, :2] = 7, 3
    marks = write(tmp_path / "labels.nii.gz", labels)
    run = t2.map_image(image, tmp_path / "out", TE, labels=marks, **KNOWN)
    rows = (tmp_path / "out" / "regions.csv").read_text().splitlines()
    table = [dict(zip(rows[0].split(","), row.split(","))) for row in rows[1:]]
    status, fraction = (np.asarray(nibabel.load(run.files[name]).dataobj) for name in ("status", "sfr"))
    assert [row["label"] for row in table] == ["3", "7"]
    for row in table:
        chosen = (labels == int(row["label"])) & (status == 0)
        assert int(row["voxels"]) == chosen.sum()
        np.testing.assert_allclose(float(row["sfr_mean"]), fraction[chosen].mean(dtype=float), rtol=1e-6)
        np.testing.assert_allclose(float(row["sfr_std"]), fraction[chosen].std(dtype=float), rtol=1e-4, atol=1e-7)
    halves = write(tmp_path / "halves.nii.gz", labels / 2)
    with pytest.raises(Unreadable, match="numbers that are not whole"):
        t2.map_image(image, tmp_path / "other", TE, labels=halves, **KNOWN)


def test_a_finished_folder_is_not_overwritten_with_other_settings(tmp_path):
    image = write(tmp_path / "a.nii.gz", PHANTOM.signal)
    words = [image, "--te", TE, "-o", tmp_path / "out", *FAST]
    assert invoke(*words).exit_code == 0
    before = (tmp_path / "out" / "sfr.nii.gz").read_bytes()
    assert invoke(*words).exit_code == 0  # the same again
    other = invoke(*words, "--bins", 20)
    assert other.exit_code == 1
    assert "a finished run with other settings or another input (model)" in " ".join(other.stderr.split())
    assert (tmp_path / "out" / "sfr.nii.gz").read_bytes() == before
    assert invoke(*words, "--bins", 20, "--overwrite").exit_code == 0
    assert (tmp_path / "out" / "sfr.nii.gz").read_bytes() != before


def test_maps_with_coordinates(tmp_path):
    pytest.importorskip("xarray")
    image = write(tmp_path / "a.nii.gz", PHANTOM.signal)
    run = t2.map_image(image, tmp_path / "out", TE, **KNOWN)
    maps = run.to_xarray()
    assert maps["t2dist"].dims == ("x", "y", "z", "T2")
    np.testing.assert_allclose(maps["z"], [0, 5])
    np.testing.assert_allclose(maps["T2"], run.model.t2_times)
    np.testing.assert_array_equal(maps["mwf"], nibabel.load(run.files["sfr"]).dataobj)


def test_progress_moves_on_a_single_slice(tmp_path):
    signal = np.repeat(np.repeat(PHANTOM.signal[:, :, :1], 20, axis=0), 20, axis=1)
    image = write(tmp_path / "a.nii.gz", signal)
    told = []
    t2.map_image(image, tmp_path / "out", TE, progress=lambda *news: told.append(news), **KNOWN)
    assert len(told) > 10
    assert told[-1] == (60, 60)


def test_overwriting_leaves_nothing_of_the_other_settings(tmp_path):
    image = write(tmp_path / "a.nii.gz", PHANTOM.signal)
    labels = write(tmp_path / "labels.nii.gz", PHANTOM.mask.astype(np.int16))
    out = tmp_path / "out"
    first = invoke(image, "--te", TE, "-o", out, "--labels", labels, *FAST[:-1])
    assert first.exit_code == 0, first.output
    (out / "mine.txt").write_text("not of the run")
    assert {"t2dist.nii.gz", "regions.csv", "maps.png", "mwf.png"} <= {path.name for path in out.iterdir()}
    other = invoke(image, "--te", 0.012, "-o", out, "--overwrite", "--no-distribution", "--format", "nii", *FAST)
    assert other.exit_code == 0, other.output
    held = json.loads((out / "t2map.json").read_text())
    named = {one["file"] for one in held["maps"].values()}
    assert {path.name for path in out.iterdir()} == named | {"t2map.json", "mine.txt"}
    assert {path.suffix for path in map(Path, named)} == {".nii"}


def test_labels_that_are_none_are_told_before_any_work(tmp_path, monkeypatch):
    from stepwell.apps.t2 import run

    image = write(tmp_path / "a.nii.gz", PHANTOM.signal)
    labels = write(tmp_path / "labels.nii.gz", PHANTOM.mask + 0.5)
    monkeypatch.setattr(run, "fit_voxels", lambda *_, **__: pytest.fail("work was done"))
    told = invoke(image, "--te", TE, "-o", tmp_path / "out", "--labels", labels, *FAST)
    assert told.exit_code == 1
    assert "labels.nii.gz: holds numbers that are not whole; allowed: a label image" in told.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        (lambda signal: np.moveaxis(signal, 3, 0), "it looks transposed; allowed: four axes, the echo last"),
        (lambda signal: signal[..., ::-1], "signals grow by a factor of"),
        (lambda signal: signal[..., 0], "allowed: four axes, the echo last"),
    ],
)
@pytest.mark.parametrize("ending", ["nii.gz", "npy"])
def test_an_axis_that_is_not_that_of_the_echoes_is_told(tmp_path, turn, message, ending):
    image, turned = tmp_path / f"a.{ending}", np.ascontiguousarray(turn(PHANTOM.signal))
    if ending == "npy":
        np.save(image, turned)
    else:
        write(image, turned)
    told = invoke(image, "--te", TE, "-o", tmp_path / "out", *FAST)
    assert told.exit_code == 1
    assert message in " ".join(told.stderr.split())
    assert not (tmp_path / "out").exists()


def test_images_of_noise_or_nothing_are_no_error_of_their_axes(tmp_path):
    rng = np.random.default_rng(0)
    for name, values in (("noise", rng.rayleigh(3, (9, 8, 1, 16))), ("zero", np.zeros((9, 8, 1, 16)))):
        image = write(tmp_path / f"{name}.nii.gz", values)
        t2.map_image(image, tmp_path / name, TE, angles=(150, 150, 1), lam=0.02)
        assert (tmp_path / name / "mwf.nii.gz").exists()
