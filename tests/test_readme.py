"""The README's snippets print what is shown, its commands and links are right, its figures are those that were kept."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stepwell
from stepwell.cli.group import COMMANDS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


SNIPPETS = re.findall(r"```python\n([^`]*)```\n\n```text\n([^`]*)```", README)
#: SciPy's loop and one call, side by side.
BESIDE = re.findall(r"<td>\n\n```python\n(.*?)```\n\n</td>", README, re.DOTALL)


def load(path):
    """Import a script of the repository by its path."""
    found = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_there_are_three_snippets_and_a_pair():
    assert len(SNIPPETS) == 3
    assert len(BESIDE) == 2
    assert README.count("```python") == 5


@pytest.mark.parametrize(("code", "printed"), SNIPPETS, ids=("minimize", "curve_fit", "tikhonov"))
def test_a_snippet_prints_what_is_shown(code, printed, capsys):
    if "torch" in code:
        pytest.importorskip("torch")
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == printed


def test_the_loop_and_the_call_agree():
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((56, 12)), rng.standard_normal((200, 56))
    found = []
    for code in BESIDE:
        names = {"A": A, "B": B, "np": np}
        exec(compile(code, "README.md", "exec"), names)
        found.append(names["X"])
    # Both are exact solutions over their positive unknowns: what rounding leaves at a condition below 10.
    assert np.abs(found[0] - found[1]).max() < 1e-12


def test_commands():
    commands = re.findall(r"^pip install .*", README, re.MULTILINE)
    assert commands[0] == "pip install . && stepwell tour"
    assert [line for line in commands if "&&" in line][1:] == ['pip install ".[test]" && pytest -n 2']
    assert set(re.findall(r"`stepwell (\w+)`", README)) == set(COMMANDS)


def test_every_extra_is_named():
    extras = importlib.metadata.metadata("stepwell").get_all("Provides-Extra")
    (table,) = re.findall(r"\| extra \| for \|\n(.*?)\n\n", README, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", "\n".join(row.split("|")[1] for row in table.splitlines()))) == set(extras)
    for command in re.findall(r'pip install "\.\[([\w,]+)\]"', README):
        assert set(command.split(",")) <= set(extras)


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(file):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / file).read_text()):
        assert (ROOT / target).exists(), target


def test_links_are_relative_until_there_is_a_release():
    assert not re.findall(r"\]\(https?://", README)


def test_the_release_publishes_the_links():
    """What the package index shows has addresses of the site and the repository, one for every relative link."""
    links = load(ROOT / "scripts" / "published_links.py")
    before, after = (re.findall(r"\]\(([^)]+)\)", text) for text in (README, links.with_published_links(README, "v1")))
    assert len(before) == len(after) > 10
    assert all(target.startswith("https://") for target in after)
    turned = dict(zip(before, after))
    site, source = "https://stepwell.readthedocs.io", "https://github.com/stepwell/stepwell/blob/v1"
    assert turned["docs/getting-started.md"] == f"{site}/getting-started.html"
    assert turned["docs/reference/api.rst"] == f"{site}/reference/api.html"
    assert turned["examples/gallery"] == f"{site}/gallery/index.html"
    assert turned["CONTRIBUTING.md"] == f"{source}/CONTRIBUTING.md"
    picture = "https://raw.githubusercontent.com/stepwell/stepwell/v1/docs/images/overview.png"
    assert turned["docs/images/overview.png"] == picture
    assert any(target.endswith("/choosing.html#when-another-package-is-the-better-choice") for target in after)
    assert links.published("https://example.org/a.md") == "https://example.org/a.md"
    assert links.with_published_links("```sh\n[a](b.md)\n```\n") == "```sh\n[a](b.md)\n```\n"


def test_the_release_prints_the_readme():
    run = [ROOT / "scripts" / "release", "--readme"]
    printed = subprocess.run(
        run, capture_output=True, text=True, timeout=60, check=True, env={"PYTHON": sys.executable}
    )
    assert "](docs/" not in printed.stdout
    assert printed.stdout.startswith("# Stepwell\n")


def test_versions_agree():
    version = importlib.metadata.version("stepwell")  # taken from stepwell/__init__.py when the package is built
    assert version == stepwell.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"version = {{{version}}}" in README


def test_figures_have_one_source():
    """README, documentation and paper show what benchmarks/summaries has; each row is one machine and one run."""
    run = [sys.executable, ROOT / "benchmarks" / "headlines.py", "--check"]
    outcome = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_every_figure_says_where_it_is_from(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    headlines = load(ROOT / "benchmarks" / "headlines.py")
    rows = headlines.collect()["rows"]
    assert {row["key"] for row in rows} >= set(headlines.README_ROWS)
    for row in rows:
        assert row["machine"]
        assert row["versions"]
        assert (ROOT / row["command"].split()[1]).exists()
        assert row["ratio"] == pytest.approx(next(iter(row["peers"].values())) / row["seconds"], rel=1e-3)
    assert headlines.time_text(7.85e-8) == "78.5 ns"
    assert headlines.time_text(0.0649) == "64.9 ms"
    assert headlines.times_text(38.8) == "39×"
    assert headlines.times_text(721.2) == "720×"
