"""How commands start and end: closed streams, Ctrl-C at any moment, files of any kind, and sizes beyond all memory."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

from stepwell.cli.group import COMMANDS, main

COMMAND = [sys.executable, "-m", "stepwell"]
#: A short call of every command.
SHORT = {
    "solve": ["wood", "-n", "4"],
    "problems": [],
    "info": [],
    "reconstruct": ["--size", "8", "--angles", "6", "--no-plots"],
    "study": ["--help"],
    "tour": ["--help"],
    "voronoi": ["-n", "5", "--resolution", "16", "--maxiter", "1", "-o", "v.svg"],
    "stipple": ["--help"],
    "deconvolve": ["--synthetic", "2", "-o", "d.npz"],
    "t2map": ["--synthetic", "3x3", "--echoes", "8", "--format", "npy", "--no-plots", "-o", "maps"],
    "decompose": ["--synthetic", "2", "--no-plots", "-o", "taken"],
    "relax": ["t2", "--synthetic", "3x3", "--format", "npy", "--no-plots", "-o", "relaxed"],
    "unmix": ["--synthetic", "4x3", "--no-plots", "-o", "u"],
}


def shell(line, **more):
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=100, **more)


#: A process each: three in the default run, one of them with work to do, all others beside it.
CLOSED = ["solve", "info", "--help"]
OTHERS = [name for name in [*COMMANDS, "--version"] if name not in CLOSED]


@pytest.mark.parametrize("name", [*CLOSED, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_a_closed_standard_output_is_one_line(name, tmp_path):
    call = " ".join([*COMMAND, name, *SHORT.get(name, [])])
    run = shell(f"{call} >&-", cwd=tmp_path)
    assert run.returncode == 1, run.stderr
    assert run.stderr.strip().splitlines()[-1].endswith("standard output is closed")
    assert "Traceback" not in run.stderr


def test_other_streams_that_are_closed(tmp_path):
    call = " ".join([*COMMAND, "solve", "wood", "-n", "4", "--solution", "x.npy"])
    for closed in ("<&-", "2>&-", "<&- 2>&-"):
        run = shell(f"{call} {closed}", cwd=tmp_path)
        assert run.returncode == 0
        assert "converged" in run.stdout
    run = shell(f"{call} -q >&- 2>&- <&-", cwd=tmp_path)
    assert run.returncode == 0
    assert np.load(tmp_path / "x.npy").shape == (4,)  # and nothing printed into it


def test_an_interrupt_at_any_moment_of_the_start(tmp_path):
    """After so many milliseconds, from the program's first own line on: 130 and a line, or done."""
    ended = 0
    for delay in np.linspace(0.0, 1.2, 12):
        code = "import os, sys; sys.argv[1:] = ['solve', 'wood', '-n', '4']\n" \
            "import stepwell.cli.start as s\nos.write(1, b'.')\ns.main()"  # fmt: skip
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
        )
        os.read(child.stdout.fileno(), 1)
        time.sleep(0.02 + delay)
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=60)
        # (While the interpreter ends, after all is done, the signal itself may end it.)
        assert child.returncode in (0, 130, -signal.SIGINT), said
        assert b"Traceback" not in said
        assert b"None" not in said
        if child.returncode == 130:
            assert said.strip().splitlines()[-1] in (b"stepwell: interrupted", b"stepwell solve: interrupted")
            ended += 1
    assert ended > 0


def test_an_interrupt_before_the_command_is_known(monkeypatch):
    def press(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("stepwell.cli.group.LazyGroup.get_command", press)
    run = CliRunner().invoke(main, ["solve"])
    assert run.exit_code == 130
    assert run.stderr == "stepwell: interrupted\n"


# ---- files of every kind ----


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An image, a library and things that are no regular files, each under every ending."""
    monkeypatch.chdir(tmp_path)
    np.save("image.npy", 1 + np.random.default_rng(0).random((3, 3, 2, 8)))
    np.save("cube.npy", np.random.default_rng(0).random((3, 4, 3)))
    (tmp_path / "library.csv").write_text("name,400,500,600\na,1,2,3\nb,2,1,1\n")
    (tmp_path / "cube").write_bytes(bytes(100))

    def hang(number, frame):
        raise TimeoutError("the command hangs")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(60)
    yield tmp_path
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def make(kind, path):
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        os.symlink("/dev/zero", path)
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path)


T2MAP, UNMIX = ["--te", "0.01", "--no-plots", "-o", "o"], ["--no-plots", "-o", "o"]
PLAIN = ["unmix", "cube.npy", "library.csv"]
READERS = {
    "t2map": (["t2map", "BAD", *T2MAP], ("nii", "nii.gz", "npy", "npz", "mat")),
    "--mask": (["t2map", "image.npy", "--mask", "BAD", *T2MAP], ("nii.gz", "npy", "npz")),
    "--b1": (["t2map", "image.npy", "--b1", "BAD", *T2MAP], ("nii", "npy", "npz")),
    "unmix": (["unmix", "BAD", "library.csv", *UNMIX], ("hdr", "npy", "npz", "mat")),
    "library": (["unmix", "cube.npy", "BAD", *UNMIX], ("csv", "hdr", "sli", "npz", "txt")),
    "--wavelengths": ([*PLAIN, "--wavelengths", "BAD", *UNMIX], ("npy", "txt")),
    "--noise": ([*PLAIN, "--wavelengths", "w.txt", "--noise", "BAD", *UNMIX], ("npy", "csv")),
    "reconstruct": (["reconstruct", "BAD", "--no-plots", "-o", "o"], ("npz", "h5", "nxs", "tif", "tiff", "npy")),
    "deconvolve": (["deconvolve", "BAD", "-o", "o.npz"], ("npz", "h5", "he5")),
    "decompose": (["decompose", "BAD", "--no-plots", "-o", "o"], ("npz", "h5")),
    "relax": (["relax", "t2", "BAD", "--te", "0.01,0.02", "--no-plots", "-o", "o"], ("nii", "npy", "npz", "mat")),
    "stipple": (["stipple", "BAD", "-o", "o.svg"], ("png", "npy")),
    "--density": (["voronoi", "--density", "BAD", "-o", "o.svg"], ("png", "npy")),
    "--checkpoint": (["solve", "wood", "--checkpoint", "BAD"], ("ckpt",)),
}
NEEDED = {"nii": "nibabel", "nii.gz": "nibabel", "mat": "h5py", "h5": "h5py", "nxs": "h5py", "he5": "h5py",
          "tif": "tifffile", "tiff": "tifffile", "png": "PIL"}  # fmt: skip


@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
@pytest.mark.parametrize(("reader", "ending"), [(reader, end) for reader, (_, ends) in READERS.items() for end in ends])
def test_what_is_no_regular_file_is_refused_by_every_reader(reader, ending, kind, folder):
    if ending in NEEDED:
        pytest.importorskip(NEEDED[ending])
    make(kind, f"bad.{ending}")
    (folder / "w.txt").write_text("400 500 600")
    call = [f"bad.{ending}" if part == "BAD" else part for part in READERS[reader][0]]
    run = CliRunner().invoke(main, call)
    assert run.exception is None or isinstance(run.exception, SystemExit), run.exception
    assert run.exit_code in (1, 2), run.output
    (line,) = [line for line in run.stderr.splitlines() if line.startswith("Error: ")]
    assert f"bad.{ending}: is not a regular file; allowed: a file on a disk" in " ".join(run.stderr.split())
    assert "image.npy" not in line


# ---- sizes ----


@pytest.mark.parametrize("size", [10**12, 10**25])
@pytest.mark.parametrize(
    "call",
    [
        ["solve", "rosenbrock", "-n", "SIZE"],
        ["solve", "torsion", "--nx", "SIZE", "--ny", "SIZE"],
        ["solve", "torsion", "-n", "SIZE"],
        ["solve", "morse", "--param", "natoms=SIZE"],
        ["solve", "wood", "-m", "SIZE"],
        ["solve", "wood", "--threads", "SIZE"],
        ["deconvolve", "--synthetic", "SIZE", "-o", "o.npz"],
        ["decompose", "--synthetic", "SIZE", "--no-plots", "-o", "o"],
        ["relax", "t2", "--synthetic", "999999x999999x999999", "--format", "npy", "--no-plots", "-o", "o"],
        ["voronoi", "-n", "SIZE", "-o", "o.svg"],
        ["voronoi", "-n", "5", "--resolution", "SIZE", "-o", "o.svg"],
        ["reconstruct", "--size", "SIZE", "--no-plots", "-o", "o"],
        ["reconstruct", "--size", "8", "--angles", "SIZE", "--no-plots", "-o", "o"],
        ["t2map", "--synthetic", "4x4x1", "--echoes", "SIZE", "--format", "npy", "--no-plots", "-o", "o"],
        ["t2map", "image.npy", "--te", "0.01", "--bins", "SIZE", "--no-plots", "-o", "o"],
        ["t2map", "--synthetic", "999999x999999x999999", "--format", "npy", "--no-plots", "-o", "o"],
        ["unmix", "--synthetic", "4x4", "--bands", "SIZE", "--no-plots", "-o", "o"],
        ["unmix", "--synthetic", "999999x999999", "--no-plots", "-o", "o"],
    ],
    ids=" ".join,
)
def test_sizes_beyond_all_memory_are_refused_in_a_line(call, size, folder):
    run = CliRunner().invoke(main, [part.replace("SIZE", str(size)) for part in call])
    assert run.exception is None or isinstance(run.exception, SystemExit), run.exception
    assert run.exit_code in (1, 2), run.output
    assert len([line for line in run.stderr.splitlines() if line.startswith("Error: ")]) == 1


def test_no_slices_are_an_error(folder):
    np.savez("scan.npz", angles_deg=np.arange(6.0), integrals=np.zeros((6, 0, 8)))
    run = CliRunner().invoke(main, ["reconstruct", "scan.npz", "--no-plots"])
    assert run.exit_code == 1
    assert "scan.npz: projections have shape (6, 0, 8); allowed: at least one angle, slice and detector" in run.stderr
