"""Files as people have them: each made by its format's own library, read to the same numbers; hostile ones are told."""

from __future__ import annotations

import io

import numpy as np
import pytest
import scipy.io
from click.testing import CliRunner
from unmixing_cases import SCENE

from stepwell.apps import unmixing
from stepwell.apps.files import tables
from stepwell.apps.images import open_image
from stepwell.apps.unmixing.library import write_library
from stepwell.cli.group import main
from stepwell.common.files import Unreadable

CUBE = np.random.default_rng(4).integers(1, 3000, (6, 5, 4)).astype(np.int16)
WAVES = SCENE.library.wavelengths


def invoke(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


# ---- MATLAB ----


@pytest.mark.parametrize("options", [{}, {"do_compression": True}, {"format": "4"}])
@pytest.mark.parametrize("name", ["image", "Y", "anything"])
def test_matlab_5_and_4(tmp_path, name, options):
    cube = CUBE if options.get("format") != "4" else CUBE[:, :, 0]  # version 4 knows matrices only
    scipy.io.savemat(
        tmp_path / "a.mat", {name: cube, "nRow": 6, **({} if options.get("format") else {"s": {"a": 1}})}, **options
    )
    image = open_image(tmp_path / "a.mat", channels=cube.ndim == 3)
    np.testing.assert_array_equal(image.read(1, 3, 0), cube[1:3])


def test_matlab_files_that_are_damaged(tmp_path):
    file = io.BytesIO()
    scipy.io.savemat(file, {"image": CUBE.astype(float)}, do_compression=True)
    whole = file.getvalue()
    for length in (0, 60, 128, 140, len(whole) // 2, len(whole) - 4):
        (tmp_path / "a.mat").write_bytes(whole[:length])
        with pytest.raises(Unreadable) as told:
            open_image(tmp_path / "a.mat").read(0, 1)
        assert "\n" not in str(told.value)
    (tmp_path / "a.mat").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    pytest.importorskip("h5py")
    with pytest.raises(Unreadable, match="cannot be read"):
        open_image(tmp_path / "a.mat")


def test_a_library_and_wavelengths_in_a_matlab_file(tmp_path):
    scipy.io.savemat(tmp_path / "m.mat", {"M": SCENE.library.spectra.T, "wavelengths": WAVES})
    library = unmixing.read_library(tmp_path / "m.mat")
    np.testing.assert_array_equal(library.spectra, SCENE.library.spectra)
    np.testing.assert_array_equal(library.wavelengths, WAVES)


# ---- DICOM ----


@pytest.mark.parametrize("ending", ["dcm", "IMA", "npy"])
def test_dicom_is_sent_to_dcm2niix(tmp_path, ending):
    (tmp_path / "scan").mkdir()
    file = tmp_path / "scan" / f"1.{ending}"
    file.write_bytes(bytes(128) + b"DICM" + bytes(50))
    for path in (file, file.parent):
        run = invoke("t2map", path, "--te", "0.01", "-o", tmp_path / "out")
        assert run.exit_code == 1, run.output
        assert "is DICOM" in run.stderr
        assert "dcm2niix" in run.stderr
    assert not (tmp_path / "out").exists()


# ---- rasters ----


def write_raster(path, cube, driver="GTiff", **more):
    rasterio = pytest.importorskip("rasterio")
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(30, 0, 500000, 0, -30, 4000000)}
    lines, samples, bands = cube.shape
    with rasterio.open(path, "w", driver=driver, height=lines, width=samples, count=bands, dtype=cube.dtype,
                       **(place | more)) as file:  # fmt: skip
        file.write(cube.transpose(2, 0, 1))
        if bands == WAVES.size:
            for band, wave in enumerate(WAVES, 1):
                file.set_band_description(band, f"{wave / 1000:.7f} micrometers")


@pytest.mark.parametrize(("name", "driver"), [("a.tif", "GTiff"), ("a.img", "HFA"), ("a.dat", "ENVI")])
def test_rasters_are_read_in_lines(tmp_path, name, driver):
    write_raster(tmp_path / name, CUBE, driver)
    image = open_image(tmp_path / name)
    assert image.shape == CUBE.shape
    np.testing.assert_array_equal(image.read(2, 4), CUBE[2:4])


@pytest.mark.parametrize("interleave", ["bsq", "bil", "bip"])
def test_envi_of_gdal_in_every_interleave(tmp_path, interleave):
    write_raster(tmp_path / "a.dat", CUBE, "ENVI", INTERLEAVE=interleave.upper())
    np.testing.assert_array_equal(open_image(tmp_path / "a.hdr").read(0, 6), CUBE)


@pytest.mark.parametrize("output", ["out.tif", "out"])
@pytest.mark.parametrize("kind", ["tif", "envi"])
def test_a_georeference_goes_in_and_out(tmp_path, kind, output):
    rasterio = pytest.importorskip("rasterio")
    name, driver = ("scene.tif", "GTiff") if kind == "tif" else ("scene.dat", "ENVI")
    write_raster(tmp_path / name, SCENE.image.astype(np.float32), driver)
    write_library(tmp_path / "library.csv", SCENE.library)
    waves = [] if kind == "tif" else ["--wavelengths", tmp_path / "w.txt"]
    np.savetxt(tmp_path / "w.txt", WAVES)
    run = invoke("unmix", tmp_path / name, tmp_path / "library.csv", *waves, "-o", tmp_path / output, "--no-plots")
    assert run.exit_code == 0, run.output
    made = tmp_path / ("out.tif" if output == "out.tif" else "out.img")
    with rasterio.open(tmp_path / name) as before, rasterio.open(made) as after:
        assert after.transform == before.transform
        assert after.crs.to_epsg() == before.crs.to_epsg() == 32633
        assert list(after.descriptions[:2]) == ["vegetation", "soil"]
        found = after.read().transpose(1, 2, 0)
    alone = unmixing.unmix_pixels(unmixing.Unmixing(SCENE.library), SCENE.image.reshape(-1, 40).astype(float))
    np.testing.assert_allclose(found[:, :, :5].reshape(-1, 5), alone["abundances"], atol=1e-4)


def test_missing_pixels_and_scales_of_a_geotiff(tmp_path):
    rasterio = pytest.importorskip("rasterio")
    write_raster(tmp_path / "a.tif", CUBE, nodata=int(CUBE[1, 1, 1]))
    with rasterio.open(tmp_path / "a.tif", "r+") as file:
        file.scales = (0.5,) * 4
    found = open_image(tmp_path / "a.tif").read(0, 6)
    assert np.isnan(found[1, 1, 1])
    known = np.isfinite(found)
    np.testing.assert_allclose(found[known], 0.5 * CUBE[known])


def test_rasters_that_are_none(tmp_path):
    pytest.importorskip("rasterio")
    write_raster(tmp_path / "whole.tif", CUBE)
    whole = (tmp_path / "whole.tif").read_bytes()
    for content in (b"", b"II*\0", whole[: len(whole) // 3], b"<VRTDataset/>"):
        (tmp_path / "a.tif").write_bytes(content)
        with pytest.raises(Unreadable) as told:
            open_image(tmp_path / "a.tif").read(0, 6)
        assert "\n" not in str(told.value)


# ---- text ----


@pytest.mark.parametrize("mark", [",", ";", "\t", " "])
@pytest.mark.parametrize("headed", [True, False])
def test_libraries_as_text_with_and_without_header(tmp_path, mark, headed):
    file = tmp_path / "m.csv"
    table = np.c_[WAVES, SCENE.library.spectra.T]
    np.savetxt(
        file, table, delimiter=mark, header=mark.join(["nm", *SCENE.library.names]) if headed else "", comments=""
    )
    library = unmixing.read_library(file)
    np.testing.assert_allclose(library.spectra, SCENE.library.spectra)
    np.testing.assert_allclose(library.wavelengths, WAVES)
    assert (library.names == SCENE.library.names) == headed
    np.savetxt(file, SCENE.library.spectra.T, delimiter=mark)  # endmembers alone, as MATLAB programs print them
    bare = unmixing.read_library(file)
    assert bare.wavelengths is None
    np.testing.assert_allclose(bare.spectra, SCENE.library.spectra)


def test_commas_of_numbers_and_tables_that_are_none(tmp_path):
    (tmp_path / "a.csv").write_text("\ufeff400;0,5\r\n500;0,25\r\n# a remark\r\n")
    np.testing.assert_array_equal(tables.read_table(tmp_path / "a.csv").numbers(), [[400, 0.5], [500, 0.25]])
    for text in ("", "\n\n", "1,2\n3\n", "# a remark alone"):
        (tmp_path / "a.csv").write_text(text)
        with pytest.raises(Unreadable, match="has no table"):
            tables.read_table(tmp_path / "a.csv")
    tables.write_table(tmp_path / "b.csv", {"a": [1, 2], "b": [0.1, np.nan], "c, d": ["x", 'y"z']})
    back = tables.read_table(tmp_path / "b.csv")
    assert (back.header, back.rows) == (["a", "b", "c, d"], [["1", "0.1", "x"], ["2", "", 'y"z']])


# ---- scales and shapes ----


@pytest.mark.parametrize("factor", [1.0, 100.0, 5000.0, 10000.0, 65535.0])
def test_the_scale_is_named_and_taken_when_asked(tmp_path, factor):
    np.save(tmp_path / "cube.npy", factor * SCENE.image.astype(float))
    call = (tmp_path / "cube.npy", SCENE.library, tmp_path / "out.npy")
    if factor > 1:
        with pytest.raises(Unreadable, match=rf"scale; allowed: --scale .* such as {factor:g} \("):
            unmixing.unmix_image(*call, wavelengths=WAVES)
    run = unmixing.unmix_image(*call, wavelengths=WAVES, scale="auto" if factor > 1 else None)
    assert run.scale == factor
    given = unmixing.unmix_image(*call[:2], tmp_path / "given.npy", wavelengths=WAVES, scale=factor)
    np.testing.assert_array_equal(np.load(run.files[0]), np.load(given.files[0]))
    wrong = unmixing.unmix_image(*call[:2], tmp_path / "wrong.npy", wavelengths=WAVES, scale=1000 * factor)
    assert any("brightest pixels are" in note for note in wrong.notes)


def test_a_shape_that_looks_transposed_is_said_to(tmp_path):
    turned = np.ascontiguousarray(SCENE.image.reshape(-1, 40).T)
    scipy.io.savemat(tmp_path / "a.mat", {"Y": turned})
    np.savetxt(tmp_path / "m.csv", SCENE.library.spectra.T, delimiter=",")
    run = invoke("unmix", tmp_path / "a.mat", tmp_path / "m.csv", "-o", tmp_path / "out.npy", "--no-plots")
    assert run.exit_code == 1
    assert "it looks transposed, as its first axis has 40: give --bands-first" in " ".join(run.stderr.split())
    words = ["unmix", tmp_path / "a.mat", tmp_path / "m.csv", "--bands-first", "-o", tmp_path / "out.npy", "--no-plots"]
    run = invoke(*words)
    assert run.exit_code == 0, run.output
    alone = unmixing.unmix_pixels(unmixing.Unmixing(SCENE.library), turned.T.astype(float))
    np.testing.assert_allclose(np.load(tmp_path / "out.npy")[:, 0, :5], alone["abundances"], atol=1e-5)
    other = invoke(*words, "--sum", "one")
    assert other.exit_code == 1
    assert "a finished run with other settings or another input (plan)" in " ".join(other.stderr.split())
    assert invoke(*words, "--sum", "one", "--overwrite").exit_code == 0


@pytest.mark.parametrize("method", ["vca", "nfindr"])
def test_endmembers_of_the_image_itself(tmp_path, method):
    """Pure pixels among mixtures are found exactly, whatever the light."""
    rng = np.random.default_rng(7)
    pure = SCENE.library.spectra
    shares = rng.dirichlet(np.ones(5), size=(20, 15))
    places = [(0, 0), (3, 14), (19, 2), (10, 7), (5, 5)]
    for which, place in enumerate(places):
        shares[place] = np.eye(5)[which]
    cube = shares @ pure
    found = unmixing.extract_endmembers(cube.reshape(-1, 40), 5, method=method)
    assert {(int(one) // 15, int(one) % 15) for one in found} == set(places)
    np.save(tmp_path / "cube.npy", cube)
    words = ["--extract", 5, "--by", method, "--sum", "one", "-o", tmp_path / "out.npy", "--no-plots"]
    run = invoke("unmix", tmp_path / "cube.npy", *words)
    assert run.exit_code == 0, run.output
    answer = np.load(tmp_path / "out.npy")[:, :, :5]
    order = [int(np.argmax(answer[place])) for place in places]
    np.testing.assert_allclose(answer[:, :, order], shares, atol=1e-5)
    assert (tmp_path / "out_endmembers.csv").exists()
    assert (tmp_path / "out_means.csv").read_text().startswith("name,mean")


@pytest.mark.parametrize("interleave", ["bsq", "bil", "bip"])
def test_a_raster_is_read_as_one_whatever_header_lies_beside_it(tmp_path, interleave):
    """A GeoTIFF and an ENVI image may share a name: the numbers of neither are those of the other."""
    pytest.importorskip("rasterio")
    write_raster(tmp_path / "a.tif", CUBE)
    write_raster(tmp_path / "a.img", 2 * CUBE, driver="ENVI", interleave=interleave)
    assert (tmp_path / "a.hdr").exists()
    np.testing.assert_array_equal(open_image(tmp_path / "a.tif").read(0, 6), CUBE)
    np.testing.assert_array_equal(open_image(tmp_path / "a.hdr").read(0, 6), 2 * CUBE)


def test_a_turned_grid_is_not_lost_in_silence(tmp_path):
    rasterio = pytest.importorskip("rasterio")
    turned = rasterio.Affine(30, 4, 5e5, 4, -30, 4e6)
    write_raster(tmp_path / "a.tif", SCENE.image[:3, :4], transform=turned)
    write_library(tmp_path / "library.csv", SCENE.library)
    np.save(tmp_path / "waves.npy", WAVES)
    for output, kept in (("b", False), ("c.npy", False), ("d.tif", True)):
        run = invoke("unmix", tmp_path / "a.tif", tmp_path / "library.csv", "-o", tmp_path / output, "--no-plots",
                     "--wavelengths", tmp_path / "waves.npy")  # fmt: skip
        assert run.exit_code == 0, run.output
        assert ("georeference of the image is not kept" not in run.stderr) == kept
    with rasterio.open(tmp_path / "d.tif") as made:
        assert made.transform == turned


# ---- endmembers in the image's unit ----


@pytest.mark.parametrize("words", [[], ["--scale", "auto"], ["--scale", "4096"]])
def test_endmembers_are_in_the_unit_of_the_image(tmp_path, words):
    """A scale factor in the header, or a scale that is given, changes neither abundances nor that they fit."""
    scene = unmixing.simulate(12, 10, bands=30, noise=0.0, seed=2)
    whole = np.clip(np.round(scene.image * 4096), 0, None).astype(np.uint16)
    np.save(tmp_path / "plain.npy", whole / 4096)  # exactly
    (tmp_path / "whole.img").write_bytes(np.ascontiguousarray(whole.transpose(2, 0, 1)).tobytes())
    told = "" if words[1:] == ["4096"] else "reflectance scale factor = 4096\n"
    (tmp_path / "whole.hdr").write_text(
        f"ENVI\nsamples = 10\nlines = 12\nbands = 30\ndata type = 12\ninterleave = bsq\nbyte order = 0\n{told}"
    )
    plain = invoke("unmix", tmp_path / "plain.npy", "--extract", 5, "-o", tmp_path / "a.npy", "--no-plots")
    assert plain.exit_code == 0, plain.output
    run = invoke("unmix", tmp_path / "whole.hdr", "--extract", 5, *words, "-o", tmp_path / "b.npy", "--no-plots")
    assert run.exit_code == 0, run.output
    found = [np.load(tmp_path / name)[..., :5] for name in ("a.npy", "b.npy")]
    np.testing.assert_allclose(found[1], found[0], atol=1e-6)
    spectra = [tables.read_table(tmp_path / f"{name}_endmembers.csv").numbers()[:, 1:] for name in "ab"]
    np.testing.assert_allclose(spectra[1], spectra[0], rtol=1e-12)


def test_endmembers_of_a_refused_run_change_no_finished_one(tmp_path):
    np.save(tmp_path / "a.npy", SCENE.image)
    words = ["unmix", tmp_path / "a.npy", "-o", tmp_path / "out", "--no-plots"]
    assert invoke(*words, "--extract", 4).exit_code == 0
    before = (tmp_path / "out_endmembers.csv").read_bytes()
    refused = invoke(*words, "--extract", 3)
    assert refused.exit_code == 1
    assert "out.json: is the account of a finished run with other settings" in refused.stderr
    assert (tmp_path / "out_endmembers.csv").read_bytes() == before
    write_library(tmp_path / "library.csv", SCENE.library)
    np.save(tmp_path / "waves.npy", WAVES)
    other = [*words[:2], tmp_path / "library.csv", *words[2:], "--wavelengths", tmp_path / "waves.npy", "--overwrite"]
    assert invoke(*other).exit_code == 0
    assert not (tmp_path / "out_endmembers.csv").exists()  # they are not those of this run


def test_numbers_or_auto(tmp_path):
    for name in ("unmix", "reconstruct"):
        flag = {"unmix": "--scale", "reconstruct": "--center"}[name]
        told = invoke(name, __file__, flag, "autom", "-o", tmp_path / "x")
        assert told.exit_code == 2
        assert f"Invalid value for '{flag}': 'autom' is no number; allowed: a number, or auto" in told.stderr
