"""Temporary files: nobody can plant one, a living writer keeps its own, and what a killed one left is removed."""

from __future__ import annotations

import os
import pathlib
import secrets
import signal
import stat
import subprocess
import sys
import time

import numpy as np
import pytest

import stepwell
from stepwell.common import files, temporary
from stepwell.common.files import replacing, write_text
from stepwell.common.temporary import scratch_folder

SAVES = {
    "checkpoint": lambda path: stepwell.LBFGSB(np.ones(3)).save(path),
    "minimize": lambda path: stepwell.minimize(
        lambda x: ((x**4).sum(), 4 * x**3), np.ones(5), jac=True, checkpoint=path, checkpoint_every=1
    ),
    "solver": lambda path: stepwell.ProjectedCG(np.eye(3), 0.1).save(path),
    "text": lambda path: write_text(path, "new"),
}


def plant(kind, place, victim):
    """Put something of another's where a temporary file is to be."""
    if kind == "symbolic link":
        os.symlink(victim, place)
    elif kind == "hard link":
        os.link(victim, place)
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.write_text("theirs")
        place.chmod(0o666)
        if os.geteuid() == 0:
            os.chown(place, 65534, 65534)


@pytest.fixture
def no_hanging():
    def hang(number, frame):
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, hang)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("foreseen", [False, True])
@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "pipe", "foreign file"])
@pytest.mark.parametrize("how", SAVES)
def test_what_is_planted_is_not_written_through(how, kind, foreseen, tmp_path, monkeypatch, no_hanging):
    """At a name that follows from the target's, and at the very name that is tried first."""
    victim, target = tmp_path / "victim", tmp_path / "run.ckpt"
    victim.write_text("mine")
    victim.chmod(0o640)
    before = victim.stat()
    place = tmp_path / ".run.ckpt.tmp"
    if foreseen:
        place = pathlib.Path(temporary._new_name(str(tmp_path), "run.ckpt"))
        real, first = secrets.token_hex, [place.name[-20:-4]]
        monkeypatch.setattr(secrets, "token_hex", lambda count: first.pop() if first else real(count))
    plant(kind, place, victim)
    theirs = place.lstat()
    SAVES[how](target)
    after = victim.stat()
    assert victim.read_text() == "mine"
    assert (after.st_mode, after.st_uid, after.st_mtime_ns) == (before.st_mode, before.st_uid, before.st_mtime_ns)
    assert stat.S_ISREG(target.lstat().st_mode)
    assert target.stat().st_uid == os.geteuid()
    assert target.stat().st_nlink == 1
    assert os.path.samestat(place.lstat(), theirs)
    assert sorted(os.listdir(tmp_path)) == sorted([place.name, "run.ckpt", "victim"])


def test_a_file_exchanged_for_a_link_is_not_taken_for_ours(tmp_path):
    victim, target = tmp_path / "victim", tmp_path / "run.ckpt"
    victim.write_text("mine")
    victim.chmod(0o600)
    target.write_text("old")
    target.chmod(0o666)
    with pytest.raises(FileNotFoundError, match="somebody has taken away"), replacing(target) as file:  # noqa: PT012
        file.write(b"new")
        (name,) = tmp_path.glob(".stepwell-*.tmp")
        name.unlink()
        name.symlink_to(victim)
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600
    assert (victim.read_text(), target.read_text()) == ("mine", "old")


def test_a_checkpoint_is_a_regular_file_or_nothing(tmp_path, no_hanging):
    os.mkfifo(tmp_path / "run.ckpt")
    with pytest.raises(OSError, match="is not a regular file"):
        stepwell.LBFGSB(np.ones(3)).save(tmp_path / "run.ckpt")


def left(folder, base="run.ckpt"):
    """A file as a killed writer leaves it."""
    path = pathlib.Path(temporary._new_name(str(folder), base))
    path.write_bytes(b"x" * 1000)
    return path


def test_what_a_killed_writer_left_is_removed(tmp_path):
    left(tmp_path)
    left(tmp_path, "other")
    folder = pathlib.Path(temporary._new_name(str(tmp_path), ""))
    folder.mkdir()
    (folder / "unpacked.npy").write_bytes(b"x")
    write_text(tmp_path / "new.txt", "new")
    assert os.listdir(tmp_path) == ["new.txt"]


def test_what_is_not_a_leftover_of_ours_stays(tmp_path, monkeypatch, no_hanging):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    kept = {name: pathlib.Path(temporary._new_name(str(tmp_path), name)) for name in "abc"}
    plant("symbolic link", kept["a"], victim)
    plant("hard link", kept["b"], victim)
    plant("pipe", kept["c"], victim)
    (tmp_path / ".stepwell-notes.tmp").write_text("a name of one's own")
    if os.geteuid() == 0:
        plant("foreign file", pathlib.Path(temporary._new_name(str(tmp_path), "d")), victim)
    monkeypatch.setattr(temporary.platform, "node", lambda: "another computer")
    far = left(tmp_path)
    monkeypatch.undo()
    before = set(os.listdir(tmp_path))
    write_text(tmp_path / "new.txt", "new")
    assert set(os.listdir(tmp_path)) == before | {"new.txt"}
    assert victim.read_text() == "mine"
    os.utime(far, (0, time.time() - 7200))
    write_text(tmp_path / "new.txt", "newer")
    assert set(os.listdir(tmp_path)) == (before | {"new.txt"}) - {far.name}


def test_a_living_writer_keeps_its_file(tmp_path):
    """In another process and in this one; once it is killed, what it leaves goes."""
    code = (
        "import sys, time\nfrom stepwell.common.files import replacing\n"
        "with replacing(sys.argv[1]) as file:\n    file.write(b'x'); file.flush(); print(flush=True); time.sleep(100)"
    )
    command = [sys.executable, "-c", code, tmp_path / "theirs"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        try:
            with replacing(tmp_path / "ours") as file:
                write_text(tmp_path / "new.txt", "new")
                assert len(list(tmp_path.glob(".stepwell-*.tmp"))) == 2
                file.write(b"ours")
            assert len(list(tmp_path.glob(".stepwell-*.tmp"))) == 1
        finally:
            child.kill()
    write_text(tmp_path / "new.txt", "newer")
    assert sorted(os.listdir(tmp_path)) == ["new.txt", "ours"]


#: Maps a small image, and is killed while one of its files is being written.
KILLED = """
import os, signal, sys
real, calls, last = os.fsync, 0, int(sys.argv[1])

def fsync(descriptor):
    global calls
    calls += 1
    if calls == last:
        os.kill(os.getpid(), signal.SIGKILL)
    real(descriptor)

os.fsync = fsync
from stepwell.apps.t2 import map_image
map_image("image.npz", "maps", 0.01, bins=5, angles=(150.0, 180.0, 2), threads=1)
"""


@pytest.mark.parametrize("last", [1, 3, 9, 1000])
def test_a_killed_run_over_an_image_leaves_nothing_once_it_is_resumed(last, tmp_path):
    rng = np.random.default_rng(0)
    np.savez_compressed(tmp_path / "image.npz", image=np.exp(-np.arange(6)) * 100 * (1 + rng.random((3, 2, 2, 1))))
    kinds = []
    for calls in (last, 10**6):
        run = subprocess.run([sys.executable, "-c", KILLED, str(calls)], cwd=tmp_path, timeout=100)
        kinds.append(run.returncode)
        left = [path.name for path in (tmp_path / "maps").rglob(".stepwell-*.tmp")]
        assert bool(left) == (run.returncode != 0), left
    assert kinds == [0 if last == 1000 else -signal.SIGKILL, 0]
    assert "t2map.json" in os.listdir(tmp_path / "maps")
    assert not [name for name in os.listdir(tmp_path / "maps") if name.startswith(".")]


def test_a_scratch_folder_is_private_and_goes(tmp_path):
    with scratch_folder(tmp_path) as name:
        assert stat.S_IMODE(os.stat(name).st_mode) == 0o700
        pathlib.Path(name, "a").write_text("a")
        write_text(tmp_path / "new.txt", "new")
        assert os.path.exists(os.path.join(name, "a"))
    assert os.listdir(tmp_path) == ["new.txt"]


def test_a_system_without_locks_removes_nothing(tmp_path, monkeypatch):
    old = left(tmp_path)
    monkeypatch.setattr(temporary, "fcntl", None)
    monkeypatch.setattr(temporary, "LOCKS", False)
    monkeypatch.setattr(files, "LOCKS", False)
    write_text(tmp_path / "new.txt", "new")
    with scratch_folder(tmp_path) as name:
        assert os.path.isdir(name)
    assert sorted(os.listdir(tmp_path)) == sorted([old.name, "new.txt"])
