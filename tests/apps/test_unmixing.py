"""Unmixing: abundances against SciPy and the truth, libraries in every direction, whole images."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import json

import numpy as np
import pytest
from scipy.optimize import nnls as scipy_nnls
from test_images import write_envi
from unmixing_cases import PIXELS, SCENE, A, scene_files

from stepwell.apps import unmixing
from stepwell.apps.files import envi
from stepwell.apps.images import open_image
from stepwell.apps.unmixing.library import write_library
from stepwell.common.files import Unreadable

# ---- pixels ----


def test_free_sums_are_scipys_nnls():
    found = unmixing.unmix_pixels(unmixing.Unmixing(SCENE.library, "free"), PIXELS)
    expected = np.array([scipy_nnls(A, pixel)[0] for pixel in PIXELS])
    np.testing.assert_allclose(found["abundances"], expected, atol=1e-6)
    left = np.sqrt(np.mean((PIXELS - expected @ A.T) ** 2, axis=1))
    np.testing.assert_allclose(found["rmse"], left, rtol=1e-5)
    np.testing.assert_allclose(found["sum"], expected.sum(axis=1), atol=1e-5)


def test_sums_to_one_are_the_limit_of_a_heavy_row():
    found = unmixing.unmix_pixels(unmixing.Unmixing(SCENE.library, "one"), PIXELS)
    np.testing.assert_allclose(found["sum"], 1, atol=1e-6)
    heavy = 1e4  # the error goes with its square
    stacked = np.vstack([A, heavy * np.ones(5)])
    expected = np.array([scipy_nnls(stacked, np.append(pixel, heavy))[0] for pixel in PIXELS])
    np.testing.assert_allclose(found["abundances"], expected, atol=1e-5)


def test_at_most_one_is_the_one_of_the_two_that_holds():
    """Where the free sum is below one it stands, elsewhere the sum is one."""
    bright = 1.2 * PIXELS
    most, one, free = (unmixing.unmix_pixels(unmixing.Unmixing(SCENE.library, total), bright) for total in
                       ("most", "one", "free"))  # fmt: skip
    below = free["sum"] < 1
    assert 0.1 < below.mean() < 0.9
    np.testing.assert_allclose(most["abundances"][below], free["abundances"][below], atol=1e-6)
    np.testing.assert_allclose(most["abundances"][~below], one["abundances"][~below], atol=1e-6)


@pytest.mark.parametrize("total", ["one", "free"])
def test_standard_errors_are_the_scatter_over_noise(total):
    """Many noisy copies of one pixel in which all materials are present, so that the set does not change."""
    random = np.random.default_rng(0)
    shares = np.array([0.3, 0.2, 0.2, 0.15, 0.15])
    noise = np.geomspace(1e-4, 1e-3, 40)
    pixels = A @ shares + noise * random.standard_normal((800, 40))
    plan = unmixing.Unmixing(SCENE.library, total, noise=noise)
    found = unmixing.unmix_pixels(plan, pixels)
    inside = (found["abundances"] > 0).all(axis=1)
    assert inside.mean() > 0.95
    # The scatter of 800 is known to 2.5 per cent, and the mean of their σ better than that: four times as much.
    ratio = found["abundances"][inside].std(axis=0) / found["error"][inside].mean(axis=0)
    np.testing.assert_allclose(ratio, 1, atol=0.1)


def test_noise_weighs_the_bands():
    noise = np.geomspace(0.001, 0.1, 40)
    found = unmixing.unmix_pixels(unmixing.Unmixing(SCENE.library, "free", noise=noise), PIXELS)
    expected = np.array([scipy_nnls(A / noise[:, None], pixel / noise)[0] for pixel in PIXELS])
    np.testing.assert_allclose(found["abundances"], expected, atol=1e-5)


def test_classes_add_up():
    library = dataclasses.replace(SCENE.library, classes=["plant", "ground", "water", "ground", "plant"])
    single = unmixing.unmix_pixels(unmixing.Unmixing(library, by_class=False), PIXELS)["abundances"]
    plan = unmixing.Unmixing(library)
    assert plan.names == ["plant", "ground", "water"]
    joined = unmixing.unmix_pixels(plan, PIXELS)["abundances"]
    expected = np.stack([single[:, 0] + single[:, 4], single[:, 1] + single[:, 3], single[:, 2]], 1)
    np.testing.assert_allclose(joined, expected, atol=1e-6)


def test_draws_are_of_each_class_and_do_not_depend_on_the_lines_taken_together():
    scene = unmixing.simulate(4, 6, bands=40, variants=5)
    pixels = scene.image.reshape(-1, 40)
    plan = unmixing.Unmixing(scene.library, draws=4, subset=8)
    whole = unmixing.unmix_pixels(plan, pixels, samples=6)
    parts = [unmixing.unmix_pixels(plan, pixels[6 * k : 6 * k + 6], line=k, samples=6) for k in range(4)]
    for name in whole:
        np.testing.assert_array_equal(whole[name], np.concatenate([part[name] for part in parts]))
    assert np.all(whole["error"] >= 0)
    assert whole["error"].mean() > 0
    # A library of one spectrum a class leaves nothing to draw: every draw is the whole of it.
    alone = unmixing.Unmixing(SCENE.library, draws=3, subset=5)
    found = unmixing.unmix_pixels(alone, PIXELS)
    np.testing.assert_allclose(
        found["abundances"], unmixing.unmix_pixels(unmixing.Unmixing(SCENE.library), PIXELS)["abundances"], atol=1e-6
    )
    np.testing.assert_allclose(found["error"], 0, atol=1e-6)


def test_the_best_draw_fits_no_worse_than_the_mean_of_all():
    scene = unmixing.simulate(5, 6, bands=40, variants=4)
    pixels = scene.image.reshape(-1, 40)
    plan = unmixing.Unmixing(scene.library, draws=6, subset=6)
    best = unmixing.unmix_pixels(dataclasses.replace(plan, best=True), pixels)
    mean = unmixing.unmix_pixels(plan, pixels)
    assert np.all(best["rmse"] <= mean["rmse"] + 1e-7)
    assert best["rmse"].mean() < 0.95 * mean["rmse"].mean()


def check_elsewhere(like):
    scene = unmixing.simulate(5, 6, bands=40, variants=3)
    pixels = scene.image.reshape(-1, 40)
    for plan in (unmixing.Unmixing(scene.library, "one"), unmixing.Unmixing(scene.library, draws=2, subset=7)):
        here, there = unmixing.unmix_pixels(plan, pixels), unmixing.unmix_pixels(plan, pixels, like=like)
        np.testing.assert_allclose(there["abundances"], here["abundances"], atol=1e-5)
        np.testing.assert_array_equal(there["status"], here["status"])


def test_systems_may_be_solved_in_another_library():
    torch = pytest.importorskip("torch")
    check_elsewhere(torch.empty(0, dtype=torch.float64))


@pytest.mark.cuda
def test_systems_may_be_solved_on_a_gpu():
    torch = pytest.importorskip("torch")
    check_elsewhere(torch.empty(0, dtype=torch.float64, device="cuda"))


def test_pixels_without_numbers_are_left_out():
    pixels = PIXELS[:4].copy()
    pixels[1, 2], pixels[2] = np.nan, 0.0
    found = unmixing.unmix_pixels(unmixing.Unmixing(SCENE.library), pixels)
    assert found["status"].tolist() == [0, -1, -1, 0]
    assert np.isnan(found["abundances"][1:3]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"total": "two"}, "total is 'two'"),
        ({"lower": 1.0, "upper": 0.5}, "lower is 1.0; allowed: up to upper, 0.5"),
        ({"draws": 2, "subset": 3}, "subset is 3; allowed: an integer of at least 5"),
        ({"best": True}, "best is True; allowed: False without draws"),
        ({"noise": np.zeros(40)}, "noise is"),
        ({"noise": np.ones(3)}, r"noise has shape \(3,\)"),
    ],
)
def test_wrong_plans_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        unmixing.Unmixing(SCENE.library, **options)


# ---- libraries ----


def test_libraries_in_either_direction_and_any_unit(tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("Name,Class,0.6,0.4,0.5\noak,tree,3,1,2\nelm,tree,6,4,5\nclay,soil,9,7,8\n")
    columns = tmp_path / "columns.csv"
    columns.write_text("nm,oak,elm,clay\n600,3,6,9\n400,1,4,7\n500,2,5,8\n")
    for file in (rows, columns):
        library = unmixing.read_library(file)
        np.testing.assert_allclose(library.wavelengths, [400, 500, 600])
        np.testing.assert_array_equal(library.spectra, np.arange(1, 10).reshape(3, 3))
        assert library.names == ["oak", "elm", "clay"]
    assert unmixing.read_library(rows).classes == ["tree", "tree", "soil"]
    assert unmixing.read_library(columns).classes == ["oak", "elm", "clay"]
    assert unmixing.read_library(rows, "NAME").classes == ["oak", "elm", "clay"]
    with pytest.raises(Unreadable, match="has no column 'kind'; it has name, class"):
        unmixing.read_library(rows, "kind")
    np.savez(tmp_path / "a.npz", spectra=np.eye(2), wavelengths=[400.0, 500.0], names=["a", "b"])
    assert unmixing.read_library(tmp_path / "a.npz").classes == ["a", "b"]


def test_an_envi_spectral_library(tmp_path):
    spectra = np.arange(6.0).reshape(2, 3, 1)  # a line a spectrum
    names = {"spectra names": "{oak, clay}", "wavelength": "{0.4, 0.5, 0.6}"}
    write_envi(tmp_path / "lib.hdr", spectra, "bsq", "<f4", code=4, **names)
    library = unmixing.read_library(tmp_path / "lib.hdr")
    assert library.names == ["oak", "clay"]
    np.testing.assert_allclose(library.wavelengths, [400, 500, 600])
    np.testing.assert_array_equal(library.spectra, spectra[:, :, 0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no table"),
        ("name,400,500\noak,1\n", "has no table"),
        ("name,400,500\noak,1,much\n", "holds 'much' among its numbers"),
        ("nm\n400\n500\n", "has one column"),
    ],
)
def test_wrong_libraries_are_told(tmp_path, text, message):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(Unreadable, match=message):
        unmixing.read_library(tmp_path / "a.csv")


def test_a_library_at_other_bands_has_no_numbers_beyond_its_own(tmp_path):
    write_library(tmp_path / "a.csv", SCENE.library)
    again = unmixing.read_library(tmp_path / "a.csv")
    np.testing.assert_allclose(again.spectra, SCENE.library.spectra, rtol=1e-9)
    between = again.at(np.array([300.0, 425.0, 2500.0]))
    assert np.isnan(between.spectra[:, [0, 2]]).all()
    expected = [np.interp(425.0, again.wavelengths, one) for one in again.spectra]
    np.testing.assert_allclose(between.spectra[:, 1], expected)


def test_an_image_is_what_its_pixels_are(tmp_path):
    image, library = scene_files(tmp_path)
    run = unmixing.unmix_image(image, library, tmp_path / "abundances")
    plan = unmixing.Unmixing(SCENE.library)
    alone = unmixing.unmix_pixels(plan, SCENE.image.astype("<f4").reshape(-1, 40))
    assert run.bands == [
        "vegetation",
        "soil",
        "water",
        "roof",
        "straw",
        "rmse",
        "sum",
        "shade",
        "vegetation error",
        "soil error",
        "water error",
        "roof error",
        "straw error",
        "status",
    ]
    cube = open_image(tmp_path / "abundances.hdr")
    found = cube.read(0, 12)
    # The library went through a file with ten digits.
    np.testing.assert_allclose(found[:, :, :5].reshape(-1, 5), alone["abundances"], atol=1e-5)
    np.testing.assert_allclose(found[:, :, 7], 1 - found[:, :, 6], atol=1e-6)
    header = envi.read_header(tmp_path / "abundances.hdr")
    assert header.names("band names") == run.bands
    assert header.names("map info")[0] == "UTM"
    assert json.loads((tmp_path / "abundances.json").read_text())["converged"] == 168
    as_array = unmixing.unmix_image(image, library, tmp_path / "other.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "other.npy"), found.astype(np.float32))
    assert as_array.files[0] == tmp_path / "other.npy"


def test_bad_bands_scales_and_missing_pixels(tmp_path):
    bad = np.ones(40, dtype=int)
    bad[[0, 20]] = 0
    data = np.round(10000 * SCENE.image)
    data[3, 4] = -9999
    more = {"bbl": "{" + ",".join(map(str, bad)) + "}", "data ignore value": -9999}
    waves = ",".join(f"{wave:.8g}" for wave in SCENE.library.wavelengths)
    write_envi(tmp_path / "scene.hdr", data, "bil", ">i2", wavelength="{" + waves + "}", **more)
    write_library(tmp_path / "library.csv", SCENE.library)
    files = (tmp_path / "scene.hdr", tmp_path / "library.csv", tmp_path / "out")
    with pytest.raises(Unreadable, match=r"not in one scale; allowed: --scale .* such as 10000 \("):
        unmixing.unmix_image(*files, exclude=[(1300.0, 1500.0)])
    run = unmixing.unmix_image(*files, exclude=[(1300.0, 1500.0)], scale="auto")
    assert run.scale == 10000
    assert any("bbl" in note for note in run.notes)
    assert any("10000" in note for note in run.notes)
    excluded = (SCENE.library.wavelengths >= 1300) & (SCENE.library.wavelengths <= 1500)
    np.testing.assert_array_equal(run.used, (bad > 0) & ~excluded)
    found = open_image(tmp_path / "out.hdr").read(0, 12)
    assert np.isnan(found[3, 4, 0])
    assert found[3, 4, -1] == -1
    assert run.solved == 167
    library = dataclasses.replace(
        SCENE.library, spectra=SCENE.library.spectra[:, run.used], wavelengths=SCENE.library.wavelengths[run.used]
    )
    expected = unmixing.unmix_pixels(unmixing.Unmixing(library), data[0][:, run.used] / 10000)
    np.testing.assert_allclose(found[0, :, :5], expected["abundances"], atol=1e-5)


def test_bands_beyond_the_library_are_left_out_and_said(tmp_path):
    image, _ = scene_files(tmp_path)
    half = dataclasses.replace(
        SCENE.library, spectra=SCENE.library.spectra[:, :20], wavelengths=SCENE.library.wavelengths[:20]
    )
    run = unmixing.unmix_image(image, half, tmp_path / "out")
    assert run.used.sum() == 20
    assert run.notes == ["20 bands are left out, where the library has no numbers"]


def test_an_image_that_was_stopped_goes_on_to_the_same_cube(tmp_path):
    scene = unmixing.simulate(6, 5, bands=40, variants=3)
    np.save(tmp_path / "scene.npy", scene.image)
    options = {"wavelengths": scene.library.wavelengths, "draws": 3, "subset": 6, "step_bytes": 1}
    unmixing.unmix_image(tmp_path / "scene.npy", scene.library, tmp_path / "whole", **options)

    def stop(count, total):
        if count == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unmixing.unmix_image(tmp_path / "scene.npy", scene.library, tmp_path / "out", progress=stop, **options)
    assert (tmp_path / "out.unfinished").is_dir()
    with pytest.raises(ValueError, match="other settings"):
        unmixing.unmix_image(tmp_path / "scene.npy", scene.library, tmp_path / "out", **(options | {"seed": 5}))
    options["step_bytes"] = 2**27  # in other steps
    run = unmixing.unmix_image(tmp_path / "scene.npy", scene.library, tmp_path / "out", **options)
    assert run.resumed == 2
    assert (tmp_path / "out.img").read_bytes() == (tmp_path / "whole.img").read_bytes()
    assert not (tmp_path / "out.unfinished").exists()


def test_images_without_wavelengths_need_a_library_of_their_bands(tmp_path):
    np.save(tmp_path / "scene.npy", SCENE.image)
    plain = dataclasses.replace(SCENE.library, wavelengths=None)
    run = unmixing.unmix_image(tmp_path / "scene.npy", plain, tmp_path / "out.npy")
    assert run.converged == 168
    np.save(tmp_path / "pixels.npy", PIXELS)
    flat = unmixing.unmix_image(tmp_path / "pixels.npy", plain, tmp_path / "flat.npy")
    np.testing.assert_allclose(
        np.load(flat.files[0]).reshape(12, 14, -1), np.load(tmp_path / "out.npy"), atol=1e-5, equal_nan=True
    )
    np.save(tmp_path / "short.npy", SCENE.image[:, :, :30])
    with pytest.raises(Unreadable, match="has 30 bands without wavelengths, the library 40"):
        unmixing.unmix_image(tmp_path / "short.npy", plain, tmp_path / "none")


@pytest.mark.parametrize("name", ["library", "pixels", "simulate"])
def test_docstring_examples(name):
    failed, tried = doctest.testmod(importlib.import_module(f"stepwell.apps.unmixing.{name}"))
    assert tried > 0
    assert failed == 0
