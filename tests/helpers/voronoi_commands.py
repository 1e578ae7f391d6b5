"""Calls of `stepwell voronoi` and `stepwell stipple` that work, and calls that are refused."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from stepwell.cli.group import main

QUICK = ["--maxiter", "8", "--resolution", "96", "--pixels", "300"]


def call(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def works(*arguments):
    outcome = call(*arguments)
    assert outcome.exit_code == 0, outcome.output
    return outcome


def fails(*arguments):
    outcome = call(*arguments)
    assert outcome.exit_code == 2, outcome.output
    assert "Traceback" not in outcome.output
    return " ".join(outcome.stderr.split())


def strict_json(text):
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
