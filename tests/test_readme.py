"""The README's example runs, its commands are two, and its links lead somewhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import stepwell

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})


def test_there_are_two_installing_commands():
    commands = re.findall(r"^pip install .*", README, re.MULTILINE)
    assert len(commands) == 2
    assert commands[0] == "pip install . && stepwell tour"
    assert re.fullmatch(r'pip install "\.\[test\]" && pytest', commands[1])


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(file):
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / file).read_text()):
        assert (ROOT / target).exists(), target


def test_versions_agree():
    with open(ROOT / "pyproject.toml", "rb") as file:
        version = tomllib.load(file)["project"]["version"]
    assert version == stepwell.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
