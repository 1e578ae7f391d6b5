"""`stepwell problems`, `stepwell info` and `stepwell` itself."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest
import scipy
from click.testing import CliRunner

import stepwell
from stepwell import problems
from stepwell.cli.group import COMMANDS, main


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """The width of a pipe, whatever the environment says of a terminal."""
    monkeypatch.delenv("COLUMNS", raising=False)


def output(*arguments: str) -> str:
    outcome = CliRunner().invoke(main, list(arguments))
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def test_help_lists_every_command():
    text = output("--help")
    for name, (_, line) in COMMANDS.items():
        assert name in text
        assert line in text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name):
    assert output(name, "--help").startswith("Usage: ")


def test_a_line_for_every_problem():
    lines = output("problems").splitlines()
    for entry in problems.listing():
        (line,) = (line for line in lines if line.split()[:1] == [entry.name])
        assert line.split()[1:3] == [str(entry.n), "yes" if entry.bounded else "no"]
        assert line.endswith(entry.description)
        for parameter, value in entry.parameters.items():
            assert f"{parameter}={value:g}" in line


@pytest.mark.parametrize("name", problems.names())
def test_documentation_of_a_problem(name):
    text = output("problems", name)
    problem = problems.get(name)
    assert text.startswith(f"{name}: {problem.description}\n")
    assert f"n = {problem.n} by default" in text
    assert " ".join(problem.reference.split()[:4]) in text
    for parameter, value in problem.parameters.items():
        assert f"{parameter}={value:g}" in text


def test_unknown_problem_suggests_the_nearest():
    outcome = CliRunner().invoke(main, ["problems", "journal_baering"])
    assert outcome.exit_code == 2
    assert "did you mean 'journal-bearing'?" in outcome.stderr


def test_info_tells_the_versions():
    text = output("info")
    told = dict(line.split(maxsplit=1) for line in text.splitlines() if len(line.split()) > 1)
    assert told["stepwell"] == stepwell.__version__ == metadata.version("stepwell")
    assert told["NumPy"] == np.__version__
    assert told["SciPy"] == scipy.__version__
    assert told["devices"] == "CPU"
    for label in ("compiler", "instruction set", "threads", "PyTorch", "JAX", "CuPy", "cuda-core"):
        assert label in text


def test_info_imports_no_heavy_library():
    code = "import sys; from stepwell.cli.group import main; main(['info'], standalone_mode=False); " \
           "assert not {'torch', 'jax', 'cupy', 'matplotlib'} & set(sys.modules)"  # fmt: skip
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


def test_plain_text_without_colours(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    for arguments in (["problems"], ["info"], ["solve", "wood", "-n", "4"]):
        assert "\x1b" not in output(*arguments)


def test_a_terminal_without_unicode_gets_text_all_the_same():
    environment = {"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-m", "stepwell", "problems", "wood"]
    outcome = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=True)
    assert b"Garbow" in outcome.stdout
