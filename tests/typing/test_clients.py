"""The public API as a type checker sees it: right programs pass mypy --strict, every wrong call is found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Lines of each client in which mypy finds an error, with what it says. (One run: most of it is NumPy's stubs.)"""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("mypy")
    clients = sorted(HERE.glob("client_*.py"))
    command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", "--hide-error-context", "--show-traceback"]
    command += ["--config-file", os.devnull, "--cache-dir", str(folder / "cache"), *map(str, clients)]
    # Not in the repository: the installed package is read, as a client's is.
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    errors: dict[str, dict[int, str]] = {client.name: {} for client in clients}
    for line in run.stdout.splitlines():
        match = re.match(r"(.*client_\w+\.py):(\d+): error: (.*)", line)
        if match:
            errors[Path(match[1]).name][int(match[2])] = match[3]
    assert run.returncode in (0, 1), run.stdout + run.stderr
    assert "client_" in run.stdout or run.returncode == 0, run.stdout
    return errors


@pytest.mark.parametrize("client", sorted(path.name for path in HERE.glob("client_right*.py")))
def test_right_programs_pass(found, client):
    assert found[client] == {}


@pytest.mark.parametrize("client", sorted(path.name for path in HERE.glob("client_wrong*.py")))
def test_wrong_calls_are_found(found, client):
    lines = (HERE / client).read_text().splitlines()
    wrong = [number for number, line in enumerate(lines, 1) if line.endswith("# wrong")]
    assert wrong
    missed = {number: lines[number - 1] for number in wrong if number not in found[client]}
    extra = {number: said for number, said in found[client].items() if number not in wrong}
    assert (missed, extra) == ({}, {})
