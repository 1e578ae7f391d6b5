"""JSON and pictures that `stepwell solve` leaves, and the reports they are made of."""

from __future__ import annotations

import doctest
import importlib
import itertools
import json

import numpy as np
import pytest
from click.testing import CliRunner

import stepwell
from stepwell.cli.group import main
from stepwell.lab.solve.convergence import plot_convergence
from stepwell.lab.solve.history import History, Iteration


def test_json_holds_the_run(tmp_path):
    file = tmp_path / "run.json"
    outcome = CliRunner().invoke(main, ["solve", "torsion", "--nx", "12", "--ny", "9", "--json", str(file)])
    assert outcome.exit_code == 0
    assert "converged" in outcome.stdout
    run = json.loads(file.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert run["stepwell"] == stepwell.__version__
    assert run["problem"] == {
        "name": "torsion",
        "n": 108,
        "parameters": {"nx": 12, "ny": 9, "c": 5.0},
        "bounded": True,
        "minimum": None,
    }
    assert run["settings"]["target"] is None

    problem = stepwell.problems.get("torsion", nx=12, ny=9)
    same = stepwell.minimize(problem.fun, problem.x0, jac=True, bounds=problem.bounds)
    result = run["result"]
    assert result["fun"] == same.fun
    assert (result["nit"], result["nfev"], result["status"]) == (same.nit, same.nfev, 0)
    assert result["message"] == same.message
    assert set(run["seconds"]) == {"total", "setup", "objective", "solver"}

    history = run["history"]
    assert [row["nit"] for row in history] == list(range(same.nit + 1))
    assert history[-1]["fun"] == same.fun
    assert history[0]["step"] is None
    values = [row["fun"] for row in history]
    assert all(later <= earlier for earlier, later in itertools.pairwise(values))


def test_the_start_of_a_history():
    problem = stepwell.problems.get("torsion", nx=6, ny=6)
    lower, upper = problem.bounds
    history = History(problem.fun, problem.bounds)
    stepwell.minimize(history.fun, problem.x0, jac=True, bounds=problem.bounds, callback=history.callback)
    f, g = problem.fun(problem.x0)
    start = history.iterations[0]
    assert (start.nit, start.nfev, start.fun) == (0, 1, float(f))
    assert start.gradient_norm == pytest.approx(np.linalg.norm(g), rel=1e-14)
    projected = np.clip(problem.x0 - g, lower, upper) - problem.x0
    assert start.projected_gradient == np.abs(projected).max()


def read_picture(path):
    image = pytest.importorskip("matplotlib.image").imread(path)
    assert image.ndim == 3
    return image


@pytest.mark.parametrize("problem", ["torsion", "rosenbrock"])
def test_plot_is_a_picture_of_three_curves(problem, tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "run.png"
    outcome = CliRunner().invoke(main, ["solve", problem, "-n", "100", "--plot", str(file)])
    assert outcome.exit_code == 0
    assert file.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    image = read_picture(file)
    assert min(image.shape[:2]) >= 800
    # Each panel, a third of the height or so, shows pixels of its own colour: blue, orange, green.
    height = image.shape[0]
    pixels = image[..., :3]
    for panel, colour in ((slice(0, height // 2), 0x1F5A96), (slice(height // 4, height), 0xC8571B),
                          (slice(height // 2, height), 0x2F7D4F)):  # fmt: skip
        rgb = np.array([colour >> 16, (colour >> 8) & 255, colour & 255]) / 255
        assert (np.abs(pixels[panel] - rgb).max(-1) < 0.01).sum() > 100


@pytest.mark.parametrize("ending", ["pdf", "svg"])
def test_other_formats(ending, tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / f"run.{ending}"
    outcome = CliRunner().invoke(main, ["solve", "wood", "-n", "8", "--plot", str(file)])
    assert outcome.exit_code == 0
    head = file.read_bytes()[:500]
    assert head.startswith(b"%PDF") if ending == "pdf" else b"<svg" in head


@pytest.mark.parametrize(
    "rows",
    [
        [Iteration(0, 1, 3.0, 0.0, 0.0, None)],
        [Iteration(0, 1, float("nan"), float("nan"), float("nan"), None)],
        [Iteration(0, 1, 1.0, 1.0, 1.0, None), Iteration(1, 2, 0.0, 0.0, 0.0, 1e-20)],
        [Iteration(k, k + 1, -(2.0**k), 2.0**k, 2.0**k, 1.0 if k else None) for k in range(200)],
    ],
    ids=["start only", "not a number", "at once", "unbounded"],
)
def test_plot_of_runs_that_went_nowhere(rows, tmp_path):
    pytest.importorskip("matplotlib")
    plot_convergence(rows, tmp_path / "run.png", title="nothing", subtitle="to see", minimum=0.0, gtol=1e-5)
    read_picture(tmp_path / "run.png")


@pytest.mark.parametrize("module", ["history", "va15", "vectors", "convergence"])
def test_examples_in_the_documentation_run(module):
    if module == "convergence":
        pytest.importorskip("matplotlib")
    found = doctest.testmod(importlib.import_module(f"stepwell.lab.solve.{module}"))
    assert found.attempted > 0
    assert found.failed == 0
