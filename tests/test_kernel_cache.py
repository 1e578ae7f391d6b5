"""The cache of compiled kernels, with a compiler that only counts: what is damaged or another's is compiled again."""

from __future__ import annotations

import os
import pathlib
import stat
import types

import pytest

from stepwell.cuda import nvrtc

CODE = b"\x7fELF" + bytes(range(256)) * 4


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """A stand-in for NVRTC; `calls` counts how often it compiled."""
    made = types.SimpleNamespace(calls=0, cache=tmp_path / "home" / "cache")

    def compiled(source, *, code_type, options):
        made.calls += 1
        made.options = options
        return types.SimpleNamespace(compile=lambda kind: types.SimpleNamespace(code=CODE))

    core = types.SimpleNamespace(ProgramOptions=lambda **options: options, Program=compiled)
    monkeypatch.setattr(nvrtc, "cuda_core", lambda: core)
    for function in ("_compiler_version", "_load_compiler"):
        monkeypatch.setattr(nvrtc, function, lambda: "13.0")
    monkeypatch.setenv("STEPWELL_CACHE", str(made.cache))
    made.shipped = tmp_path / "installation" / "_kernels"
    monkeypatch.setattr(nvrtc, "shipped_folder", lambda: made.shipped)
    return made


def compile_once(defines=None):
    assert nvrtc.compile_kernel("nnls", defines or {}, "sm_90") == CODE


def entry(compiler):
    (path,) = compiler.cache.iterdir()
    return path


def test_a_kernel_is_compiled_once(compiler):
    for _ in range(3):
        compile_once()
    assert compiler.calls == 1
    assert entry(compiler).read_bytes().startswith(CODE)
    compile_once({"OTHER": 1})
    assert compiler.calls == 2


def test_quick_code_is_kept_apart(compiler, monkeypatch):
    compile_once()
    assert compiler.options["ofast_compile"] is None
    for _ in range(2):
        monkeypatch.setenv("STEPWELL_COMPILE", "quick")
        compile_once()
        assert compiler.options["ofast_compile"] == "mid"
        monkeypatch.setenv("STEPWELL_COMPILE", "full")
        compile_once()
    assert (compiler.calls, len(list(compiler.cache.iterdir()))) == (2, 2)
    monkeypatch.setenv("STEPWELL_COMPILE", "fast")
    with pytest.raises(ValueError, match="STEPWELL_COMPILE is 'fast'; allowed: full, quick"):
        compile_once()


def test_a_kernel_on_disk_needs_no_compiler(compiler, monkeypatch):
    compile_once()

    def absent():
        raise ImportError("NVRTC")

    monkeypatch.setattr(nvrtc, "_load_compiler", absent)
    compile_once()
    with pytest.raises(ImportError, match="NVRTC"):
        compile_once({"OTHER": 1})


@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022, 0o077])
def test_what_it_writes_it_trusts(compiler, mask):
    before = os.umask(mask)
    try:
        compile_once()
    finally:
        os.umask(before)
    assert stat.S_IMODE(compiler.cache.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry(compiler).stat().st_mode) == 0o600
    compile_once()
    assert compiler.calls == 1


def test_every_entry_cut_short_or_changed_is_compiled_again(compiler):
    compile_once()
    path = entry(compiler)
    whole = path.read_bytes()
    damaged = [whole[:size] for size in range(0, len(whole), 50)]
    damaged += [whole[:k] + bytes([whole[k] ^ 1]) + whole[k + 1 :] for k in range(0, len(whole), 50)]
    damaged += [whole[:-1], whole + b"\0", CODE, b"\0" * len(whole)]
    for count, content in enumerate(damaged, start=2):
        path.write_bytes(content)
        compile_once()
        assert compiler.calls == count
        assert path.read_bytes() == whole


def test_an_entry_under_another_name_is_compiled_again(compiler):
    compile_once()
    first = entry(compiler)
    compile_once({"OTHER": 1})
    (second,) = set(compiler.cache.iterdir()) - {first}
    second.write_bytes(first.read_bytes())
    compile_once({"OTHER": 1})
    assert compiler.calls == 3


@pytest.mark.parametrize("bit", [stat.S_IWGRP, stat.S_IWOTH])
def test_an_entry_that_others_may_write_is_replaced(compiler, bit):
    compile_once()
    path = entry(compiler)
    path.chmod(0o600 | bit)
    compile_once()
    assert compiler.calls == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    compile_once()
    assert compiler.calls == 2


@pytest.mark.parametrize("bit", [stat.S_IWGRP, stat.S_IWOTH])
def test_a_folder_that_others_may_write_is_not_used(compiler, bit):
    compile_once()
    compiler.cache.chmod(0o700 | bit)
    before = entry(compiler).stat()
    compile_once()
    assert compiler.calls == 2
    assert entry(compiler).stat().st_mtime_ns == before.st_mtime_ns


def test_a_folder_of_another_user_is_not_used(compiler, monkeypatch):
    compile_once()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    compile_once()
    compile_once()
    assert compiler.calls == 3
    entry(compiler)  # as before, nothing beside it


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_an_entry_of_another_user_is_replaced(compiler):
    compile_once()
    path = entry(compiler)
    os.chown(path, 12345, -1)
    compile_once()
    assert compiler.calls == 2
    assert path.stat().st_uid == os.geteuid()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open every folder")
def test_a_folder_that_cannot_be_opened_is_no_error(compiler):
    compile_once()
    compiler.cache.chmod(0)
    try:
        compile_once()
    finally:
        compiler.cache.chmod(0o700)
    assert compiler.calls == 2


def test_a_pipe_or_a_folder_in_place_of_an_entry(compiler):
    compile_once()
    path = entry(compiler)
    path.unlink()
    os.mkfifo(path)
    compile_once()
    assert compiler.calls == 2
    assert path.is_file()
    path.unlink()
    path.mkdir()
    compile_once()
    assert compiler.calls == 3


def test_a_disk_that_takes_nothing_is_no_error(compiler, monkeypatch):
    def refuse(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    compile_once()
    assert compiler.calls == 1
    assert not list(compiler.cache.iterdir())


def ship(defines=None):
    assert nvrtc.compile_kernel("nnls", defines or {}, "sm_90", ship=True) == CODE


def test_a_kernel_of_the_installation_is_found_first(compiler):
    ship()
    (path,) = compiler.shipped.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644  # for all its users
    assert not compiler.cache.exists()
    compile_once()
    ship()
    assert compiler.calls == 1
    compile_once({"OTHER": 1})  # one that it has not
    assert compiler.calls == 2
    entry(compiler)


def test_a_kernel_of_the_installation_needs_no_owner(compiler, monkeypatch):
    ship()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    compile_once()
    assert compiler.calls == 1


@pytest.mark.parametrize(("version", "calls"), [("13.0", 1), ("13.4", 1), ("13.0.88", 1), ("12.9", 2), ("14.0", 1)])
def test_a_kernel_of_the_installation_is_of_no_newer_cuda(compiler, monkeypatch, version, calls):
    ship()
    monkeypatch.setattr(nvrtc, "_compiler_version", lambda: version)
    compile_once()
    assert compiler.calls == calls


def test_a_damaged_kernel_of_the_installation_is_not_used(compiler):
    ship()
    (path,) = compiler.shipped.iterdir()
    whole = path.read_bytes()
    for content in (whole[:-1], whole[:9] + bytes([whole[9] ^ 1]) + whole[10:], b""):
        path.write_bytes(content)
        compile_once()
    assert compiler.calls == 2  # once more, into the user's cache
    entry(compiler)
    ship()
    assert path.read_bytes() == whole


def test_an_installation_that_takes_nothing_is_an_error(compiler, monkeypatch):
    compiler.shipped.parent.write_bytes(b"no folder")
    with pytest.raises(OSError, match="installation"):
        ship()


@pytest.mark.parametrize(("chosen", "used"), [("/a/b", "/a/b"), ("a/b", None), ("", None), (".", None), (None, None)])
def test_a_relative_folder_of_caches_is_ignored(chosen, used, monkeypatch, tmp_path):
    """The XDG specification: "All paths set in these environment variables must be absolute."."""
    monkeypatch.delenv("STEPWELL_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if chosen is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", chosen)
    assert nvrtc.cache_folder() == pathlib.Path(used or tmp_path / ".cache") / "stepwell"
