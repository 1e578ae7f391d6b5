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


def found_by_mypy(folder):
    """Lines of each client in which mypy finds an error, with what it says. (One run: most of it is NumPy's stubs.)"""
    pytest.importorskip("mypy")
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


def test_right_programs_pass_and_wrong_calls_are_found(tmp_path):
    found = found_by_mypy(tmp_path)
    assert {name.partition("_")[2][:5] for name in found} == {"right", "wrong"}
    for client, errors in found.items():
        lines = (HERE / client).read_text().splitlines()
        wrong = [number for number, line in enumerate(lines, 1) if line.endswith("# wrong")]
        assert bool(wrong) == client.startswith("client_wrong")
        missed = {number: lines[number - 1] for number in wrong if number not in errors}
        extra = {number: said for number, said in errors.items() if number not in wrong}
        assert (client, missed, extra) == (client, {}, {})
