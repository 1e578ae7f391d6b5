"""Files are replaced in one step: whatever fails, and whenever the process is killed, the old or the new is whole."""

from __future__ import annotations

import contextlib
import doctest
import errno
import os
import pathlib
import re
import socket
import stat
import subprocess
import sys

import numpy as np
import pytest
from full_disk import full_disk

import stepwell
from stepwell.apps import waveform
from stepwell.apps.voronoi import files as voronoi_files
from stepwell.apps.voronoi.mesh import Mesh
from stepwell.common import array_files, files
from stepwell.common.array_files import open_arrays
from stepwell.common.files import Unreadable, open_regular, own_names, replacing, write_text

KILLS = 60

#: Saves without end in a child that is killed, so that every kill meets a save; reads the file after each kill.
KILLED = """
import os, random, signal, sys, time
import numpy as np
from stepwell import ProjectedCG
from stepwell.common import checkpoints
from stepwell.apps import waveform
from stepwell.apps.voronoi.files import write_json
kind, path, kills = sys.argv[1], sys.argv[2], int(sys.argv[3])
size = 20_000
A = np.random.default_rng(0).normal(size=(40, 30))
solver = ProjectedCG(A, 0.1)
solver.solve(A[:, 0])
directions = solver._space.arrays()["directions"]

def save(version):
    if kind == "projected":
        solver.lam = float(version)
        solver.save(path)
    elif kind == "shots":
        waveform.save_shots(path, waveform.Shots(np.full((4, size), float(version)), np.ones((4, 5)), 0, np.zeros(4)))
    else:
        write_json(path, {"version": version, "filling": [version] * size})

def read():
    if kind == "json":
        import json
        held = json.load(open(path))
        assert held["filling"] == [held["version"]] * size
        return held["version"]
    if kind == "projected":
        held = checkpoints.read(path, "ProjectedCG")
        assert np.array_equal(held["directions"], directions)
        return int(held["lam"])
    with np.load(path) as held:
        assert np.ptp(held["waveforms"]) == 0 and held["waveforms"].shape == (4, size)
        return int(held["waveforms"][0, 0])

save(1)
began = time.perf_counter()
save(1)
once = time.perf_counter() - began
random.seed(1)
lost = 0
version = 1
for kill in range(kills):
    child = os.fork()
    if not child:
        while True:
            version += 1
            save(version)
    time.sleep(random.uniform(0, 3 * once) + 0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    try:
        found = read()
        lost += found < version  # never an older one than that of before this child
        version = found
    except Exception as error:
        lost += 1
        print(repr(error), file=sys.stderr)
        save(version)
print("lost", lost)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["projected", "shots", "json"])
def test_a_killed_save_leaves_a_whole_file(kind, tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", KILLED, kind, str(tmp_path / "held.npz"), str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["lost", "0"], done.stderr


def save_directions(path):
    A = np.random.default_rng(0).normal(size=(12, 8))
    solver = stepwell.ProjectedCG(A, 0.1)
    solver.solve(A[:, 0])
    solver.save(path)


def save_figure(path):
    pytest.importorskip("matplotlib")
    from stepwell.lab.solve.convergence import plot_convergence
    from stepwell.lab.solve.history import Iteration

    plot_convergence([Iteration(0, 1, 3.0, 1.0, 1.0, None)], path)


SITES = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
MESH = Mesh(SITES, np.array([[0, 1, 2]]))
WRITERS = {
    "directions.npz": save_directions,
    "shots.npz": lambda path: waveform.save_shots(path, waveform.synthetic_shots(2, samples=60, returns=1)),
    "points.csv": lambda path: voronoi_files.write_points_csv(path, SITES),
    "points.npy": lambda path: voronoi_files.write_points_npy(path, SITES),
    "mesh.obj": lambda path: voronoi_files.write_obj(path, MESH),
    "mesh.ply": lambda path: voronoi_files.write_ply(path, MESH),
    "statistics.json": lambda path: voronoi_files.write_json(path, {"a long name": 1.0}),
    "page.html": lambda path: write_text(path, "<html>" * 10),
    "run.png": save_figure,
    "run.svg": save_figure,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_keeps_the_old_file(name, tmp_path):
    path = tmp_path / name
    path.write_text("old")
    with full_disk(), pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        WRITERS[name](path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [name]
    WRITERS[name](path)
    assert path.stat().st_size > 8
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize("before", [True, False])
def test_what_the_system_refuses_leaves_nothing(function, before, tmp_path, monkeypatch):
    """A write that fails only when it is synced, and a renaming that fails."""

    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "a.txt"
    if before:
        path.write_text("old")
    monkeypatch.setattr(os, function, refuse)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        write_text(path, "new")
    assert os.listdir(tmp_path) == (["a.txt"] if before else [])
    assert not before or path.read_text() == "old"


def test_the_file_and_then_its_folder_are_synced(tmp_path, monkeypatch):
    synced = []
    real = os.fsync

    def watch(descriptor):
        synced.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), (tmp_path / "a.txt").exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    write_text(tmp_path / "a.txt", "new")
    assert synced == [(False, False), (True, True)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_an_interrupted_write_leaves_nothing(error, tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with contextlib.ExitStack() as stack:
        stack.enter_context(pytest.raises(error))
        stack.enter_context(replacing(path)).write(b"n" * 100_000)
        assert path.read_bytes() == b"old"
        assert len(os.listdir(tmp_path)) == 2
        raise error
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]


def test_modes_links_and_devices(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "new.txt", "1")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new.txt").stat().st_mode) == 0o640
    (tmp_path / "new.txt").chmod(0o604)
    write_text(tmp_path / "new.txt", "2")
    assert stat.S_IMODE((tmp_path / "new.txt").stat().st_mode) == 0o604
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to("../new.txt")
    write_text(tmp_path / "folder" / "link", "3")
    assert (tmp_path / "folder" / "link").is_symlink()
    assert (tmp_path / "new.txt").read_text() == "3"
    write_text("/dev/null", "4")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(IsADirectoryError):
        write_text(tmp_path / "folder", "5")
    with pytest.raises(FileNotFoundError):
        write_text(tmp_path / "none" / "a", "6")
    long = tmp_path / ("ü" * 127)
    write_text(long, "7")
    assert long.read_text() == "7"


def test_a_name_that_the_library_chose_is_replaced_and_not_followed(tmp_path):
    victim, results = tmp_path / "victim.txt", tmp_path / "results"
    victim.write_text("of somebody else")
    victim.chmod(0o606)
    results.mkdir()
    (results / "link").symlink_to(victim)
    (results / "loop").symlink_to("loop")
    os.mkfifo(results / "pipe")
    (tmp_path / "way").symlink_to(results)  # the folder itself may be reached over a link
    with own_names(tmp_path / "way"):
        for name in ("link", "loop", "pipe", "new"):
            write_text(results / name, "ours")
            found = os.lstat(results / name)
            assert stat.S_ISREG(found.st_mode)
            assert stat.S_IMODE(found.st_mode) == 0o666 & ~_umask()  # nothing of what was there
        (results / "new").chmod(0o604)
        write_text(results / "new", "again")
        assert stat.S_IMODE((results / "new").stat().st_mode) == 0o604
        (tmp_path / "given").symlink_to(victim)
        assert victim.read_text() == "of somebody else"
        write_text(tmp_path / "given", "followed")  # a name of another folder, which the user gave
    assert victim.read_text() == "followed"


def _umask():
    before = os.umask(0)
    os.umask(before)
    return before


def test_a_file_that_may_not_be_written_stays(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("old")
    monkeypatch.setattr(os, "access", lambda place, mode: False)  # whoever runs the tests may write anywhere
    with pytest.raises(PermissionError, match=r"a\.txt"):
        write_text(path, "new")
    assert path.read_text() == "old"


def test_standard_output_is_written_to_and_not_replaced(tmp_path):
    out = tmp_path / "out.txt"
    code = "from stepwell.common.files import write_text; write_text('/dev/stdout', 'a' * 9); print('b', flush=True)"
    with out.open("a") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True, timeout=60)
    assert out.read_text() == "a" * 9 + "b\n"


def test_only_one_module_writes_files():
    package = pathlib.Path(stepwell.__file__).parent
    writing = re.compile(
        r"""np\.save\w*\((?!file|opened)|\.write_(?:text|bytes)\(|(?<!archive\.)open\([^)]*["'][wxa]b?\+?["']|savefig\((?!file)"""
        r"|os\.(?:replace|rename)|mkstemp|NamedTemporaryFile|\.tofile\("
    )
    found = {
        f"{path.relative_to(package)}: {line.strip()}"
        for path in package.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if path != package / "common" / "files.py"
        if writing.search(line) and not line.strip().startswith((">>>", "..."))
    }
    # Made in a folder of its own, and put in place by `replacing`.
    assert found == {'apps/files/raster.py: with rasterio.open(made, mode="w", **profile) as out:'}


def test_only_one_module_opens_files():
    """What a person names is opened by `open_regular`, or looked at by it before a library opens it by name."""
    package = pathlib.Path(stepwell.__file__).parent
    reading = re.compile(
        r"(?<![\w.])open\((?!path\)|descriptor)|np\.(?:load|loadtxt|genfromtxt|fromfile|memmap\((?!file))\b|gzip\.open"
        r"|ZipFile\((?!file)|h5py\.File|nibabel\.load|imread|Image\.open\((?!file)|\.read_(?:text|bytes)\(|\.open\(\)"
    )
    found = {
        f"{path.relative_to(package)}: {line.strip()}"
        for folder in ("cli", "apps", "common", "lab", ".")
        for path in (package.glob("*.py") if folder == "." else (package / folder).rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if path != package / "common" / "files.py"
        if reading.search(line) and not line.strip().startswith((">>>", "..."))
    }
    assert found == {
        'apps/files/hdf5.py: return h5py.File(path, "r")',  # after require_regular
        'apps/files/hdf5.py: with made_elsewhere(path) as made, h5py.File(made, "w") as file:',  # put in place by us
        "apps/images/sources.py: image = nibabel.load(plain)",  # after require_regular, or unpacked by us
        'common/machine.py: for line in listing.read_text(errors="replace").splitlines():',  # /proc/cpuinfo
        'common/memory.py: with open("/proc/meminfo") as lines:',
        'lab/html/page.py: style = resources.files("stepwell.lab.html").joinpath("page.css").read_text'
        '(encoding="utf-8")',
    }


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "socket"))
    for path in (tmp_path / "pipe", tmp_path / "socket", tmp_path, "/dev/zero"):
        with pytest.raises(Unreadable, match="is not a regular file"), open_regular(path):
            pass
        with pytest.raises(Unreadable, match="is not a regular file"), open_arrays(path):
            pass


def test_a_saved_solver_byte_by_byte(tmp_path):
    """Each byte changed, and each length: a clean error or, where the byte says nothing, the same arrays."""
    A = np.eye(3)
    solver = stepwell.ProjectedCG(A, 0.1)
    solver.solve(np.ones(3))
    path = tmp_path / "a.npz"
    solver.save(path)
    whole = path.read_bytes()
    want = solver.solve(np.arange(3.0)).x
    for place in range(0, len(whole), 7):
        for content in (whole[:place], whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]):
            path.write_bytes(content)
            with contextlib.suppress(ValueError, OSError):
                again = stepwell.ProjectedCG.load(path, A)
                assert np.array_equal(again.solve(np.arange(3.0)).x, want)


@pytest.mark.parametrize("module", [files, array_files])
def test_examples_in_the_documentation_run(module):
    found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0
