"""The summaries of benchmarks that the repository keeps: small, made by a rule, and those of their raw results."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def summarize():
    found = importlib.util.spec_from_file_location("summarize", FOLDER / "summarize.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_they_are_small_and_summaries_already(summarize):
    files = sorted((FOLDER / "summaries").rglob("*.json"))
    assert sum(path.stat().st_size for path in files) < 700_000
    for path in files:
        kept = json.loads(path.read_text())
        assert (summarize.study_summary if path.parent.name == "studies" else summarize.summary)(kept) == kept, path


def test_many_numbers_become_their_median_and_ends(summarize):
    seconds = np.random.default_rng(3).standard_normal(40).tolist()
    found = summarize.summary({"machine": {"cores": 2}, "figures": {"seconds": seconds, "shape": [30, 20]}})
    assert found["figures"].pop("shape") == [30, 20]
    spread = found["figures"]["seconds"]
    assert spread.pop("count") == 40
    expected = [np.median(seconds), np.min(seconds), np.max(seconds)]
    # Five digits are kept.
    assert [spread[name] for name in ("median", "least", "largest")] == pytest.approx(expected, rel=5e-5)
    assert found["machine"] == {"cores": 2}


def test_parts_that_were_not_measured_again_stay(summarize, tmp_path, monkeypatch):
    monkeypatch.setattr(summarize, "RAW", tmp_path / "raw")
    monkeypatch.setattr(summarize, "SUMMARIES", tmp_path / "summaries")
    (tmp_path / "raw").mkdir()
    raw = tmp_path / "raw" / "some.json"
    raw.write_text(json.dumps({"first": [1.0, 2.0], "second": 1}))
    summarize.update(raw)
    raw.write_text(json.dumps({"second": 2}))
    assert json.loads(summarize.update(raw).read_text()) == {"first": [1.0, 2.0], "second": 2}
