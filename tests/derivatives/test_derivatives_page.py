"""The Python blocks of docs/derivatives.md run, where PyTorch and JAX are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def test_page_runs():
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    text = (Path(__file__).parents[2] / "docs" / "derivatives.md").read_text()
    namespace: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "derivatives.md", "exec"), namespace)
    assert namespace["upper"].grad.tolist() == [0.0, 1.0, 0.0]
