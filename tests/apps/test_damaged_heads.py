"""Heads of files that say what cannot be: one line, which says what it is and what is allowed."""

from __future__ import annotations

import io
import logging
import struct
import zipfile

import numpy as np
import pytest
from click.testing import CliRunner

from stepwell.apps.files import envi
from stepwell.apps.images import open_image
from stepwell.cli.group import main
from stepwell.common.array_files import map_array_file
from stepwell.common.files import Unreadable

#: Bytes of a NIfTI-1 head: where a field lies, its format, and values that no image has.
FIELDS = {
    "dim": (40, "<h", 9), "negative": (42, "<h", -6), "type": (70, "<h", 0), "unknown type": (70, "<h", 9999),
    "nan": (108, "<f", float("nan")), "inf": (108, "<f", float("inf")), "early": (108, "<f", -100.0),
}  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("field", FIELDS)
def test_nibabel_says_nothing_beside_the_error(field, packed, tmp_path):
    nibabel = pytest.importorskip("nibabel")
    place, form, value = FIELDS[field]
    nibabel.save(nibabel.Nifti1Image(np.ones((2, 2, 1, 6)), np.eye(4)), tmp_path / "good.nii")
    content = bytearray((tmp_path / "good.nii").read_bytes())
    struct.pack_into(form, content, place, value)
    path = tmp_path / ("a.nii.gz" if packed else "a.nii")
    if packed:
        import gzip

        content = gzip.compress(bytes(content))
    path.write_bytes(content)
    (handler,) = (one for one in logging.getLogger("nibabel.global").handlers if isinstance(one, logging.StreamHandler))
    printed = io.StringIO()
    before = handler.setStream(printed)
    try:
        with pytest.raises(Unreadable) as raised:
            open_image(path, scratch=tmp_path).read(0, 1)
    finally:
        handler.setStream(before)
    assert printed.getvalue() == ""
    text = str(raised.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert "Whoops" not in text


def npy(head):
    """The bytes of an npy file with such a head."""
    text = head.encode()
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text)) + text


def told(path):
    with pytest.raises(Unreadable) as raised:
        map_array_file(path)
    return str(raised.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("shape", ["(" + "9" * 4000 + ",)", "(" * 3000, "(" + "9" * 5000 + ",)"])
def test_reasons_are_short(shape, tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(npy("{'descr': '<f8', 'fortran_order': False, 'shape': " + shape + ", }\n"))
    assert len(told(path)) < 400


def test_a_negative_size(tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-80, 10), }\n") + bytes(6400))
    assert told(path) == "cannot be read: it has shape (-80, 10); allowed: sizes of at least 0"


def test_the_only_array_of_an_npz_says_what_is_wrong_with_it(tmp_path):
    path = tmp_path / "a.npz"
    head = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (10**9, 10), }\n".replace("10**9", str(10**9)))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("cube.npy", head)
    with pytest.raises(
        Unreadable, match=r"an array \(1000000000, 10\) of float64 takes 80000000000 bytes; 0 are there"
    ):
        open_image(path)
    with zipfile.ZipFile(path, "a") as archive:
        held = io.BytesIO()
        np.save(held, np.zeros((3, 4, 5)))
        archive.writestr("image.npy", held.getvalue())
    assert open_image(path).shape == (3, 4, 5)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [("samples", -4, "at least 1"), ("lines", 0, "at least 1"), ("byte order", 7, r"0 \(small end first\), 1")],
)
def test_fields_of_envi(name, value, allowed, tmp_path):
    fields = {"samples": 3, "lines": 2, "bands": 4, "data type": 4, "byte order": 0, name: value}
    (tmp_path / "a.hdr").write_text("ENVI\n" + "".join(f"{key} = {one}\n" for key, one in fields.items()))
    (tmp_path / "a.img").write_bytes(bytes(96))
    with pytest.raises(Unreadable, match=rf"a.hdr: {name} is {value}; allowed: {allowed}$"):
        envi.map_cube(tmp_path / "a.hdr")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("reconstruct phantom --size 10000000", "--size is 10000000; allowed: a size that fits"),
        ("t2map --synthetic 3x3 --angles 50 180 100000000", "angles is (50.0, 180.0, 100000000); allowed: a size"),
        ("t2map --synthetic 3x3 --te 1e-300", "te is 1e-300; allowed: seconds, at least 1e-05"),
        ("relax t2 --synthetic 3x3 --te 0.01", "--te is (0.01,); allowed: at least 2 that differ"),
        ("relax t1-vfa --synthetic 3x3 --flip 5", "--flip is (5.0,); allowed: at least 2 that differ"),
    ],
)
def test_commands_name_the_option_that_is_wrong(command, message, tmp_path):
    pytest.importorskip("nibabel")
    done = CliRunner().invoke(main, [*command.split(), "-o", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
