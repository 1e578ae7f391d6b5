"""Kernels compiled beforehand: which they are, and the command that does it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from stepwell.cli import warming
from stepwell.cli.group import main
from stepwell.cuda import nvrtc
from stepwell.operators import cuda_sparse
from stepwell.quasi_newton.cuda import layout as cuda_layout


def test_default_calls_are_among_them():
    kernels = warming.common_kernels()
    assert all(len(list(nvrtc.source_folder().glob(f"cuda/*/{name}.cu"))) == 1 for name, _ in kernels)
    sources = {name for name, _ in kernels}
    assert sources == {
        "quasi_newton", "nnls", "nnls_share", "nnls_small", "free_solve", "sparse_product", "tv_sweeps", "tv_resident",
        "voronoi",
    }  # fmt: skip
    # m = 10, float64, bounds of two arrays, as CudaTarget asks for it
    usual = cuda_layout.kernel_defines(cuda_layout.BLOCK, 10, False, True, False, False, "float64", (1, 1))
    assert ("quasi_newton", usual) in kernels
    assert len({(name, *defines.items()) for name, defines in kernels}) == len(kernels)


@pytest.mark.kernels
def test_compiled_kernels_are_found_on_disk(monkeypatch, tmp_path):
    pytest.importorskip("cuda.core")
    monkeypatch.setenv("STEPWELL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(nvrtc, "shipped_folder", lambda: tmp_path / "_kernels")
    few = [("sparse_product", cuda_sparse.kernel_defines(8))]
    monkeypatch.setattr(warming, "common_kernels", lambda: few)
    told = []
    done = CliRunner().invoke(main, ["info", "--warm", "--arch", "sm_80", "--arch", "sm_90"])
    assert done.exit_code == 0, done.output
    assert "2 kernels for sm_80, sm_90" in done.output
    entries = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()}
    assert len(entries) == 2
    assert warming.compile_common(["sm_90"], 2, lambda ready, of: told.append((ready, of))) == 1
    assert told == [(1, 1)]
    assert entries == {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()}


def test_compiled_kernels_become_part_of_the_installation(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(nvrtc, "shipped_folder", lambda: tmp_path / "_kernels")
    monkeypatch.setattr(warming, "compile_common", lambda *given, ship: asked.append(ship) or 1)
    done = CliRunner().invoke(main, ["info", "--warm", "--ship", "--arch", "sm_90"])
    assert (done.exit_code, asked) == (0, [True]), done.output
    assert "_kernels" in done.output.replace("\n", "")


def test_wrong_command_lines(monkeypatch):
    run = CliRunner().invoke
    for arguments, words in (
        (["--arch", "sm_90"], "--arch is for --warm"),
        (["--ship"], "--ship is for --warm"),
        (["--warm", "--arch", "hopper"], "architecture is 'hopper'; allowed: sm_ and a number"),
    ):
        done = run(main, ["info", *arguments])
        assert (done.exit_code, words in done.output) == (2, True), done.output
    monkeypatch.setattr(warming, "list_devices", list)
    done = run(main, ["info", "--warm"])
    assert (done.exit_code, "name an architecture: --arch sm_90" in done.output) == (1, True)
