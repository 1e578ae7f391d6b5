"""Kernels that a build compiles into the installation: which, by whom, in time, and that Stepwell takes them."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

from stepwell.cli import warming
from stepwell.cuda import nvrtc

SCRIPT = pathlib.Path(__file__).parent.parent / "scripts" / "usual_kernels.py"
SMALL = ["sparse_product", {"SW_A": 1}]

pytestmark = pytest.mark.skipif(os.name != "posix", reason="stands in for commands by scripts of the shell")


@pytest.fixture
def script(monkeypatch, tmp_path):
    """The program as a module, with a list of two kernels, no GPU and no compiler to be found."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("usual_kernels", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernels = tmp_path / "kernels.json"
    kernels.write_text(json.dumps([SMALL, ["sparse_product", {"SW_A": 2}]]))
    monkeypatch.setattr(module, "LIST", kernels)
    monkeypatch.setattr(module, "nvrtc_libraries", list)
    monkeypatch.setattr(module, "toolkits", list)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin") + ":/usr/bin:/bin")
    monkeypatch.delenv("STEPWELL_KERNELS", raising=False)
    monkeypatch.delenv("STEPWELL_KERNELS_SECONDS", raising=False)
    monkeypatch.setattr(module.shutil, "which", lambda name: found_in(tmp_path / "bin", name))
    monkeypatch.setattr(nvrtc, "shipped_folder", lambda: tmp_path / "_kernels")
    return module


def found_in(folder, name):
    return str(folder / name) if (folder / name).exists() else None


def command(tmp_path, name, text):
    path = tmp_path / "bin" / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def put_nvcc(tmp_path, work):
    """A stand-in that runs `work`, in which $out is the file to be written."""
    said = "echo 'Cuda compilation tools, release 12.4, V12.4.131'"
    search = 'while [ "$1" != -o ]; do shift; done; out=$2'
    command(tmp_path, "nvcc", f'if [ "$1" = --version ]; then {said}; exit; fi\n{search}\n{work}\n')


def test_the_list_is_that_of_usual_calls():
    listed = [
        (name, tuple(sorted(defines.items()))) for name, defines in json.loads(SCRIPT.with_suffix(".json").read_text())
    ]
    usual = [(name, tuple(sorted(defines.items()))) for name, defines in warming.common_kernels()]
    assert sorted(listed, key=repr) == sorted(usual, key=repr), "run: python scripts/usual_kernels.py list"


def test_what_was_built_is_found(script, tmp_path, monkeypatch):
    put_nvcc(tmp_path, "printf code-of-$$ > $out")
    command(tmp_path, "nvidia-smi", "echo 9.0; echo 9.0")
    assert script.build(tmp_path / "_kernels", "auto").startswith("2 of 2 for sm_90 by ")
    for version in ("12.9.41", "13.4"):
        monkeypatch.setattr(nvrtc, "_compiler_version", lambda version=version: version)
        assert nvrtc.compile_kernel(SMALL[0], SMALL[1], "sm_90").startswith(b"code-of-")
    monkeypatch.setattr(nvrtc, "_compiler_version", lambda: "11.8")
    monkeypatch.setattr(nvrtc, "_load_compiler", lambda: pytest.fail("as it should", pytrace=False))
    with pytest.raises(pytest.fail.Exception, match="as it should"):
        nvrtc.compile_kernel(SMALL[0], SMALL[1], "sm_90")


def test_where_nothing_is_to_be_done(script, tmp_path):
    folder = tmp_path / "_kernels"
    assert script.build(folder, "off") == "none, as asked for"
    assert script.build(folder, "auto").startswith("none: there is no GPU here")
    command(tmp_path, "nvidia-smi", "echo 'No devices were found'; exit 6")
    assert script.build(folder, "auto").startswith("none: there is no GPU here")
    assert script.build(folder, "sm_80;sm_90").startswith("none: neither NVRTC nor nvcc")
    assert not folder.exists()


def test_a_compiler_that_fails_leaves_nothing(script, tmp_path):
    put_nvcc(tmp_path, "exit 1")
    assert script.build(tmp_path / "_kernels", "sm_80;sm_90").startswith("0 of 4 for sm_80, sm_90")
    assert not list((tmp_path / "_kernels").iterdir())


def test_a_compiler_is_ended_in_time(script, tmp_path, monkeypatch):
    put_nvcc(tmp_path, f"sleep 60 & echo $! >> {tmp_path}/started; wait")
    monkeypatch.setenv("STEPWELL_KERNELS_SECONDS", "1")
    began = time.monotonic()
    assert script.build(tmp_path / "_kernels", "sm_90").startswith("0 of 2 for sm_90")
    assert time.monotonic() - began < 50  # not what it sleeps
    for number in (tmp_path / "started").read_text().split():  # nor does what it started go on
        status = pathlib.Path("/proc") / number / "stat"
        while status.exists() and status.read_text().split()[2] != "Z":  # (the kernel ends it when it comes to that)
            assert time.monotonic() - began < 50
            time.sleep(0.05)


@pytest.mark.kernels
def test_the_library_of_nvrtc_compiles_a_kernel(script, tmp_path, monkeypatch):
    pytest.importorskip("cuda.core")
    monkeypatch.undo()
    monkeypatch.setattr(nvrtc, "shipped_folder", lambda: tmp_path / "_kernels")
    name, defines = next(
        kernel for kernel in json.loads(SCRIPT.with_suffix(".json").read_text()) if kernel[0] == "sparse_product"
    )
    kernels = tmp_path / "one.json"
    kernels.write_text(json.dumps([[name, defines]]))
    monkeypatch.setattr(script, "LIST", kernels)
    assert script.build(tmp_path / "_kernels", "sm_90").startswith("1 of 1 for sm_90 by "), script.find_compiler()
    monkeypatch.setattr(nvrtc, "_load_compiler", lambda: pytest.fail("it is there already"))
    assert nvrtc.compile_kernel(name, defines, "sm_90")[:4] == b"\x7fELF"


@pytest.mark.kernels
@pytest.mark.parametrize("name", sorted({kernel[0] for kernel in json.loads(SCRIPT.with_suffix(".json").read_text())}))
def test_nvcc_takes_the_sources(name, script, tmp_path, monkeypatch):
    """Its integers of 64 bits are others than NVRTC's. Not optimized: what it accepts, not what it makes of that."""
    monkeypatch.undo()
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("needs nvcc, of a CUDA toolkit")
    listed = json.loads(SCRIPT.with_suffix(".json").read_text())
    defines = next(defines for source, defines in listed if source == name)
    command = script.command_of(nvcc, (name, defines, "sm_90"), str(tmp_path / "code"))
    command[command.index("-cubin")] = "-ptx"
    done = subprocess.run([*command, "-Xcicc", "-O0"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
