"""What a release consists of: metadata, scripts and workflows that call them."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import stepwell

ROOT = Path(__file__).parents[1]
SCRIPTS = [ROOT / ".ci" / "run", *(path for path in sorted((ROOT / "scripts").iterdir()) if not path.suffix)]
WORKFLOWS = sorted((ROOT / ".github").rglob("*.yml"))
METADATA = importlib.metadata.metadata("stepwell")

with open(ROOT / "pyproject.toml", "rb") as file:
    PROJECT = tomllib.load(file)


@pytest.mark.parametrize("script", [path for path in SCRIPTS if path.exists()], ids=lambda path: path.name)
def test_scripts_are_programs(script):
    assert os.access(script, os.X_OK)
    assert script.read_text().startswith("#!/usr/bin/env bash\n")
    if bash := shutil.which("bash"):
        subprocess.run([bash, "-n", script], check=True)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_are_yaml_and_call_scripts_that_exist(workflow):
    yaml = pytest.importorskip("yaml")
    held = yaml.safe_load(workflow.read_text())
    for job in held.get("jobs", {}).values():
        assert job["runs-on"]
        for step in job["steps"]:
            for script in re.findall(r"(?:scripts|\.ci)/\w+", step.get("run", "")):
                assert (ROOT / script).exists(), script


def test_the_version_stands_in_one_place():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert METADATA["Version"] == stepwell.__version__
    assert f"\nversion: {stepwell.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    numbers = re.findall(r"^## \[(\S+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert numbers[0] == "Unreleased"


def test_metadata_name_pythons_and_pages():
    classifiers = METADATA.get_all("Classifier")
    for version in ("3.11", "3.12", "3.13", "3.14"):
        assert f"Programming Language :: Python :: {version}" in classifiers
    assert METADATA["Requires-Python"] == ">=3.11"
    assert {line.split(",")[0] for line in METADATA.get_all("Project-URL")} >= {"Documentation", "Source", "Changelog"}


def test_the_oldest_versions_are_those_stated():
    stated = (ROOT / "CONTRIBUTING.md").read_text()
    for need in PROJECT["project"]["dependencies"]:
        name, version = need.split(">=")
        if name in ("numpy", "scipy"):
            spelt = {"numpy": "NumPy", "scipy": "SciPy"}[name]
            assert f"{spelt} {version}" in stated


def test_wheels_are_of_the_stable_abi_from_3_12_on():
    (override,) = PROJECT["tool"]["scikit-build"]["overrides"]
    assert override["if"]["python-version"] == ">=3.12"
    assert override["wheel"]["py-api"] == "cp312"
    assert "${SKBUILD_SABI_COMPONENT}" in (ROOT / "CMakeLists.txt").read_text()
