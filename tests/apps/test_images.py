"""Images in slabs: every format gives the same numbers, files that are wrong are told, runs that were stopped go on."""

from __future__ import annotations

import gzip
import json
import os

import numpy as np
import pytest

from stepwell.apps.files import envi
from stepwell.apps.files.nifti import write_nifti
from stepwell.apps.images import Work, fill, open_image
from stepwell.common.files import Unreadable

random = np.random.default_rng(3)
CUBE = random.integers(-3000, 3000, (6, 5, 4)).astype(np.int16)


def write_envi(path, cube, interleave, dtype="<i2", offset=0, code=2, **more):
    order = {"bsq": (2, 0, 1), "bil": (0, 2, 1), "bip": (0, 1, 2)}[interleave]
    data = np.ascontiguousarray(cube.transpose(order)).astype(dtype)
    path.with_suffix(".dat").write_bytes(b"x" * offset + data.tobytes())
    lines, samples, bands = cube.shape
    fields = {"samples": samples, "lines": lines, "bands": bands, "header offset": offset, "data type": code,
              "interleave": interleave.upper(), "byte order": int(dtype[0] == ">"), **more}  # fmt: skip
    path.write_text("ENVI\n" + "".join(f"{name} = {value}\n" for name, value in fields.items()))


@pytest.mark.parametrize("dtype", ["<i2", ">i2"])
@pytest.mark.parametrize("interleave", ["bsq", "bil", "bip"])
def test_envi_in_any_interleave_and_byte_order(tmp_path, interleave, dtype):
    header = tmp_path / "scene.hdr"
    write_envi(header, CUBE, interleave, dtype, offset=7)
    for path in (header, header.with_suffix(".dat")):
        image = open_image(path)
        assert (image.shape, image.axis, image.kind) == ((6, 5, 4), 0, "envi")
        np.testing.assert_array_equal(image.read(2, 5), CUBE[2:5])


def test_fields_of_a_header(tmp_path):
    file = tmp_path / "a.hdr"
    file.write_text(
        "ENVI\n; a comment\nBand Names = {one, two\n words}\nwavelength = { 0.4,0.5 }\nwavelength units = Micrometers\n"
        "bbl = {1, 0}\nmap info = {UTM, 1, 2}\n"
    )
    header = envi.read_header(file)
    assert header.names("band names") == ["one", "two\n words"]
    np.testing.assert_allclose(envi.wavelengths_in_nm(header), [400, 500])
    assert envi.good_bands(header, 2).tolist() == [True, False]
    with pytest.raises(Unreadable, match="bbl has 2 entries; allowed: 3"):
        envi.good_bands(header, 3)
    written = envi.header_text((3, 2, 2), ["x, y", "z"], "test", {"map info": header.fields["map info"]})
    file.write_text(written)
    again = envi.read_header(file)
    assert (again.whole("lines"), again.whole("samples"), again.text("interleave")) == (3, 2, "bil")
    assert again.names("band names") == ["x  y", "z"]
    assert again.names("map info") == ["UTM", "1", "2"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"code": 6}, "data type is 6; allowed: 1, 2"),
        ({"bands": 40}, "holds 240 bytes; the header asks for 2400"),
        ({"lines": "many"}, "lines is 'many'; allowed: an integer"),
        ({"interleave": "bxx"}, "interleave is 'bxx'"),
        ({"lines": "9" * 6000}, "lines is '9999"),
        ({"lines": 10**12}, "holds 240 bytes; the header asks for 40000000000000"),
    ],
)
def test_wrong_headers_are_told(tmp_path, change, message):
    header = tmp_path / "scene.hdr"
    write_envi(header, CUBE, "bsq", **{name: value for name, value in change.items() if name != "interleave"})
    if "interleave" in change:
        header.write_text(header.read_text().replace("BSQ", change["interleave"]))
    with pytest.raises(Unreadable, match=message):
        open_image(header)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ENVI\n" + " " * 10_000_000, "lines is missing"),
        ("ENVI\n" + "a = {\n" * 2_000_000, "the list 'a' has no end"),
        ("ENVI\n" + "=" * 10_000_000, "lines is missing"),
        ("ENVI\n" + "a" * 10_000_000 + " ;" * 100_000, "lines is missing"),
        ("ENVI\n" + "a" * 20_000_000, "holds more than 16777216 bytes"),
    ],
)
def test_a_long_header_is_read_in_the_time_that_its_length_takes(tmp_path, text, message):
    """Megabytes, where what is more than linear would not end."""
    (tmp_path / "wide.hdr").write_text(text)
    (tmp_path / "wide").write_bytes(b"0" * 100)
    with pytest.raises(Unreadable, match=message):
        open_image(tmp_path / "wide.hdr")


def test_data_do_not_begin_before_the_file(tmp_path):
    header = tmp_path / "scene.hdr"
    write_envi(header, CUBE, "bsq")
    header.write_text(header.read_text() + "header offset = -100\n")
    with pytest.raises(Unreadable, match="header offset is -100; allowed: at least 0"):
        open_image(header)


@pytest.mark.parametrize("ending", ["nii", "nii.gz"])
def test_nifti_that_is_complex_or_cut_short(tmp_path, ending):
    nibabel = pytest.importorskip("nibabel")
    image = nibabel.Nifti1Image(np.ones((3, 4, 2, 5), "c8"), np.eye(4))
    nibabel.save(image, tmp_path / f"complex.{ending}")
    with pytest.raises(Unreadable, match="holds complex64; allowed: real numbers, such as the magnitude"):
        open_image(tmp_path / f"complex.{ending}", scratch=tmp_path)
    whole = nibabel.Nifti1Image(np.ones((3, 4, 2, 5), "f4"), np.eye(4)).to_bytes()
    huge = bytearray(whole[:352])
    huge[40:56] = np.array([4, 32000, 32000, 32000, 100, 1, 1, 1], "<i2").tobytes()
    pack = gzip.compress if ending == "nii.gz" else bytes
    for name, content, message in (
        ("short", whole[:-100], "holds 732 bytes; its header asks for 832"),
        ("huge", huge, "asks for 13107200000000352|unpacked it takes 13107200000000352 bytes"),
        ("head", whole[:100], "cannot be read|is no NIfTI image"),
    ):
        (tmp_path / f"{name}.{ending}").write_bytes(pack(content))
        with pytest.raises(Unreadable, match=message) as told:
            open_image(tmp_path / f"{name}.{ending}", scratch=tmp_path)
        assert "\n" not in str(told.value)


def test_what_follows_an_image_is_not_unpacked(tmp_path):
    nibabel = pytest.importorskip("nibabel")
    whole = nibabel.Nifti1Image(np.ones((3, 4, 2, 5), "f4"), np.eye(4)).to_bytes()
    (tmp_path / "a.nii.gz").write_bytes(gzip.compress(whole + bytes(10_000_000)))
    (tmp_path / "scratch").mkdir()
    assert open_image(tmp_path / "a.nii.gz", scratch=tmp_path / "scratch").shape == (3, 4, 2, 5)
    assert sum(file.stat().st_size for file in (tmp_path / "scratch").iterdir()) == len(whole)


def test_matlab_files_that_point_elsewhere(tmp_path):
    """Links to other files, which may be pipes, and arrays kept in them, are not followed."""
    h5py = pytest.importorskip("h5py")
    os.mkfifo(tmp_path / "pipe")
    with h5py.File(tmp_path / "a.mat", "w") as file:
        file["image"] = h5py.ExternalLink(str(tmp_path / "pipe"), "/image")
        file.create_dataset("data", (4, 5, 6), "f8", external=[(str(tmp_path / "pipe"), 0, 960)])
        file.create_dataset("huge", (10**5, 10**5, 10**5), "f8", chunks=(10, 10, 10))
    with pytest.raises(Unreadable, match="has no array 'image'"):
        open_image(tmp_path / "a.mat", name="image")
    assert open_image(tmp_path / "a.mat").shape == (10**5, 10**5, 10**5)
    with pytest.raises(Unreadable, match="the maps take 4000000000000001 bytes; allowed"):
        Work(tmp_path / "work", {}, {"a": ((10**5, 10**5, 10**5), "f4")}, 1)
    assert not (tmp_path / "work").exists()


def test_an_unfinished_run_of_another_is_not_gone_on_with(tmp_path):
    maps = {"a": ((4, 3), "f4")}
    Work(tmp_path / "work", {}, maps, 4)
    (tmp_path / "victim.npy").write_bytes((tmp_path / "work" / "a.npy").read_bytes())
    (tmp_path / "link").symlink_to(tmp_path / "work")
    with pytest.raises(Unreadable, match="link: is not a folder of this user's"):
        Work(tmp_path / "link", {}, maps, 4)
    with pytest.raises(Unreadable, match=r"a\.npy: is not the map of the unfinished run"):
        Work(tmp_path / "work", {}, {"a": ((4, 4), "f4")}, 4)
    (tmp_path / "work" / "a.npy").unlink()
    (tmp_path / "work" / "a.npy").symlink_to(tmp_path / "victim.npy")
    with pytest.raises(Unreadable, match=r"a\.npy: is not the map of the unfinished run"):
        Work(tmp_path / "work", {}, maps, 4)


def test_a_header_alone_is_told(tmp_path):
    (tmp_path / "alone.hdr").write_text("ENVI\n")
    with pytest.raises(Unreadable, match="there is no binary file beside the header"):
        open_image(tmp_path / "alone.hdr")


def test_numpy_files_in_either_order(tmp_path):
    for order, axis in (("C", 0), ("F", 1)):
        np.save(tmp_path / "image.npy", np.asarray(CUBE, order=order))
        image = open_image(tmp_path / "image.npy")
        assert image.axis == axis  # the spatial axis whose slabs lie together
        np.testing.assert_array_equal(image.read(1, 3, 0), CUBE[1:3])
    np.savez_compressed(tmp_path / "image.npz", data=CUBE, other=np.zeros(3))
    for scratch in (None, tmp_path):
        np.testing.assert_array_equal(open_image(tmp_path / "image.npz", scratch=scratch).read(0, 6), CUBE)
    np.savez(tmp_path / "two.npz", a=CUBE, b=CUBE)
    with pytest.raises(Unreadable, match=r"holds a \(6, 5, 4\), b \(6, 5, 4\); say which one is the image"):
        open_image(tmp_path / "two.npz")
    np.testing.assert_array_equal(open_image(tmp_path / "two.npz", name="b").read(0, 6), CUBE)


def test_matlab_files_have_their_first_axis_fastest(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "image.mat", "w") as file:
        file["img"] = CUBE.T
        file["note"] = np.zeros((1, 1))
    image = open_image(tmp_path / "image.mat")
    assert image.shape == CUBE.shape
    np.testing.assert_array_equal(image.read(2, 4, 0), CUBE[2:4])
    np.testing.assert_array_equal(image.read(1, 2), CUBE[:, 1:2])
    (tmp_path / "old.mat").write_bytes(b"MATLAB 5.0 MAT-file")
    with pytest.raises(Unreadable, match=r"old\.mat: is no MATLAB file"):
        open_image(tmp_path / "old.mat")


@pytest.mark.parametrize("ending", ["nii", "nii.gz"])
def test_nifti_slabs_and_headers(tmp_path, ending):
    nibabel = pytest.importorskip("nibabel")
    data = random.normal(size=(4, 3, 5, 6)).astype(np.float32)
    affine = np.diag([2.0, 2.0, 3.0, 1.0])
    affine[:3, 3] = 5, 6, 7
    path = tmp_path / f"image.{ending}"
    scaled = nibabel.Nifti1Image(np.round(100 * data).astype(np.int16), affine)
    scaled.header.set_slope_inter(0.01, 0.5)
    nibabel.save(scaled, path)
    expected = np.asarray(nibabel.load(path).dataobj)
    for scratch in (None, tmp_path):
        image = open_image(path, scratch=scratch)
        assert (image.shape, image.axis) == (data.shape, 2)
        np.testing.assert_allclose(image.read(1, 3), expected[:, :, 1:3])
    write_nifti(tmp_path / "map.nii.gz", data[..., 0], image.about)
    made = nibabel.load(tmp_path / "map.nii.gz")
    np.testing.assert_array_equal(np.asarray(made.dataobj), data[..., 0])
    np.testing.assert_array_equal(made.affine, affine)
    assert made.get_data_dtype() == np.float32


def test_what_cannot_be_read_is_told(tmp_path):
    (tmp_path / "a.xyz").write_text("")
    with pytest.raises(Unreadable, match=r"ends in .xyz; allowed: .nii"):
        open_image(tmp_path / "a.xyz")
    with pytest.raises(FileNotFoundError):
        open_image(tmp_path / "none.npy")
    np.save(tmp_path / "text.npy", np.array(["a", "b"]))
    with pytest.raises(Unreadable, match="holds <U1; allowed: real numbers"):
        open_image(tmp_path / "text.npy")


def test_a_missing_package_is_asked_for_with_its_command(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name, extra in (("a.nii", "nifti"), ("a.nii.gz", "nifti"), ("a.mat", "matlab"), ("a.tif", "geo")):
        (tmp_path / name).write_bytes(bytes(512) + b"\x89HDF\r\n\x1a\n")
        with pytest.raises(ModuleNotFoundError, match=rf"pip install 'stepwell\[{extra}\]'"):
            open_image(tmp_path / name)


# ---- work that is stopped and resumed ----


class Stopped(Exception):
    pass


def doubled(limit, seen):
    def make(block, start, stop):
        if len(seen) == limit:
            raise Stopped
        seen.append((start, stop))
        return {"twice": 2 * block, "first": block[..., 0]}

    return make


def test_a_run_that_was_stopped_goes_on(tmp_path):
    np.save(tmp_path / "image.npy", CUBE)
    image = open_image(tmp_path / "image.npy")
    maps = {"twice": (CUBE.shape, "f4"), "first": (CUBE.shape[:2], "f4")}
    slab = 8 * 8 * 5 * 4

    def work(settings, **options):
        return Work(tmp_path / "work", settings, maps, 6, **options)

    seen = []
    with pytest.raises(Stopped):
        fill(image, work({"a": 1}), doubled(2, seen), step_bytes=2 * slab)
    assert seen == [(0, 2), (2, 4)]
    resumed = work({"a": 1})
    assert resumed.resumed == 4
    told = []
    fill(image, resumed, doubled(9, seen), step_bytes=2 * slab, progress=lambda *news: told.append(news))
    assert seen[2:] == [(4, 6)]
    assert told == [(2, 6), (4, 6), (6, 6)]
    np.testing.assert_array_equal(resumed.arrays["twice"], 2 * CUBE)
    np.testing.assert_array_equal(resumed.arrays["first"], CUBE[..., 0])
    with pytest.raises(ValueError, match="an unfinished run with other settings"):
        work({"a": 2})
    assert work({"a": 2}, restart=True).resumed == 0
    resumed.discard()
    assert not (tmp_path / "work").exists()


def test_a_slab_is_done_only_when_it_is_written(tmp_path):
    np.save(tmp_path / "image.npy", CUBE)
    image = open_image(tmp_path / "image.npy")
    work = Work(tmp_path / "work", {}, {"a": (CUBE.shape[:2], "f4")}, 6)
    with pytest.raises(KeyError):
        fill(image, work, lambda block, start, stop: {}, step_bytes=1)
    assert Work(tmp_path / "work", {}, {"a": (CUBE.shape[:2], "f4")}, 6).resumed == 0
    assert json.loads((tmp_path / "work" / "settings.json").read_text()) == {}
