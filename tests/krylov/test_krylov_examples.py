"""The examples in docstrings run as printed."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = [
    "stepwell.operators.operator",
    "stepwell.operators.matrices",
    "stepwell.operators.tools",
    "stepwell.krylov.api",
    "stepwell.krylov.projected",
    "stepwell.apps.tomography.projector",
    "stepwell.apps.tomography.phantom",
    "stepwell.apps.tomography.simulate",
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried > 0
    assert failed == 0
