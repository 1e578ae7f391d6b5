"""Files that commands cannot or must not read or write: one line on standard error, before work where it can be."""

from __future__ import annotations

import io
import os
import signal
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from click.testing import CliRunner
from full_disk import full_disk

from stepwell.apps import waveform
from stepwell.cli.group import main

RANDOM = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Commands run in a folder of their own, and none may hang."""
    monkeypatch.chdir(tmp_path)

    def hang(number, frame):
        raise TimeoutError("the command hangs")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(60)
    yield tmp_path
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def invoke(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def complains(status, message, *arguments):
    """The command ends with this status and this message on standard error, and with no traceback."""
    run = invoke(*arguments)
    assert run.exception is None or isinstance(run.exception, SystemExit), run.exception
    assert run.exit_code == status, run.output
    assert message in " ".join(run.stderr.split())


def save_shots(path):
    shots = waveform.synthetic_shots(3, samples=60, returns=1)
    np.savez_compressed(path, waveforms=shots.waveforms, pulses=shots.pulses)


def save_scan(path, **other):
    held = {"angles_deg": np.arange(0, 180, 30.0), "integrals": RANDOM.random((6, 2, 8))} | other
    np.savez_compressed(path, **held)


# ---- names ----


def test_the_name_given_is_the_name_written(folder):
    run = invoke("deconvolve", "--synthetic", "2", "-o", "X.NPZ")
    assert run.exit_code == 0
    assert "wrote X.NPZ\n" in run.output
    assert os.listdir(folder) == ["X.NPZ"]
    with np.load("X.NPZ") as held:
        assert held["amplitudes"].shape[0] == 2
    assert invoke("solve", "wood", "-n", "4", "--solution", "X.NPY").exit_code == 0
    assert sorted(os.listdir(folder)) == ["X.NPY", "X.NPZ"]
    assert np.load("X.NPY").shape == (4,)


# ---- the input as output ----


def test_the_input_is_not_written_over(folder):
    save_shots("a.npz")
    os.symlink("a.npz", "link.npz")
    save_scan("volume.npy.npz")
    os.rename("volume.npy.npz", "volume.npy")
    np.save("grey.npy", RANDOM.random((32, 32)))
    np.save("points.npy", RANDOM.random((32, 32)))
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    small = ("-n", "5", "--maxiter", "1")
    for command in (
        ("deconvolve", "a.npz", "-o", "a.npz"),
        ("deconvolve", "a.npz", "-o", "link.npz"),
        ("deconvolve", "link.npz", "-o", folder / "a.npz"),
        ("reconstruct", "volume.npy", "-o", ".", "--no-plots"),
        ("stipple", "grey.npy", "-o", "grey.npy", *small),
        ("voronoi", "--density", "grey.npy", "-o", "a.svg", "-o", "grey.npy", *small),
        ("voronoi", "--density", "grey.npy", "--json", "grey.npy", *small),
        ("voronoi", "--density", "points.npy", "-o", folder, *small),
        ("stipple", "points.npy", "-o", folder, *small),
    ):
        complains(2, "is the input; allowed: another file", *command)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


# ---- what a file holds ----


@pytest.mark.parametrize("name", ["angles_deg", "integrals", "center_column"])
def test_imaginary_parts_are_not_lost(name):
    shape = {"angles_deg": (6,), "integrals": (6, 2, 8), "center_column": ()}[name]
    save_scan("scan.npz", **{name: np.full(shape, 3 + 1j)})
    complains(1, f"scan.npz: {name} has dtype complex128; allowed: real numbers", "reconstruct", "scan.npz")


def test_imaginary_counts_are_not_lost():
    counts = {"projections": np.full((6, 2, 8), 5 + 1j), "flat": np.full((1, 2, 8), 9.0), "dark": np.zeros((1, 2, 8))}
    np.savez("scan.npz", angles_deg=np.arange(0, 180, 30.0), **counts)
    complains(1, "scan.npz: projections has dtype complex128; allowed", "reconstruct", "scan.npz")


def test_a_center_that_is_many():
    save_scan("scan.npz", center_column=np.zeros(3))
    complains(1, "scan.npz: center_column has shape (3,); allowed: one number", "reconstruct", "scan.npz")


def npy(header, content=b""):
    """An npy file with a header of one's own."""
    text = header if isinstance(header, bytes) else repr(header).encode() + b"\n"
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text)) + text + content


def array_of(shape):
    return npy({"descr": "<f8", "fortran_order": False, "shape": shape}, b"\0" * 64)


DAMAGED = {
    "no memory": array_of((1 << 45, 2)),
    "no address": array_of((1 << 62, 1 << 62)),
    "long header": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31 - 1) + b"{'descr'",
    "large header": npy(b"{" + b" " * 20_000 + b"}"),
    "deep header": npy(b"(" * 5_000),
    "no header": npy(b"'"),
    "half": array_of((9, 9)),
}
if np.lib.NumpyVersion(np.__version__) >= "2.0.0":  # before, NumPy took the missing size from the file
    DAMAGED["negative"] = array_of((-1, 4))


def archive(content, method=zipfile.ZIP_STORED):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as held:
        for name in ("waveforms", "pulses", "angles_deg", "integrals"):
            held.writestr(f"{name}.npy", content)
    return bytearray(made.getvalue())


def bad_stream():
    """Deflated members whose first block has a type that there is not: zlib.error."""
    made = archive(array_of((2, 4)), zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(io.BytesIO(made)) as held:
        for member in held.infolist():
            start = member.header_offset + 30 + len(member.filename)
            made[start] = 0xFF
    return made


def with_flags(offset_local, offset_central, value):
    made = archive(array_of((2, 4)))
    for mark, offset in ((b"PK\x03\x04", offset_local), (b"PK\x01\x02", offset_central)):
        place = made.find(mark)
        while place >= 0:
            struct.pack_into("<H", made, place + offset, value)
            place = made.find(mark, place + 4)
    return made


ARCHIVES = {name: archive(content) for name, content in DAMAGED.items()} | {
    "bad stream": bad_stream(),
    "encrypted": with_flags(6, 8, 1),
    "unknown compression": with_flags(8, 10, 77),
    "empty": b"",
    "text": archive(b"no array"),
}


@pytest.mark.parametrize("what", ARCHIVES)
@pytest.mark.parametrize("command", [("deconvolve", "a.npz", "-o", "x.npz"), ("reconstruct", "a.npz", "-o", "out")])
def test_damaged_archives(folder, what, command):
    (folder / "a.npz").write_bytes(ARCHIVES[what])
    complains(1, "Error: a.npz: ", *command)
    assert os.listdir(folder) == ["a.npz"]


@pytest.mark.parametrize("what", DAMAGED)
@pytest.mark.parametrize("command", [("stipple", "a.npy"), ("voronoi", "--density", "a.npy")])
def test_damaged_arrays(folder, what, command):
    (folder / "a.npy").write_bytes(DAMAGED[what])
    complains(2, "a.npy: cannot be read: ", *command, "-n", "5", "-o", "x.svg")
    assert os.listdir(folder) == ["a.npy"]


@pytest.mark.parametrize(
    ("status", "command"),
    [
        (1, ("deconvolve", "pipe", "-o", "x.npz")),
        (1, ("reconstruct", "pipe", "-o", "out")),
        (2, ("stipple", "pipe", "-o", "x.svg")),
        (2, ("stipple", "pipe.npy", "-o", "x.svg")),
        (2, ("voronoi", "--density", "pipe.npy", "-o", "x.svg")),
        (1, ("deconvolve", "/dev/zero", "-o", "x.npz")),
    ],
)
def test_a_pipe_is_refused(folder, status, command):
    if "pipe" in command and command[0] == "stipple":
        pytest.importorskip("PIL")
    os.mkfifo("pipe")
    os.mkfifo("pipe.npy")
    complains(status, "is not a regular file; allowed: a file on a disk", *command)
    assert sorted(os.listdir(folder)) == ["pipe", "pipe.npy"]


# ---- full disks ----


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("solve", "wood", "-n", "4", "--solution", "old.npy"), "old.npy"),
        (("solve", "wood", "-n", "4", "--json", "old.json"), "old.json"),
        (("solve", "wood", "-n", "4", "--plot", "old.png"), "old.png"),
        (("deconvolve", "--synthetic", "2", "-o", "old.npz"), "old.npz"),
        (("deconvolve", "--synthetic", "2", "--plot", "old.svg"), "old.svg"),
        (("reconstruct", "--size", "8", "--angles", "6", "--no-plots", "-o", "."), "volume.npy"),
        (("voronoi", "-n", "5", "--resolution", "16", "--maxiter", "1", "-o", "old.svg"), "old.svg"),
        (("voronoi", "-n", "5", "--resolution", "16", "--maxiter", "1", "--json", "old.json"), "old.json"),
    ],
)
def test_a_full_disk_is_one_line_and_keeps_the_old_file(folder, command, name):
    if name.endswith("png") or "--plot" in command:
        pytest.importorskip("matplotlib")
    (folder / name).write_text("old")
    with full_disk():
        complains(1, "File too large", *command)
    assert (folder / name).read_text() == "old"
    assert os.listdir(folder) == [name]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("command", [("solve", "wood", "-n", "4"), ("problems",), ("solve", "wood", "--json", "-")])
def test_standard_output_on_a_full_disk(command):
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "stepwell", *command], stdout=full, stderr=subprocess.PIPE, text=True, timeout=100
        )
    assert run.returncode == 1
    assert "No space left on device" in run.stderr
    assert len(run.stderr.splitlines()) == 1
