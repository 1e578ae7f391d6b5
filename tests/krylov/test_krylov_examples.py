"""The examples in docstrings run as printed."""

from __future__ import annotations

import doctest
import importlib
import runpy
from pathlib import Path

import pytest

MODULES = [
    "stepwell.operators.operator",
    "stepwell.operators.matrices",
    "stepwell.operators.tools",
    "stepwell.api.krylov",
    "stepwell.krylov.projected",
    "stepwell.apps.tomography.projector",
    "stepwell.apps.tomography.phantom",
    "stepwell.apps.tomography.simulate",
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried > 0
    assert failed == 0


@pytest.mark.slow
def test_the_example_with_bounds(capsys, monkeypatch, tmp_path):
    script = Path(__file__).resolve().parents[2] / "examples" / "nonnegative_tomography.py"
    if not script.exists():
        pytest.skip("the examples are not part of this copy")
    monkeypatch.setattr("sys.argv", [str(script), str(tmp_path / "slices.png")])
    found = runpy.run_path(str(script), run_name="__main__")
    assert "bounded: 8 of 8" in capsys.readouterr().out
    quality = [
        found["tomography"].signal_to_noise(found[name].x.T.reshape(8, 64, 64), found["slices"])
        for name in ("plain", "bounded")
    ]
    assert quality[1] > quality[0] + 2  # what is known about x counts
    assert (tmp_path / "slices.png").stat().st_size > 10_000
