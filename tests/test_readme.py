"""The README's snippets print what is shown, its commands are there, and its links lead somewhere."""

from __future__ import annotations

import importlib.metadata
import json
import re
from pathlib import Path

import pytest

import stepwell

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


SNIPPETS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)


def test_there_are_three_snippets():
    assert len(SNIPPETS) == README.count("```python") == 3


@pytest.mark.parametrize(("code", "printed"), SNIPPETS, ids=("minimize", "nnls", "tikhonov"))
def test_a_snippet_prints_what_is_shown(code, printed, capsys):
    if "torch" in code:
        pytest.importorskip("torch")
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == printed


def test_commands():
    commands = re.findall(r"^pip install .*", README, re.MULTILINE)
    assert commands[0].startswith("pip install stepwell ")
    assert commands.count("pip install . && stepwell tour") == 1
    assert [line for line in commands if "&&" in line][1:] == ['pip install ".[test]" && pytest -n 2']


def test_links_are_absolute():
    """They must lead somewhere on the pages of a package index, too, and what they name in the repository exists."""
    targets = re.findall(r"\]\(([^)]+)\)", README)
    assert targets
    for target in targets:
        assert target.startswith("https://")
        if found := re.match(
            r"https://(?:github|raw\.githubusercontent)\.com/stepwell/stepwell/(?:blob/)?main/(.*)", target
        ):
            assert (ROOT / found[1]).exists(), target
        elif found := re.match(r"https://stepwell\.readthedocs\.io/(.*)\.html", target):
            page = ROOT / "docs" / found[1]
            assert page.with_suffix(".md").exists() or page.with_suffix(".rst").exists() or found[1] == "gallery/index"


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(file):
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / file).read_text()):
        assert (ROOT / target).exists(), target


def test_versions_agree():
    version = importlib.metadata.version("stepwell")  # taken from stepwell/__init__.py when the package is built
    assert version == stepwell.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()


def test_figures_are_those_of_the_summaries():
    """A row of the README, and the same in benchmarks/summaries: two printed digits are within five per cent of it."""

    def kept(name):
        return json.loads((ROOT / "benchmarks" / "summaries" / f"{name}.json").read_text())

    def named(rows, key, value):
        return next(row for row in rows if row[key] == value)

    shots = {name: named(kept(name)["batches"], "name", "real GEDI shots 512, dense") for name in ("nnls", "nnls_gpu")}
    slices = kept("many_rhs")["phantom"]["figures"]["rows"]
    cells = {
        name: named(kept(name)[part], "sites", 20_000)
        for name, part in (("voronoi", "evaluations"), ("voronoi_gpu", "sizes"))
    }
    expected = {
        "150 lidar shots": (shots["nnls"]["seconds"], shots["nnls_gpu"]["seconds"], shots["nnls"]["seconds_scipy"]),
        "102 slices": (
            named(slices, "run", "block, default")["best"],
            named(kept("many_rhs_gpu")["figures"][0]["rows"], "method", "block")["median"],
            named(slices, "run", "SciPy cg, 1 thread")["best"],
        ),
        "energy and gradient of 20,000 Voronoi cells": (
            1e-3 * cells["voronoi"]["evaluation ms"],
            1e-3 * cells["voronoi_gpu"]["evaluation_ms"],
            1e-3 * cells["voronoi"]["k-d tree ms"],
        ),
    }
    for work, seconds in expected.items():
        (row,) = (line for line in README.splitlines() if line.startswith(f"| {work}"))
        units = {"s": 1.0, "ms": 1e-3}
        printed = [float(value) * units[unit] for value, unit in re.findall(r"([\d.]+) (ms|s)\b", row)]
        assert printed == pytest.approx(seconds, rel=0.05), work
