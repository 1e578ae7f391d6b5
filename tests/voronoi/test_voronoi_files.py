"""Files are read back: points, meshes, statistics, and pictures to be stippled."""

from __future__ import annotations

import json

import numpy as np
import pytest

from stepwell.apps.voronoi.files import write_json, write_obj, write_ply, write_points_csv, write_points_npy
from stepwell.apps.voronoi.mesh import Mesh, delaunay_mesh
from stepwell.apps.voronoi.picture import Picture, display_values, linear_light, read_picture
from stepwell.apps.voronoi.shell import nautilus
from stepwell.common.json_text import json_text

Image = pytest.importorskip("PIL.Image")
SITES = np.random.default_rng(0).random((200, 2)) * (1.0, 0.5)


@pytest.fixture
def mesh():
    return delaunay_mesh(SITES, (1.0, 0.5))


def test_points(tmp_path):
    radii = np.linspace(0.1, 0.2, 200)
    write_points_csv(tmp_path / "a.csv", SITES, radius=radii)
    table = np.genfromtxt(tmp_path / "a.csv", delimiter=",", names=True)
    assert table.dtype.names == ("x", "y", "radius")
    assert np.column_stack([table["x"], table["y"]]) == pytest.approx(SITES, rel=1e-8)
    assert table["radius"] == pytest.approx(radii, rel=1e-8)
    write_points_npy(tmp_path / "a.npy", SITES)
    assert np.array_equal(np.load(tmp_path / "a.npy"), SITES)
    with pytest.raises(ValueError, match=r"radius has shape \(3,\); allowed: \(200,\)"):
        write_points_csv(tmp_path / "b.csv", SITES, radius=[1, 2, 3])
    assert not (tmp_path / "b.csv").exists()


def check_mesh(vertices, faces, mesh, height):
    assert vertices[:, 0] == pytest.approx(mesh.sites[:, 0], abs=1e-7)
    assert vertices[:, 1] == pytest.approx(height - mesh.sites[:, 1], abs=1e-7)
    assert np.all(vertices[:, 2] == 0)
    assert np.array_equal(np.sort(faces, axis=1), np.sort(mesh.triangles, axis=1))
    a, b, c = (vertices[faces[:, k], :2] for k in range(3))
    p, q = b - a, c - a
    assert np.all(p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0] > 0)  # counterclockwise with y upwards


def test_obj(tmp_path, mesh):
    write_obj(tmp_path / "m.obj", mesh, 0.5)
    lines = [line.split() for line in (tmp_path / "m.obj").read_text().splitlines()]
    vertices = np.array([line[1:] for line in lines if line[0] == "v"], float)
    faces = np.array([line[1:] for line in lines if line[0] == "f"], int) - 1
    assert len(vertices) + len(faces) == len(lines)
    check_mesh(vertices, faces, mesh, 0.5)


def test_ply(tmp_path, mesh):
    radius = np.linspace(0, 1, 200)
    write_ply(tmp_path / "m.ply", mesh, 0.5, radius=radius, red=radius, green=radius, blue=1 - radius)
    header, _, body = (tmp_path / "m.ply").read_bytes().partition(b"end_header\n")
    words = [line.split() for line in header.decode("ascii").splitlines()]
    assert words[:2] == [["ply"], ["format", "binary_little_endian", "1.0"]]
    counts = {word[1]: int(word[2]) for word in words if word[0] == "element"}
    assert counts == {"vertex": 200, "face": len(mesh.triangles)}
    kinds = {"float": "<f4", "uchar": "<u1"}
    layout = [(word[2], kinds[word[1]]) for word in words if word[0] == "property" and word[1] != "list"]
    table = np.frombuffer(body, layout, count=200)
    rows = np.frombuffer(body, [("count", "<u1"), ("corners", "<i4", 3)], offset=table.nbytes)
    assert np.all(rows["count"] == 3)
    assert ["property", "list", "uchar", "int", "vertex_indices"] in words
    check_mesh(np.column_stack([table[name] for name in "xyz"]), rows["corners"], mesh, 0.5)
    assert table["radius"] == pytest.approx(radius, abs=1e-7)
    assert np.abs(table["red"] / 255 - radius).max() <= 0.5 / 255 + 1e-9


def test_a_mesh_without_triangles(tmp_path):
    empty = Mesh(np.zeros((2, 2)), np.zeros((0, 3), np.int32))
    write_obj(tmp_path / "m.obj", empty)
    write_ply(tmp_path / "m.ply", empty)
    assert (tmp_path / "m.obj").read_text() == "v 0 1 0\n" * 2
    assert b"element face 0" in (tmp_path / "m.ply").read_bytes()


def test_json(tmp_path):
    record = {"n": np.int32(3), "bad": [float("inf"), np.float64("nan"), 1.5], "deep": {6: np.arange(2)}, "text": "λ"}
    write_json(tmp_path / "a.json", record)
    back = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert back == {"n": 3, "bad": [None, None, 1.5], "deep": {"6": [0, 1]}, "text": "λ"}
    assert json.loads(json_text(record)) == back


def save(tmp_path, array, name="a.png", **options):
    Image.fromarray(array).save(tmp_path / name, **options)
    return tmp_path / name


def test_grey_and_colour_pictures(tmp_path):
    grey = np.arange(256, dtype=np.uint8).reshape(16, 16)
    picture = read_picture(save(tmp_path, grey))
    assert picture.shape == (16, 16)
    assert picture.darkness() == pytest.approx(np.where(grey == 255, 0, 1 - grey / 255), abs=1e-6)
    # Darkness in linear light: 1 - luminance of IEC 61966-2-1.
    assert picture.darkness(tone="linear")[8, 0] == pytest.approx(1 - ((128 / 255 + 0.055) / 1.055) ** 2.4, abs=1e-9)
    assert picture.darkness(invert=True) == pytest.approx(grey / 255, abs=1e-6)
    assert picture.darkness(gamma=2) == pytest.approx((1 - grey / 255) ** 2, abs=2e-3)
    colours = np.zeros((2, 3, 3), np.uint8)
    colours[:, 0], colours[:, 1], colours[:, 2] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    red, green, blue = read_picture(save(tmp_path, colours)).darkness(tone="linear")[0]
    assert [1 - red, 1 - green, 1 - blue] == pytest.approx([0.2126, 0.7152, 0.0722])


def test_transparent_means_white(tmp_path):
    black = np.zeros((4, 4, 4), np.uint8)
    black[:, 2:, 3] = 255
    darkness = read_picture(save(tmp_path, black)).darkness()
    assert np.all(darkness[:, :2] == 0)
    assert np.all(darkness[:, 2:] == 1)
    half = np.zeros((1, 1, 2), np.uint8)
    half[..., 1] = 128
    Image.fromarray(half, "LA").save(tmp_path / "la.png")
    assert read_picture(tmp_path / "la.png").colours == pytest.approx(1 - 128 / 255)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr"])
def test_every_mode_is_what_pillow_makes_of_it(tmp_path, monkeypatch, mode):
    noise = np.random.default_rng(0).integers(0, 256, (9, 7, 4), dtype=np.uint8)
    image = Image.fromarray(noise)
    image = image.convert("RGBA" if mode in ("RGBA", "RGBa") else "LA" if mode in ("LA", "PA") else "RGB").convert(mode)
    (tmp_path / "any").touch()
    monkeypatch.setattr("PIL.Image.open", lambda file: image)
    rgba = np.asarray(image.convert("RGBA")) / 255
    expected = rgba[..., :3] * rgba[..., 3:] + 1 - rgba[..., 3:]
    assert read_picture(tmp_path / "any").colours == pytest.approx(expected, abs=1e-12)


def test_deep_palette_and_rotated_pictures(tmp_path):
    deep = np.array([[0, 32768, 65535]], np.uint16)
    assert read_picture(save(tmp_path, deep)).colours[0, :, 0] == pytest.approx([0, 32768 / 65535, 1], abs=1e-4)
    for top, kind in ((1.0, np.float32), (255.0, np.float32), (255, np.int32), (65535, np.int32)):
        wide = np.array([[0, top]], kind)
        assert read_picture(save(tmp_path, wide, "wide.tif")).colours[0, :, 0] == pytest.approx([0, 1], abs=1e-6)
    Image.fromarray(np.array([[0, 255]], np.uint8)).convert("CMYK").save(tmp_path / "cmyk.tif")
    assert read_picture(tmp_path / "cmyk.tif").darkness()[0] == pytest.approx([1, 0], abs=1e-6)
    Image.fromarray(np.array([[0, 255]], np.uint8)).convert("P").save(tmp_path / "p.gif")
    assert read_picture(tmp_path / "p.gif").darkness()[0] == pytest.approx([1, 0], abs=1e-6)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown after a quarter turn
    turned = save(tmp_path, np.array([[0, 255, 255]], np.uint8), "turned.png", exif=exif)
    assert read_picture(turned).shape == (3, 1)


def test_numbers_as_a_picture(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[0.0, 0.25], [0.5, 1.0]]))
    assert read_picture(tmp_path / "a.npy").darkness() == pytest.approx(np.array([[1.0, 0.75], [0.5, 0.0]]), abs=1e-9)
    for bad, message in (
        (np.array([0.5]), r"has shape \(1,\); allowed: \(rows, columns\)"),
        (np.zeros((0, 3)), r"has shape \(0, 3\); allowed: \(rows, columns\), at least one of each"),
        (np.array([[1j]]), "has dtype complex128; allowed: real numbers"),
        (np.array([["a"]]), "has dtype <U1; allowed: real numbers"),
        (np.array([[np.nan]]), r"is nan at index \(0, 0\); allowed: finite numbers"),
        (np.array([[0.5, 2.0]]), r"is 2.0 at index \(0, 1\); allowed: grey from 0 to 1"),
        (np.array([[-1, 1]]), r"is -1.0 at index \(0, 0\); allowed: grey from 0 to 1"),
    ):
        np.save(tmp_path / "a.npy", bad)
        with pytest.raises(ValueError, match=rf"a\.npy {message}"):
            read_picture(tmp_path / "a.npy")


def test_what_is_no_array(tmp_path):
    """Nothing at all, half a file, an archive of arrays, and objects, under the name of an array."""
    np.save(tmp_path / "whole.npy", np.ones((20, 20)))
    np.savez(tmp_path / "a.npz", ones=np.ones((2, 2)))
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    contents = [b"", (tmp_path / "whole.npy").read_bytes()[:300], (tmp_path / "a.npz").read_bytes()]
    for content in (*contents, (tmp_path / "objects.npy").read_bytes()):
        (tmp_path / "a.npy").write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.npy: cannot be read: "):
            read_picture(tmp_path / "a.npy")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_pixels_that_are_not_finite(tmp_path, value):
    grey = np.full((4, 5), 0.5, np.float32)
    grey[1, 2] = value
    path = save(tmp_path, grey, "a.tif")
    with pytest.raises(ValueError, match=r"a\.tif: cannot be read: there are pixels that are not finite"):
        read_picture(path)


def test_what_is_no_picture(tmp_path):
    (tmp_path / "a.png").write_bytes(b"this is text")
    with pytest.raises(ValueError, match=r"a\.png: not a picture that Pillow can read"):
        read_picture(tmp_path / "a.png")
    with pytest.raises(FileNotFoundError):
        read_picture(tmp_path / "missing.png")
    picture = Picture(np.zeros((2, 2, 3)), "black")
    for gamma in (0, np.inf, True, "1"):
        with pytest.raises(ValueError, match=f"gamma is {gamma!r}; allowed: a finite number above 0"):
            picture.darkness(gamma=gamma)
    with pytest.raises(ValueError, match="tone is 'film'; allowed: 'display', 'linear'"):
        picture.darkness(tone="film")


def test_resizing_keeps_the_light():
    rng = np.random.default_rng(0)
    picture = Picture(rng.random((60, 90, 3)), "noise")
    small = picture.resized(30)
    assert small.shape == (20, 30)
    light = linear_light(picture.colours).reshape(20, 3, 30, 3, 3).mean(axis=(1, 3))
    assert linear_light(small.colours) == pytest.approx(light, abs=1e-5)
    assert picture.resized(180).shape == (120, 180)
    assert picture.resized(90) is picture
    values = np.linspace(0, 1, 101)
    assert display_values(linear_light(values)) == pytest.approx(values, abs=1e-6)


def test_the_demonstration_has_all_tones():
    darkness = nautilus(300).darkness()
    assert darkness.min() == 0
    counts = np.histogram(darkness, bins=10, range=(0, 1))[0]
    assert np.all(counts > 0.003 * darkness.size)
    assert np.array_equal(nautilus(120).colours, nautilus(120).colours)
