"""The public names: those that are imported on first use and those that type checkers see are the same."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import stepwell


def test_the_stub_names_what_the_package_imports():
    stub = ast.parse((Path(stepwell.__file__).parent / "__init__.pyi").read_text())
    seen = {
        alias.asname or alias.name: node.module
        for node in ast.walk(stub)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(seen) == set(stepwell._HOMES)
    for name, home in stepwell._HOMES.items():
        assert seen[name] == (home or "stepwell"), name


@pytest.mark.parametrize("name", [name for name in stepwell.__all__ if name != "__version__"])
def test_every_public_name_is_there_and_documented(name):
    assert (getattr(stepwell, name).__doc__ or "").strip(), name
    assert name in dir(stepwell)


def test_the_function_hides_the_package_of_its_name():
    """Whatever is imported first, and from wherever."""
    program = "import stepwell.api.lsq, stepwell, numpy\nassert stepwell.nnls(numpy.eye(2), numpy.ones(2)).x.sum() == 2"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_subpackages_come_with_the_package():
    program = "import stepwell\nstepwell.apps.tomography.parallel_beam\nstepwell.problems.get"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    "program",
    [
        "import stepwell.problems\nstepwell.problems.get('wood')",
        "from stepwell.problems import Problem, get\nassert isinstance(get('wood'), Problem)",
        "from stepwell import problems\nfrom stepwell.problems import get\nassert problems.get is get",
    ],
)
def test_problems_are_public_wherever_they_live(program):
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_stub_of_problems_has_its_names():
    stub = ast.parse((Path(stepwell.__file__).parent / "problems.pyi").read_text())
    seen = {alias.asname for node in ast.walk(stub) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(stepwell.problems.__all__)


def test_importing_is_light():
    program = (
        "import sys, stepwell\n"
        "heavy = {'numpy', 'scipy', 'torch', 'jax', 'cupy', 'cuda', 'matplotlib', 'rich', 'click'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
