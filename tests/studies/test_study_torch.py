"""The rows of a GPU, with PyTorch tensors on the CPU in its place: what they need of arrays is shown without one."""

from __future__ import annotations

import pytest

from stepwell import studies
from stepwell.studies import frame, measure, places


@pytest.mark.parametrize("name", ["rosenbrock", "projected-cg", "blas-levels", "nnls"])
def test_rows_of_a_second_place(name, monkeypatch):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class TensorPlace(places.CudaPlace):
        label = "tensors"

        def __init__(self):
            self._torch, self.name = torch, "cpu"

        def wait(self):
            pass

        seconds = places.Place.seconds

    monkeypatch.setattr(frame, "find_places", lambda device: [places.Place(), TensorPlace()])
    monkeypatch.setattr(measure, "gpu_machine", lambda device: {"gpu": "none"})
    settings = {"tol": (5e-3,)} if name == "projected-cg" else None
    study = studies.run(name, device="cuda:0", size="toy", settings=settings)
    for table in study.tables:
        keys = {column.key for column in table.columns}
        where = "device" if "device" in keys else "method" if "method" in keys else None
        if where and table.rows:
            cells = {row[where] for row in table.rows}
            assert any("GPU" in cell for cell in cells)
            assert any("CPU" in cell for cell in cells)
