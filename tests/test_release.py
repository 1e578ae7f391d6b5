"""What a release consists of: metadata, scripts and workflows that call them."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import stepwell

ROOT = Path(__file__).parents[1]
SCRIPTS = [
    ROOT / ".ci" / "run",
    *(path for path in sorted((ROOT / "scripts").iterdir()) if path.is_file() and not path.suffix),
]
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


def test_the_smoke_test_passes(tmp_path):
    """What is run in a clean environment of every wheel, here with the package that is installed."""
    run = subprocess.run(
        [sys.executable, ROOT / "scripts" / "smoke_test.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    assert f"stepwell {stepwell.__version__} works" in run.stdout


@pytest.mark.wheels
def test_wheels_are_built_repaired_and_tried(tmp_path):
    subprocess.run([ROOT / "scripts" / "wheels", tmp_path], check=True, timeout=3600)
    names = [path.name for path in tmp_path.iterdir()]
    assert any(name.endswith(".tar.gz") for name in names)
    assert all("manylinux" in name or "musllinux" in name for name in names if name.endswith(".whl"))
    assert any(name.endswith(".whl") for name in names)


def test_a_changelog_of_each_version():
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = re.findall(r"^## \[(\S+)\](?: - (\d{4}-\d\d-\d\d))?$", text, re.MULTILINE)
    assert versions[0] == ("Unreleased", "")
    assert [number for number, _ in versions[1:]] == ["0.1.0"]
    assert all(date for _, date in versions[1:])


@pytest.mark.parametrize(
    "file", ["CITATION.cff", "CODE_OF_CONDUCT.md", "SECURITY.md", "CONTRIBUTING.md", "LICENSE", "CHANGELOG.md"]
)
def test_what_a_project_has_is_there(file):
    assert (ROOT / file).stat().st_size > 200


def test_every_gallery_example_that_is_promised():
    named = {path.stem for path in (ROOT / "examples" / "gallery").glob("*/*.py")}
    assert len(named) >= 12
