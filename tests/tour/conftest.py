"""One quick tour, taken once for all tests of this folder."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from stepwell.cli.group import main


@pytest.fixture(scope="session")
def quick_tour(tmp_path_factory):
    """What `stepwell tour --quick` printed, and the report it wrote."""
    path = tmp_path_factory.mktemp("tour") / "report.html"
    outcome = CliRunner().invoke(main, ["tour", "--quick", "--no-open", "-o", str(path)], env={"COLUMNS": "120"})
    return outcome, path
