"""The Python blocks of docs/plugs.md run, each where its packages are installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "plugs.md"
BLOCKS = re.findall(r"^## (.*?)\n.*?```python\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", [code for _, code in BLOCKS], ids=[head.split()[0].strip(":,") for head, _ in BLOCKS])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of the packages
def test_block_runs(block):
    try:
        exec(compile(block, PAGE.name, "exec"), {})
    except ImportError as error:
        if (error.name or "").startswith("stepwell"):
            raise
        pytest.skip(f"could not import {error.name!r}")


def test_every_package_has_a_block():
    assert len(BLOCKS) == 6
